"""How many iterations a plan has: as given, the most that is paid for in time, or the best.

More iterations average more often and leave less for training. Of all n, ``"auto"`` takes the one
with the least

    mean over devices i of 1/(Q_i(n) + 1)  +  κ/n,

where Q_i(n) are the rounds of device i that batteries and time leave beside n exchanges. The form
is that of the corrected bound with a tuned learning rate (notes: corrected-theorem-2): noise falls
with the rounds that are trained, drift with how often devices average. Every device counts by its
own rounds, so that a hub is not starved by what it relays. κ is δ²/σ if the constants of
``[bounds]`` are known; otherwise it follows from how far the devices' label shares are from those
of all, by a rule that was learnt from trained plans (notes: auto-iterations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.units import counted
from joulemesh.ledger import Ledger
from joulemesh.planning.budget import Waiting, rounds_cap
from joulemesh.planning.clocks import paid_rounds
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import policy_of
from joulemesh.planning.rounds import Profile
from joulemesh.scenario import PlanOptions
from joulemesh.theory import bounds
from joulemesh.tolerance import TOLERANCE, affordable, within

if TYPE_CHECKING:
    from joulemesh.planning.static import StaticPlanner

__all__ = [
    "MOST_ENTRIES",
    "Drift",
    "Iterations",
    "Merit",
    "best_iterations",
    "least_of",
    "longest",
    "longest_in_time",
    "rounds_beside",
    "zeta_limit",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_PRICED = 256  # exchanges whose mean price stands for all, where they differ
_GRID = 24
_TRIED = 16  # lengths of training, where waiting costs energy
_DRIFT, _POWER = 0.6, 1.5  # κ = 0.6·D^1.5 for label shares of squared distance D, as was learnt
_MOST = 2.0**53
_USUAL = 0.15  # D of Dirichlet(0.5), in whose place labels are not known


@dataclass(frozen=True, eq=False)
class Drift:
    """What an exchange fewer costs in terms of a round fewer, and how that is known."""

    kappa: float
    source: str

    @classmethod
    def of(cls, ground: Ground) -> Drift:
        """By the constants of the bounds, or by the labels that devices hold."""
        constants, distance = ground.constants, ground.work.label_distance
        if constants is not None and constants.gradient_variance > 0:
            kappa = constants.divergence**2 / constants.gradient_variance
            return cls(kappa, "by the constants of [bounds]")
        kappa = _DRIFT * (_USUAL if distance is None else distance) ** _POWER
        if distance is None:
            usual = "nothing is known of the devices' labels: they are taken as Dirichlet(0.5)"
            return cls(kappa, f"{usual}; [bounds] would tell")
        return cls(kappa, f"from the devices' label shares, which differ by {distance:.2g}")


def rounds_beside(
    planner: StaticPlanner, n: int, exchange_j: FloatArray, exchange_s: float
) -> FloatArray:
    """[N] rounds of each device in all for which n exchanges leave energy and time."""
    # An estimate within some per cent: planning the rounds costs a hundred times more.
    devices, limits = planner.world.devices, planner.limits
    round_j, round_s = devices.round_energy_j, devices.round_latency_s
    idle_w = Waiting.at(devices).of(1.0)
    trained = int(planner.ground.trains(n).sum())
    held_j = devices.energy_budget_j - n * (exchange_j + exchange_s * idle_w)
    most_s = np.inf if limits.total_s is None else limits.total_s - n * exchange_s
    cap = np.full_like(round_s, np.inf)
    if limits.deadline_s is not None:
        free_s = limits.deadline_s - exchange_s
        most_s, cap = min(most_s, trained * free_s), trained * np.floor(free_s / round_s)
    if planner.ground.policy.spends == "least":
        cap = np.minimum(cap, n * planner.least)
    if not trained or most_s < 0 or (held_j < 0).any():
        return np.zeros_like(round_s)
    if devices.idle_w is None:
        paid_j = paid_rounds(planner.ground, held_j, most_s)
        return _in_time(planner, trained, np.minimum(paid_j, cap), most_s)
    with np.errstate(divide="ignore"):
        most_s = min(most_s, float(np.min(np.where(idle_w > 0, held_j / idle_w, np.inf))))
    # More seconds to train in leave less energy. The sum of the rounds bends where a device trains
    # until its battery is empty.
    bends = np.sort(np.minimum(held_j / (round_j / round_s + idle_w), most_s))
    some = bends[np.linspace(0, len(bends) - 1, min(_TRIED, len(bends))).astype(np.int64)]
    tried = np.append(some, most_s if np.isfinite(most_s) else [])
    paid = [
        np.minimum(paid_rounds(planner.ground, held_j - train_s * idle_w, train_s), cap)
        for train_s in tried.tolist()
    ]
    even = [float(np.minimum(p, s / round_s).sum()) for p, s in zip(paid, tried, strict=True)]
    best = int(np.argmax(even))
    return _in_time(planner, trained, paid[best], float(tried[best]))


_CLOSER = 4  # steps towards the level of seconds that whole rounds leave


def _in_time(planner: StaticPlanner, trained: int, paid: FloatArray, train_s: float) -> FloatArray:
    """As many rounds as fit some seconds of training, of those that batteries pay for."""
    round_s = planner.world.devices.round_latency_s
    whole: FloatArray = np.floor(np.clip(paid, 0.0, _MOST) * (1.0 + TOLERANCE))
    if planner.ground.policy.fit is None:  # every iteration has the same time
        even: FloatArray = np.minimum(whole, trained * np.floor(train_s / trained / round_s))
        return even
    level_s, rounds = train_s, whole
    for _ in range(_CLOSER if np.isfinite(train_s) else 0):
        rounds = np.minimum(whole, np.floor(level_s / round_s))
        taken_s = Profile.of(rounds.astype(np.int64), trained, round_s).total_s
        if taken_s <= train_s:
            break
        level_s *= train_s / taken_s
    return rounds


@dataclass(frozen=True, eq=False)
class Merit:
    """What a number of iterations is worth to a planner."""

    planner: StaticPlanner  # whose batteries, limits of time and policy hold
    exchange_j: FloatArray  # [N] joules of one exchange, on average
    exchange_s: float  # seconds of one exchange, on average
    drift: Drift

    @classmethod
    def of(cls, planner: StaticPlanner, most: int) -> Merit:
        """Of the prices of a planner's exchanges, up to so many of them."""
        n = min(most, _PRICED)
        prices = planner.prices(planner.ground.ready(n), n)
        mean_s = float(prices.seconds.mean())
        return cls(planner, prices.exchange_j.mean(axis=0), mean_s, Drift.of(planner.ground))

    def rounds(self, n: int) -> FloatArray:
        """[N] rounds of each device in all beside n exchanges, by an estimate."""
        return rounds_beside(self.planner, n, self.exchange_j, self.exchange_s)

    def value(self, n: int) -> float:
        """The mean of 1/(Q + 1), and κ/n: only exchanges count before which somebody trains."""
        rounds = self.rounds(n)
        if not rounds.any() or (rounds < n * self.planner.least).any():
            return np.inf
        return float((1 / (rounds + 1)).mean() + self.drift.kappa / min(n, rounds.max()))

    def reason(self, n: int, most: int) -> str:
        """Why n of the ``most`` iterations that are paid for, in one line."""
        rounds, limits = self.rounds(n), self.planner.limits
        joules = float(n * self.exchange_j.sum() / self.planner.world.devices.energy_budget_j.sum())
        shares = [f"{100 * joules:.2g} % of the energy in all batteries"]
        if limits.total_s is not None:
            shares.append(f"{100 * n * self.exchange_s / limits.total_s:.2g} % of the total time")
        why = "more of them would cost more rounds than they are worth"
        if n == most:
            why = "no more are paid for, or can be planned"
        return (
            f'plan.iterations = "auto" is {n:,}: {rounds.mean() / n:.3g} rounds per iteration on '
            f"average, and exchanges take {' and '.join(shares)}; {why} "
            f"(kappa {self.drift.kappa:.2g}, {self.drift.source})"
        )


