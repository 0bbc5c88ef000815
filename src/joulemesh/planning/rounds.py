"""How many local rounds a device runs in each iteration: the built-in policies.

Every policy except ``theorem4-literal`` gives integers with 1 <= τ <= cap and
Σ_t τ = min(⌊total⌋, Σ_t cap) (``fixed``: n × rounds). With ``start``, a policy allocates iterations
start..n of an n-iteration plan. See notes: water-filling.
"""

from __future__ import annotations

__all__ = [
    "backfill",
    "fixed",
    "inverse",
    "stand_in",
    "theorem4",
    "theorem4_literal",
    "theorem4_weights",
    "uniform",
]

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import Edit, ScenarioError
from joulemesh.planning.policy import Policy, count_iterations, weighted
from joulemesh.planning.waterfill import read_budget, water_fill
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions
from joulemesh.tolerance import TOLERANCE


def theorem4_weights(iterations: int, zeta: float) -> NDArray[np.float64]:
    """The weights of eq. `optt`, w_t ∝ ln((ζ−t+1)/(n−t+1)), with n in the place of T.

    They are divided by ζ−n, which leaves the shares alone, keeps them positive also for
    n−1 < ζ < n, and passes smoothly through ζ = n, where the printed form is 0/0 and its limit is
    the harmonic 1/(n−t+1).

    Args:
        iterations: n.
        zeta: ζ > n−1; infinity gives equal weights.

    Returns:
        Weights [n], increasing in t.

    >>> theorem4_weights(3, 3.0).round(3)
    array([0.333, 0.5  , 1.   ])
    """
    count_iterations(iterations)
    if not zeta > iterations - 1:
        raise ScenarioError(
            f"plan.zeta = {zeta:g} leaves no logarithm for the last of {iterations} iterations; "
            f"set plan.zeta above {iterations - 1} or leave it out",
            field="plan.zeta",
        )
    if math.isinf(zeta) or iterations == 1:  # alone, it takes all: also where ζ − n rounds to −1
        return np.ones(iterations)
    left = np.arange(iterations, 0, -1)  # n − t + 1
    excess = zeta - iterations
    return 1.0 / left if excess == 0.0 else np.log1p(excess / left) / excess


def theorem4(
    iterations: int, total: ArrayLike, cap: ArrayLike, zeta: float, *, start: int = 1
) -> NDArray[np.int64]:
    """Theorem 4 corrected: water-filling with the weights of eq. `optt` (notes: water-filling).

    Args:
        iterations: n of the whole plan.
        total: rounds that each device can afford from ``start`` on, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n−start+1, N].
        zeta: the paper's ζ, above n−1.
        start: number of the first iteration still to come; the weights are those of the tail.

    Returns:
        Rounds [n−start+1] or [n−start+1, N].

    >>> theorem4(3, 11, 10, 3.0)
    array([2, 3, 6])
    >>> theorem4(3, 9, 10, 3.0, start=2)
    array([3, 6])
    """
    count_iterations(iterations, start)
    return water_fill(theorem4_weights(iterations, zeta)[start - 1 :], total, cap, start=start)


def theorem4_literal(
    iterations: int, total: ArrayLike, cap: ArrayLike, zeta: float, *, start: int = 1
) -> NDArray[np.int64]:
    """Case 1 of eq. `optt` as printed, floors and zeros included.

    Args:
        iterations: n, in the place of T.
        total: rounds that each device can afford (not floored, as printed), scalar or [N].
        cap: τ_0, scalar, [N] or [n, N].
        zeta: the paper's ζ, above n−1.

    Returns:
        Rounds [n] or [n, N]; zeros occur, and the sum falls short of the total.

    Raises:
        ScenarioError: outside the case's domain, or a value above the cap.

    >>> theorem4_literal(4, 6, 10, 4.0)
    array([0, 0, 1, 2])
    """
    count = count_iterations(iterations, start)
    weights = theorem4_weights(iterations, zeta)[start - 1 :]
    # A total below n is within the printed domain: it only gives more zeros.
    budget = read_budget(count, total, cap, start=start)
    budget.require_total(0, "the exchanges alone overdraw the battery")
    caps = np.broadcast_to(budget.cap, (count, budget.total.size))
    # The printed condition total <= S τ0 / ln(ζ/T) says that the first, smallest share fits.
    limit = caps[0] * (weights.sum() / weights[0])
    if (over := budget.total > limit * (1.0 + TOLERANCE)).any():
        device = int(np.argmax(over))
        raise ScenarioError(
            "the rounds total {total} of {device} exceeds {limit}, the limit of case 1 of "
            "theorem4-literal",
            device=budget.number(device),
            figures={"total": budget.total[device], "limit": limit[device]},
            remedies=[(Edit("plan.rounds", "theorem4"),)],
        )
    shares = (weights / weights.sum())[:, None] * budget.total
    floors = np.floor(shares * (1.0 + TOLERANCE))  # a whole share loses no round to rounding
    floors = np.where(floors.sum(axis=0) > budget.total, np.floor(shares), floors)
    if (floors > caps).any():
        row, device = (int(i) for i in np.argwhere(floors > caps)[0])
        raise ScenarioError(
            "theorem4-literal asks {device} for {rounds:round} in iteration {iteration}, above the "
            "cap of {cap}",
            device=budget.number(device),
            figures={
                "rounds": floors[row, device],
                "iteration": start + row,
                "cap": caps[row, device],
            },
            remedies=[(Edit("plan.rounds", "theorem4"),)],
        )
    return budget.shaped(floors.astype(np.int64))


