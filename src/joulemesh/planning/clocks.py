"""How fast processors run: just in time, or planned together with the rounds (notes: clocks).

*Just in time* keeps a plan's rounds and seconds: each device finishes the rounds of an iteration
when the slowest does. *Auto* also decides for how long each iteration trains. Within such windows
every device buys as many rounds as its battery pays for at the slowest clocks that fit, so devices
do not depend on each other: windows are tried, and lengthened where many rounds are trained, while
rounds grow. Where iterations are planned one after another (fading, traces, departures), each
device's clock is chosen once, the plan is made at these clocks, and just in time comes on top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.ledger import Ledger, paced_j, slowest_s, total_of
from joulemesh.planning.budget import TimeLimits
from joulemesh.planning.certificate import best_time_s
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Timeline
from joulemesh.planning.policy import allocate
from joulemesh.tolerance import TOLERANCE, affordable, within

__all__ = [
    "Windows",
    "at_pace",
    "just_in_time",
    "pace",
    "paid_rounds",
    "recharged_anew",
    "with_clocks",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Made = tuple[int, Timeline, list[str]]
"""A number of iterations, what was planned for it, and notes."""

_ROUNDS_OF_WINDOWS = 8
_SEARCHED = 6  # numbers of rounds that are priced beside the first guess
_LARGE = 1_000_000  # entries of a plan, beyond which windows are tried once
_NEAR = (1.0, 0.9, 1.1)  # of the best sum of all windows, where waiting costs energy
_BETTER = 1.002  # rounds, for which another set of windows is tried
_TOTALS = 8
_HALVINGS = 60


def with_clocks(ground: Ground, made: Callable[[Ground, int | None], Made]) -> Made:
    """A plan at the clocks that a scenario asks for.

    Args:
        ground: what is planned.
        made: plans at full clock, for a number of iterations or as many as are best.
    """
    if ground.clock == "full":
        return made(ground, None)
    try:
        full = made(ground, None)
    except InfeasibleError:
        n = ground.scenario.plan.iterations
        if ground.clock != "auto" or not isinstance(n, int):
            raise
        slower = _paced(ground, n, made)
        if slower is None:
            raise
        return slower
    n, timeline, notes = full
    if ground.clock == "just-in-time":
        return n, just_in_time(ground, timeline), notes
    static = timeline.routes is None and bool(timeline.active.all()) and not ground.world.changes
    if static:
        return n, Windows(ground, timeline).best(), notes
    best = n, just_in_time(ground, timeline), notes
    if ground.scenario.plan.goal == "joules":
        return best
    other = _paced(ground, n, made)
    more = other is not None and other[1].rounds.sum() > timeline.rounds.sum()
    return other if more and other is not None else best


def just_in_time(ground: Ground, timeline: Timeline, round_s: FloatArray | None = None) -> Timeline:
    """The same rounds in the same seconds, which all devices use.

    Args:
        ground: what the timeline stands on.
        timeline: of a plan in which a round of each device takes always the same time.
        round_s: float64 [N]: that time; at full clock, if it is left out.
    """
    devices = ground.world.devices
    each_s = devices.round_latency_s if round_s is None else round_s
    window_s = slowest_s(timeline.rounds, each_s)
    return recharged_anew(ground, replace(timeline, window_s=window_s))


def recharged_anew(ground: Ground, timeline: Timeline) -> Timeline:
    """The same with batteries that have less room for what is harvested, since less is spent."""
    spilled_j, capacity_j = timeline.spilled_j, ground.world.traces.capacity_j
    if spilled_j is None or capacity_j is None:
        return timeline
    devices, exchange = ground.world.devices, timeline.exchange
    gathered_j = exchange.harvested_j + spilled_j
    compute_j = timeline.rounds * devices.round_energy_j
    if timeline.window_s is not None:
        compute_j = paced_j(devices, timeline.rounds, timeline.window_s)
    length_s = timeline.training_s(devices.round_latency_s) + exchange.seconds
    held_j, stored_j = devices.energy_budget_j, np.zeros_like(compute_j)
    for row, active in enumerate(timeline.active):
        spent_j = compute_j[row] + exchange.exchange_j[row]
        if devices.idle_w is not None:
            spent_j = spent_j + np.where(active, devices.idle_w * length_s[row], 0.0)
        left_j = held_j - spent_j
        stored_j[row] = np.clip(capacity_j - left_j, 0.0, gathered_j[row])
        held_j = left_j + stored_j[row]
    exchange = replace(exchange, harvested_j=stored_j)
    return replace(timeline, exchange=exchange, spilled_j=gathered_j - stored_j)


def paid_rounds(ground: Ground, joules: FloatArray, seconds: float) -> FloatArray:
    """[N] rounds that some joules pay for in some seconds of training, at the best clocks."""
    devices, options = ground.world.devices, ground.scenario.plan
    if ground.clock != "auto" or options.goal != "rounds":
        return np.asarray(joules / devices.round_energy_j)
    return devices.round_prices.most(joules, seconds)


# One clock for each device -----------------------------------------------------------------------


def at_pace(ground: Ground, round_s: FloatArray) -> Ground:
    """The same where a round takes each device always so long, float64 [N]."""
    devices = ground.world.devices
    if devices.clocks is None:
        return ground
    slower = replace(
        devices,
        round_latency_s=round_s,
        round_energy_j=devices.round_prices.round_j(round_s),
        clocks=None,
    )
    return replace(ground, world=replace(ground.world, devices=slower))


def pace(
    ground: Ground, battery_j: FloatArray, prices: Ledger, limits: TimeLimits, least: int
) -> FloatArray:
    """Seconds of a round, float64 [N], at which batteries buy most rounds beside some exchanges.

    They are such that whole rounds fill the time for training, which iterations share equally.
    """
    devices, n = ground.world.devices, prices.iterations
    exchange_s = float(prices.seconds.max())
    time_s = []
    if limits.deadline_s is not None:
        time_s.append(limits.deadline_s - exchange_s)
    if limits.total_s is not None:
        time_s.append((limits.total_s - float(total_of(prices.seconds))) / n)
    each_s, curve = max(0.0, min(time_s)), devices.round_prices
    left_j = battery_j - total_of(prices.exchange_j)
    if devices.idle_w is not None:
        left_j = left_j - devices.idle_w * n * (each_s + exchange_s)
    most = np.ceil(curve.most(left_j, n * each_s) / n * (1 - 1e-9))
    whole = np.maximum(most, max(least, 1))
    return np.clip(each_s / whole, curve.fastest_s, curve.slowest_s)


def _paced(ground: Ground, n: int, made: Callable[[Ground, int | None], Made]) -> Made | None:
    """A plan at one clock for each device, and just in time; None if there is none."""
    devices = ground.world.devices
    prices = ground.prices(ground.ready(n), ground.forecast, 0, n)
    limits = TimeLimits.of(ground.scenario)
    round_s = pace(ground, devices.energy_budget_j, prices, limits, ground.least)
    try:
        n, timeline, notes = made(at_pace(ground, round_s), n)
    except (InfeasibleError, ScenarioError):
        return None
    return n, just_in_time(ground, timeline, round_s), notes


# Windows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Bought:
    """Rounds within windows."""

    rounds: IntArray  # int64 [n, N]
    window_s: FloatArray  # float64 [n]
    spent_j: FloatArray  # float64 [N]: on training
    full: BoolArray  # bool [N]: would one more round be too dear, not too late?

    @property
    def worth(self) -> tuple[int, float]:
        """By which two are compared: more rounds, then fewer joules."""
        return int(self.rounds.sum()), -float(self.spent_j.sum())


class Windows:
    """For how long the iterations of a plan train whose exchanges are known."""

    def __init__(self, ground: Ground, full: Timeline) -> None:
        """Args: ground, and the plan at full clock."""
        self.ground, self.full, self.n = ground, full, len(full.rounds)
        self.devices, self.curve = ground.world.devices, ground.world.devices.round_prices
        self.exchange_s = full.exchange.seconds
        self.limits = TimeLimits.of(ground.scenario)
        self.trains = ground.trains(self.n)
        self.left_j = self.devices.energy_budget_j - total_of(full.exchange.exchange_j)

    @cached_property
    def longest_s(self) -> FloatArray:
        """float64 [n]: that each iteration may train before its deadline."""
        if self.limits.deadline_s is None:
            return np.where(self.trains, np.inf, 0.0)
        return np.where(self.trains, self.limits.deadline_s - self.exchange_s, 0.0)

    @cached_property
    def total_s(self) -> float:
        """Seconds that all iterations together may train."""
        return min(self.limits.training_s(self.exchange_s), float(self.longest_s.sum()))

    def best(self) -> Timeline:
        """The plan with most rounds, or of these rounds the one of least joules."""
        rounds, round_s = self.full.rounds, self.devices.round_latency_s
        window_s = slowest_s(rounds, round_s)
        kept = self._bought(rounds, window_s, np.zeros(len(round_s), np.bool_))
        policy = self.ground.policy
        joules_only = self.ground.scenario.plan.goal == "joules" or policy.spends == "least"
        if joules_only:
            return self._as_timeline(self._slower(kept))
        best = kept
        for total_s in self._totals():
            for found in self._tried(total_s):
                best = max(best, found, key=lambda one: one.worth)
        return self._as_timeline(best)

    def _totals(self) -> list[float]:
        """Sums of all windows to try: all the time there is, unless waiting costs energy."""
        idle_w = self.devices.idle_w
        if idle_w is None:
            return [self.total_s]
        rest_j = self.left_j - idle_w * float(self.exchange_s.sum())
        best_s = best_time_s(self.curve, rest_j, idle_w, self.total_s)
        return [min(share * best_s, self.total_s) for share in _NEAR]

    def _tried(self, total_s: float) -> list[_Bought]:
        """Rounds in windows of some seconds in all, alike at first, then longer for more rounds."""
        held_j = self.left_j
        if self.devices.idle_w is not None:
            held_j = held_j - self.devices.idle_w * (total_s + float(self.exchange_s.sum()))
            if (held_j < 0).any():
                return []
        found: list[_Bought] = []
        starts = [self._alike(total_s), self._longer(self.full.rounds, held_j, total_s)]
        large = self.full.rounds.size > _LARGE
        for window_s in starts[:1] if large else starts:
            trials = 1 if large or not np.isfinite(self.limits.training_s(self.exchange_s)) else 0
            best: _Bought | None = None
            for _ in range(trials or _ROUNDS_OF_WINDOWS):
                bought = self._buy(window_s, held_j)
                if bought is None or bought.window_s.sum() > total_s * (1 + TOLERANCE):
                    break
                found.append(bought)
                if best is not None and bought.worth[0] < best.worth[0] * _BETTER:
                    break
                best = bought
                window_s = self._longer(bought.rounds, held_j, total_s)
        return found

    def _alike(self, total_s: float) -> FloatArray:
        """Equal windows, as far as deadlines allow."""
        return _filled(np.ones(self.n), np.zeros(self.n), self.longest_s, total_s)

    def _longer(self, rounds: IntArray, held_j: FloatArray, total_s: float) -> FloatArray:
        """Windows in which some rounds cost least: under the cubic law, by the cube of rounds."""
        worth = np.divide(rounds.sum(axis=0), held_j, out=np.zeros_like(held_j), where=held_j > 0)
        return self._weighed(rounds, worth, total_s)

    def _weighed(self, rounds: IntArray, worth: FloatArray, total_s: float) -> FloatArray:
        scale = self.curve.points_j[:, 0] * self.curve.fastest_s**2 * worth
        weight = np.cbrt(rounds.astype(np.float64) ** 3 @ scale)
        longest_s = np.minimum(self.longest_s, (rounds * self.curve.slowest_s).max(axis=1))
        return _filled(weight, slowest_s(rounds, self.curve.fastest_s), longest_s, total_s)

    def _buy(self, window_s: FloatArray, held_j: FloatArray) -> _Bought | None:
        """As many rounds for each device as its battery pays for within windows."""
        cap = affordable(window_s[:, None], self.curve.fastest_s)
        cap = np.maximum(cap, 0) * self.trains[:, None]
        most = np.minimum(self.curve.most(held_j, window_s.sum()), cap.sum(axis=0))
        high = np.floor(most * (1 + 1e-9)).astype(np.int64) + 1  # does not fit
        low = np.full(len(high), self.n * self.ground.least - 1)  # fits, if anything does
        rounds = np.zeros((self.n, len(high)), np.int64)
        spent_j, tried = np.zeros(len(high)), high - 1
        for k in range(_SEARCHED + int(self.full.rounds.size <= _LARGE) * _HALVINGS):
            if (high - low <= 1).all():
                break
            tried = np.clip(tried, low + 1, np.maximum(high - 1, low + 1))
            made = self._allocated(np.maximum(tried, self.n * self.ground.least), cap)
            if made is None:
                return None
            joules = paced_j(self.devices, made, window_s).sum(axis=0)
            pays = within(held_j, joules) & (tried < high)
            better = pays & (tried > low)
            rounds[:, better], spent_j[better] = made[:, better], joules[better]
            low = np.where(better, tried, low)
            high = np.where(pays, high, np.minimum(high, tried))
            # Joules grow with the cube of rounds; every third time the middle is tried.
            factor = np.cbrt(held_j / np.maximum(joules, 1e-9 * held_j + 1e-300))
            guess = np.floor(tried * factor).astype(np.int64)
            tried = (low + high + 1) // 2 if k % 3 == 2 else np.minimum(guess, high - 1)
        if (low < self.n * self.ground.least).any():
            return None
        window_s = np.maximum(window_s, slowest_s(rounds, self.curve.fastest_s))
        return _Bought(rounds, window_s, spent_j, low + 1 <= cap.sum(axis=0))

    def _allocated(self, total: IntArray, cap: IntArray) -> IntArray | None:
        options = self.ground.scenario.plan
        alike = bool((cap == cap[0]).all())
        narrow = cap[0] if alike else cap
        try:
            return allocate(self.ground.policy, self.n, total, narrow, options=options)
        except (InfeasibleError, ScenarioError):
            return None

    def _bought(self, rounds: IntArray, window_s: FloatArray, full: BoolArray) -> _Bought:
        spent_j = paced_j(self.devices, rounds, window_s).sum(axis=0)
        return _Bought(rounds, window_s, spent_j, full)

    def _slower(self, kept: _Bought) -> _Bought:
        """The same rounds in windows in which they cost least, for which batteries pay."""
        idle_w = self.devices.idle_w
        count = np.ones(len(self.left_j))
        totals = [self.total_s]
        if idle_w is not None:
            totals = np.linspace(float(kept.window_s.sum()), self.total_s, _TOTALS).tolist()
        best, least_j = kept, np.inf
        for total_s in totals:
            found = self._bought(kept.rounds, self._weighed(kept.rounds, count, total_s), kept.full)
            rest_j = np.zeros_like(count)
            if idle_w is not None:
                rest_j = idle_w * float((found.window_s + self.exchange_s).sum())
            sum_j = float((found.spent_j + rest_j).sum())
            if sum_j < least_j and within(self.left_j, found.spent_j, rest_j).all():
                best, least_j = found, sum_j
        return best

    def _as_timeline(self, bought: _Bought) -> Timeline:
        used = bought.rounds.sum(axis=0)
        total = np.where(bought.full, used, np.maximum(self.full.total, used + 1))
        cap = self.limits.loose_caps(self.exchange_s, self.devices.round_latency_s)
        cap = np.maximum(cap, bought.rounds.max(axis=0))
        return replace(
            self.full, rounds=bought.rounds, cap=cap, total=total, window_s=bought.window_s
        )


def _filled(
    weight: FloatArray, least_s: FloatArray, most_s: FloatArray, total_s: float
) -> FloatArray:
    """Windows [n] in proportion to weights, within their limits, that fill a time."""

    def of(level: float) -> FloatArray:
        return np.maximum(np.minimum(level * weight, most_s), least_s)

    if not np.isfinite(total_s):
        return np.maximum(most_s, least_s)
    high = 1.0
    for _ in range(_HALVINGS):
        if of(high).sum() >= total_s or not np.isfinite(high):
            break
        high *= 8.0
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if of(middle).sum() <= total_s else (low, middle)
    return of(low)
