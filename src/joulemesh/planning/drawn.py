"""How a plan turns out where packets are lost: what is drawn, in the place of what is expected.

A plan prices every message at its expected number of transmissions. In a run that number is drawn,
and a message of which a packet fails every time is lost. The draws belong to the world: they follow
from the scenario's seed and the iteration, and are the same for all repetition seeds.

No battery is overdrawn. In every iteration a device may spend on the exchange what is planned for
it and what it can spare: what the plan leaves in its battery, and what it has saved, or spent
beyond the plan, until then. When that is gone, it stops sending and listening; a message that is
cut off so is lost, and what was sent of it is paid for. Where it cannot pay for waiting longer than
planned, it sleeps until the next iteration. What is planned for later is not touched.
The number of transmissions is not known beforehand, so deadlines are kept in expectation only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.execute import Lost
from joulemesh.aggregation.route import Route
from joulemesh.planning.pricing.drawn import cut_off, drawn_prices, message_keys
from joulemesh.planning.timeline import Timeline
from joulemesh.units import duration, energy
from joulemesh.world.loss import Packets, expected_tries
from joulemesh.world.quantities import stream

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

__all__ = ["Drawn", "carried_out"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_KEPT_BACK = 1e-12  # of a battery, so that rounded sums stay below it


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn for the exchanges of a plan.

    Attributes:
        planned: the timeline as it was planned, with expected joules and seconds.
        lost: for every iteration the messages that were lost: positions in the order of
            `joulemesh.planning.pricing.drawn.message_keys`.
        messages: int64 [n]: how many messages every exchange has.
        unpaid: int64 [n]: how many of the lost ones a battery could not pay for.
    """

    planned: Timeline
    lost: tuple[IntArray, ...]
    messages: IntArray
    unpaid: IntArray

    @property
    def lost_messages(self) -> IntArray:
        """int64 [n]: how many messages every exchange lost."""
        return np.array([len(lost) for lost in self.lost], np.int64)

    def figures(self, plan: Plan) -> dict[str, float | int]:
        """What was drawn beside what was expected, for the summary of a run.

        Args:
            plan: as it turned out.
        """
        planned = plan.planned
        return {
            "expected_energy_j": float(planned.spent_j.sum()),
            "expected_time_s": planned.time_s,
            "messages": int(self.messages.sum()),
            "messages_lost": int(self.lost_messages.sum()),
            "messages_unpaid": int(self.unpaid.sum()),
            "iterations_late": int((plan.margin_s < 0).sum()),
        }

    def note(self, plan: Plan) -> str:
        """The same in a sentence."""
        found, planned = self.figures(plan), plan.planned
        spent_j, wanted_j = (float(one.exchange_total_j.sum()) for one in (plan, planned))
        late = found["iterations_late"]
        said = (
            f"packets are lost: exchanges took {energy(spent_j)} and "
            f"{duration(float(plan.exchange_s.sum()))}, expected were {energy(wanted_j)} and "
            f"{duration(float(planned.exchange_s.sum()))}; {found['messages_lost']:,} of "
            f"{found['messages']:,} messages were lost, {found['messages_unpaid']:,} of them for "
            "want of joules"
        )
        return f"{said}; {late:,} iterations ended after the deadline" if late else said

    def lost_in(self, row: int, route: Route) -> Lost:
        """The messages that the exchange of a row lost, as `execute` wants them."""
        step, sender, receiver = (part[self.lost[row]].tolist() for part in message_keys(route))
        return frozenset(zip(step, sender, receiver, strict=True))


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
    return _Walk(plan, packets).turned_out()


