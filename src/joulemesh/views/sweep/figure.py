"""A sweep as a figure for print: one panel for each varied field, with error bands."""

from __future__ import annotations

__all__ = ["literal", "sweep_figure"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from joulemesh.results.sweep import Figure as Column
from joulemesh.results.sweep import Sweep
from joulemesh.scenario.varied import Varied
from joulemesh.units import prefixed
from joulemesh.views.publication.curves import curve_look, legend_columns
from joulemesh.views.publication.printing import width_in
from joulemesh.views.style import styled
from joulemesh.views.sweep.marginal import Panel, is_geometric, panel_of, scale_of, words_of

_WIDTH_IN, _HEIGHT_IN, _ABREAST = 7.2, 2.7, 3
_NARROWEST_IN = 1.7  # of panels side by side in a paper
_MOST_TICKS, _LONG = 8, 8
_APART = 0.5  # of the distance between two words, which methods share


def sweep_figure(study: Sweep, y: str | None = None, width: str | float | None = None) -> Figure:
    """A figure of all methods against every varied field.

    Args:
        study: what is drawn.
        y: one of ``study.figures``; the score unless given.
        width: for the column of a paper (`joulemesh.views.publication.printing.WIDTHS`, or
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
            _draw(axes, study, one, y, _scale(panels, study.figures[y])[0])
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
    """By what figures are divided, and the unit that they then have."""
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


def _draw(axes: Axes, study: Sweep, panel: Panel, y: str, scale: float) -> None:
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
    r"""A text in which Matplotlib finds no formula.

    >>> literal("a$b$")
    'a\\$b\\$'
    """
    return text.replace("$", r"\$")
