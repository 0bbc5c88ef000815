"""Figures of the reproduction: panels of curves with bands, in the paper's layout, for print."""

from __future__ import annotations

__all__ = ["draw_picture"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from joulemesh.views.figures import curve_look
from joulemesh.views.printing import width_in
from joulemesh.views.style import styled
from yan_li_2024.outcome import Panel, Picture, Series

_STYLE = {"axes.titlesize": 8.0, "axes.spines.top": False, "axes.spines.right": False}
_WIDE_INCH = 7.4
_NARROWEST_INCH = 1.7  # of panels side by side in a paper
_MARKED = 10  # markers on a curve
_APART = 0.011  # of the axis, between points that would hide each other
_ROUND = (1, 2, 4, 5, 10)  # ticks are multiples of these


def draw_picture(picture: Picture, width: str | float | None = None) -> Figure:
    """Draw the panels of a figure.

    Args:
        picture: what to draw; equal labels have equal colours in all panels.
        width: for a paper (`joulemesh.views.printing.WIDTHS`, or inches), with as many
            panels in a row as fit; None for a page on a screen.

    Returns:
        A figure belonging to no window and no global state; of two journal columns' width unless
        another is given.

    >>> one = Series("a", np.arange(3.0), np.arange(3.0), np.zeros(3), np.ones(3))
    >>> panels = (Panel("(a)  one", "iteration", "accuracy", (one,)),) * 2
    >>> len(draw_picture(Picture("fig0", "Nothing", panels, 2)).axes)
    2
    """
    inches = _WIDE_INCH if width is None else width_in(width)
    most = picture.columns if width is None else max(1, int(inches / _NARROWEST_INCH))
    columns = min(picture.columns, most)
    rows = -(-len(picture.panels) // columns)
    height = {1: 3.6, 2: 2.6}.get(columns, 2.15)
    # Four panels side by side leave room for small titles only.
    style = _STYLE | ({"axes.titlesize": 7.0, "axes.labelsize": 7.5} if columns > 3 else {})
    with styled(style, printed=width is not None):
        layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.03, hspace=0.04)
        figure = Figure(figsize=(inches, 0.75 + height * rows), layout=layout)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=picture.share)
        families = _families(picture.panels)
        for index, axes in enumerate(grid.flat):
            if index < len(picture.panels):
                panel = picture.panels[index]
                _draw_panel(axes, panel, _family(panel, families))
                if index % columns and _same_label(picture, index):
                    axes.set_ylabel("")
            else:
                axes.set_axis_off()
        _draw_legends(figure, picture, families, inches)
        if width is None:
            bands = f"  ({picture.bands})" if picture.bands else ""
            figure.suptitle(f"{picture.title}{bands}", fontsize=9.0, fontweight="bold")
    return figure


def _families(panels: Sequence[Panel]) -> list[list[str]]:
    """Labels of panels that have some in common; each family begins the colours anew."""
    families: list[dict[str, None]] = []
    for panel in panels:
        mine = dict.fromkeys(series.label for series in panel.series)
        for family in [family for family in families if family.keys() & mine.keys()]:
            families.remove(family)
            mine = family | mine
        families.append(mine)
    return [list(family) for family in families]


def _family(panel: Panel, families: Sequence[list[str]]) -> list[str]:
    return next(family for family in families if panel.series[0].label in family)


def _draw_legends(
    figure: Figure, picture: Picture, families: Sequence[list[str]], inches: float
) -> None:
    """One legend for what several panels show; a panel of its own kind has its own."""
    common: list[Line2D] = []
    for family in families:
        homes = [k for k, panel in enumerate(picture.panels) if _family(panel, families) == family]
        plain = all(picture.panels[k].steps for k in homes)
        handles = [Line2D([], [], label=one, **_look(one, family, plain=plain)) for one in family]
        if len(homes) == 1 and len(families) > 1:
            figure.axes[homes[0]].legend(
                handles=handles,
                loc="upper center",
                bbox_to_anchor=(0.5, -0.18),
                ncols=_columns(family),
                frameon=False,
                handlelength=2.8,
            )
        else:
            common += handles
    if common:
        longest = max(len(str(handle.get_label())) for handle in common)
        fits = 6 if longest < 14 else 4 if longest < 20 else 3
        figure.legend(
            handles=common,
            loc="outside lower center",
            ncols=min(len(common), max(1, round(fits * inches / _WIDE_INCH))),
            frameon=False,
            handlelength=3.2,
        )


def _columns(labels: Sequence[str]) -> int:
    """Two columns below a panel, if its labels are short enough for that."""
    middle = -(-len(labels) // 2)
    wide = sum(max(map(len, part), default=0) for part in (labels[:middle], labels[middle:]))
    return 2 if wide < 45 else 1


def _same_label(picture: Picture, index: int) -> bool:
    """Is the axis to the left labelled alike, so that once is enough?"""
    return picture.panels[index].y_label == picture.panels[index - 1].y_label


def _look(label: str, family: Sequence[str], *, plain: bool = False) -> dict[str, Any]:
    return curve_look(family.index(label), marked=not plain)


def _draw_panel(axes: Axes, panel: Panel, family: Sequence[str]) -> None:
    for series in panel.series:
        (_draw_points if panel.marks else _draw_curve)(axes, series, panel, family)
    if panel.level is not None:
        axes.axhline(panel.level, color="0.45", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        where = ("axes fraction", "data")
        axes.annotate(
            f"target {panel.level:g}",
            (0.01, panel.level),
            (0, 2),
            xycoords=where,
            textcoords="offset points",
            color="0.35",
            fontsize=6.5,
        )
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=_ROUND))
    if panel.marks:
        axes.set_xticks(sorted({float(x) for series in panel.series for x in series.x}))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=_ROUND))
    axes.grid(True, color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _edges(series: Series, panel: Panel) -> tuple[Any, Any]:
    low, high = (np.clip(edge, *panel.within) for edge in (series.low, series.high))
    return low, high


def _draw_curve(axes: Axes, series: Series, panel: Panel, family: Sequence[str]) -> None:
    look = _look(series.label, family, plain=panel.steps)
    step = max(1, -(-len(series.x) // _MARKED))
    # Markers of different curves are offset, so that equal curves both show.
    first = family.index(series.label) % step
    drawn = "steps-mid" if panel.steps else "default"
    axes.plot(series.x, series.mean, markevery=(first, step), drawstyle=drawn, **look)
    if np.isfinite(series.low).any():
        low, high = _edges(series, panel)
        axes.fill_between(series.x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _draw_points(axes: Axes, series: Series, panel: Panel, family: Sequence[str]) -> None:
    """Points with error bars, moved sideways a little: those of other curves stay in sight."""
    look = _look(series.label, family)
    every = np.concatenate([one.x for one in panel.series])
    aside = family.index(series.label) - (len(panel.series) - 1) / 2
    x = series.x + aside * _APART * float(np.ptp(every))
    axes.plot(x, series.mean, **look)
    if np.isfinite(series.low).any():
        low, high = _edges(series, panel)
        reach = np.maximum([series.mean - low, high - series.mean], 0)
        axes.errorbar(x, series.mean, reach, fmt="none", ecolor=look["color"], elinewidth=0.8,
                      capsize=1.8)  # fmt: skip
