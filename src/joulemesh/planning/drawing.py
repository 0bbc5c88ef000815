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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.execute import Lost
from joulemesh.aggregation.route import Route
from joulemesh.planning.ground import Ground
from joulemesh.planning.pricing.drawn import cut_off, drawn_prices, message_keys
from joulemesh.units import duration, energy
from joulemesh.world.loss import Packets, expected_tries
from joulemesh.world.motion import Snapshot
from joulemesh.world.quantities import stream

__all__ = ["Course", "Outcome", "draw", "tries_of"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_KEPT_BACK = 1e-12  # of a battery, so that rounded sums stay below it


@dataclass(frozen=True, eq=False)
class Course:
    """The exchanges of n iterations as they are expected.

    Attributes:
        ground: the scenario, its world and its prices.
        route: what is sent in a row (from 0); None where nothing is.
        exchange_j: float64 [n, N].
        receive_j: float64 [n, N]: what of it is for receiving; None where that is free.
        latency_s: float64 [n]: seconds of each iteration.
        active: bool [n, N]: who takes part.
        slack_j: float64 [n, N], or [1, N]: the least that batteries hold from an iteration on, if
            all goes as expected.
        recharges: do batteries recharge, so that joules that are saved may find no room?
        first: the iteration (from 0) of the first row.
        snapshots: where moving devices are in each row, if they move; empty otherwise.
        unsent: which messages of an exchange are not sent at all, given those that are lost, both
            bool in the order of `joulemesh.planning.pricing.drawn.message_keys`; None if all are.
    """

    ground: Ground
    route: Callable[[int], Route | None]
    exchange_j: FloatArray
    receive_j: FloatArray | None
    latency_s: FloatArray
    active: NDArray[np.bool_]
    slack_j: FloatArray
    recharges: bool = False
    first: int = 0
    snapshots: tuple[Snapshot | None, ...] = ()
    unsent: Callable[[BoolArray], BoolArray] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was drawn for n exchanges.

    Attributes:
        exchange_j: float64 [n, N].
        receive_j: float64 [n, N]: what of it is for receiving; None where that is free.
        longer_s: float64 [n]: seconds that exchanges take longer than expected.
        awake_s: float64 [n, N]: seconds for which a device's power at rest is paid; None where it
            is not counted.
        lost: for every iteration the messages that were lost: positions in the order of
            `joulemesh.planning.pricing.drawn.message_keys`.
        messages: int64 [n]: how many messages every exchange has.
        unpaid: int64 [n]: how many of the lost ones a battery could not pay for.
        cut: of exchanges in which a battery could not pay, by their row: how often every message
            was sent, as `tries_of` has it of the others.
    """

    exchange_j: FloatArray
    receive_j: FloatArray | None
    longer_s: FloatArray
    awake_s: FloatArray | None
    lost: tuple[IntArray, ...]
    messages: IntArray
    unpaid: IntArray
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
        """What was drawn beside what was expected of the exchanges, in a sentence.

        Args:
            expected_j: joules of all devices.
            expected_s: seconds.
            late: how many iterations ended after the deadline.
        """
        said = (
            f"packets are lost: exchanges took {energy(float(self.exchange_j.sum()))} and "
            f"{duration(expected_s + float(self.longer_s.sum()))}, expected were "
            f"{energy(expected_j)} and {duration(expected_s)}; "
            f"{int(self.lost_messages.sum()):,} of {int(self.messages.sum()):,} messages were "
            f"lost, {int(self.unpaid.sum()):,} of them for want of joules"
        )
        return f"{said}; {late:,} iterations ended after the deadline" if late else said


def tries_of(
    ground: Ground, packets: Packets, t: int, route: Route, stand: Snapshot | None = None
) -> tuple[FloatArray, BoolArray]:
    """Draw the transmissions of one exchange: a function of the seed and the iteration.

    Args:
        ground: the scenario, its world and its prices.
        packets: how they are lost.
        t: the iteration, from 0.
        route: what is sent.
        stand: where moving devices are.

    Returns:
        float64 [repeats or chunks, M]: transmissions of every message over the number that is
        expected of it; and bool [repeats or chunks · M]: is it lost?
    """
    errors = ground.errors(t, stand)
    way = route.link_index[route.edge], (~route.forward).astype(np.int64)
    error, packet = errors[way], ground.costs(t, stand).packet
    besides = np.zeros(len(error)) if packet is None else packet[way]
    times = route.repeats * route.chunks
    rng = stream(ground.scenario.seed, "loss", t)
    bits = np.tile(route.bits / route.chunks, times)
    sent, lost = packets.transmissions(bits, np.tile(error, times), rng, np.tile(besides, times))
    return sent.reshape(times, -1) / expected_tries(error, packets.tries), lost


def draw(course: Course, packets: Packets) -> Outcome:
    """Draw the exchanges of a course.

    Args:
        course: as it is expected.
        packets: how they are lost.

    Returns:
        How they turn out; no device spends more than it may.
    """
    return _Walk(course, packets).outcome()


class _Walk:
    """Draws the exchanges of a course, one after another."""

    def __init__(self, course: Course, packets: Packets) -> None:
        self.course, self.packets, self.ground = course, packets, course.ground
        n, count = course.exchange_j.shape
        devices = course.ground.world.devices
        self.planned_j, self.joules = course.exchange_j, course.exchange_j.copy()
        self.heard = None if course.receive_j is None else course.receive_j.copy()
        self.longer_s = np.zeros(n)
        self.idle_w = devices.idle_w
        self.awake_s = np.where(course.active, course.latency_s[:, None], 0.0)
        self.slack_j = course.slack_j - _KEPT_BACK * devices.energy_budget_j
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
        return Outcome(
            self.joules,
            self.heard,
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
        costs = self.ground.costs(t, stand)
        often, lost = tries_of(self.ground, self.packets, t, route, stand)
        often = self._unsent(often, lost)
        expected = pricer.beside(route, costs)
        other_j = self.planned_j[row] - expected.energy_j[0]  # flooding, and newcomers' parameters
        may_j = np.maximum(self.planned_j[row] + self._spare_j(row) - other_j, 0.0)
        drawn = drawn_prices(pricer, route, costs, often)
        if (drawn.energy_j[0] > may_j).any():
            often, cut = cut_off(pricer, route, costs, often, may_j)
            lost |= cut
            self.unpaid[row] = int(cut.sum())
            often = self.cut[row] = self._unsent(often, lost)
            drawn = drawn_prices(pricer, route, costs, often)
        # No more, rounding apart; whoever stopped listening does not pay for a whole broadcast.
        spent_j = np.minimum(drawn.energy_j[0], may_j)
        self.joules[row] = other_j + spent_j
        if self.heard is not None and drawn.receive_j is not None:
            self.heard[row] += drawn.receive_j[0] - _nothing_if_none(expected.receive_j)
            self.heard[row] = np.clip(self.heard[row], 0.0, self.joules[row])  # rounding apart
        self._save(self.planned_j[row] - self.joules[row])
        longer_s = float(drawn.latency_s[0] - expected.latency_s[0])
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


def _nothing_if_none(joules: FloatArray | None) -> FloatArray | float:
    return 0.0 if joules is None else joules[0]
