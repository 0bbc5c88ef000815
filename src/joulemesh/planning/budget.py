"""What each device may still train: eqs. `stau` and `tau`, with the network-wide exchange latency.

Eq. `tau` as printed subtracts a device's own link; the deadline is met only if the slowest part of
the exchange is subtracted (notes: deadline-cap).

Nothing is forgiven: what the ledger adds up to is at most the budget, in exact arithmetic on the
float64 figures, so a battery of 0.3 J pays for two rounds of 0.1 J and not for three (in float64,
three times 0.1 is more than 0.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import Edit, InfeasibleError, Remedy
from joulemesh.planning.exact import exact_sum, most_affordable
from joulemesh.units import counted, duration, energy

__all__ = [
    "Demand",
    "at_least",
    "enough_s",
    "enough_total_s",
    "missing_time",
    "require_affordable",
    "rounds_cap",
    "rounds_in_all",
    "rounds_total",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def rounds_total(
    battery_j: FloatArray, exchange_j: FloatArray, round_j: FloatArray, rest_j: ArrayLike = 0.0
) -> IntArray:
    """Rounds that each battery pays for once all its exchanges are paid, eq. `stau`.

    Args:
        battery_j: [N] joules to spend.
        exchange_j: [N] joules of all the exchanges to come.
        round_j: [N] joules of one round.
        rest_j: [N] what that sum of exchanges leaves out (`exact_sum`).

    >>> one = np.array([1.0])
    >>> rounds_total(10 * one, 4 * one, 1.5 * one).tolist()
    [4]
    """
    return most_affordable(battery_j, round_j, exchange_j, rest_j)


def rounds_cap(deadline_s: float, exchange_s: ArrayLike, round_s: FloatArray) -> IntArray:
    """Rounds that fit before the exchange in each iteration, eq. `tau` repaired.

    Args:
        deadline_s: seconds allowed to an iteration.
        exchange_s: [] or [n] seconds of the network-wide exchange.
        round_s: [N] seconds of one round.

    Returns:
        int64 [N] or [n, N].

    >>> rounds_cap(10.0, 4.0, np.array([1.0, 2.5])).tolist()
    [6, 2]
    """
    seconds = np.asarray(exchange_s, np.float64)
    if seconds.size > 2:  # most iterations to come are forecast alike
        seconds, which = np.unique(seconds, return_inverse=True)
        return most_affordable(deadline_s, round_s, seconds[:, None])[which]
    return most_affordable(deadline_s, round_s, seconds[..., None])


def rounds_in_all(
    total_s: float, exchange_s: FloatArray, round_s: FloatArray, iterations: int
) -> IntArray:
    """Rounds, one after the other, for which the exchanges leave time; int64 [N].

    Args:
        total_s: seconds of the whole training.
        exchange_s: [n], or [1] if all exchanges are alike.
        round_s: [N] seconds of one round.
        iterations: n.

    >>> rounds_in_all(10.0, np.array([1.0]), np.array([1.0, 0.3]), 4).tolist()
    [6, 20]
    """
    taken_s = exact_sum(exchange_s[:, None], iterations if len(exchange_s) == 1 else 1)
    return most_affordable(total_s, round_s, *taken_s)


@dataclass(frozen=True, eq=False)
class Demand:
    """What n iterations ask of batteries and clocks, and what these allow.

    Attributes:
        iterations: n.
        least: rounds that every device must run in each iteration.
        battery_j, exchange_j, round_j, round_s: [N]; exchange_j of the whole training.
        exchange_s: [n] or [1] seconds of the exchange.
        deadline_s: seconds allowed to an iteration, if they are limited.
        total_s: seconds allowed to all iterations together, if they are limited.
        rest_j: [N] what ``exchange_j`` leaves out (`exact_sum`).
        idle_s: seconds of all iterations, if they are as short as they can be.
        idle_j: parts [N] of the joules at rest in that time; none if they are not counted.
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
    rest_j: ArrayLike = 0.0
    idle_s: float = 0.0
    idle_j: tuple[FloatArray, ...] = ()

    @property
    def short(self) -> NDArray[np.bool_]:
        """bool [N]: the batteries that do not pay."""
        return self._short(*self.idle_j)

    @property
    def short_at_work(self) -> NDArray[np.bool_]:
        """bool [N]: the batteries that would not pay even if nothing were drawn at rest."""
        return self._short()

    def _short(self, *idle_j: FloatArray) -> NDArray[np.bool_]:
        fixed = (self.exchange_j, self.rest_j, *idle_j)
        paid = most_affordable(self.battery_j, self.round_j, *fixed)
        return np.asarray(paid < self.iterations * self.least)

    @property
    def need_j(self) -> FloatArray:
        """[N] joules that each device needs."""
        working = self.exchange_j + self.iterations * self.least * self.round_j
        return np.asarray(working + sum(self.idle_j)) if self.idle_j else working


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
    late, lacks = _late(iterations, least, *limits, demand.exchange_s, demand.round_s)
    if late is not None:
        found: list[Remedy] = [tuple(lacks)]
        if short.any() and remedies is not None:
            found = list(ways()[:1])
        elif late.constraint == "time":
            found += shorter()
        raise InfeasibleError(
            late.reason, remedies=found, device=late.device, constraint=late.constraint
        )
    if short.any():
        held, exchange = float(demand.battery_j[device]), float(demand.exchange_j[device])
        training = iterations * least * float(demand.round_j[device])
        each = f" and {_rounds(least)} per iteration {energy(training, digits=6)}" if least else ""
        if demand.idle_j:
            waits = energy(float(sum(part[device] for part in demand.idle_j)), digits=6)
            each += f" and rest (devices.idle_w) {waits} in {duration(demand.idle_s, digits=4)}"
        times = f"{iterations} iteration{'s' * (iterations != 1)}"
        raise InfeasibleError(
            f"device {device} cannot pay for {times} from its battery of "
            f"{energy(held, digits=6)}: the exchanges need {energy(exchange, digits=6)}{each}",
            remedies=ways(),
            device=device,
            constraint="energy" if demand.short_at_work[device] else "idle",
        )


