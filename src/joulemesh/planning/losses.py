"""Draws exchanges in which packets are lost, one after another, and prices them.

No battery is overdrawn. In every iteration a device may spend on the exchange what is planned for
it and what it can spare: what is left in its battery in the end, and what it has saved, or spent
beyond the plan, until then. When that is gone, it stops sending and listening; a message that is
cut off so is lost, and what was sent of it is paid for. Where it cannot pay for waiting longer than
planned, it sleeps until the next iteration. What is planned for later is not touched.
The number of transmissions is not known beforehand, so deadlines are kept in expectation only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import on_air
from joulemesh.aggregation.contract import Lost
from joulemesh.aggregation.play import exchange_parts_j, follow_messages_s
from joulemesh.aggregation.route import Route
from joulemesh.base.units import duration, energy
from joulemesh.ledger import Ledger
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Timeline
from joulemesh.planning.pricing import Pricer
from joulemesh.world.links import LinkCosts, Packets, expected_tries
from joulemesh.world.quantities import stream
from joulemesh.world.traces import Snapshot

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

__all__ = [
    "Course",
    "Drawn",
    "Outcome",
    "carried_out",
    "cut_off",
    "draw",
    "drawn_prices",
    "message_keys",
    "tries_of",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def drawn_prices(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> Ledger:
    """Joules and seconds of one exchange in which every message is sent so often."""
    # Like those of `Pricer.beside`, they are without what an iteration takes besides.
    # Joules are those of every message; a broadcast is sent as often as its worst receiver needs.
    # Seconds follow the messages one by one in orthogonal channels. Where devices take turns, and
    # in a shared medium, plays of the pattern follow each other, and what is sent again is spread
    # evenly over the chunks of a pipelined transmission.
    prices = _priced(pricer, route, costs, often.mean(axis=0))
    if len(often) == 1:
        return prices
    if pricer.medium.broadcast and route.same_to_all:  # each has a worst receiver of its own
        prices = _of_broadcasts(pricer, route, costs, often, prices)
    if not (pricer.medium.shared or pricer.medium.turns):
        each = np.stack([_seconds(pricer, route, costs, now) for now in often]) / route.chunks
        times = each[:, None] if route.chunks > 1 else each[None]
        latency = follow_messages_s(route, times, pricer.devices)
        return replace(prices, seconds=np.array([latency]))
    if route.repeats > 1:
        once = replace(route, repeats=1)
        plays = [float(_priced(pricer, once, costs, now).seconds[0]) for now in often]
        return replace(prices, seconds=np.array([sum(plays)]))
    return prices


def _priced(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> Ledger:
    """The price list's own price, with every transmission of the pattern [M] sent so often."""
    return pricer.beside(*_scaled(route, costs, often))


def _of_broadcasts(
    pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray, prices: Ledger
) -> Ledger:
    """Prices with the joules of every play, or every chunk, by itself."""
    once = replace(route, repeats=1)
    parts = [
        exchange_parts_j(*_scaled(once, costs, now), pricer.devices, pricer.pays, pricer.medium)
        for now in often
    ]
    sent, heard = np.sum(parts, axis=0) / route.chunks
    return replace(prices, transmit_j=sent[None], receive_j=heard[None])


