"""A plan boiled down to what fits a picture: few rows, few points, few lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.account import Account
from joulemesh.planning.plan import Plan

__all__ = [
    "BINDING_KINDS",
    "BINDING_WORDS",
    "Grid",
    "battery_left",
    "departed",
    "device_labels",
    "drawn",
    "every",
    "few_digits",
    "frame_m",
    "link_energy_j",
    "rounds_grid",
    "route_words",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BINDING_KINDS = ("energy", "deadline", "time", "idle", "policy", "left")
BINDING_WORDS = {
    "energy": "battery binds",
    "deadline": "deadline binds",
    "time": "total time binds",
    "idle": "waiting binds",
    "policy": "policy binds",
    "left": "left early",
}

_LONGEST_NAME = 14
_MOST_DRAWN = 10_000  # more cannot be told apart


def device_labels(plan: Account) -> list[str] | None:
    """The devices' names for matplotlib, long ones cut; None without any.

    >>> import joulemesh
    >>> device_labels(joulemesh.plan(joulemesh.Scenario.preset("default"))) is None
    True
    """
    if not plan.names:
        return None
    short = (shorten(name, _LONGEST_NAME, placeholder="…") or "…" for name in plan.names)
    return [name.replace("$", r"\$") for name in short]  # it would begin a formula


@dataclass(frozen=True, eq=False)
class Grid:
    """Rounds as a picture of few rows and columns.

    Attributes:
        values: float64 [rows, columns]: mean rounds of the devices that take part; NaN where
            nobody does.
        devices: number of devices N behind the rows.
        iterations: number n of iterations behind the columns.
        sorted: True when devices are sorted by their mean rounds (several share a row).
    """

    values: FloatArray
    devices: int
    iterations: int
    sorted: bool


def every(count: int, most: int) -> IntArray:
    """Positions of at most ``most`` of ``count`` things, evenly spread, first and last included.

    >>> every(5, 10).tolist(), every(101, 3).tolist()
    ([0, 1, 2, 3, 4], [0, 50, 100])
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.rint(np.linspace(0, count - 1, most)).astype(np.int64))


def few_digits(values: NDArray[Any], digits: int = 5) -> Any:
    """Nested lists of figures with few digits; what is not finite becomes None.

    >>> few_digits(np.array([[1 / 3, np.inf]]), 2)
    [[0.33, None]]
    """
    if values.ndim > 1:
        return [few_digits(row, digits) for row in values]
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]


def frame_m(plan: Plan) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the map: a square round all devices, in metres.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> left, right, bottom, top = frame_m(made)
    >>> bool(np.isclose(right - left, top - bottom))
    True
    """
    positions = plan.world.graph.positions_m
    low, high = positions.min(axis=0), positions.max(axis=0)
    half = 0.54 * max(float((high - low).max()), 1.0)
    x, y = ((low + high) / 2).tolist()
    return x - half, x + half, y - half, y + half


def drawn(count: int) -> IntArray:
    """Positions of the links or devices that a map draws: all, or some of very many.

    >>> len(drawn(20)), len(drawn(1_000_000))
    (20, 10000)
    """
    return every(count, _MOST_DRAWN)


def link_energy_j(plan: Plan, links: IntArray) -> FloatArray:
    """Joules charged when one model crosses a link in both directions.

    Args:
        plan: the plan; under fading its forecast (the quantile of link energy) is priced.
        links: int64 [L], positions in the graph's edge list.

    Returns:
        float64 [L], by the plan's accounting: twice as much where both ends pay.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> energy = link_energy_j(made, made.timeline.route.link_index)
    >>> bool(np.isclose(energy.sum(), made.exchange_j[0].sum()))  # a tree: up once, down once
    True
    """
    payers = 2.0 if plan.scenario.plan.pays == "both-ends" else 1.0
    bits = plan.work.model_bits
    return plan.ground.forecast_at(0, links).for_messages(bits).weight() * bits * payers


def departed(plan: Plan) -> NDArray[np.bool_]:
    """bool [N]: who has left before the end.

    >>> import joulemesh
    >>> departed(joulemesh.plan(joulemesh.Scenario.preset("adaptive"))).any().item()
    False
    """
    return np.asarray(~plan.active[-1])


def route_words(plan: Plan) -> str:
    """What the drawn route is, in a few words.

    >>> import joulemesh
    >>> route_words(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    'tree'
    """
    if plan.world.channel.fading:
        return f"{plan.scheme} as forecast"
    changes = plan.timeline.routes is not None or not plan.active.all()
    if plan.timeline.scheme.random or changes:
        return f"{plan.scheme} of iteration 1"
    return plan.scheme


def rounds_grid(plan: Account, rows: int, columns: int) -> Grid:
    """The rounds τ[t, i] on at most ``rows`` × ``columns`` cells, a device (or several) a row.

    Args:
        plan: the plan.
        rows: most rows; with more devices they are sorted by mean rounds and share rows.
        columns: most columns; with more iterations neighbours share columns.

    Returns:
        Means over the devices and iterations of a cell that take part.

    >>> import joulemesh
    >>> grid = rounds_grid(joulemesh.plan(joulemesh.Scenario.preset("adaptive")), 5, 10)
    >>> grid.values.shape, grid.sorted
    ((5, 10), True)
    """
    iterations, devices = plan.rounds.shape
    crowded = devices > rows
    order = np.arange(devices)
    if crowded:
        lived = np.maximum(plan.active.sum(axis=0), 1)
        order = np.argsort(plan.rounds.sum(axis=0) / lived, kind="stable")
    row_of = np.empty(devices, np.int64)
    row_of[order] = np.arange(devices) * min(rows, devices) // devices
    starts = np.linspace(0, iterations, min(columns, iterations) + 1).astype(np.int64)
    height, width = min(rows, devices), len(starts) - 1
    values = np.full((height, width), np.nan)
    # Column by column, so that a plan of 100,000 devices needs no second copy of its rounds.
    for column in range(width):
        part = slice(starts[column], starts[column + 1])
        total = np.bincount(row_of, plan.rounds[part].sum(axis=0), height)
        present = np.bincount(row_of, plan.active[part].sum(axis=0), height)
        np.divide(total, present, out=values[:, column], where=present > 0)
    return Grid(values, devices, iterations, crowded)


def battery_left(plan: Plan, when: IntArray) -> Iterator[FloatArray]:
    """What is left of each battery after some of the iterations.

    Args:
        plan: the plan.
        when: int64 [P], the iterations, ascending; 0 is the start.

    Yields:
        float64 [N] fractions, for each of them.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> first, *_, last = battery_left(made, np.array([0, 50, 100]))
    >>> bool((first == 1).all()), bool(np.allclose(last, made.margin_j / made.energy_budget_j))
    (True, True)
    """
    spent = np.zeros(len(plan.energy_budget_j))
    round_j = plan.world.devices.round_energy_j
    alike = len(plan.exchange_j) == 1
    since = 0
    for until in when.tolist():
        spent = spent + plan.rounds[since:until].sum(axis=0) * round_j
        if alike:
            spent = spent + (until - since) * plan.exchange_j[0]
        else:
            spent = spent + plan.exchange_j[since:until].sum(axis=0)
        if plan.world.devices.idle_w is not None:
            spent = spent + sum(plan.idle_j(row) for row in range(since, until))
        if plan.timeline.stored_j is not None:
            spent = spent - plan.timeline.stored_j[since:until].sum(axis=0)
        since = until
        yield 1.0 - spent / plan.energy_budget_j
