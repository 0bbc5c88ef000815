"""What each device may still train: eqs. `stau` and `tau`, with the network-wide exchange latency.

Eq. `tau` as printed subtracts a device's own link; the deadline is met only if the slowest part of
the exchange is subtracted (notes: deadline-cap).

Budgets are compared with the one tolerance of the house (`joulemesh.tolerance`), so a battery of
0.3 J pays for three rounds of 0.1 J.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import Edit, InfeasibleError, Remedy
from joulemesh.ledger import alike, total_of
from joulemesh.tolerance import TOLERANCE, affordable

__all__ = [
    "Demand",
    "at_least",
    "enough_s",
    "enough_total_s",
    "missing_time",
    "require_affordable",
    "rounds_cap",
    "rounds_in_all",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def rounds_cap(deadline_s: float, exchange_s: ArrayLike, round_s: FloatArray) -> IntArray:
    """Rounds that fit before the exchange in each iteration, eq. `tau` repaired.

    Args:
        deadline_s: seconds allowed to an iteration.
        exchange_s: [] or [n] seconds of the network-wide exchange.
        round_s: [N] seconds of one round.

    Returns:
        int64 [N] or [n, N]; [1, N] where all exchanges are views of one.

    >>> rounds_cap(10.0, 4.0, np.array([1.0, 2.5])).tolist()
    [6, 2]
    """
    seconds = np.asarray(exchange_s, np.float64)
    if seconds.ndim and alike(seconds):
        seconds = seconds[:1]
    if seconds.size > 2:  # most iterations to come are forecast alike
        seconds, which = np.unique(seconds, return_inverse=True)
        return affordable(deadline_s, round_s, seconds[:, None])[which]
    return affordable(deadline_s, round_s, seconds[..., None])


def rounds_in_all(total_s: float, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
    """Rounds, one after the other, for which the exchanges leave time; int64 [N].

    Args:
        total_s: seconds of the whole training.
        exchange_s: [n] seconds of the exchanges.
        round_s: [N] seconds of one round.

    >>> rounds_in_all(10.0, np.ones(4), np.array([1.0, 0.3])).tolist()
    [6, 20]
    """
    return affordable(total_s, round_s, total_of(exchange_s))


@dataclass(frozen=True, eq=False)
class Demand:
    """What n iterations ask of batteries and clocks, and what these allow.

    Attributes:
        iterations: n.
        least: rounds that every device must run in each iteration.
        battery_j, exchange_j, round_j, round_s: [N]; exchange_j of the whole training.
        exchange_s: [n] seconds of the exchange.
        deadline_s: seconds allowed to an iteration, if they are limited.
        total_s: seconds allowed to all iterations together, if they are limited.
        idle_s: seconds of all iterations, if they are as short as they can be.
        idle_j: [N] joules at rest in that time; None if they are not counted.
    """

    iterations: int
    least: int
    battery_j: FloatArray
    exchange_j: FloatArray
    round_j: FloatArray
    exchange_s: FloatArray
    round_s: FloatArray
    deadline_s: float | None = None
    total_s: float | None = None
    idle_s: float = 0.0
    idle_j: FloatArray | None = None

    @property
    def short(self) -> NDArray[np.bool_]:
        """bool [N]: the batteries that do not pay."""
        return self.short_at_work if self.idle_j is None else self._short(self.idle_j)

    @property
    def short_at_work(self) -> NDArray[np.bool_]:
        """bool [N]: the batteries that would not pay even if nothing were drawn at rest."""
        return self._short(0.0)

    def _short(self, idle_j: ArrayLike) -> NDArray[np.bool_]:
        paid = affordable(self.battery_j, self.round_j, self.exchange_j, idle_j)
        return np.asarray(paid < self.iterations * self.least)

    @property
    def need_j(self) -> FloatArray:
        """[N] joules that each device needs."""
        working = self.exchange_j + self.iterations * self.least * self.round_j
        return working if self.idle_j is None else np.asarray(working + self.idle_j)


def require_affordable(
    demand: Demand,
    *,
    longest: int = 0,
    may_leave: bool = False,
    remedies: Callable[[float], Sequence[Remedy]] | None = None,
    shorter: Callable[[], Sequence[Remedy]] = tuple,
) -> None:
    """Refuse a plan that some device cannot pay for, naming the smallest change that would do.

    Args:
        demand: what the plan asks, and what is there.
        longest: the largest n that every battery can pay for; 0 if it is not known.
        may_leave: devices may already leave, so that is no remedy.
        remedies: what to do about a battery that would have to hold so many joules, if these
            figures alone do not tell; the first also mends deadline and total time.
        shorter: what else to do about a total time that is too short.

    Raises:
        InfeasibleError: naming device, constraint, figure and remedy.
    """
    iterations, least, short, need = demand.iterations, demand.least, demand.short, demand.need_j
    # The one that needs most, so that this figure is enough for all who fall short.
    device = int(np.argmax(np.where(short, need, 0.0)))

    def ways() -> Sequence[Remedy]:
        if remedies is not None:
            return remedies(float(need[device]))
        found: list[Remedy] = [(Edit("budget.energy_j", at_least(float(need[device])), "raise"),)]
        found += [(Edit("plan.iterations", longest, "lower"),)] if longest else []
        return found + ([] if may_leave else [(Edit("plan.on_depletion", "leave"),)])

    limits = demand.deadline_s, demand.total_s
    late, lacks = _late(least, *limits, demand.exchange_s, demand.round_s)
    if late is not None:
        mended: list[Remedy] = [tuple(lacks)]
        if short.any() and remedies is not None:
            mended = list(ways()[:1])
        elif late.code == "time":
            mended += shorter()
        late.offer(mended)
        raise late
    if short.any():
        each = f" and {_rounds(least)} per iteration {{rounds_j}}" if least else ""
        if demand.idle_j is not None:
            each += " and rest (devices.idle_w) {idle_j} in {idle_s}"
        raise InfeasibleError(
            "{device} cannot pay for {iterations:iteration} from its battery of {has_j}: the "
            f"exchanges need {{exchange_j}}{each}",
            code="energy" if demand.short_at_work[device] else "idle",
            device=device,
            figures={
                "iterations": iterations,
                "has_j": demand.battery_j[device],
                "needs_j": need[device],
                "exchange_j": demand.exchange_j[device],
                "rounds_j": iterations * least * demand.round_j[device],
                "idle_j": 0.0 if demand.idle_j is None else demand.idle_j[device],
                "idle_s": demand.idle_s,
            },
            remedies=ways(),
        )


def _late(
    least: int,
    deadline_s: float | None,
    total_s: float | None,
    exchange_s: FloatArray,
    round_s: FloatArray,
) -> tuple[InfeasibleError | None, list[Edit]]:
    """The first limit of time that is not kept, without a remedy, and the changes that mend all."""
    slowest, worst_s = int(np.argmax(round_s)), float(np.max(exchange_s))
    late: InfeasibleError | None = None
    lacks: list[Edit] = []
    if deadline_s is not None and rounds_cap(deadline_s, worst_s, round_s)[slowest] < least:
        lacks.append(Edit("budget.deadline_s", enough_s(worst_s, round_s, least), "raise"))
        late = InfeasibleError(
            "{device} misses the deadline of {deadline_s}: the exchange takes {exchange_s}"
            + (f" and {_rounds(least)} {{rounds_s}}" if least else ""),
            code="deadline",
            device=slowest,
            figures={
                "deadline_s": deadline_s,
                "exchange_s": worst_s,
                "rounds_s": least * round_s[slowest],
            },
        )
    if total_s is None:
        return late, lacks
    iterations = len(exchange_s)
    needed = iterations * least
    if rounds_in_all(total_s, exchange_s, round_s)[slowest] < needed:
        enough = enough_total_s(exchange_s, round_s, needed)
        lacks.append(Edit("budget.total_s", enough, "raise"))
        late = late or InfeasibleError(
            "{device} cannot do {iterations:iteration} in the total time of {total_s}: the "
            "exchanges take {exchange_s}"
            + (f" and {_rounds(least)} per iteration {{rounds_s}}" if least else ""),
            code="time",
            device=slowest,
            figures={
                "iterations": iterations,
                "total_s": total_s,
                "exchange_s": total_of(exchange_s),
                "rounds_s": needed * round_s[slowest],
            },
        )
    return late, lacks


def missing_time(
    least: int,
    deadline_s: float | None,
    total_s: float | None,
    exchange_s: FloatArray,
    round_s: FloatArray,
) -> list[Edit]:
    """What to raise, deadline or total, so that every device has time for the least rounds.

    Args:
        least: rounds that every device must run in each iteration.
        deadline_s: seconds allowed to an iteration, if they are limited.
        total_s: seconds allowed to all iterations together, if they are limited.
        exchange_s: [n] seconds of the exchange.
        round_s: [N] seconds of one round.

    >>> [one.text for one in missing_time(1, 2.0, 9.0, np.full(4, 1.5), np.array([1.0]))]
    ['raise budget.deadline_s to at least 2.5', 'raise budget.total_s to at least 10']
    """
    return _late(least, deadline_s, total_s, exchange_s, round_s)[1]


def _rounds(least: int) -> str:
    return "one round" if least == 1 else f"{least} rounds"


def enough_s(exchange_s: float, round_s: FloatArray, least: int) -> float:
    """A deadline with 4 digits in which every device has time for ``least`` rounds.

    >>> enough_s(2.0, np.array([1.0, 3.5]), 1)
    5.5
    """
    return at_least(exchange_s + least * float(round_s.max()))


def enough_total_s(exchange_s: FloatArray, round_s: FloatArray, rounds: int) -> float:
    """A total time with 4 digits that is enough for every device to train so many rounds.

    Args:
        exchange_s: [n] seconds of the exchanges.
        round_s: [N] seconds of one round.
        rounds: of each device, in all iterations together.

    >>> enough_total_s(np.full(2, 2.0), np.array([1.0, 3.5]), 2)
    11.0
    """
    return at_least(float(total_of(exchange_s)) + rounds * float(round_s.max()))


def at_least(value: float, digits: int = 4) -> float:
    """A figure with few digits that pays for the value.

    >>> at_least(0.028), at_least(1.00001), at_least(9.99901), at_least(0.1234, 2)
    (0.028, 1.001, 10.0, 0.13)
    """
    rounded = float(f"{value:.{digits}g}")
    if rounded * (1.0 + TOLERANCE) >= value:
        return rounded
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{rounded + step:.{digits}g}")
