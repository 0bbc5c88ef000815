"""Figures of the reproduction: panels of curves with bands, in the paper's layout, for print."""

from __future__ import annotations

__all__ = ["draw_picture"]

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from joulemesh.studies.reproduce.outcome import Panel, Picture, Series

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "svg.hashsalt": "joulemesh",  # the same figure gives the same bytes
}
# Okabe and Ito's colours, told apart by colour-blind readers too; dashes and markers tell the
# curves apart in print without colours, and where there are more curves than colours.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A8A8A")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1.2, 1.2, 1.2)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_WIDE_INCH = 7.4
_MARKED = 10  # markers on a curve


def draw_picture(picture: Picture) -> Figure:
    """Draw the panels of a figure.

    Args:
        picture: what to draw; equal labels have equal colours in all panels.

    Returns:
        A figure of two journal columns' width, belonging to no window and no global state.

    >>> one = Series("a", np.arange(3.0), np.arange(3.0), np.zeros(3), np.ones(3))
    >>> panels = (Panel("(a)  one", "iteration", "accuracy", (one,)),) * 2
    >>> len(draw_picture(Picture("fig0", "Nothing", panels, 2)).axes)
    2
    """
    labels = list(dict.fromkeys(s.label for panel in picture.panels for s in panel.series))
    columns = picture.columns
    rows = -(-len(picture.panels) // columns)
    height = {1: 3.6, 2: 2.6}.get(columns, 2.15)
    # Four panels side by side leave room for small titles only.
    style = _STYLE | ({"axes.titlesize": 7.0, "axes.labelsize": 7.5} if columns > 3 else {})
    with mpl.rc_context(style):
        layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.03, hspace=0.04)
        figure = Figure(figsize=(_WIDE_INCH, 0.75 + height * rows), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place < len(picture.panels):
                _draw_panel(axes, picture.panels[place], labels)
                if place % columns and _same_label(picture, place):
                    axes.set_ylabel("")
            else:
                axes.set_axis_off()
        handles = [Line2D([], [], label=label, **_look(label, labels)) for label in labels]
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(len(labels), 6 if max(map(len, labels)) < 20 else 3),
            frameon=False,
        )
        title = f"{picture.title}  ({picture.bands})"
        figure.suptitle(title, fontsize=9.0, fontweight="bold")
    return figure


def _same_label(picture: Picture, place: int) -> bool:
    """Is the axis to the left labelled alike, so that once is enough?"""
    return picture.panels[place].y_label == picture.panels[place - 1].y_label


def _look(label: str, labels: list[str]) -> dict[str, Any]:
    place = labels.index(label)
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "linestyle": _DASHES[place % len(_DASHES)],
        "marker": _MARKERS[place % len(_MARKERS)],
        "markersize": 3.2,
        "linewidth": 1.2,
    }


def _draw_panel(axes: Axes, panel: Panel, labels: list[str]) -> None:
    for series in panel.series:
        _draw_series(axes, series, labels, panel)
    if panel.level is not None:
        axes.axhline(panel.level, color="0.45", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    if panel.marks:
        axes.set_xticks(sorted({float(x) for series in panel.series for x in series.x}))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(True, color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _draw_series(axes: Axes, series: Series, labels: list[str], panel: Panel) -> None:
    look = _look(series.label, labels)
    step = 1 if panel.marks else max(1, -(-len(series.x) // _MARKED))
    # Markers of different curves are offset, so that equal curves both show.
    first = labels.index(series.label) % step
    axes.plot(series.x, series.mean, markevery=(first, step), **look)
    if np.isfinite(series.low).any():
        low, high = (np.clip(edge, *panel.within) for edge in (series.low, series.high))
        axes.fill_between(series.x, low, high, color=look["color"], alpha=0.18, linewidth=0)
