"""A run's outcome for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from joulemesh.runs.result import Result
from joulemesh.units import duration, energy
from joulemesh.views.console import show_figures, show_row, sparkline

__all__ = ["show_result"]


def show_result(result: Result, console: Console) -> None:
    """Print a run's outcome: final figures, and accuracy over time as a small picture."""
    figures = result.summary()
    curve = result.trace.test_accuracy.mean(axis=1)
    spread = result.final.test_accuracy[-1]
    seeds = f" (seeds {spread.min():.3f} to {spread.max():.3f})" if len(spread) > 1 else ""
    held_j = float(result.plan.energy_budget_j.sum())
    rows = {
        "accuracy": f"{figures['accuracy']:.4f}{seeds}; of the devices' own models "
        f"{figures['device_accuracy']:.4f}, the weakest {figures['device_accuracy_min']:.4f}",
        "loss": f"{figures['loss']:.4f}",
        "energy": f"{energy(figures['energy_j'], beside=held_j)} of {energy(held_j)}",
        "time": f"{duration(figures['time_s'])} on the modelled clock",
        "work": f"{figures['device_steps']:,} device-steps in {duration(figures['wall_s'])} "
        f"({figures['device_steps_per_s']:,.0f} per second once compiled)",
        "progress": f"{sparkline(curve)} accuracy, iterations {result.iteration[0]}.."
        f"{result.iteration[-1]}",
    }
    for name, text in rows.items():
        console.print(Text.assemble((f"{name:<12}", "bold"), text))
    show_figures(result.plan, console)
    for note in result.notes:
        show_row("note", note, console)
