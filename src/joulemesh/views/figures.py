"""Figures of comparisons, sweeps and tuning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import prefixed
from joulemesh.scenario.varied import Varied
from joulemesh.study.comparison import AXES, Comparison
from joulemesh.study.record import Entry, across
from joulemesh.study.statistics import band, estimate
from joulemesh.study.sweep_result import Figure as Column
from joulemesh.study.sweep_result import Sweep
from joulemesh.study.tuning import Final, Tuned, front
from joulemesh.views.printing import INK, PRINTED, TWO_COLUMNS_IN, width_in
from joulemesh.views.style import styled
from joulemesh.views.sweep import Panel, is_geometric, panel_of, scale_of, words_of
from joulemesh.views.tuning import share_words

DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1)),
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (9, 2)),
    (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)),
    (0, (3, 3)),
    (0, (1, 2.5)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def curve_look(index: int, *, marked: bool = True) -> dict[str, Any]:
    """The options of Matplotlib's ``plot`` for one of several curves."""
    return {
        "color": PRINTED[index % len(PRINTED)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)] if marked else "",
        "markersize": 3.2,
        "linewidth": 1.2,
    }


def legend_columns(names: Sequence[str], inches: float) -> int:
    """How many names stand side by side below the panels, in rows of about the same length."""
    longest = max(map(len, names), default=1)
    most = max(1, min(len(names), int(inches / (0.6 + 0.07 * longest))))
    rows = -(-len(names) // most)
    return max(1, -(-len(names) // max(1, rows)))


_MARKED = 8  # markers on a curve
_BELOW = 15.0  # points below the lowest final accuracy that a paper's panel shows
_NARROWEST_INCH = 1.7  # of panels side by side
_NAMES = {"joules": ("energy of all devices", "J"), "seconds": ("simulated time", "s")}


def comparison_figure(
    study: Comparison, axes: Sequence[str] = AXES, width: str | float | None = None
) -> Figure:
    """Accuracy of the mean model, or another score, against iterations, joules or seconds.

    Args:
        study: what is drawn; methods that did not run are left out.
        axes: one panel for each of these, some of `AXES`.
        width: for the column of a paper (`joulemesh.views.printing.WIDTHS`, or
            inches), where the caption takes the place of the title; None for a screen.

    Returns:
        A figure that belongs to no window and no global state. Lines are means over seeds, bands
        their 95 % intervals, the dotted line is the target.
    """
    unknown = [axis for axis in axes if axis not in AXES]
    if unknown or not axes:
        raise ScenarioError(f"x = {unknown[:1] or 'nothing'}: use some of {', '.join(AXES)}")
    shown = [entry for entry in study.entries if entry.ran]
    inches = (3.6 if len(axes) == 1 else 7.2) if width is None else width_in(width)
    side_by_side = len(axes) * _NARROWEST_INCH <= inches
    rows, columns = (1, len(axes)) if side_by_side else (len(axes), 1)
    keys = legend_columns([entry.name for entry in shown], inches)
    legend = 0.16 * -(-len(shown) // keys)  # its height
    height = 2.9 if width is None else (2.0 if rows == 1 else 1.8) * rows + legend
    with styled(printed=width is not None):
        figure = Figure(figsize=(inches, height), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=True):
            _draw_comparison(panel, study, shown, axis)
        label = _heading(study, short=width is not None)
        for panel in panels if columns == 1 else panels[:1]:
            panel.set_ylabel(label)
        if len(study.entries) > 1:
            figure.legend(
                *panels[0].get_legend_handles_labels(),
                loc="outside lower center",
                ncols=keys,
                frameon=False,
                handlelength=3.0,
            )
        if width is not None:
            panels[0].set_ylim(bottom=_floor(study, shown))
        else:
            title = f"Equal {study.equal}, {study.repeats}"
            figure.suptitle(title, fontsize=9, fontweight="bold")
    return figure


def _heading(study: Comparison, *, short: bool) -> str:
    metric = study.metric
    of = "" if short else " of the mean model"
    return f"test {metric.label}{of}{' [%]' if metric.share else ''}"


def _floor(study: Comparison, shown: Sequence[Entry]) -> float | None:
    """Per cent from which a small panel is drawn, so that it shows in what methods differ."""
    finals = [estimate(entry.scores).mean for entry in shown]
    if not finals or not study.metric.share:
        return None
    lowest, highest = 100 * min(finals), 100 * max(finals)
    floor = lowest - max(_BELOW, 1.5 * (highest - lowest))
    return floor if floor > 0 else None


def _draw_comparison(panel: Axes, study: Comparison, shown: Sequence[Entry], axis: str) -> None:
    scale, label = 1.0, "iteration"
    if axis in _NAMES:
        label, unit = _NAMES[axis]
        top = max((float(across(entry, axis)[-1]) for entry in shown), default=1.0)
        scale, name = prefixed(float(top), unit)
        label = f"{label} [{name}]"
    times = 100 if study.metric.share else 1
    index_of = {entry.name: k for k, entry in enumerate(study.entries)}
    for entry in shown:
        k, x = index_of[entry.name], across(entry, axis) / scale
        look, step = curve_look(k), max(1, -(-len(x) // _MARKED))
        mean, half = band(entry.curves[f"test_{study.score}"])
        low, high = mean - half, mean + half
        if study.metric.share:
            low, high = np.maximum(low, 0), np.minimum(high, 1)
        low, high = times * low, times * high
        panel.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        # Markers of different curves are offset, so that curves on top of each other both show.
        panel.plot(x, times * mean, label=entry.name, markevery=(k % step, step), **look)
    if shown:
        panel.axhline(times * study.target, color="0.4", linewidth=0.8, linestyle=":")
    panel.set_xlabel(label)
    panel.set_xlim(left=0)
    panel.grid(color="0.9", linewidth=0.5)


_WIDTH_IN, _HEIGHT_IN, _ABREAST = 7.2, 2.7, 3
_NARROWEST_IN = 1.7  # of panels side by side in a paper
_MOST_TICKS, _LONG = 8, 8
_APART = 0.5  # of the distance between two words, which methods share


def sweep_figure(study: Sweep, y: str | None = None, width: str | float | None = None) -> Figure:
    """A figure of all methods against every varied field.

    Args:
        study: what is drawn.
        y: one of ``study.figures``; the score unless given.
        width: for the column of a paper (`joulemesh.views.printing.WIDTHS`, or
            inches), where the caption takes the place of the title; None for a screen.

    Returns:
        A figure that belongs to no window and no global state. Lines are means over seeds and over
        the settings of the other fields, bands their 95 % intervals over seeds.
    """
    y = study.score if y is None else y
    panels = [panel_of(study, k, y) for k in range(len(study.varied))]
    screen = _WIDTH_IN / 2 if len(panels) == 1 else _WIDTH_IN
    inches = screen if width is None else width_in(width)
    abreast = max(1, min(len(panels), _ABREAST, int(inches / _NARROWEST_IN)))
    rows = -(-len(panels) // abreast)
    height = _HEIGHT_IN * rows + 0.3 if width is None else 1.9 * rows + 0.3
    with styled(printed=width is not None):
        figure = Figure(figsize=(inches, height), layout="constrained")
        grid = figure.subplots(rows, abreast, sharey=True, squeeze=False)
        for one, axes in zip(panels, grid.ravel(), strict=False):
            _draw_sweep(axes, study, one, y, _scale(panels, study.figures[y])[0])
        for axes in grid.ravel()[len(panels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(_label(panels, study.figures[y], short=width is not None))
        _legend(figure, study, panels, inches)
        if width is None:
            times = "1 seed" if len(study.seeds) == 1 else f"{len(study.seeds)} seeds"
            figure.suptitle(f"Equal {study.equal}, {times}", fontsize=9, fontweight="bold")
    return figure


def _scale(panels: Sequence[Panel], figure: Column) -> tuple[float, str]:
    if figure.share:
        return 0.01, "%"
    tops = [np.nanmax(line.mean + line.half) for panel in panels for line in panel.lines]
    return prefixed(float(max(tops, default=1.0)), figure.unit) if figure.unit else (1.0, "")


def _label(panels: Sequence[Panel], figure: Column, *, short: bool) -> str:
    _, unit = _scale(panels, figure)
    words = figure.short if short else figure.words
    return literal(f"{words} [{unit}]" if unit else words)


def _legend(figure: Figure, study: Sweep, panels: Sequence[Panel], inches: float) -> None:
    """Every method of the sweep; one without any line is named as such."""
    drawn = {line.index for panel in panels for line in panel.lines}
    if not drawn:
        return
    names = [f"{name}{_lacking(study, name)}" for name in study.methods]
    figure.legend(
        [
            Line2D([], [], **(curve_look(k) if k in drawn else {"linestyle": "none"}))
            for k in range(len(names))
        ],
        [literal(name) for name in names],
        loc="outside lower center",
        ncols=legend_columns(names, inches),
        frameon=False,
        handlelength=3.0,
    )


def _lacking(study: Sweep, method: str) -> str:
    """In how many combinations a method has no figures, and what became of it there."""
    rows = [row for point in study.points for row in point.methods if row["method"] == method]
    lost = [str(row["status"]) for row in rows if row.get("iterations") is None]
    if not lost:
        return ""
    why = lost[0] if len(set(lost)) == 1 else "did not run"
    return f" ({why})" if len(lost) == len(rows) else f" ({why} in {len(lost)} of {len(rows)})"


def _draw_sweep(axes: Axes, study: Sweep, panel: Panel, y: str, scale: float) -> None:
    field, figure = study.varied[panel.field], study.figures[y]
    at, order = _ticked(axes, field)
    for k, line in enumerate(panel.lines):
        mean, half = line.mean[order] / scale, line.half[order] / scale
        low, high = mean - half, mean + half
        if figure.share:
            low, high = np.maximum(low, 0), np.minimum(high, 100)
        look = curve_look(line.index)
        if field.numeric:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
            axes.plot(at, mean, **look)
        else:
            aside = _APART * ((k + 0.5) / len(panel.lines) - 0.5)
            ends = np.array([mean - low, high - mean])
            axes.errorbar(at + aside, mean, ends, capsize=2, **{**look, "linestyle": "none"})
    axes.set_title(literal(panel.note), fontsize=7, color="0.35")
    axes.grid(color="0.9", linewidth=0.5)


def _ticked(axes: Axes, field: Varied) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Where values stand on the horizontal axis, ascending, and in which order; ticks are set."""
    if not field.numeric:
        at = np.arange(len(field.values), dtype=np.float64)
        texts = [words_of(field, k) for k in range(len(field.values))]
        turned = 20 if max(map(len, texts)) > _LONG else 0
        axes.set_xticks(at, [literal(text) for text in texts], rotation=turned)
        axes.set_xlim(-0.6, len(at) - 0.4)
        axes.set_xlabel(literal(field.words))
        return at, list(range(len(at)))
    order = np.argsort(np.asarray(field.values, np.float64), kind="stable").tolist()
    at = np.asarray(field.values, np.float64)[order]
    scale, label = scale_of(field)
    at = at / scale
    if is_geometric(list(at)):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    if len(at) <= _MOST_TICKS:
        axes.set_xticks(at, [f"{v:.4g}" for v in at])
    axes.set_xlabel(literal(label))
    return at, order


def literal(text: str) -> str:
    """A text in which Matplotlib finds no formula."""
    return text.replace("$", r"\$")


_AXES = (("energy_j", "energy of all devices", "J"), ("time_s", "simulated time", "s"))


def tuning_figure(found: Tuned, width: str | float | None = None) -> Figure:
    """Accuracy of every candidate against its joules and its seconds."""
    inches = 7.2 if width is None else width_in(width)
    rows, columns = (2, 1) if inches < TWO_COLUMNS_IN else (1, 2)
    keys = max(1, int(inches / 1.5))
    height = 2.1 * rows + 0.16 * -(-(len(found.rungs) + 3) // keys)
    with styled(printed=width is not None):
        figure = Figure(figsize=(inches, height), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for panel, (name, label, unit) in zip(panels, _AXES, strict=True):
            _draw_tuning(panel, found, name, label, unit)
        for panel in panels[:: 1 if columns == 1 else 2]:
            panel.set_ylabel("test accuracy [%]")
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=keys,
            frameon=False,
        )
        if width is None:
            figure.suptitle(f"Tuning: {found.objective.words}", fontsize=9, fontweight="bold")
    return figure


def _draw_tuning(panel: Axes, found: Tuned, name: str, label: str, unit: str) -> None:
    judged = [one for rung in found.rungs for one in rung.rows if math.isfinite(one.accuracy)]
    ends = [one for one in (found.winner, found.given) if one is not None]
    costs = [float(getattr(one, name)) for one in (*judged, *ends)]
    scale, short = prefixed(max(costs), unit)
    for k, rung in enumerate(found.rungs):
        mine = [one for one in rung.rows if math.isfinite(one.accuracy)]
        look = {**curve_look(k), "linestyle": "none", "label": f"{share_words(rung)} of the budget"}
        panel.plot(
            [getattr(one, name) / scale for one in mine], [100 * one.accuracy for one in mine],
            **look, alpha=0.8,
        )  # fmt: skip
    best = front([getattr(one, name) for one in judged], [one.accuracy for one in judged])
    panel.plot(
        [getattr(judged[k], name) / scale for k in best], [100 * judged[k].accuracy for k in best],
        color=INK, linewidth=0.8, linestyle=(0, (2, 1.5)), label="beaten by none",
    )  # fmt: skip
    if found.given is not None and found.given is not found.winner:
        _end(panel, found.given, getattr(found.given, name) / scale, "as given", "X")
    _end(panel, found.winner, getattr(found.winner, name) / scale, "winner", "*")
    panel.set_xlabel(f"{label} [{short}]")
    panel.set_xlim(left=0)
    panel.grid(color="0.9", linewidth=0.5)


def _end(panel: Axes, one: Final, cost: float, label: str, marker: str) -> None:
    value = estimate(one.accuracy)
    half = 0.0 if math.isnan(value.half) else 100 * value.half
    panel.errorbar(
        cost, 100 * value.mean, half, color=INK, marker=marker, markersize=8.0, linestyle="none",
        markerfacecolor="white", markeredgewidth=0.8, elinewidth=0.8, capsize=2.0, label=label,
        zorder=5,
    )  # fmt: skip
