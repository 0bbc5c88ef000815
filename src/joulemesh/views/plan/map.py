"""The map: devices in metres, every link coloured by what it costs, the route on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize
from matplotlib.path import Path
from matplotlib.patheffects import Normal, Stroke
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.units import prefixed
from joulemesh.views.palette import BINDING, HUB, INK
from joulemesh.views.plan.digest import departed, device_labels, drawn, frame_m, link_energy_j

__all__ = ["Links", "draw_map"]

FloatArray = NDArray[np.float64]

_LABELLED = 40  # devices whose numbers fit into their dots
_FINE = 500  # devices beyond which lines are thin and the drawing is a raster
_SHADES = 64  # colours of links in a fine map


@dataclass(frozen=True)
class Links:
    """What a colour bar and a title need.

    Attributes:
        mappable: the colours.
        unit: of their figures.
        drawn: how many links are drawn, of all.
    """

    mappable: ScalarMappable
    unit: str
    drawn: int


def draw_map(axes: Axes, plan: Plan, binding: Mapping[str, str] = BINDING) -> Links:
    """Draw devices, links and route.

    Args:
        axes: where.
        plan: the plan; with many devices fewer links are drawn, thinner and as a raster.
        binding: colours of devices by what limits their rounds.

    Returns:
        The links' colours, for a colour bar.

    >>> import joulemesh
    >>> from matplotlib.figure import Figure
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> draw_map(Figure().add_subplot(), made).unit
    'mJ'
    """
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
    """Codes of a path of so many separate strokes."""
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