def backfill(
    iterations: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """The exact integer optimum of (P42): one round each, the surplus from the end backwards.

    It maximises every suffix sum at once, so it is optimal for every a in (0, 1), also with a cap
    per iteration (notes: back-filling).

    Args:
        iterations: n.
        total: rounds that each device can afford, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n, N].

    Returns:
        Rounds [n] or [n, N].

    >>> backfill(5, 12, 4)
    array([1, 1, 2, 4, 4])
    """
    count = count_iterations(iterations, start)
    budget = read_budget(count, total, cap, start=start)
    goal, caps = budget.integers()
    room = np.broadcast_to(caps - 1, (count, goal.size))
    later = np.cumsum(room[::-1], axis=0)[::-1] - room  # what the iterations after t can take
    return budget.shaped(1 + np.clip(goal - count - later, 0, room))


def uniform(
    iterations: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """The same rounds in every iteration, as nearly as caps and integers allow.

    Args:
        iterations: n.
        total: rounds that each device can afford, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n, N].

    Returns:
        Rounds [n] or [n, N]; the odd ones go to later iterations.

    >>> uniform(4, 10, 5)
    array([2, 2, 3, 3])
    """
    return water_fill(np.ones(count_iterations(iterations, start)), total, cap, start=start)


def fixed(
    iterations: int, total: ArrayLike, cap: ArrayLike, rounds: int, *, start: int = 1
) -> NDArray[np.int64]:
    """A given number of rounds in every iteration, refused where it does not fit.

    Args:
        iterations: n.
        total: rounds that each device can afford, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n, N].
        rounds: the number, at least 1.

    Returns:
        Rounds [n] or [n, N], all equal.

    >>> fixed(3, 10, 4, 3)
    array([3, 3, 3])
    """
    count = count_iterations(iterations, start)
    if rounds < 1:
        raise ScenarioError(
            f"plan.fixed_rounds = {rounds} trains nothing; set it to at least 1",
            field="plan.fixed_rounds",
        )
    budget = read_budget(count, total, cap, start=start)
    budget.require_total(count * rounds, f"{rounds} in each iteration")
    budget.require_cap(rounds, "lower plan.fixed_rounds or raise budget.deadline_s")
    return budget.shaped(np.broadcast_to(np.int64(rounds), (count, budget.total.size)))


def inverse(
    iterations: int, total: ArrayLike, cap: ArrayLike, zeta: float, *, start: int = 1
) -> NDArray[np.int64]:
    """Theorem 4 with time reversed: most rounds first, each iteration's own cap respected.

    Args:
        iterations: n.
        total: rounds that each device can afford, scalar or [N].
        cap: most rounds per iteration, scalar, [N] or [n, N].
        zeta: the paper's ζ, above n−1.

    Returns:
        Rounds [n] or [n, N]; with caps alike in all iterations the exact reversal of ``theorem4``.

    >>> inverse(3, 11, 10, 3.0)
    array([6, 3, 2])
    """
    count = count_iterations(iterations, start)
    # Messages must name the true iteration, so the caps are examined before they are reversed.
    read_budget(count, total, cap, start=start)
    caps = np.asarray(cap)
    backwards = caps[::-1] if caps.ndim == 2 else caps
    return water_fill(theorem4_weights(iterations, zeta)[:count], total, backwards)[::-1]


def stand_in(policy: Policy, options: PlanOptions) -> str:
    """The causal policy nearest to one that cannot be followed: of the same least rounds and ζ.

    >>> stand_in(POLICIES["theorem4-literal"], PlanOptions())
    'theorem4'
    """
    if not policy.least(options):
        return "spread"
    return "theorem4" if policy.uses_zeta else "uniform"


for _policy in (
    weighted(
        "theorem4",
        "Theorem 4: more rounds in later iterations, by the paper's weights (zeta)",
        lambda n, options: theorem4_weights(n, options.zeta_for(n)),
        parameters=("zeta",),
    ),
    Policy(
        "theorem4-literal",
        "Theorem 4 as printed: floors, which give some iterations no round, and one case only",
        lambda start, n, total, cap, options: theorem4_literal(
            n, total, cap, options.zeta_for(n), start=start
        ),
        parameters=("zeta",),
        spends="at-most",
        causal=False,
        zeros=True,
    ),
    Policy(
        "backfill",
        "the optimum of (P42): one round each, the rest in the last iterations",
        lambda start, n, total, cap, options: backfill(n, total, cap, start=start),
    ),
    weighted(
        "uniform",
        "the same number in every iteration, as nearly as caps and whole numbers allow",
        lambda n, options: np.ones(n),
    ),
    Policy(
        "fixed",
        "plan.fixed_rounds in every iteration, whatever the batteries would pay for",
        lambda start, n, total, cap, options: fixed(
            n, total, cap, options.fixed_rounds, start=start
        ),
        parameters=("fixed_rounds",),
        least=lambda options: options.fixed_rounds,
        spends="least",
    ),
    Policy(
        "inverse",
        "Theorem 4 with time reversed: most rounds first",
        lambda start, n, total, cap, options: inverse(
            n, total, cap, options.zeta_for(n), start=start
        ),
        parameters=("zeta",),
    ),
):
    POLICIES.register(_policy)