def _seconds(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> FloatArray:
    """float64 [M]: seconds of every transmission of the pattern, sent so often."""
    air = on_air(*_scaled(route, costs, often), broadcast=pricer.medium.broadcast)
    return np.asarray(air.seconds[air.carrier])


def _scaled(route: Route, costs: LinkCosts, often: FloatArray) -> tuple[Route, LinkCosts]:
    """A route and costs under which every transmission of the pattern [M] is sent so often."""
    # Costs are scaled where each direction of a link is used once, since closed forms look at them.
    if len(np.unique(2 * route.edge + route.forward)) < len(route.edge):
        return replace(route, often=often), costs.scaled(1.0, 1.0)
    ways = np.ones((2, len(costs.forward_s)))
    ways[(~route.forward).astype(np.int64), route.link_index[route.edge]] = often
    return route, costs.scaled(ways[0], ways[1])


def cut_off(
    pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray, may_j: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Cut off messages, in the order of their steps, that one of their ends cannot pay for."""
    step, sender, receiver = (part.tolist() for part in message_keys(route))
    times, wanted = len(often), often.ravel()
    carrier = on_air(route, costs, broadcast=pricer.medium.broadcast).carrier
    group = (np.arange(times)[:, None] * len(carrier) + carrier).ravel()
    send_j = np.tile(route.joules(costs) / route.chunks, times) * wanted
    heard = route.receive_joules(costs)
    hear_j = np.zeros_like(send_j)
    if pricer.pays == "both-ends":  # whoever listens pays for the whole broadcast
        dearest = np.zeros(times * len(carrier))
        np.maximum.at(dearest, group, send_j)
        hear_j = dearest[group]
    elif heard is not None:
        hear_j = np.tile(heard / route.chunks, times) * wanted
    left, part = may_j.tolist(), np.ones(len(wanted))
    paid = np.zeros(times * len(carrier))  # of each broadcast, so far
    for k in np.argsort(step, kind="stable").tolist():
        i, j, so_far = sender[k], receiver[k], float(paid[group[k]])
        share = min(
            1.0 if send_j[k] <= so_far + left[i] else (so_far + left[i]) / send_j[k],
            1.0 if hear_j[k] <= left[j] else left[j] / hear_j[k],
        )
        paid[group[k]] = max(so_far, share * send_j[k])
        left[i] = max(left[i] - (float(paid[group[k]]) - so_far), 0.0)
        left[j] = max(left[j] - share * hear_j[k], 0.0)
        part[k] = share
    return (wanted * part).reshape(often.shape), part < 1.0


def message_keys(route: Route) -> tuple[IntArray, IntArray, IntArray]:
    """Step, sender and receiver of all messages: play after play, or chunk after chunk."""
    times = route.repeats * route.chunks
    later = 1 if route.chunks > 1 else route.steps
    step = (np.arange(times)[:, None] * later + route.step).ravel()
    return step, np.tile(route.sender, times), np.tile(route.receiver, times)


BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Course:
    """The exchanges of n iterations as they are expected."""

    ground: Ground  # the scenario, its world and its prices
    route: Callable[[int], Route | None]  # what is sent in a row (from 0); None where nothing is
    exchange: Ledger  # what they cost
    latency_s: FloatArray  # float64 [n]: seconds of each iteration
    active: NDArray[np.bool_]  # bool [n, N]: who takes part
    # float64 [n, N], or [1, N]: the least that batteries hold from an iteration on, if all goes as
    # expected
    slack_j: FloatArray
    # do batteries recharge, so that joules that are saved may find no room?
    recharges: bool = False
    first: int = 0  # the iteration (from 0) of the first row
    # where moving devices are in each row, if they move; empty otherwise
    snapshots: tuple[Snapshot | None, ...] = ()
    # which messages of an exchange are not sent at all, given those that are lost, both bool in the
    # order of `joulemesh.planning.losses.message_keys`; None if all are.
    unsent: Callable[[BoolArray], BoolArray] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was drawn for n exchanges."""

    exchange: Ledger  # what they cost
    longer_s: FloatArray  # float64 [n]: seconds that exchanges take longer than expected
    # float64 [n, N]: seconds for which a device's power at rest is paid; None where it is not
    # counted
    awake_s: FloatArray | None
    # for every iteration the messages that were lost: positions in the order of
    # `joulemesh.planning.losses.message_keys`.
    lost: tuple[IntArray, ...]
    messages: IntArray  # int64 [n]: how many messages every exchange has
    unpaid: IntArray  # int64 [n]: how many of the lost ones a battery could not pay for
    # of exchanges in which a battery could not pay, by their row: how often every message was sent,
    # as `tries_of` has it of the others
    cut: dict[int, FloatArray] = field(default_factory=dict)

    @property
    def lost_messages(self) -> IntArray:
        """int64 [n]: how many messages every exchange lost."""
        return np.array([len(lost) for lost in self.lost], np.int64)

    def lost_in(self, row: int, route: Route) -> Lost:
        """The messages that the exchange of a row lost, as `execute` wants them."""
        step, sender, receiver = (part[self.lost[row]].tolist() for part in message_keys(route))
        return frozenset(zip(step, sender, receiver, strict=True))

    def note(self, expected_j: float, expected_s: float, late: int) -> str:
        """What was drawn beside what was expected of the exchanges, in a sentence."""
        said = (
            f"packets are lost: exchanges took {energy(self.exchange.total_j)} and "
            f"{duration(expected_s + float(self.longer_s.sum()))}, expected were "
            f"{energy(expected_j)} and {duration(expected_s)}; "
            f"{int(self.lost_messages.sum()):,} of {int(self.messages.sum()):,} messages were "
            f"lost, {int(self.unpaid.sum()):,} of them for want of joules"
        )
        return f"{said}; {late:,} iterations ended after the deadline" if late else said


def tries_of(
    ground: Ground, packets: Packets, t: int, route: Route, stand: Snapshot | None = None
) -> tuple[FloatArray, BoolArray]:
    """Draw the transmissions of one exchange: a function of the seed and the iteration."""
    errors = ground.errors(t, stand)
    way = route.link_index[route.edge], (~route.forward).astype(np.int64)
    error, packet = errors[way], ground.pricer.sent(route, ground.costs(t, stand)).packet
    besides = np.zeros(len(error)) if packet is None else packet[way]
    times = route.repeats * route.chunks
    rng = stream(ground.scenario.seed, "loss", t)
    bits = np.tile(route.bits / route.chunks, times)
    sent, lost = packets.transmissions(bits, np.tile(error, times), rng, np.tile(besides, times))
    return sent.reshape(times, -1) / expected_tries(error, packets.tries), lost


def draw(course: Course, packets: Packets) -> Outcome:
    """Draw the exchanges of a course."""
    return _Walk(course, packets).outcome()


class _Walk:
    """Draws the exchanges of a course, one after another."""

    def __init__(self, course: Course, packets: Packets) -> None:
        self.course, self.packets, self.ground = course, packets, course.ground
        self.planned_j = course.exchange.exchange_j
        n, count = self.planned_j.shape
        devices = course.ground.world.devices
        self.joules, self.heard = self.planned_j.copy(), course.exchange.receive_j.copy()
        self.longer_s = np.zeros(n)
        self.idle_w = devices.idle_w
        self.awake_s = np.where(course.active, course.latency_s[:, None], 0.0)
        self.slack_j = course.slack_j
        self.saved_j = np.zeros(count)  # negative: spent beyond what is expected
        self.messages, self.unpaid = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.lost: list[IntArray] = []
        self.cut: dict[int, FloatArray] = {}

    def outcome(self) -> Outcome:
        for row in range(len(self.planned_j)):
            route = self.course.route(row)
            if route is None or not len(route.edge):
                self.lost.append(np.zeros(0, np.int64))
            else:
                self._exchange(row, route)
        exchange = replace(
            self.course.exchange,
            transmit_j=self.joules - self.heard,
            receive_j=self.heard,
            seconds=self.course.exchange.seconds + self.longer_s,
        )
        return Outcome(
            exchange,
            self.longer_s,
            None if self.idle_w is None else self.awake_s,
            tuple(self.lost),
            self.messages,
            self.unpaid,
            self.cut,
        )

    def _exchange(self, row: int, route: Route) -> None:
        """Draw one exchange, cut off what cannot be paid for, and price it."""
        t, pricer = self.course.first + row, self.ground.pricer
        stand = self.course.snapshots[row] if self.course.snapshots else None
        costs = pricer.sent(route, self.ground.costs(t, stand))
        often, lost = tries_of(self.ground, self.packets, t, route, stand)
        often = self._unsent(often, lost)
        expected = pricer.beside(route, costs)
        other_j = self.planned_j[row] - expected.exchange_j[0]  # flooding, gifts
        may_j = np.maximum(self.planned_j[row] + self._spare_j(row) - other_j, 0.0)
        drawn = drawn_prices(pricer, route, costs, often)
        if (drawn.exchange_j[0] > may_j).any():
            often, cut = cut_off(pricer, route, costs, often, may_j)
            lost |= cut
            self.unpaid[row] = int(cut.sum())
            often = self.cut[row] = self._unsent(often, lost)
            drawn = drawn_prices(pricer, route, costs, often)
        # No more, rounding apart; whoever stopped listening does not pay for a whole broadcast.
        spent_j = np.minimum(drawn.exchange_j[0], may_j)
        self.joules[row] = other_j + spent_j
        self.heard[row] += drawn.receive_j[0] - expected.receive_j[0]
        self.heard[row] = np.clip(self.heard[row], 0.0, self.joules[row])  # rounding apart
        self._save(self.planned_j[row] - self.joules[row])
        longer_s = float(drawn.seconds[0] - expected.seconds[0])
        self.longer_s[row] = longer_s
        self._wait(row, longer_s)
        self.messages[row] = len(lost)
        self.lost.append(np.flatnonzero(lost))

    def _unsent(self, often: FloatArray, lost: BoolArray) -> FloatArray:
        """How often messages are sent if some are not sent at all, which are then lost, too."""
        if self.course.unsent is None:
            return often
        silent = self.course.unsent(lost)
        lost |= silent
        return np.where(silent.reshape(often.shape), 0.0, often)

    def _spare_j(self, row: int) -> FloatArray:
        """[N] joules that a device may spend beyond the plan without missing them later."""
        slack_j = self.slack_j[min(row, len(self.slack_j) - 1)]
        return np.asarray(np.maximum(slack_j + self.saved_j, 0.0))

    def _save(self, joules: FloatArray) -> None:
        """Remember what was saved; a battery that recharges may have no room for it."""
        self.saved_j = self.saved_j + joules
        if self.course.recharges:
            self.saved_j = np.minimum(self.saved_j, 0.0)

    def _wait(self, row: int, longer_s: float) -> None:
        """Pay for waiting longer than planned, as long as there is something to pay with."""
        if self.idle_w is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            most_s = np.where(self.idle_w > 0, self._spare_j(row) / self.idle_w, np.inf)
        waited_s = np.where(self.course.active[row], np.minimum(longer_s, most_s), 0.0)
        self.awake_s[row] += waited_s
        self._save(-self.idle_w * waited_s)


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn for the exchanges of a plan."""

    planned: Timeline  # the timeline as it was planned, with expected joules and seconds
    outcome: Outcome  # what was drawn

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
        """What was drawn beside what was expected, for the summary of a run."""
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
        return self.outcome.note(expected_j, float(self.planned.exchange.seconds.sum()), late)


def carried_out(plan: Plan) -> Plan:
    """The plan as it turns out: exchanges as drawn; the plan itself where nothing is lost."""
    packets = plan.world.packets
    if packets is None or plan.drawn is not None:
        return plan
    timeline = plan.timeline
    course = Course(
        plan.ground,
        lambda row: plan.route(row + 1),
        timeline.exchange,
        plan.latency_s,
        plan.active,
        _slack_j(plan),
        plan.harvests,
        timeline.first,
        timeline.snapshots,
    )
    found = draw(course, packets)
    turned_out = replace(
        timeline,
        exchange=found.exchange,
        awake_s=found.awake_s,
    )
    drawn = Drawn(timeline, found)
    made = replace(plan, timeline=turned_out, drawn=drawn)
    return replace(made, notes=(*plan.notes, drawn.note(made)))


def _slack_j(plan: Plan) -> FloatArray:
    """[n or 1, N]: the least that batteries hold from an iteration on, if all goes as planned."""
    # Batteries that do not recharge hold least at the end.
    if not plan.harvests:
        return plan.margin_j[None]
    stored = plan.timeline.exchange.harvested_j
    spent = plan.compute_j + plan.exchange_j
    spent += np.stack([plan.idle_j(row) for row in range(plan.iterations)])
    gained = np.cumsum(stored, axis=0) - stored  # before the iteration
    level = plan.energy_budget_j + gained - np.cumsum(spent, axis=0)
    return np.asarray(np.minimum.accumulate(level[::-1], axis=0)[::-1])