def least_of(most: int, value: Callable[[int], float]) -> int:
    """The n in 1..most with the least value, if there is one dip: a grid that is refined."""
    grid = np.unique(np.rint(np.geomspace(1, max(1, most), _GRID)).astype(np.int64))
    known: dict[int, float] = {}
    while True:
        for n in grid.tolist():
            if n not in known:
                known[n] = value(n)
        best = min(known, key=lambda n: (known[n], n))
        tried = np.array(sorted(known))
        at = int(np.searchsorted(tried, best))
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
        grid = np.unique(np.linspace(low, high, _GRID // 3).astype(np.int64))
        if set(grid.tolist()) <= known.keys():
            return best


MOST_ENTRIES = 200_000_000
"""Of rounds [n, N]: 1.6 GB an array, beyond what planning should take."""


class Iterations:
    """The number of iterations of one planner's scenario."""

    def __init__(self, planner: StaticPlanner) -> None:
        self.planner = planner
        self.ground, self.options, self.world = planner.ground, planner.options, planner.world
        self.least, self.limits = planner.least, planner.limits

    def longest(self, limit: int | None) -> int:
        """Largest n, up to a limit, that every battery pays for in time."""
        # Where no round is compulsory, somebody still has to be able to train one.
        most = self._most(limit)
        if self.least or not most or self.planner.fits(most) == (True, []):
            return most
        low = 0
        while low < most:
            middle = (low + most + 1) // 2
            if self.planner.fits(middle) == (True, []):
                low = middle
            else:
                most = middle - 1
        return low

    def _most(self, limit: int | None) -> int:
        """Largest n, up to a limit, whose exchanges and compulsory rounds are paid for in time."""
        first = self.ground.ready(1)
        if isinstance(first, Patterned):
            return self._between(0, self._too_many(limit))
        if self.options.gossip_rounds != "balanced" or first.exact:
            return self._longest_of(first, limit)
        return self._between(0, self._longest_of(first.with_rounds(1), limit))

    def _between(self, low: int, high: int) -> int:
        """The largest n that is paid for, if the scheme depends on n: a balance, or a pattern."""
        while low < high:
            middle = (low + high + 1) // 2
            if self._paid(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _paid(self, n: int) -> bool:
        return self._longest_of(self.ground.ready(n), n) == n

    def _too_many(self, limit: int | None) -> int:
        """A number that is not paid for, or the limit, or one more than a plan may have."""
        # Iterations without an exchange cost nothing if nobody has to train in them: more than
        # there can be rounds are of no use.
        most = min(limit or MOST_ENTRIES, MOST_ENTRIES // self.world.graph.devices + 1)
        if not self.least:
            devices = self.world.devices
            most = min(most, int(np.max(devices.energy_budget_j / devices.round_energy_j)) + 1)
        n = 1
        while n < most and self._paid(n):
            n *= 2
        return min(n, most)

    def _longest_of(self, scheme: Scheme, limit: int | None) -> int:
        """Largest n up to a limit for one scheme; unlike exchanges are priced until one fails."""
        devices = self.world.devices
        need, waiting = self.least * devices.round_energy_j, Waiting.at(devices)
        room = MOST_ENTRIES // len(need) + 1  # beyond, the plan is refused for its size
        with np.errstate(divide="ignore"):  # where no round is asked for, exchanges decide alone
            lasts = np.min(devices.energy_budget_j / need) + 1
        most = int(min(lasts, limit or room, room))
        if not (scheme.random or self.ground.floods(scheme)):
            one = self.planner.prices(scheme, 1)
            each_j = one.exchange_j[0]
            if waiting.counted:
                each_j = each_j + waiting.per_iteration(one.seconds, self.least)[0]
            n = longest(devices.energy_budget_j, each_j, devices.round_energy_j, self.least)
            if self.limits.total_s is not None:
                slowest_s = float(devices.round_latency_s.max())
                timed = (float(one.seconds[0]), slowest_s, self.least)
                n = min(n, longest_in_time(self.limits.total_s, *timed))
            return min(n, most)
        n = 1
        while True:
            n = min(n, most)
            prices = self.planner.prices(scheme, n)
            paid = self._timely(prices, n)
            cost = np.cumsum(prices.exchange_j, axis=0) + np.arange(1, n + 1)[:, None] * need
            if waiting.counted:
                each_j = waiting.per_iteration(prices.seconds, self.least)
                cost = cost + np.cumsum(np.broadcast_to(each_j, cost.shape), axis=0)
            broke = ~within(devices.energy_budget_j, cost).all(axis=1)
            paid = min(paid, int(np.argmax(broke)) if broke.any() else n)
            if paid < n or n == most:
                return paid
            n *= 2

    def _timely(self, prices: Ledger, most: int) -> int:
        """How many of the first iterations there is time for."""
        n, slowest_s = most, self.world.devices.round_latency_s.max(keepdims=True)
        if self.limits.deadline_s is not None:
            late = rounds_cap(self.limits.deadline_s, prices.seconds, slowest_s) < self.least
            n = int(np.argmax(late)) if late.any() else n
        if self.limits.total_s is None:
            return n
        each_s = np.broadcast_to(prices.seconds + self.least * float(slowest_s[0]), most)
        over = ~within(self.limits.total_s, np.cumsum(each_s))
        return min(n, int(np.argmax(over))) if over.any() else n

    def chosen(self) -> int:
        """Number n of iterations: as given, the most that is paid for, or the best of a bound."""
        wanted = self.options.iterations
        if isinstance(wanted, int):
            return wanted
        limit = zeta_limit(self.options)
        n = self.longest(limit)
        if n < 1:
            scheme = self.ground.ready(1)
            self.planner.require(self.planner.prices(scheme, 1), 1)
        if wanted == "bound":
            n = self._best_of_bound(n)
        if wanted == "auto":
            return self._balanced(n)
        if limit is not None and n == limit:
            self._note_cut(limit)
        return n

    def _balanced(self, most: int) -> int:
        """The n that balances rounds and exchanges by their prices, of those that are paid for."""
        merit = Merit.of(self.planner, most)
        most = min(most, MOST_ENTRIES // self.world.graph.devices)
        n = least_of(most, merit.value)
        while n > 1 and self.planner.fits(n) != (True, []):  # prices were those of the mean
            n = n * 15 // 16
        self.planner.notes.append(merit.reason(n, most))
        return n

    def _note_cut(self, limit: int) -> None:
        """Say that ζ, not a battery, ends the plan; how far it would go only if that is cheap."""
        scheme = self.ground.ready(1)
        priced = (
            scheme.random or self.ground.floods(scheme) or self.options.gossip_rounds == "balanced"
        )
        most = self.longest(limit + 1 if priced else None)
        if most > limit:
            pay = "more" if priced else f"{most:,}"
            self.planner.notes.append(
                f"plan.zeta = {self.options.zeta:g} ends the plan after "
                f"{counted(limit, 'iteration')}, though the batteries pay for {pay}; leave "
                "plan.zeta out, and it follows the iterations"
            )

    def _best_of_bound(self, most: int) -> int:
        constants = self.ground.constants
        if constants is None:
            raise ScenarioError(
                'plan.iterations = "bound" needs every constant of [bounds] as a number; '
                "`joulemesh estimate FILE` measures them",
                field="plan.iterations",
            )
        rate, size = (
            self.planner.scenario.training.learning_rate,
            self.ground.work.parameters,
        )

        def value(n: int) -> float:
            scheme = self.ground.ready(n)
            try:
                rounds = self.planner.static(scheme, self.planner.prices(scheme, n), n).rounds
            except (InfeasibleError, ScenarioError):
                return np.inf
            gap = bounds.evaluate(rounds, constants, rate, size).theorem1_corrected
            return np.inf if gap is None else gap

        if rate * constants.smoothness > 1:
            raise ScenarioError(
                f"the bound holds for training.learning_rate at most 1/M = "
                f"{1 / constants.smoothness:.4g}, not {rate:g}; lower it, or give plan.iterations"
            )
        return best_iterations(most, value)


_CANDIDATES = 64


def zeta_limit(options: PlanOptions) -> int | None:
    """Largest n with n − 1 < ζ where the policy uses ζ and ζ is given; None without a limit."""
    if options.zeta == "auto" or not policy_of(options).uses_zeta:
        return None
    return int(np.ceil(options.zeta))


def longest(
    battery_j: FloatArray, exchange_j: FloatArray, round_j: FloatArray, least: int = 1
) -> int:
    """Largest n for which every device affords ``least`` rounds and its exchange each iteration."""
    # The closed form of Algorithm 3's loop (notes: longest-plan): min over devices of ⌊δ_E / (E_cp
    # + E_cm)⌋.
    with np.errstate(divide="ignore"):  # without a round, some exchanges cost a device nothing
        return int(affordable(battery_j, least * round_j + exchange_j).min())


def longest_in_time(total_s: float, exchange_s: float, round_s: float, least: int = 1) -> int:
    """Largest n of iterations with ``least`` rounds and an exchange within a total time."""
    with np.errstate(divide="ignore"):
        return int(affordable(total_s, least * round_s + exchange_s))


def best_iterations(most: int, value: Callable[[int], float]) -> int:
    """The n in 1..most with the least value: a coarse scan, then every n around its best."""
    # Exact when most ≤ 64, and whenever the value has no dip narrower than the scan's steps.
    grid = np.unique(np.rint(np.geomspace(1, most, min(most, _CANDIDATES))).astype(np.int64))
    if most <= _CANDIDATES:
        grid = np.arange(1, most + 1)
    known = {int(n): value(int(n)) for n in grid}
    best = min(known, key=known.__getitem__)
    at = int(np.searchsorted(grid, best))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    for n in np.unique(np.linspace(low, high, _CANDIDATES).astype(np.int64)).tolist():
        known.setdefault(n, value(n))
    best = min(known, key=known.__getitem__)
    for n in range(max(1, best - _CANDIDATES // 2), min(most, best + _CANDIDATES // 2) + 1):
        known.setdefault(n, value(n))
    return min(known, key=known.__getitem__)
