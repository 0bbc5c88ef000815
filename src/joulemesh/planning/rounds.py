"""How many local rounds a device runs in each iteration: the built-in policies.

Every policy except ``theorem4-literal`` gives integers with 1 <= τ <= cap and
Σ_t τ = min(⌊total⌋, Σ_t cap) (``fixed``: n × rounds; ``spread`` may give none). With ``start``, a
policy allocates iterations start..n of an n-iteration plan. See notes: water-filling.

``spread``: a device that its battery pays K = q·n + k rounds runs q of them in every iteration and
one more in k iterations. Which k iterations these are is the same for all devices: the first k in
one order of the iterations, every beginning of which is itself evenly spread (multiples of the
golden ratio). So the device with fewer extra rounds trains them only where the others do, and
iterations are as short as they can be (notes: spread-rounds).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.planning.policy import (
    Budget,
    Policy,
    count_iterations,
    read_budget,
    water_fill,
    weighted,
)
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions
from joulemesh.tolerance import TOLERANCE

__all__ = [
    "Profile",
    "backfill",
    "fit_time",
    "fixed",
    "inverse",
    "level_of",
    "ranks",
    "spread",
    "stand_in",
    "theorem4",
    "theorem4_literal",
    "theorem4_weights",
    "uniform",
]


def theorem4_weights(iterations: int, zeta: float) -> NDArray[np.float64]:
    """The weights of eq. `optt`, w_t ∝ ln((ζ−t+1)/(n−t+1)), with n in the place of T."""
    # They are divided by ζ−n, which leaves the shares alone, keeps them positive also for n−1 < ζ <
    # n, and passes smoothly through ζ = n, where the printed form is 0/0 and its limit is the
    # harmonic 1/(n−t+1).
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
    """Theorem 4 corrected: water-filling with the weights of eq. `optt` (notes: water-filling)."""
    count_iterations(iterations, start)
    return water_fill(theorem4_weights(iterations, zeta)[start - 1 :], total, cap, start=start)


def theorem4_literal(
    iterations: int, total: ArrayLike, cap: ArrayLike, zeta: float, *, start: int = 1
) -> NDArray[np.int64]:
    """Case 1 of eq. `optt` as printed, floors and zeros included."""
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
    """The exact integer optimum of (P42): one round each, the surplus from the end backwards."""
    # It maximises every suffix sum at once, so it is optimal for every a in (0, 1), also with a cap
    # per iteration (notes: back-filling).
    count = count_iterations(iterations, start)
    budget = read_budget(count, total, cap, start=start)
    goal, caps = budget.integers()
    room = np.broadcast_to(caps - 1, (count, goal.size))
    later = np.cumsum(room[::-1], axis=0)[::-1] - room  # what the iterations after t can take
    return budget.shaped(1 + np.clip(goal - count - later, 0, room))


def uniform(
    iterations: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """The same rounds in every iteration, as nearly as caps and integers allow."""
    return water_fill(np.ones(count_iterations(iterations, start)), total, cap, start=start)


def fixed(
    iterations: int, total: ArrayLike, cap: ArrayLike, rounds: int, *, start: int = 1
) -> NDArray[np.int64]:
    """A given number of rounds in every iteration, refused where it does not fit."""
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
    """Theorem 4 with time reversed: most rounds first, each iteration's own cap respected."""
    count = count_iterations(iterations, start)
    # Messages must name the true iteration, so the caps are examined before they are reversed.
    read_budget(count, total, cap, start=start)
    caps = np.asarray(cap)
    backwards = caps[::-1] if caps.ndim == 2 else caps
    return water_fill(theorem4_weights(iterations, zeta)[:count], total, backwards)[::-1]


def stand_in(policy: Policy, options: PlanOptions) -> str:
    """The causal policy nearest to one that cannot be followed: of the same least rounds and ζ."""
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


FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / φ, odd: its multiples are all different
_STEPS = 80  # halvings of the level: far more than tell two numbers of rounds apart
_MOST_FILLED = 1_000_000  # device looks, in filling up what the level leaves


def ranks(iterations: int) -> IntArray:
    """Rank of each iteration in the order in which extra rounds are given, int64 [n]."""
    # The last iteration comes first. The order visits multiples of the golden ratio modulo 1, in
    # whole numbers modulo 2⁶⁴, so that every beginning of it is evenly spread.
    visited = np.arange(iterations, dtype=np.uint64) * _GOLDEN  # wraps round
    rank = np.empty(iterations, np.int64)
    rank[::-1][np.argsort(np.argsort(visited))] = np.arange(iterations)
    return rank


