"""What every device spends, on what, and how much it had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.units import prefixed
from joulemesh.views.palette import BINDING
from joulemesh.views.plan.digest import BINDING_KINDS, device_labels

__all__ = ["draw_energy", "energy_bands"]

FloatArray = NDArray[np.float64]

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
    """Bars of training and exchange inside each battery; bands when there are many devices.

    Args:
        axes: where.
        plan: the plan.
        binding: colours of devices by what limits their rounds.
        narrow: in one column of a page: the title has a line of its own, above the keys.

    >>> import joulemesh
    >>> from matplotlib.figure import Figure
    >>> axes = Figure().add_subplot()
    >>> draw_energy(axes, joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    >>> axes.get_ylabel()
    'energy [J]'
    """
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
    """Quantiles of what devices spend, the devices sorted by battery and dealt to bins.

    Args:
        plan: the plan.
        bins: number of bins, at most the number of devices.

    Returns:
        int64 [bins + 1] bounds of the bins among the sorted devices; float64 [bins] mean battery,
        with what it gains;
        for each thing that binds float64 [3, bins]: quantiles 0.05, 0.5, 0.95 of the joules spent
        by the devices that it binds (NaN where a bin has none).

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> bounds, battery, spent = energy_bands(made, 4)
    >>> bounds.tolist(), battery.shape, sorted(spent)
    ([0, 5, 10, 15, 20], (4,), ['deadline', 'energy'])
    """
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
