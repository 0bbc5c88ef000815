"""Devices that leave for good: a plan in stretches, each of which is made when somebody has left.

Nobody knows in advance who will leave: the plan is made for everybody, and from the iteration in
which devices are gone the others make the rest of it again with what their batteries still hold,
as nodes in the field do (`continue_plan`).
"""

from __future__ import annotations

__all__ = ["with_departures"]

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.ledger import Ledger, total_of
from joulemesh.planning.continuation import Continuation, Continuer
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.planning.remaining import Remaining
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.waiting import Waiting
from joulemesh.tolerance import affordable, left_of

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def with_departures(ground: Ground, timeline: Timeline) -> tuple[Timeline, list[str]]:
    """A plan in which devices leave as ``devices.leave`` says, and what a reader should know.

    Args:
        ground: the scenario, made ready, in which nothing else changes over time.
        timeline: the plan as if everybody stayed.

    Raises:
        InfeasibleError: those who stay cannot pay for one more iteration in time.
    """
    leaves = ground.world.traces.leaves
    assert leaves is not None
    notes: list[str] = []
    for row in np.unique(leaves).tolist():
        if row >= len(timeline.rounds):
            break
        lost = timeline.active[row] & (leaves <= row)
        if lost.any():
            rest = _remaining(ground, timeline, row, lost)
            continuer = Continuer(ground, rest, len(timeline.rounds))
            timeline = _joined(ground, timeline, continuer.timeline(), row, lost)
            notes += continuer.notes
    return timeline, notes


def _remaining(ground: Ground, timeline: Timeline, row: int, lost: BoolArray) -> Remaining:
    """Who is left before a row, with what."""
    active = timeline.active[row] & ~lost
    held_j = ground.world.devices.energy_budget_j
    cut = np.zeros(len(ground.world.graph.edges), np.bool_)
    if row == 0:
        return Remaining(0, active, np.where(active, held_j, 0.0), cut)
    past = Plan(ground, _head(timeline, row))
    left_j = left_of(held_j, past.spent_j)
    return Remaining(row, active, np.where(active, left_j, 0.0), cut, past.time_s)


def _head(timeline: Timeline, row: int) -> Timeline:
    """The rows before one of them."""
    return replace(
        timeline,
        rounds=timeline.rounds[:row],
        cap=_rows(timeline.cap, timeline)[:row],
        exchange=timeline.exchange[:row],
        active=timeline.active[:row],
        exchanged=timeline.exchanged[:row],
        flooded=timeline.flooded[:row],
        schemes=tuple(pair for pair in timeline.schemes if pair[0] < max(row, 1)),
        routes=None if timeline.routes is None else timeline.routes[:row],
        events=tuple(event for event in timeline.events if event.iteration <= row),
    )


def _rows(values: NDArray[Any], timeline: Timeline) -> NDArray[Any]:
    """One row for each iteration, where one stands for all."""
    return np.broadcast_to(values, timeline.rounds.shape)


def _routes(ground: Ground, timeline: Timeline) -> tuple[Route | None, ...]:
    whole = Continuation(ground, timeline)
    return tuple(
        whole.route(whole.start + row) if sent else None
        for row, sent in enumerate(timeline.exchanged.tolist())
    )


def _joined(
    ground: Ground, timeline: Timeline, rest: Timeline, row: int, lost: BoolArray
) -> Timeline:
    """The rows before one of them, and the rest as it was made again."""
    head = _head(timeline, row)
    gone = tuple(np.flatnonzero(lost).tolist())
    both = (head, rest) if row else (rest,)
    event = Event(row + 1, "gone", gone, "leaves for good by devices.leave")
    first = both[0]
    made = replace(
        first,
        rounds=np.concatenate([part.rounds for part in both]),
        cap=np.concatenate([_rows(part.cap, part) for part in both]),
        exchange=Ledger.joined([part.exchange for part in both]),
        active=np.concatenate([part.active for part in both]),
        exchanged=np.concatenate([part.exchanged for part in both]),
        flooded=np.concatenate([part.flooded for part in both]),
        schemes=tuple({pair[0]: pair for part in both for pair in part.schemes}.values()),
        routes=tuple(route for part in both for route in _routes(ground, part)),
        events=(*(head.events if row else ()), event, *rest.events),
        first=0,
    )
    return replace(made, total=_total(ground, made))


def _total(ground: Ground, timeline: Timeline) -> NDArray[np.int64]:
    """Rounds that the batteries pay for beside all exchanges and waiting."""
    devices = ground.world.devices
    fixed = total_of(timeline.exchange.exchange_j), Waiting.at(devices).over(timeline)
    return affordable(devices.energy_budget_j, devices.round_energy_j, *fixed)