def spread(
    iterations: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """Rounds as even as whole numbers and caps allow, extra ones in the same iterations."""
    count = count_iterations(iterations, start)
    budget = read_budget(count, total, cap, start=start, least=0)
    budget.require_total(0, "the exchanges alone overdraw the battery")
    goal, caps = _integers(budget)
    rank = np.argsort(np.argsort(ranks(iterations)[start - 1 :]))
    each, extra = np.divmod(goal, count)
    rounds = each + (rank[:, None] < extra)
    for device in np.flatnonzero((rounds > caps).any(axis=0)):
        rounds[:, device] = _under(caps[:, device], int(goal[device]), rank)
    return budget.shaped(rounds)


def _integers(budget: Budget) -> tuple[IntArray, IntArray]:
    """min(⌊total⌋, Σ cap) [N], and caps [1 or n, N]."""
    total, cap = (np.floor(np.minimum(a, 2.0**53)) for a in (budget.total, budget.cap))
    goal = np.minimum(total, cap.sum(axis=0) * (budget.count // len(cap)))
    budget.require_countable(goal, "lower budget.energy_j or the time of [budget]")
    return goal.astype(np.int64), np.minimum(cap, goal).astype(np.int64)


def _under(cap: IntArray, goal: int, rank: IntArray) -> IntArray:
    """One device's rounds [n] where every iteration has a cap of its own; they sum to the goal."""
    low, high = 0, int(cap.max())
    while low < high:  # the most that is had in every iteration whose cap allows it
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(cap, middle).sum() <= goal else (low, middle - 1)
    rounds = np.minimum(cap, low)
    open_ = np.flatnonzero(cap > low)
    extra = open_[np.argsort(rank[open_])][: goal - int(rounds.sum())]
    rounds[extra] += 1
    return np.asarray(rounds)


# Under a total time ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Profile:
    """How long the training of each iteration is, if devices' rounds are spread."""

    until: IntArray  # int64 [m]: the first ranks, up to these, have a length; ascending to n
    seconds: FloatArray  # float64 [m]: descending

    @classmethod
    def of(cls, rounds: IntArray, iterations: int, round_s: FloatArray) -> Profile:
        """Of devices with so many rounds in all [N], over n iterations."""
        each, extra = np.divmod(rounds, iterations)
        base = float((each * round_s).max(initial=0.0))
        longer = np.where(extra > 0, (each + 1) * round_s, 0.0)
        who = np.flatnonzero(longer > base)
        who = who[np.argsort(extra[who], kind="stable")]
        until = np.append(extra[who], iterations)
        length = np.append(np.maximum.accumulate(longer[who][::-1])[::-1], base)
        last = np.append(until[1:] != until[:-1], True)  # several end at the same rank
        first = np.append(True, last[:-1])
        return cls(until[last], length[first])

    @property
    def total_s(self) -> float:
        """Seconds of all iterations together."""
        return math.fsum(np.diff(self.until, prepend=0) * self.seconds)

    def at(self, rank: IntArray) -> FloatArray:
        """Seconds of the iterations with some ranks."""
        return self.seconds[np.searchsorted(self.until, rank, side="right")]

    def free(self, iterations: int, round_s: FloatArray) -> IntArray:
        """[N] the most rounds that each device can run without making any iteration longer."""
        shortest = float(self.seconds[-1])
        each = np.floor(shortest / round_s)
        each += (each + 1) * round_s <= shortest  # the quotient is rounded
        each -= each * round_s > shortest
        # Iterations, by rank, that are long enough for one more round.
        where = np.searchsorted(-self.seconds, -(each + 1) * round_s, side="right")
        extra = np.append(0, self.until)[where]
        return np.asarray(each.astype(np.int64) * iterations + extra)


def fit_time(iterations: int, most: IntArray, round_s: FloatArray, time_s: float) -> IntArray:
    """Rounds of each device in all whose iterations, spread, train no longer than a time."""
    # What `level_of` leaves is filled up by rounds that cost no time, and then by those that cost
    # least.
    rounds = level_of(iterations, most, round_s, time_s)
    if time_s < 0 or (rounds == most).all():
        return rounds
    return _filled(rounds, iterations, most, round_s, time_s)


def level_of(iterations: int, most: IntArray, round_s: FloatArray, time_s: float) -> IntArray:
    """Rounds for the same time of training on all devices, or for as much as they can use."""
    # They are min(most, ⌊S / round_s⌋) for the largest level S of seconds that fits: nobody is cut
    # who trains for less time than another.

    def rounds(seconds: float) -> IntArray:
        return np.asarray(np.minimum(most, np.floor(seconds / round_s)).astype(np.int64))

    def fits(tried: IntArray) -> bool:
        return Profile.of(tried, iterations, round_s).total_s <= time_s

    if time_s < 0 or fits(most):
        return most if time_s >= 0 else np.zeros_like(most)
    low, high = 0.0, float((most * round_s).max())
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(rounds(middle)) else (low, middle)
        if (rounds(high) - rounds(low)).sum() <= 1:
            break
    return rounds(low)


def _filled(
    rounds: IntArray, iterations: int, most: IntArray, round_s: FloatArray, time_s: float
) -> IntArray:
    """Rounds with those added that still fit; of these the ones that take least time first."""
    for _ in range(max(_MOST_FILLED // len(most), 8)):
        profile = Profile.of(rounds, iterations, round_s)
        rounds = np.maximum(rounds, np.minimum(most, profile.free(iterations, round_s)))
        each, extra = np.divmod(rounds, iterations)
        longer_s = (each + 1) * round_s - profile.at(extra)
        longer_s = np.where(rounds < most, longer_s, np.inf)
        device = int(np.argmin(longer_s))
        tried = rounds.copy()
        tried[device] += 1
        if not np.isfinite(longer_s[device]):
            break
        if Profile.of(tried, iterations, round_s).total_s > time_s:
            break
        rounds = tried
    return rounds


POLICIES.register(
    Policy(
        "spread",
        "as even as whole numbers allow: a device may relay and average without training",
        lambda start, n, total, cap, options: spread(n, total, cap, start=start),
        least=lambda options: 0,
        zeros=True,
        fit=fit_time,
    )
)