def _late(
    iterations: int,
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
        each_s = duration(least * float(round_s[slowest]), digits=6)
        late = InfeasibleError(
            f"device {slowest} misses the deadline of {duration(deadline_s, digits=6)}: the "
            f"exchange takes {duration(worst_s, digits=6)}"
            + (f" and {_rounds(least)} {each_s}" if least else ""),
            device=slowest,
            constraint="deadline",
        )
    if total_s is None:
        return late, lacks
    needed = iterations * least
    if rounds_in_all(total_s, exchange_s, round_s, iterations)[slowest] < needed:
        enough = enough_total_s(exchange_s, round_s, iterations, needed)
        lacks.append(Edit("budget.total_s", enough, "raise"))
        repeat = iterations if len(exchange_s) == 1 else 1
        taken_s = duration(float(exchange_s.sum()) * repeat, digits=6)
        train_s = duration(needed * float(round_s[slowest]), digits=6)
        late = late or InfeasibleError(
            f"device {slowest} cannot do {counted(iterations, 'iteration')} in the total time of "
            f"{duration(total_s, digits=6)}: the exchanges take {taken_s}"
            + (f" and {_rounds(least)} per iteration {train_s}" if least else ""),
            device=slowest,
            constraint="time",
        )
    return late, lacks


def missing_time(
    iterations: int,
    least: int,
    deadline_s: float | None,
    total_s: float | None,
    exchange_s: FloatArray,
    round_s: FloatArray,
) -> list[Edit]:
    """What to raise, deadline or total, so that every device has time for the least rounds.

    Args:
        iterations: n.
        least: rounds that every device must run in each iteration.
        deadline_s: seconds allowed to an iteration, if they are limited.
        total_s: seconds allowed to all iterations together, if they are limited.
        exchange_s: [n] or [1] seconds of the exchange.
        round_s: [N] seconds of one round.

    >>> [one.text for one in missing_time(4, 1, 2.0, 9.0, np.array([1.5]), np.array([1.0]))]
    ['raise budget.deadline_s to at least 2.5', 'raise budget.total_s to at least 10']
    """
    return _late(iterations, least, deadline_s, total_s, exchange_s, round_s)[1]


def _rounds(least: int) -> str:
    return "one round" if least == 1 else f"{least} rounds"


def enough_s(exchange_s: float, round_s: FloatArray, least: int) -> float:
    """A deadline with 4 digits in which every device has time for ``least`` rounds.

    >>> enough_s(2.0, np.array([1.0, 3.5]), 1)
    5.5
    """
    needed_s = exchange_s + least * float(round_s.max())
    figure = at_least(needed_s)
    if (rounds_cap(figure, exchange_s, round_s) < least).any():  # by the last bit
        figure = at_least(needed_s * 1.0005)
    return figure


def enough_total_s(
    exchange_s: FloatArray, round_s: FloatArray, iterations: int, rounds: int
) -> float:
    """A total time with 4 digits that is enough for every device to train so many rounds.

    Args:
        exchange_s: [n], or [1] if all exchanges are alike.
        round_s: [N] seconds of one round.
        iterations: n.
        rounds: of each device, in all iterations together.

    >>> enough_total_s(np.array([2.0]), np.array([1.0, 3.5]), 2, 2)
    11.0
    """
    repeat = iterations if len(exchange_s) == 1 else 1
    needed_s = float(exchange_s.sum() * repeat) + rounds * float(round_s.max())
    figure = at_least(needed_s)
    if (rounds_in_all(figure, exchange_s, round_s, iterations) < rounds).any():
        figure = at_least(needed_s * 1.0005)  # short by the last bit
    return figure


def at_least(value: float, digits: int = 4) -> float:
    """A figure with few digits that is not below the value.

    >>> at_least(0.028), at_least(1.00001), at_least(9.99901), at_least(0.1234, 2)
    (0.028, 1.001, 10.0, 0.13)
    """
    rounded = float(f"{value:.{digits}g}")
    if rounded >= value:
        return rounded
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{rounded + step:.{digits}g}")
