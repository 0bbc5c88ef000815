"""What keeps each device of a plan from one more round."""

from __future__ import annotations

__all__ = ["BINDING", "absent", "bound"]

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.budget import rounds_cap

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

BoolArray = NDArray[np.bool_]

BINDING = ("energy", "policy", "deadline", "left", "time", "idle")
"""What may keep a device from one more round; `bound` gives positions in it."""
_DEADLINE, _LEFT, _TIME, _IDLE = np.int8(2), np.int8(3), np.int8(4), np.int8(5)


def bound(plan: Plan) -> NDArray[np.int8]:
    """What keeps each device from one more round: positions in `BINDING`, int8 [N].

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario(budget={"total_s": 2.0, "energy_j": 3600.0}))
    >>> {BINDING[kind] for kind in bound(plan).tolist()}
    {'time'}
    """
    one_more = plan.timeline.total > plan.rounds.sum(axis=0)
    full: BoolArray = np.asarray((plan.rounds >= plan.timeline.cap).all(axis=0))
    kind = one_more.astype(np.int8) + (one_more & full)
    if plan.world.devices.idle_w is not None and plan.ground.policy.spends != "least":
        kind = np.where(one_more, _waiting(plan, full), kind)
    elif plan.total_s is not None:
        kind[one_more & _out_of_time(plan, full)] = _TIME
    here = plan.active[-1] | (absent(plan) & ~_gone(plan))
    return np.where(here, kind, _LEFT)


def absent(plan: Plan) -> BoolArray:
    """bool [N]: who takes no part in the last iteration because the scenario says so.

    They are away by ``devices.availability``, gone by ``devices.leave``, or cut off from the others
    by that alone. No budget keeps them from more.

    >>> import joulemesh
    >>> gone = joulemesh.Scenario(devices={"leave": [[3, 41]]})
    >>> np.flatnonzero(absent(joulemesh.plan(gone))).tolist()
    [3]
    """
    why = _reasons(plan)
    allowed = {"absent", "gone"} if "depleted" in why else {"absent", "gone", "cut-off", "waiting"}
    return np.asarray(np.isin(why, list(allowed)) & ~plan.active[-1])


def _gone(plan: Plan) -> BoolArray:
    return np.asarray(_reasons(plan) == "gone")


def _reasons(plan: Plan) -> NDArray[np.str_]:
    """[N]: the kind of the event that each device last left with; empty if it never did."""
    why = np.full(plan.active.shape[1], "", dtype="U16")
    for event in plan.events:
        if event.kind in ("depleted", "absent", "gone", "cut-off", "waiting", "returned"):
            why[list(event.devices)] = event.kind
    return why


def _waiting(plan: Plan, full: BoolArray) -> NDArray[np.int8]:
    """What keeps devices from a round that they can pay for, where waiting costs energy.

    Iterations are as long as gives most rounds in all: longer ones would cost more at rest, unless
    it is the deadline or the total time that ends them.
    """
    round_s = plan.world.devices.round_latency_s
    on_time, late = np.zeros_like(full), np.zeros_like(full)
    if plan.deadline_s is not None:
        in_time = rounds_cap(plan.deadline_s, float(plan.exchange_s.max()), round_s)
        on_time = np.asarray((plan.rounds >= in_time).all(axis=0))
    if plan.total_s is not None:
        late = round_s > plan.margin_total_s
    kind: NDArray[np.int8] = np.where(on_time, _DEADLINE, np.where(late, _TIME, _IDLE))
    return kind


def _out_of_time(plan: Plan, full: BoolArray) -> BoolArray:
    """bool [N]: would one more round, wherever it is, break the total time or its share?

    Iterations that are full to their share of the total time, and not to the deadline, are full
    because of the total.
    """
    round_s = plan.world.devices.round_latency_s
    on_time = np.zeros_like(full)
    if plan.deadline_s is not None:
        in_time = rounds_cap(plan.deadline_s, float(plan.exchange_s.max()), round_s)
        on_time = full & (plan.timeline.cap >= in_time).all(axis=0)
    if plan.ground.policy.fit is not None:  # it leaves no room for a round
        return ~on_time
    least_s = np.full(len(round_s), np.inf)
    for rounds, length_s, exchange_s in zip(
        plan.rounds, plan.latency_s, plan.exchange_s, strict=True
    ):
        least_s = np.minimum(least_s, (rounds + 1) * round_s + exchange_s - length_s)
    return (full & ~on_time) | (least_s > plan.margin_total_s)
