"""How a plan turns out where packets are lost: what is drawn, in the place of what is expected.

A plan prices every message at its expected number of transmissions. In a run that number is drawn,
and a message of which a packet fails every time is lost. The draws belong to the world: they follow
from the scenario's seed and the iteration, and are the same for all repetition seeds.

`joulemesh.planning.drawing` says how, and why no battery is overdrawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.execute import Lost
from joulemesh.aggregation.route import Route
from joulemesh.planning.drawing import Course, Outcome, draw
from joulemesh.planning.timeline import Timeline

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

__all__ = ["Drawn", "carried_out"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn for the exchanges of a plan.

    Attributes:
        planned: the timeline as it was planned, with expected joules and seconds.
        outcome: what was drawn.
    """

    planned: Timeline
    outcome: Outcome

    @property
    def lost(self) -> tuple[IntArray, ...]:
        """For every iteration the messages that were lost, as `Outcome` has them."""
        return self.outcome.lost

    @property
    def lost_messages(self) -> IntArray:
        """int64 [n]: how many messages every exchange lost."""
        return self.outcome.lost_messages

    @property
    def unpaid(self) -> IntArray:
        """int64 [n]: how many of the lost ones a battery could not pay for."""
        return self.outcome.unpaid

    def lost_in(self, row: int, route: Route) -> Lost:
        """The messages that the exchange of a row lost, as `execute` wants them."""
        return self.outcome.lost_in(row, route)

    def figures(self, plan: Plan) -> dict[str, float | int]:
        """What was drawn beside what was expected, for the summary of a run.

        Args:
            plan: as it turned out.
        """
        planned = plan.planned
        return {
            "expected_energy_j": float(planned.spent_j.sum()),
            "expected_time_s": planned.time_s,
            "messages": int(self.outcome.messages.sum()),
            "messages_lost": int(self.lost_messages.sum()),
            "messages_unpaid": int(self.unpaid.sum()),
            "iterations_late": int((plan.margin_s < 0).sum()),
        }

    def note(self, plan: Plan) -> str:
        """The same in a sentence."""
        expected_j = float(plan.planned.exchange_total_j.sum())
        late = int((plan.margin_s < 0).sum())
        return self.outcome.note(expected_j, float(self.planned.exchange_s.sum()), late)


def carried_out(plan: Plan) -> Plan:
    """The plan as it turns out: exchanges as drawn; the plan itself where nothing is lost.

    Args:
        plan: with expected joules and seconds.

    Returns:
        The same rounds and routes, with drawn joules and seconds, and with `Plan.drawn`.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"network.packet_error": 0.1})
    >>> plan = joulemesh.plan(scenario)
    >>> out = carried_out(plan)
    >>> bool((out.spent_j <= out.energy_budget_j).all())
    True
    >>> bool(abs(out.exchange_total_j.sum() / plan.exchange_total_j.sum() - 1) < 0.05)
    True
    """
    packets = plan.world.packets
    if packets is None or plan.drawn is not None:
        return plan
    timeline, shape = plan.timeline, plan.rounds.shape
    heard = timeline.receive_j
    course = Course(
        plan.ground,
        lambda row: plan.route(row + 1),
        np.broadcast_to(plan.exchange_j, shape),
        None if heard is None else np.broadcast_to(heard, shape),
        plan.latency_s,
        plan.active,
        _slack_j(plan),
        timeline.stored_j is not None,
        timeline.first,
        timeline.snapshots,
    )
    found = draw(course, packets)
    turned_out = replace(
        timeline,
        exchange_j=found.exchange_j,
        exchange_s=timeline.exchange_s + found.longer_s,
        receive_j=found.receive_j,
        awake_s=found.awake_s,
    )
    drawn = Drawn(timeline, found)
    made = replace(plan, timeline=turned_out, drawn=drawn)
    return replace(made, notes=(*plan.notes, drawn.note(made)))


def _slack_j(plan: Plan) -> FloatArray:
    """[n or 1, N]: the least that batteries hold from an iteration on, if all goes as planned.

    Batteries that do not recharge hold least at the end.
    """
    stored = plan.timeline.stored_j
    if stored is None:
        return plan.margin_j[None]
    spent = plan.compute_j + plan.exchange_j
    spent += np.stack([plan.idle_j(row) for row in range(plan.iterations)])
    gained = np.cumsum(stored, axis=0) - stored  # before the iteration
    level = plan.energy_budget_j + gained - np.cumsum(spent, axis=0)
    return np.asarray(np.minimum.accumulate(level[::-1], axis=0)[::-1])
