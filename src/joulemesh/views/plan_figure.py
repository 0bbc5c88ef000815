"""A plan as one figure for print: the map with its route, the rounds, the batteries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path
from matplotlib.patheffects import Normal, Stroke
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray
from PIL import Image

from joulemesh.base.units import duration, energy, prefixed
from joulemesh.planning.plan import Plan
from joulemesh.views.charts import (
    BINDING_KINDS,
    BINDING_WORDS,
    departed,
    device_labels,
    drawn,
    frame_m,
    link_energy_j,
    rounds_grid,
    route_words,
)
from joulemesh.views.printing import (
    BINDING,
    BINDING_PRINTED,
    HUB,
    INK,
    SKIPPED,
    TWO_COLUMNS_IN,
    width_in,
)
from joulemesh.views.style import styled

FloatArray = NDArray[np.float64]

_LABELLED = 40  # devices whose numbers fit into their dots
_FINE = 500  # devices beyond which lines are thin and the drawing is a raster
_SHADES = 64  # colours of links in a fine map


@dataclass(frozen=True)
class Links:
    """What a colour bar and a title need."""

    mappable: ScalarMappable  # the colours
    unit: str  # of their figures
    drawn: int  # how many links are drawn, of all


def draw_map(axes: Axes, plan: Plan, binding: Mapping[str, str] = BINDING) -> Links:
    """Draw devices, links and route."""
    graph = plan.world.graph
    shown = drawn(len(graph.edges))
    energy = link_energy_j(plan, shown)
    order = np.argsort(-energy, kind="stable")  # the cheap ones, which matter, on top
    shown, energy = shown[order], energy[order]
    scale, unit = prefixed(float(np.max(energy, initial=0.0)), "J")
    energy = energy / scale
    norm, colours = _norm(energy), _colours()
    fine = graph.devices > _FINE
    crowd = min(1.0, 60 / max(len(shown), 1))  # 1 for a few links, towards 0 for a thicket
    _lines(
        axes, plan, shown, energy, norm, colours,
        linewidths=0.3 if fine else (0.4 + 0.4 * crowd) * (2.1 - norm(energy)),
        alpha=0.2 if fine else 0.22 + 0.4 * crowd, zorder=1,
    )  # fmt: skip
    used = plan.timeline.route.link_index
    route = np.unique(used[drawn(len(used))])
    outlined: dict[str, Any] = {}
    if len(used) <= graph.devices:  # a tree or a ring; the many links of gossip need no edge
        width = 0.6 if graph.devices > 5 * _FINE else 1.0 if fine else 1.8
        if not fine:
            edge = Stroke(linewidth=width + 1.8, foreground=INK)
            outlined["path_effects"] = [edge, Normal()]
    else:
        width = 0.4 if fine else 1.3
    along = link_energy_j(plan, route) / scale
    _lines(axes, plan, route, along, norm, colours, linewidths=width, zorder=2, **outlined)
    _devices(axes, plan, fine, binding)
    left, right, bottom, top = frame_m(plan)
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xlabel="x [m]", ylabel="y [m]")
    return Links(ScalarMappable(norm, colours), unit, len(shown))


def _norm(energy: FloatArray) -> Normalize:
    low, high = float(energy.min()), float(energy.max())
    if high <= low:
        return Normalize(0.9 * low, 1.1 * high)
    return LogNorm(low, high) if high > 8 * low else Normalize(low, high)


def _colours() -> Colormap:
    """Viridis without its palest end, which vanishes on paper; cheap links are the dark ones."""
    return ListedColormap(mpl.colormaps["viridis"](np.linspace(0.0, 0.9, 256)), "links")


def _lines(
    axes: Axes,
    plan: Plan,
    links: NDArray[np.int64],
    energy: FloatArray,
    norm: Normalize,
    colours: Colormap,
    **style: Any,
) -> None:
    graph = plan.world.graph
    segments = graph.positions_m[graph.edges[links]]
    fine = graph.devices > _FINE
    lines: LineCollection | PathCollection
    if fine:  # many links share a path and a colour: matplotlib takes half a kilobyte for a path
        order = np.argsort(-energy, kind="stable")
        shades = [part for part in np.array_split(order, _SHADES) if len(part)]
        lines = PathCollection(
            [Path(segments[part].reshape(-1, 2), _pen(len(part))) for part in shades],
            facecolors="none", norm=norm, cmap=colours, capstyle="butt", **style,
        )  # fmt: skip
        lines.set_array(np.array([np.median(energy[part]) for part in shades]))
    else:
        lines = LineCollection(list(segments), norm=norm, cmap=colours, capstyle="round", **style)
        lines.set_array(energy)
    lines.set_rasterized(fine or len(links) > 4 * _FINE)
    axes.add_collection(lines, autolim=False)


def _pen(strokes: int) -> NDArray[np.uint8]:
    return np.tile(np.array([Path.MOVETO, Path.LINETO], np.uint8), strokes)


def _devices(axes: Axes, plan: Plan, fine: bool, binding: Mapping[str, str]) -> None:
    shown = drawn(plan.world.graph.devices)
    positions, gone = plan.world.graph.positions_m[shown], departed(plan)[shown]
    labelled = len(positions) <= _LABELLED
    size = 88.0 if labelled else 22.0 if not fine else max(0.1, 2500 / len(positions))
    colours = np.array([binding[kind] for kind in plan.binding[shown].tolist()])
    width = 0.0 if fine else 0.7
    for who, face in ((~gone, colours), (gone, np.full(len(gone), "white"))):
        axes.scatter(
            positions[who, 0], positions[who, 1],
            s=size, c=face[who].tolist(),
            edgecolors=colours[who].tolist() if face is not colours else "white",
            linewidths=width if face is colours else max(1.2 * width, 0.2),
            zorder=3, rasterized=fine,
        )  # fmt: skip
    root = plan.timeline.route.root
    if root >= 0:
        x, y = plan.world.graph.positions_m[root]
        axes.scatter(
            x, y,
            s=110.0 if fine else max(4.6 * size, 190.0), marker="*", c=HUB,
            edgecolors="black", linewidths=0.6, zorder=4 if fine else 2.5,
        )  # fmt: skip
    names, halo = device_labels(plan), [Stroke(linewidth=1.8, foreground="white"), Normal()]
    if labelled:
        for i, (x, y) in enumerate(positions.tolist()):
            ink = binding["left"] if gone[i] else "white"
            axes.annotate(
                str(i), (x, y), ha="center", va="center_baseline", color=ink, zorder=5,
                fontsize=5.8, fontweight="bold",
            )  # fmt: skip
            if names:
                axes.annotate(
                    names[shown[i]], (x, y), xytext=(0, -6.5), textcoords="offset points",
                    ha="center", va="top", color=INK, zorder=5, fontsize=5.2, path_effects=halo,
                )  # fmt: skip


_MOST_BARS = 120
_BINS = 100
_NUMBERED = 10  # numbers below bars that fit into one column of a page
_LEVEL = 110  # characters that fit side by side
_LEGEND: dict[str, Any] = {
    "frameon": False,
    "loc": "lower right",
    "bbox_to_anchor": (1.0, 1.0),
    "borderpad": 0.1,
    "handlelength": 1.6,
    "columnspacing": 1.2,
}


def draw_energy(
    axes: Axes, plan: Plan, binding: Mapping[str, str] = BINDING, *, narrow: bool = False
) -> None:
    """Bars of training and exchange inside each battery; bands when there are many devices."""
    scale, unit = prefixed(float(plan.supplied_j.max()), "J")
    if len(plan.supplied_j) <= _MOST_BARS:
        keys = _bars(axes, plan, scale, binding)
        crowded = narrow and not plan.names and len(plan.supplied_j) > _NUMBERED
        if crowded:
            axes.xaxis.set_major_locator(MaxNLocator(_NUMBERED, integer=True))
    else:
        keys = _bands(axes, plan, scale, binding)
    columns = 3 if narrow and len(keys) == 3 else 2 if narrow else len(keys)
    axes.legend(handles=keys, ncols=columns, **_LEGEND)
    above = 6.0 + (11.0 * -(-len(keys) // columns) if narrow else 0.0)
    axes.set_title("(c)  Energy against battery", loc="left", pad=above)
    axes.set_ylabel(f"energy [{unit}]")
    axes.set_ylim(0, 1.04 * float(plan.supplied_j.max()) / scale)
    axes.spines[["top", "right"]].set_visible(False)


def _supply(plan: Plan) -> str:
    return "battery and harvest" if plan.harvests else "battery"


def _bars(axes: Axes, plan: Plan, scale: float, binding: Mapping[str, str]) -> list[Patch | Line2D]:
    count = len(plan.supplied_j)
    position = np.arange(count)
    training, exchange = plan.compute_total_j / scale, plan.exchange_total_j / scale
    colours = [binding[kind] for kind in plan.binding.tolist()]
    axes.bar(position, training, 0.78, color=colours)
    axes.bar(
        position, exchange, 0.78, bottom=training,
        color="white", edgecolor=colours, hatch="//////", linewidth=0.6,
    )  # fmt: skip
    idle = plan.idle_total_j / scale
    if idle.any():
        axes.bar(
            position, idle, 0.78, bottom=training + exchange,
            color="white", edgecolor=colours, hatch="....", linewidth=0.6,
        )  # fmt: skip
    axes.bar(
        position, plan.supplied_j / scale, 0.78,
        fill=False, edgecolor="black", linewidth=0.8,
    )  # fmt: skip
    axes.set_xlim(-0.7, count - 0.3)
    axes.set_xlabel("device" if plan.names else "device i")
    if count <= 40:
        labels = device_labels(plan)
        upright = labels is not None and count * max(map(len, labels)) > _LEVEL
        axes.set_xticks(position, labels)
        axes.tick_params(axis="x", length=0, rotation=90 if upright else 0)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    grey = "0.45"
    keys: list[Patch | Line2D] = [
        Patch(facecolor=grey, edgecolor=grey, label="training"),
        Patch(facecolor="white", edgecolor=grey, hatch="//////", label="exchange"),
        Patch(facecolor="white", edgecolor="black", label=_supply(plan)),
    ]
    if idle.any():
        keys.insert(2, Patch(facecolor="white", edgecolor=grey, hatch="....", label="idle"))
    return keys


def energy_bands(
    plan: Plan, bins: int
) -> tuple[NDArray[np.int64], FloatArray, dict[str, FloatArray]]:
    """Quantiles of what devices spend, the devices sorted by battery and dealt to bins."""
    order = np.lexsort((plan.spent_j, plan.supplied_j))
    bounds = np.linspace(0, len(order), bins + 1).astype(np.int64)
    battery = np.add.reduceat(plan.supplied_j[order], bounds[:-1]) / np.diff(bounds)
    spent: dict[str, FloatArray] = {}
    for kind in BINDING_KINDS:
        bound = plan.binding == kind
        if not bound.any():
            continue
        table = spent[kind] = np.full((3, bins), np.nan)
        for k in range(bins):
            mine = order[bounds[k] : bounds[k + 1]]
            values = plan.spent_j[mine[bound[mine]]]
            if len(values):
                table[:, k] = np.quantile(values, (0.05, 0.5, 0.95))
    return bounds, battery, spent


def _bands(
    axes: Axes, plan: Plan, scale: float, binding: Mapping[str, str]
) -> list[Patch | Line2D]:
    bounds, battery, spent = energy_bands(plan, _BINS)
    # Drawn first and broad, so that a battery spent to the end still shows round the line.
    axes.stairs(battery / scale, bounds, baseline=None, color="black", lw=2.6)
    for kind, (low, middle, high) in spent.items():
        colour = binding[kind]
        axes.stairs(
            high / scale, bounds, baseline=low / scale, fill=True, color=colour, alpha=0.3, lw=0
        )
        axes.stairs(middle / scale, bounds, baseline=None, color=colour, lw=1.2)
    order = np.lexsort((plan.spent_j, plan.supplied_j))
    exchange = np.add.reduceat(plan.exchange_total_j[order], bounds[:-1]) / np.diff(bounds)
    axes.stairs(exchange / scale, bounds, baseline=None, color="black", lw=0.9, ls=(0, (1, 1)))
    axes.set_xlim(0, bounds[-1])
    axes.set_xlabel("devices, by battery")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return [
        Line2D([], [], color="black", lw=2.6, label=_supply(plan)),
        Line2D([], [], color="0.45", lw=1.2, label="spent, median"),
        Patch(facecolor="0.75", label="spent, 5–95 %"),
        Line2D([], [], color="black", lw=0.9, ls=(0, (1, 1)), label="exchange, mean"),
    ]


_STYLE = {"axes.titlesize": 8.5, "legend.fontsize": 7.0}
_MOST_ROWS, _MOST_COLUMNS = 400, 1000
_NAMED_ROWS = 24  # rows that a name fits beside
_ABSENT = "0.82"


def plan_figure(plan: Plan, width: str | float | None = None) -> Figure:
    """Draw a plan: (a) devices, links and route, (b) rounds, (c) energy against batteries."""
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
    """The map alone, without axes and on a clear ground, as a square PNG."""
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
