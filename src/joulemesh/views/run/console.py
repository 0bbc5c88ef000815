"""A run's outcome for a terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import Metric
from joulemesh.planning.plan import Plan
from joulemesh.results.result import Result
from joulemesh.results.result_worlds import WorldsResult
from joulemesh.units import duration, energy
from joulemesh.views.comparison.table import figure_text, own_heading
from joulemesh.views.plan.console import show_figures
from joulemesh.views.run.metrics import metric_words
from joulemesh.views.run.target import target_words
from joulemesh.views.terminal import Column, picture, show_row, show_table

__all__ = ["show_result", "show_worlds"]


def show_result(result: Result, console: Console) -> None:
    """Print a run's outcome: final figures, and the score over time as a small picture."""
    figures, metric = result.summary(), result.metric
    curve = result.trace.test_score.mean(axis=1)
    spread, name = result.final.test_score[-1], metric.name
    weakest = figures[f"device_{name}_{metric.weakest}"]
    seeds = f"seeds {spread.min():.3f} to {spread.max():.3f}; " if len(spread) > 1 else ""
    on = f"({seeds}{metric.samples_text(figures[name], figures['test_samples'])})"
    held_j = float(result.account.supplied_j.sum())
    rows = {
        metric.label: f"{figures[name]:.4f} {on}; of the devices' own models "
        f"{figures[f'device_{name}']:.4f}, the weakest {weakest:.4f}",
        **({} if name == "loss" else {"loss": f"{figures['loss']:.4f}"}),
        **metric_words(result.final, reported(result.account.scenario.training)),
        "energy": f"{energy(figures['energy_j'])} of {energy(held_j)}",
        "time": f"{duration(figures['time_s'])} on the modelled clock of the devices",
        "target": target_words(figures, len(result.seeds)),
        "work": f"{figures['device_steps']:,} device-steps, trained in "
        f"{duration(figures['wall_s'])} ({figures['device_steps_per_s']:,.0f} per second once "
        f"compiled) on this machine; the whole run in {duration(figures['whole_s'])}",
        "progress": f"{picture(curve, console)} {metric.label}, iterations {result.iteration[0]}.."
        f"{result.iteration[-1]}",
    }
    if not isinstance(result.account, Plan):
        rows = {"method": f"{result.method}, equal {figures['equal']}", **rows}
    for name, text in rows.items():
        show_row(name, text, console)
    show_figures(result.account, console)
    for note in result.notes:
        show_row("note", note, console)
    if isinstance(result.account, Plan) and not result.chance:  # which is the first note
        show_row("answer", result.answer, console)


def show_worlds(result: WorldsResult, console: Console) -> None:
    """Print what came of several worlds: one row each, and the mean with its interval."""
    found = result.summary()
    scores = (result.metric.heading, own_heading(result.metric))
    names = ("seed", *scores, "energy", "time", "iterations")
    columns = [Column("world", figures=False), *(Column(name) for name in names)]
    rows = [
        [str(row["world"]), str(row["seed"]), *_cells(row, result.metric)] for row in found["each"]
    ]
    if found["worlds_run"]:
        rows.append(["mean", "", *_cells(found, result.metric)])
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    seeds = f"{found['seeds']} seed{'s' if found['seeds'] != 1 else ''}"
    ran = found["worlds_run"]
    if ran > 1:
        text = f"means of {ran} worlds of {seeds} each ± 95 % interval over worlds (Student's t)"
    else:
        text = "fewer than two worlds ran, so there are no intervals"
    console.print(Text(f"{text}; {found['redrawn']}"))
    if found["missing"]:
        show_row("missing", found["missing"], console)


def _cells(row: dict[str, Any], metric: Metric) -> list[str]:
    if row[metric.name] is None:
        return [row.get("status", "–"), *["–"] * 4]

    def cell(name: str, unit: str = "") -> str:
        return figure_text(row[name], row.get(f"{name}_ci95"), unit, share=metric.share)

    return [
        cell(metric.name),
        cell(f"device_{metric.name}"),
        cell("energy_j", "J"),
        cell("time_s", "s"),
        f"{row['iterations']:,.0f}",
    ]
