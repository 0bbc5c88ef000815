"""What a rounds policy is: how a device's local rounds are spread over the iterations.

A `Policy` is the record in the registry `POLICIES`. ``total`` comes from the battery (the paper's
eq. `stau`), ``cap`` from the deadline (eq. `tau`). What a policy gives is checked, so that no
policy can overdraw a battery or miss a deadline.

`water_fill` shares rounds out in proportion to weights: for one device find the level λ with
Σ_t clip(λ w_t, 1, cap_t) = Q, then round to integers by largest remainder (notes: water-filling).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.optional import place_of
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions

__all__ = [
    "Allocate",
    "Budget",
    "Fit",
    "Policy",
    "allocate",
    "count_iterations",
    "policy_of",
    "read_budget",
    "water_fill",
    "weighted",
]

MOST_ROUNDS = 10**12  # of one device: sums of so many stay exact in float64 and int64
_PART = 1 << 16  # entries of a part: a handful of temporaries of it fit a level-2 cache
_STEPS = 240  # every third is a bisection, and 60 bisections exhaust float64
_TIE = float(1 << 30)  # remainders closer than 2^-30 are a tie: λ itself carries rounding error


@dataclass(frozen=True, eq=False)
class Budget:
    """What each device can afford and has time for, checked for shape, NaN and caps below one."""

    count: int  # iterations to allocate
    total: NDArray[np.float64]  # rounds affordable in all, [N]
    # most rounds per iteration, floored, [1, N] (all iterations alike) or [n, N]
    cap: NDArray[np.float64]
    scalar: bool  # whether all that came in was scalar, so that the answer has shape [n]
    start: int  # number of the first of these iterations, for messages

    def shaped(self, rounds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The allocation [n, N] in the shape the caller is owed."""
        return rounds[:, 0] if self.scalar else rounds

    def number(self, device: int) -> int | None:
        """Of a device in a refusal; None where only one is asked for."""
        return None if self.scalar else device

    def refusal(self, what: str, code: str, device: int, **figures: Any) -> InfeasibleError:
        """A refusal about one device."""
        at = self.number(device)
        return InfeasibleError(f"{{device}} {what}", code=code, device=at, figures=figures)

    def require_countable(self, rounds: NDArray[np.float64], remedy: str) -> None:
        """Refuse more rounds of a device than sums stay exact for."""
        if (many := rounds > MOST_ROUNDS).any():
            device = int(np.argmax(many))
            raise ScenarioError(
                f"{{device}} would run more than {{most}} rounds; {remedy}",
                device=self.number(device),
                figures={"most": float(MOST_ROUNDS)},
            )

    def require_total(self, needed: int, why: str) -> None:
        """Refuse unless every device can afford ``needed`` rounds in all."""
        if (short := np.floor(self.total) < needed).any():
            device = int(np.argmax(short))
            raise self.refusal(
                f"can afford {{has:round}} in all but needs {{needs}} ({why}); raise "
                "budget.energy_j or lower plan.iterations",
                "energy",
                device,
                has=self.total[device],
                needs=needed,
            )

    def require_cap(self, needed: int, remedy: str) -> None:
        """Refuse unless every iteration of every device has time for ``needed`` rounds."""
        if (short := self.cap < needed).any():
            device = int(np.argmax(short.any(axis=0)))
            row = int(np.argmax(short[:, device]))
            when = f"iteration {self.start + row}" if self.cap.shape[0] > 1 else "an iteration"
            raise self.refusal(
                f"has time for {{has:round}} in {when} but needs {{needs}}; {remedy}",
                "deadline",
                device,
                has=self.cap[row, device],
                needs=needed,
            )

    def integers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """min(⌊total⌋, Σ cap) [N] and caps [1 or n, N], feasible for a round in every iteration."""
        self.require_total(self.count, "one in each iteration")
        # Beyond 2^53 floor() means nothing, and sums of larger caps could overflow.
        total, cap = (np.floor(np.minimum(a, 2.0**53)) for a in (self.total, self.cap))
        goal = np.minimum(total, cap.sum(axis=0) * (self.count // cap.shape[0]))
        self.require_countable(goal, "lower budget.energy_j or budget.deadline_s")
        # No feasible entry exceeds goal - (count - 1): the others take at least one each.
        cap = np.minimum(cap, goal - (self.count - 1))
        return goal.astype(np.int64), cap.astype(np.int64)


def read_budget(
    count: int, total: ArrayLike, cap: ArrayLike, *, start: int = 1, least: int = 1
) -> Budget:
    """Check what the devices can afford and have time for in ``count`` iterations."""
    totals = np.asarray(total, dtype=np.float64)
    caps = np.asarray(cap, dtype=np.float64)
    if totals.ndim > 1 or caps.ndim > 2 or (caps.ndim == 2 and caps.shape[0] != count):
        raise ScenarioError(
            f"shapes total {totals.shape} and cap {caps.shape} do not fit {count} iterations; "
            "give total as a scalar or [N], cap as a scalar, [N] or [iterations, N]"
        )
    sizes = {a.shape[-1] for a in (totals, caps) if a.ndim}
    if len(sizes) > 1:
        raise ScenarioError(
            f"total is for {totals.shape[-1]} devices but cap for {caps.shape[-1]}; "
            "give both for the same devices"
        )
    scalar = not sizes
    devices = 1 if scalar else sizes.pop()
    caps = np.floor(caps if caps.ndim == 2 else np.broadcast_to(caps, (1, devices)))
    budget = Budget(count, np.broadcast_to(totals, devices), caps, scalar, start)
    for what, bad in (("total", np.isnan(budget.total)), ("cap", np.isnan(caps).any(axis=0))):
        if bad.any():
            raise ScenarioError(
                "the rounds {what} of {device} is NaN; give a finite battery, deadline and cost of "
                "a round",
                device=budget.number(int(np.argmax(bad))),
                figures={"what": what},
            )
    budget.require_cap(least, "raise budget.deadline_s or make its rounds or exchange faster")
    return budget


def _levels(
    weights: NDArray[np.float64], total: NDArray[np.float64], cap: NDArray[np.float64]
) -> NDArray[np.float64]:
    """λ [c] with Σ_t clip(λ w_t, 1, cap_t) = total, for total [c] and cap [c, 1 or n]."""
    # The sum is increasing and piecewise linear in λ: Newton's step is exact once it is on the
    # right piece, and the bracket with its bisections brings it there.
    low = np.full(total.shape, 1.0 / weights.max())
    high: NDArray[np.float64] = (cap / weights).max(axis=1)
    level: NDArray[np.float64] = np.clip(total / weights.sum(), low, high)
    open_ = np.arange(total.size)
    for step in range(_STEPS):
        caps, now = cap[open_], level[open_]
        flow = now[:, None] * weights
        error = total[open_] - np.clip(flow, 1.0, caps).sum(axis=1)
        left = np.abs(error) > 1e-12 * total[open_]
        if not left.any():
            break
        open_, now, error = open_[left], now[left], error[left]
        flow, caps = flow[left], caps[left]
        low[open_] = np.where(error > 0, now, low[open_])
        high[open_] = np.where(error < 0, now, high[open_])
        slope = ((flow > 1.0) & (flow < caps)).astype(np.float64) @ weights
        guess = now + error / np.where(slope > 0, slope, np.inf)
        floor, ceiling = low[open_], high[open_]
        trusted = (slope > 0) & (guess > floor) & (guess < ceiling) & (step % 3 != 2)
        level[open_] = np.where(trusted, guess, np.sqrt(floor * ceiling))
    return level


def _settle(
    ideal: NDArray[np.float64], total: NDArray[np.int64], cap: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Integers [c, n] next to ``ideal`` with the exact row sums, by largest remainder."""
    # Ties go to the later iteration. One pass does it unless rounding error in ``ideal`` moved a
    # floor; then another puts the difference right, so that the sums hold whatever the figures.
    count = ideal.shape[1]
    rounds = np.floor(ideal).astype(np.int64)
    order = np.arange(count)
    while (missing := total - rounds.sum(axis=1)).any():
        key = np.rint(np.clip(ideal - rounds, -4.0, 4.0) * _TIE).astype(np.int64) * count + order
        for sign, movable in ((1, rounds < cap), (-1, rounds > 1)):
            wanted = np.minimum(np.maximum(sign * missing, 0), movable.sum(axis=1))
            ranked = np.where(movable, sign * key, np.iinfo(np.int64).min)
            ascending = np.sort(ranked, axis=1)
            bar = np.take_along_axis(ascending, (count - np.maximum(wanted, 1))[:, None], axis=1)
            rounds += sign * ((ranked >= bar) & movable & (wanted > 0)[:, None])
            if not (missing < 0).any():
                break
    return rounds


def water_fill(
    weights: ArrayLike, total: ArrayLike, cap: ArrayLike, *, start: int = 1
) -> NDArray[np.int64]:
    """Share rounds out in proportion to weights, between one and the cap, in integers."""
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 1 or not shares.size or not (np.isfinite(shares) & (shares > 0)).all():
        raise ScenarioError(
            f"the weights of {shares.size} iterations run from {shares.min(initial=np.inf):g} to "
            f"{shares.max(initial=-np.inf):g} and must be positive and finite; check plan.zeta"
        )
    # Only ratios matter; kept within 1e200 of each other, no cap / weight overflows.
    shares = np.maximum(shares / shares.max(), 1e-200)
    budget = read_budget(shares.size, total, cap, start=start)
    goal, caps = budget.integers()
    rounds = np.empty((shares.size, goal.size), dtype=np.int64)
    width = max(1, _PART // shares.size)
    for first in range(0, goal.size, width):
        part = slice(first, first + width)
        most = np.ascontiguousarray(caps[:, part].T)
        level = _levels(shares, goal[part].astype(np.float64), most.astype(np.float64))
        ideal = np.clip(level[:, None] * shares, 1.0, most)
        rounds[:, part] = _settle(ideal, goal[part], most).T
    return budget.shaped(rounds)


IntArray = NDArray[np.int64]

Allocate = Callable[[int, int, ArrayLike, ArrayLike, PlanOptions], IntArray]
"""(start, iterations n, total, cap, options) -> rounds of iterations start..n, counted from 1.

``total`` [N] is what each device can afford from ``start`` on, ``cap`` [N] or [n−start+1, N] the
most that fits an iteration; the rounds are whole numbers [n−start+1, N].
"""

Fit = Callable[[int, IntArray, NDArray[np.float64], float], IntArray]
"""(iterations n, most [N], round_s [N], time_s) -> rounds [N] of each device in all, at most
``most``, which the policy allocates so that the slowest training of each iteration, added up over
the n iterations, takes no longer than ``time_s``.
"""


def _one(options: PlanOptions) -> int:
    return 1


@dataclass(frozen=True)
class Policy:
    """A rounds policy, as the registry `POLICIES` knows it.

    Attributes:
        name: as the scenario writes it (``plan.rounds``).
        description: one line.
        allocate: gives the rounds; see `Allocate`.
        parameters: fields of the scenario's section ``plan`` that it takes. With ``"zeta"``, no
            more than ζ + 1 iterations are planned.
        least: rounds that every device runs in each iteration at the least, 1 unless given. A plan
            pays for these first.
        spends: ``"all"``: every device's rounds sum to its total, or to its caps if these are
            less; ``"least"``: to n times ``least``; ``"at-most"``: to no more than its total.
        causal: can the rest of a plan be allocated anew in any iteration? Fading and departures
            need that.
        zeros: may it give an iteration no round? A plan takes that if ``least`` is 0, so that a
            device that does not train averages and relays; otherwise it refuses the rounds.
        fit: how it keeps a total time, see `Fit`. Without it, every iteration has the same share
            of that time for training, which ``cap`` then respects.
    """

    name: str
    description: str
    allocate: Allocate
    parameters: tuple[str, ...] = ()
    least: Callable[[PlanOptions], int] = _one
    spends: Literal["all", "least", "at-most"] = "all"
    causal: bool = True
    zeros: bool = False
    fit: Fit | None = None

    @property
    def uses_zeta(self) -> bool:
        """Does the paper's ζ decide its rounds?"""
        return "zeta" in self.parameters


def weighted(
    name: str,
    description: str,
    weights: Callable[[int, PlanOptions], ArrayLike],
    *,
    parameters: tuple[str, ...] = (),
) -> Policy:
    """A policy by weights: rounds are proportional to them, within 1 and the cap (water-filling).

    Args:
        name: as the scenario writes it.
        description: one line.
        weights: (n, options) -> [n], one positive weight for each iteration of the whole plan.
        parameters: fields of the scenario's section ``plan`` that it takes.

    >>> grows = weighted("grows", "rounds grow linearly", lambda n, options: np.arange(1, n + 1))
    >>> grows.allocate(1, 4, 20, 9, PlanOptions())
    array([2, 4, 6, 8])
    """

    def spread(
        start: int, iterations: int, total: ArrayLike, cap: ArrayLike, options: PlanOptions
    ) -> IntArray:
        count_iterations(iterations, start)
        shares = np.asarray(weights(iterations, options), np.float64)
        if shares.shape != (iterations,) or not (np.isfinite(shares) & (shares > 0)).all():
            raise ScenarioError(
                f'the weights of plan.rounds = "{name}" ({place_of(weights)}) must be {iterations} '
                "positive numbers, one for each iteration"
            )
        return water_fill(shares[start - 1 :], total, cap, start=start)

    return Policy(name, description, spread, parameters)


def policy_of(options: PlanOptions) -> Policy:
    """The policy that a scenario asks for."""
    return POLICIES[options.rounds]


def allocate(
    policy: Policy,
    iterations: int,
    total: ArrayLike,
    cap: ArrayLike,
    *,
    options: PlanOptions,
    start: int = 1,
) -> IntArray:
    """int64 [n−start+1, N], or [n−start+1] for scalars: rounds of iterations start..n, checked."""
    count = count_iterations(iterations, start)
    rounds = np.asarray(policy.allocate(start, iterations, total, cap, options))
    _require_sound(policy, rounds, count, np.asarray(total), np.asarray(cap), options)
    return rounds.astype(np.int64, copy=False)


def _require_sound(
    policy: Policy,
    rounds: NDArray[Any],
    count: int,
    total: NDArray[Any],
    cap: NDArray[Any],
    options: PlanOptions,
) -> None:
    """Refuse rounds of another shape, or too few or too many of them."""
    said = f'plan.rounds = "{policy.name}" ({place_of(policy.allocate)}) gives'
    devices = np.broadcast_shapes(total.shape, cap.shape[-1:])
    if rounds.dtype.kind not in "iu" or rounds.shape != (count, *devices):
        raise ScenarioError(
            f"{said} {rounds.dtype} {list(rounds.shape)}; return whole numbers "
            f"{[count, *devices]}, one for each iteration and device"
        )
    least = 0 if policy.zeros else policy.least(options)
    for wrong, word, bound in (
        (rounds < least, "less than the least of", least),
        (rounds > cap, "more than the cap of", cap),
    ):
        if wrong.any():
            t, *device = (int(i) for i in np.argwhere(wrong)[0])
            limit = np.broadcast_to(bound, rounds.shape)[(t, *device)]
            who = "{device}" if device else "the device"
            raise ScenarioError(
                f"{{gives}} {who} {{rounds:round}} in row {{row}}, {word} {{limit}}; keep within "
                "the arguments of allocate",
                device=device[0] if device else None,
                figures={
                    "gives": said,
                    "rounds": rounds[(t, *device)],
                    "row": t + 1,
                    "limit": limit,
                },
            )
    over = np.atleast_1d(rounds.sum(axis=0) > total)
    if over.any():
        worst = int(np.argmax(over))
        most = np.broadcast_to(total, over.shape)[worst]
        raise ScenarioError(
            "{gives} {device} more rounds than the {most} that its battery pays for; let them sum "
            "to the total at most",
            device=worst,
            figures={"gives": said, "most": most},
        )


def count_iterations(iterations: int, start: int = 1) -> int:
    """Number of iterations from ``start`` to the end, both included."""
    if not 1 <= start <= iterations:
        raise ScenarioError(
            f"iterations {start}..{iterations} do not exist; set plan.iterations to at least "
            f"{max(start, 1)}"
        )
    return iterations - start + 1
