"""A plan as one figure for print: the map with its route, the rounds, the batteries."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter
from PIL import Image

from joulemesh.planning.plan import Plan
from joulemesh.units import duration, energy
from joulemesh.views.palette import BINDING, BINDING_PRINTED, HUB, INK, SKIPPED
from joulemesh.views.plan.digest import (
    BINDING_KINDS,
    BINDING_WORDS,
    departed,
    device_labels,
    rounds_grid,
    route_words,
)
from joulemesh.views.plan.energy import draw_energy
from joulemesh.views.plan.map import draw_map
from joulemesh.views.publication.printing import TWO_COLUMNS_IN, width_in
from joulemesh.views.style import styled

__all__ = ["map_image", "plan_figure"]

_STYLE = {"axes.titlesize": 8.5, "legend.fontsize": 7.0}
_MOST_ROWS, _MOST_COLUMNS = 400, 1000
_NAMED_ROWS = 24  # rows that a name fits beside
_ABSENT = "0.82"


def plan_figure(plan: Plan, width: str | float | None = None) -> Figure:
    """Draw a plan: (a) devices, links and route, (b) rounds, (c) energy against batteries.

    Args:
        plan: the plan.
        width: for a paper (`joulemesh.views.publication.printing.WIDTHS`, or inches), where the
            caption takes the place of the title; a single column has the panels below each other.
            None for a screen.

    Returns:
        A figure belonging to no window and no global state; of two journal columns' width unless
        another is given.

    >>> import joulemesh
    >>> figure = plan_figure(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    >>> [axes.get_title(loc="left").split()[0] for axes in figure.axes[:3]]
    ['(a)', '(b)', '(c)']
    """
    inches = 7.2 if width is None else width_in(width)
    column = inches < TWO_COLUMNS_IN
    with styled(_STYLE, printed=width is not None):
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05, wspace=0.03, hspace=0.03)
        if column:
            figure = Figure(figsize=(inches, 2.5 * inches), layout=layout)
            axes = figure.subplot_mosaic(
                [["map"], ["rounds"], ["energy"]], height_ratios=[1.25, 1.25, 1.0]
            )
        else:
            figure = Figure(figsize=(inches, 6.4 / 7.2 * inches), layout=layout)
            axes = figure.subplot_mosaic(
                [["map", "rounds"], ["energy", "energy"]], height_ratios=[1.25, 1.0]
            )
        binding = BINDING if width is None else BINDING_PRINTED
        _draw_links(figure, axes["map"], plan, binding)
        _draw_rounds(figure, axes["rounds"], plan)
        draw_energy(axes["energy"], plan, binding, narrow=column)
        columns = 2 if column else 6 if width is None else 4
        keys = _legend(plan, binding)
        figure.legend(handles=keys, loc="outside lower center", ncols=columns, frameon=False)
        if width is None:
            figure.suptitle(_title(plan), fontsize=9.5, fontweight="bold")
    return figure


def _draw_links(figure: Figure, axes: Axes, plan: Plan, binding: Mapping[str, str]) -> None:
    links = draw_map(axes, plan, binding)
    bar = figure.colorbar(links.mappable, ax=axes, shrink=0.85, pad=0.02, aspect=28)
    if isinstance(links.mappable.norm, LogNorm):
        bar.locator, bar.formatter = LogLocator(subs=(1, 2, 5)), StrMethodFormatter("{x:g}")
        bar.minorticks_off()
        bar.update_ticks()
    bar.set_label(f"link energy, one model each way [{links.unit}]")
    bar.outline.set_linewidth(0.5)
    every = len(plan.world.graph.edges)
    some = "Links" if links.drawn == every else f"{links.drawn / every:.0%} of the links"
    axes.set_title(f"(a)  {some} and the {route_words(plan)}", loc="left")


def _title(plan: Plan) -> str:
    count = len(plan.energy_budget_j)
    budget, spent = plan.supplied_j.sum(), plan.spent_j.sum()
    return (
        f"{plan.scheme.capitalize()}, {count:,} devices, n = {plan.iterations:,} iterations: "
        f"{energy(spent)} of {energy(budget)} in {duration(plan.time_s)}"
    )


def _legend(plan: Plan, binding: Mapping[str, str]) -> list[Patch | Line2D]:
    """Keys of all three panels, only for what they show."""
    handles: list[Patch | Line2D] = []
    for kind in BINDING_KINDS:
        count = int((plan.binding == kind).sum())
        if count:
            where = "; hollow in (a)" if kind == "left" else ""
            label = f"{BINDING_WORDS[kind]} ({count:,}{where})"
            handles.append(Patch(facecolor=binding[kind], label=label))
    if plan.timeline.route.root >= 0:
        star = Line2D([], [], linestyle="none", marker="*", markersize=9.0, label="root")
        star.set(markerfacecolor=HUB, markeredgecolor="black", markeredgewidth=0.5)
        handles.append(star)
    handles.append(Line2D([], [], color=INK, linewidth=3.0, label="route"))
    unused = len(plan.world.graph.edges) - len(np.unique(plan.timeline.route.link_index))
    if unused:
        label = f"links not used ({unused:,})"
        handles.append(Line2D([], [], color="0.55", linewidth=0.8, label=label))
    return handles


def _draw_rounds(figure: Figure, axes: Axes, plan: Plan) -> None:
    grid = rounds_grid(plan, _MOST_ROWS, _MOST_COLUMNS)
    colours = mpl.colormaps["viridis"].with_extremes(bad=_ABSENT)
    image = axes.imshow(
        np.ma.masked_invalid(grid.values),
        cmap=colours,
        aspect="auto",
        interpolation="nearest",
        origin="lower",
        extent=(0.5, grid.iterations + 0.5, -0.5, grid.devices - 0.5),
    )
    axes.set_box_aspect(1)  # as the map's, so that the two stand level
    axes.set_xlabel("iteration t")
    unsorted = "device" if plan.names else "device i"
    axes.set_ylabel("device, by mean rounds" if grid.sorted else unsorted)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    labels = None if grid.sorted else device_labels(plan)
    if labels and len(labels) <= _NAMED_ROWS:
        axes.set_yticks(range(len(labels)), labels)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=28, shrink=0.85)
    bar.locator = MaxNLocator(7, integer=bool(np.nanmax(grid.values) > 3))
    bar.update_ticks()
    bar.set_label("rounds τ[t, i]")
    bar.outline.set_linewidth(0.5)
    notes = []
    if departed(plan).any():
        notes.append("grey: left")
    skipped = np.flatnonzero(~plan.exchanged) + 1
    if len(skipped):
        notes.append(f"{len(skipped)} of {plan.iterations} exchanges skipped")
        above = axes.secondary_xaxis("top")
        above.set_xticks(skipped, [])
        above.tick_params(length=4, width=0.9, color=SKIPPED)
    detail = f" ({'; '.join(notes)})" if notes else ""
    axes.set_title(f"(b)  Local rounds{detail}", loc="left", pad=8 if len(skipped) else None)


def map_image(plan: Plan, pixels: int) -> bytes:
    """The map alone, without axes and on a clear ground, as a square PNG.

    Args:
        plan: the plan.
        pixels: width and height.

    Returns:
        The file's bytes; its edges are the limits of `joulemesh.views.plan.digest.frame_m`.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> map_image(made, 64)[:4]
    b'\\x89PNG'
    """
    with styled(_STYLE):
        figure = Figure(figsize=(pixels / 200, pixels / 200))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        draw_map(axes, plan)
        axes.set_axis_off()
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=200, transparent=True)
    small = BytesIO()  # a palette of 128 colours is a quarter of the size
    Image.open(buffer).quantize(128, Image.Quantize.FASTOCTREE).save(small, "PNG", optimize=True)
    return small.getvalue()
