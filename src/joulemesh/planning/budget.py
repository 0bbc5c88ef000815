"""What each device may still train: eqs. `stau` and `tau`, with the network-wide exchange latency.

Eq. `tau` as printed subtracts a device's own link; the deadline is met only if the slowest part of
the exchange is subtracted (notes: deadline-cap).

Nothing is forgiven: what the ledger adds up to is at most the budget, in exact arithmetic on the
float64 figures, so a battery of 0.3 J pays for two rounds of 0.1 J and not for three (in float64,
three times 0.1 is more than 0.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import InfeasibleError
from joulemesh.planning.exact import most_affordable
from joulemesh.units import duration, energy

__all__ = ["at_least", "enough_s", "require_affordable", "rounds_cap", "rounds_total"]

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
    return most_affordable(deadline_s, round_s, np.asarray(exchange_s, np.float64)[..., None])


def require_affordable(
    *,
    iterations: int,
    least: int,
    battery_j: FloatArray,
    exchange_j: FloatArray,
    round_j: FloatArray,
    deadline_s: float,
    exchange_s: FloatArray,
    round_s: FloatArray,
    longest: int,
    rest_j: ArrayLike = 0.0,
    may_leave: bool = False,
    remedies: Callable[[float], Sequence[str]] | None = None,
) -> None:
    """Refuse a plan that some device cannot pay for, naming the smallest change that would do.

    Args:
        iterations: n.
        least: rounds that every device must run in each iteration.
        battery_j, exchange_j, round_j, round_s: [N]; exchange_j of the whole training.
        deadline_s: seconds allowed to an iteration.
        exchange_s: [n] or [1] seconds of the exchange.
        longest: the largest n that every battery can pay for.
        rest_j: [N] what ``exchange_j`` leaves out (`exact_sum`).
        may_leave: devices may already leave, so that is no remedy.
        remedies: what to do about a battery that would have to hold so many joules, if these
            figures alone do not tell; the first also mends the deadline.

    Raises:
        InfeasibleError: naming device, constraint, figure and remedy.
    """
    rounds = "one round" if least == 1 else f"{least} rounds"
    slowest, worst_s = int(np.argmax(round_s)), float(np.max(exchange_s))
    short = rounds_total(battery_j, exchange_j, round_j, rest_j) < iterations * least
    need = exchange_j + iterations * least * round_j
    # The one that needs most, so that this figure is enough for all who fall short.
    device = int(np.argmax(np.where(short, need, 0.0)))

    def ways() -> Sequence[str]:
        if remedies is not None:
            return remedies(float(need[device]))
        texts = [f"raise budget.energy_j to at least {at_least(float(need[device]))}"]
        texts += [f"set plan.iterations to at most {longest}"] if longest else []
        return texts + ([] if may_leave else ['set plan.on_depletion = "leave"'])

    if rounds_cap(deadline_s, worst_s, round_s)[slowest] < least:
        remedy = f"raise budget.deadline_s to at least {enough_s(worst_s, round_s, least)}"
        if remedies is not None and short.any():
            remedy = ways()[0]
        raise InfeasibleError(
            f"device {slowest} misses the deadline of {duration(deadline_s, digits=6)}: the "
            f"exchange takes {duration(worst_s, digits=6)} and {rounds} "
            f"{duration(least * float(round_s[slowest]), digits=6)}; {remedy}",
            device=slowest,
            constraint="deadline",
        )
    if short.any():
        held, exchange = float(battery_j[device]), float(exchange_j[device])
        training = iterations * least * float(round_j[device])
        raise InfeasibleError(
            f"device {device} cannot pay for {iterations} iterations from its battery of "
            f"{energy(held, digits=6)}: the exchanges need {energy(exchange, digits=6)} and "
            f"{rounds} per iteration {energy(training, digits=6)}; {', or '.join(ways())}",
            device=device,
            constraint="energy",
        )


def enough_s(exchange_s: float, round_s: FloatArray, least: int) -> str:
    """A deadline with 4 digits in which every device has time for ``least`` rounds.

    >>> enough_s(2.0, np.array([1.0, 3.5]), 1)
    '5.5'
    """
    needed_s = exchange_s + least * float(round_s.max())
    figure = at_least(needed_s)
    if (rounds_cap(float(figure), exchange_s, round_s) < least).any():  # by the last bit
        figure = at_least(needed_s * 1.0005)
    return figure


def at_least(value: float) -> str:
    """A figure with 4 digits that is not below the value.

    >>> at_least(0.028), at_least(1.00001), at_least(9.99901)
    ('0.028', '1.001', '10')
    """
    text = f"{value:.4g}"
    return text if float(text) >= value else f"{value * 1.0005:.4g}"
