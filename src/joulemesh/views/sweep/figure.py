"""A sweep as a figure for print: one panel for each varied field, with error bands."""

from __future__ import annotations

__all__ = ["literal", "sweep_figure"]

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator

from joulemesh.results.sweep import Sweep
from joulemesh.scenario.varied import Varied
from joulemesh.units import prefixed, unit_of
from joulemesh.views.palette import CURVES
from joulemesh.views.style import styled
from joulemesh.views.sweep.marginal import Line, Panel, is_geometric, panel_of, words_of

# Dashes and markers tell methods apart in grey.
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
_MARKERS = "osD^vP*X"
_WIDTH_IN, _HEIGHT_IN, _ABREAST = 7.2, 2.7, 3
_MOST_TICKS, _LONG = 8, 8
_APART = 0.5  # of the distance between two words, which methods share


def sweep_figure(study: Sweep, y: str = "accuracy") -> Figure:
    """A figure of all methods against every varied field.

    Args:
        study: what is drawn.
        y: one of ``study.figures``.

    Returns:
        A figure that belongs to no window and no global state. Lines are means over seeds and over
        the settings of the other fields, bands their 95 % intervals over seeds.
    """
    panels = [panel_of(study, k, y) for k in range(len(study.varied))]
    abreast = min(len(panels), _ABREAST)
    rows = -(-len(panels) // abreast)
    with styled():
        width = _WIDTH_IN / 2 if len(panels) == 1 else _WIDTH_IN
        figure = Figure(figsize=(width, _HEIGHT_IN * rows + 0.3), layout="constrained")
        grid = figure.subplots(rows, abreast, sharey=True, squeeze=False).ravel()
        for one, axes in zip(panels, grid, strict=False):
            _draw(axes, study, one, y)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        _legend(figure, panels, 4 if abreast > 1 else 2)
        times = "1 seed" if len(study.seeds) == 1 else f"{len(study.seeds)} seeds"
        figure.suptitle(f"Equal {study.equal}, {times}", fontsize=9, fontweight="bold")
    return figure


def _dashes(line: Line) -> Any:
    return _DASHES[line.place % len(_DASHES)]


def _style(line: Line) -> dict[str, Any]:
    k = line.place
    return {
        "color": CURVES[k % len(CURVES)],
        "marker": _MARKERS[k % len(_MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.3,
    }


def _legend(figure: Figure, panels: list[Panel], columns: int) -> None:
    from matplotlib.lines import Line2D

    known = {line.place: line for panel in panels for line in panel.lines}
    marks = [
        Line2D([], [], linestyle=_DASHES[k % len(_DASHES)], **_style(known[k]))
        for k in sorted(known)
    ]
    if marks:
        names = [literal(known[k].method) for k in sorted(known)]
        figure.legend(
            marks,
            names,
            loc="outside lower center",
            ncols=min(len(marks), columns),
            frameon=False,
        )


def _draw(axes: Axes, study: Sweep, panel: Panel, y: str) -> None:
    field, figure = study.varied[panel.field], study.figures[y]
    top = max((float(np.nanmax(line.mean + line.half)) for line in panel.lines), default=1.0)
    scale, unit = (0.01, "%") if figure.share else (1.0, "")
    if figure.unit:
        scale, unit = prefixed(top, figure.unit)
    at, order = _places(axes, field)
    for place, line in enumerate(panel.lines):
        mean, half = line.mean[order] / scale, line.half[order] / scale
        low, high = mean - half, mean + half
        if figure.share:
            low, high = np.maximum(low, 0), np.minimum(high, 100)
        if field.numeric:
            axes.fill_between(at, low, high, color=_style(line)["color"], alpha=0.15, linewidth=0)
            axes.plot(at, mean, linestyle=_dashes(line), **_style(line))
        else:
            aside = _APART * ((place + 0.5) / len(panel.lines) - 0.5)
            ends = np.array([mean - low, high - mean])
            axes.errorbar(at + aside, mean, ends, linestyle="none", capsize=2, **_style(line))
    if axes.get_subplotspec() is not None and axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        axes.set_ylabel(literal(f"{figure.words} [{unit}]" if unit else figure.words))
    axes.set_title(literal(panel.note), fontsize=7, color="0.35")
    axes.grid(color="0.9", linewidth=0.5)


def _places(axes: Axes, field: Varied) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Where values stand on the horizontal axis, ascending, and in which order; ticks are set."""
    if not field.numeric:
        at = np.arange(len(field.values), dtype=np.float64)
        texts = [words_of(field, k) for k in range(len(field.values))]
        turned = 20 if max(map(len, texts)) > _LONG else 0
        axes.set_xticks(at, [literal(text) for text in texts], rotation=turned)
        axes.set_xlim(-0.6, len(at) - 0.4)
        axes.set_xlabel(literal(field.name))
        return at, list(range(len(at)))
    order = np.argsort(np.asarray(field.values, np.float64), kind="stable").tolist()
    at = np.asarray(field.values, np.float64)[order]
    unit, scale = unit_of(field.name), 1.0
    if unit in ("dB", "dBm/Hz"):
        label = f"{field.name} [{unit}]"
    elif unit is not None:
        scale, name = prefixed(float(at[-1]), unit)
        label = f"{field.name} [{name}]"
    else:
        label = field.name
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
