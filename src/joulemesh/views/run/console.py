"""A run's outcome for a terminal."""

from __future__ import annotations

__all__ = [
    "metric_text",
    "metric_tiles",
    "metric_words",
    "show_result",
    "show_worlds",
    "target_tile",
    "target_words",
]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import duration, energy
from joulemesh.metrics import Metric, Reported, further_of, reported, score_metric
from joulemesh.models.curves import Curve
from joulemesh.planning.plan import Plan
from joulemesh.study.result import Result
from joulemesh.study.result_worlds import WorldsResult
from joulemesh.views.plan.console import show_figures
from joulemesh.views.tables import figure_text, open_text, own_heading, target_text
from joulemesh.views.terminal import Column, picture, show_row, show_table
from joulemesh.views.words import percent

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace


def target_words(found: Mapping[str, Any], seeds: int) -> str:
    """One sentence's worth.

    Args:
        found: what `study.target.to_target` gives.
        seeds: how many there are.

    >>> found = {"target_words": "test accuracy 0.9", "reached": 1, "energy_to_target_j": None}
    >>> target_words(found | {"time_to_target_s": None}, 3)
    'test accuracy 0.9: 1 of 3 seeds'
    """
    joules, seconds = _texts(found, seeds)
    if found["energy_to_target_j"] is None:
        return f"{found['target_words']}: {joules}"
    unsure = open_text([found])
    given = f", {unsure}" if unsure else ""
    return f"{found['target_words']} after {joules} and {seconds}{given}"


def target_tile(found: Mapping[str, Any], seeds: int) -> tuple[str, str, str]:
    """A tile of a report: its name, the figure, and a note.

    >>> found = {"target": 0.9, "reached": 0, "energy_to_target_j": None, "time_to_target_s": None}
    >>> target_tile(found | {"target_metric": "accuracy"}, 3)
    ('energy to 90.0 % accuracy', 'not reached', '')
    >>> found |= {"reached": 3, "energy_to_target_j": 48.4, "energy_to_target_j_ci95": 13.1}
    >>> found |= {"energy_to_target_j_error": 2.31, "target_metric": "accuracy"}
    >>> found |= {"time_to_target_s": 0.5, "time_to_target_s_ci95": 0.2}
    >>> for words in target_tile(found | {"time_to_target_s_error": 0.07}, 3)[1:]:
    ...     print(words)
    48.4 ± 13.1 J
    time 500 ± 200 ms; interpolated between evaluations, to within 2.31 J and 70 ms
    """
    joules, seconds = _texts(found, seeds)
    note = "" if found["time_to_target_s"] is None else f"time {seconds}"
    unsure = open_text([found])
    note += f"; {unsure}" if unsure else ""
    metric = score_metric(found["target_metric"])
    return f"energy to {metric.text(found['target'])} {metric.label}", joules, note


def _texts(found: Mapping[str, Any], seeds: int) -> tuple[str, str]:
    row = {**found, "seeds": seeds}
    units = (("energy_to_target_j", "J"), ("time_to_target_s", "s"))
    joules, seconds = (target_text(row, name, unit) for name, unit in units)
    return joules, seconds


def metric_text(figure: float, of: Metric | Curve) -> str:
    """A figure of a metric: a share in per cent, anything else with four digits.

    >>> from joulemesh.metrics import ACCURACY, LOSS
    >>> metric_text(0.9512, ACCURACY), metric_text(0.123456, LOSS)
    ('95.1 %', '0.1235')
    """
    return percent(figure) if of.share else f"{figure:.4g}"


def _weakest(last: Trace, metric: Metric) -> float | None:
    """The worst figure among devices and seeds; None where devices are not measured."""
    if not metric.devices:
        return None
    ends = last.own[f"device_{metric.name}_{metric.weakest}"]
    return float(ends.min() if metric.weakest == "min" else ends.max())


def metric_tiles(last: Trace, measured: Reported) -> tuple[tuple[str, str, str], ...]:
    """Of each further metric: what it is called, its final figure, and a note on devices."""
    tiles = []
    for metric in further_of(*measured):
        weakest = _weakest(last, metric)
        note = "mean model" if weakest is None else f"weakest device {metric_text(weakest, metric)}"
        figure = float(last.own[f"test_{metric.name}"].mean())
        tiles.append((f"test {metric.label}", metric_text(figure, metric), note))
    return tuple(tiles)


def metric_words(last: Trace, measured: Reported) -> dict[str, str]:
    """Of each further metric, by name, its final figures in words."""
    return {
        name: f"{figure}; {note}"
        for (_, figure, note), name in zip(
            metric_tiles(last, measured), (m.name for m in further_of(*measured)), strict=True
        )
    }


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
    for note in found["notes"]:
        show_row("note", note, console)


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