class _Walk:
    """Draws the exchanges of a plan, one after another."""

    def __init__(self, plan: Plan, packets: Packets) -> None:
        self.plan, self.packets, self.ground = plan, packets, plan.ground
        n, count = plan.rounds.shape
        self.planned_j = np.broadcast_to(plan.exchange_j, (n, count))
        self.joules, self.seconds = self.planned_j.copy(), plan.exchange_s.copy()
        heard = plan.timeline.receive_j
        self.heard = None if heard is None else np.broadcast_to(heard, (n, count)).copy()
        self.idle_w = plan.world.devices.idle_w
        self.awake_s = np.where(plan.active, plan.latency_s[:, None], 0.0)
        self.slack_j = _slack_j(plan) - _KEPT_BACK * plan.energy_budget_j
        self.saved_j = np.zeros(count)  # negative: spent beyond the plan
        self.messages, self.unpaid = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.lost: list[IntArray] = []

    def turned_out(self) -> Plan:
        plan = self.plan
        for row in range(plan.iterations):
            route = plan.route(row + 1)
            if route is None or not len(route.edge):
                self.lost.append(np.zeros(0, np.int64))
            else:
                self._exchange(row, route)
        timeline = replace(
            plan.timeline,
            exchange_j=self.joules,
            exchange_s=self.seconds,
            receive_j=self.heard,
            awake_s=None if self.idle_w is None else self.awake_s,
        )
        drawn = Drawn(plan.timeline, tuple(self.lost), self.messages, self.unpaid)
        made = replace(plan, timeline=timeline, drawn=drawn)
        return replace(made, notes=(*plan.notes, drawn.note(made)))

    def _exchange(self, row: int, route: Route) -> None:
        """Draw one exchange, cut off what cannot be paid for, and price it."""
        t, pricer = self.plan.timeline.first + row, self.ground.pricer
        stand = self.plan.timeline.snapshot(row)
        costs, errors = self.ground.costs(t, stand), self.ground.errors(t, stand)
        error = errors[route.link_index[route.edge], (~route.forward).astype(np.int64)]
        times = route.repeats * route.chunks
        rng = stream(self.plan.scenario.seed, "loss", t)
        bits = np.tile(route.bits / route.chunks, times)
        sent, lost = self.packets.transmissions(bits, np.tile(error, times), rng)
        often = sent.reshape(times, -1) / expected_tries(error, self.packets.tries)
        expected = pricer.beside(route, costs)
        other_j = self.planned_j[row] - expected.energy_j[0]  # flooding, and newcomers' parameters
        may_j = np.maximum(self.planned_j[row] + self._spare_j(row) - other_j, 0.0)
        drawn = drawn_prices(pricer, route, costs, often)
        if (drawn.energy_j[0] > may_j).any():
            often, cut = cut_off(pricer, route, costs, often, may_j)
            lost |= cut
            self.unpaid[row] = int(cut.sum())
            drawn = drawn_prices(pricer, route, costs, often)
        # No more, rounding apart; whoever stopped listening does not pay for a whole broadcast.
        spent_j = np.minimum(drawn.energy_j[0], may_j)
        self.joules[row] = other_j + spent_j
        if self.heard is not None and drawn.receive_j is not None:
            self.heard[row] += drawn.receive_j[0] - _nothing_if_none(expected.receive_j)
            self.heard[row] = np.clip(self.heard[row], 0.0, self.joules[row])  # rounding apart
        self._save(self.planned_j[row] - self.joules[row])
        longer_s = float(drawn.latency_s[0] - expected.latency_s[0])
        self.seconds[row] += longer_s
        self._wait(row, longer_s)
        self.messages[row] = len(lost)
        self.lost.append(np.flatnonzero(lost))

    def _spare_j(self, row: int) -> FloatArray:
        """[N] joules that a device may spend beyond the plan without missing them later."""
        slack_j = self.slack_j[min(row, len(self.slack_j) - 1)]
        return np.asarray(np.maximum(slack_j + self.saved_j, 0.0))

    def _save(self, joules: FloatArray) -> None:
        """Remember what was saved; a battery that recharges may have no room for it."""
        self.saved_j = self.saved_j + joules
        if self.plan.timeline.stored_j is not None:
            self.saved_j = np.minimum(self.saved_j, 0.0)

    def _wait(self, row: int, longer_s: float) -> None:
        """Pay for waiting longer than planned, as long as there is something to pay with."""
        if self.idle_w is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            most_s = np.where(self.idle_w > 0, self._spare_j(row) / self.idle_w, np.inf)
        waited_s = np.where(self.plan.active[row], np.minimum(longer_s, most_s), 0.0)
        self.awake_s[row] += waited_s
        self._save(-self.idle_w * waited_s)


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


def _nothing_if_none(joules: FloatArray | None) -> FloatArray | float:
    return 0.0 if joules is None else joules[0]
