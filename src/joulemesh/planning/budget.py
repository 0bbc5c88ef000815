"""What batteries, deadline and total time leave for rounds, with the energy of waiting.

Eqs. `stau` and `tau`, with the network-wide exchange latency: eq. `tau` as printed subtracts a
device's own link; the deadline is met only if the slowest part of the exchange is subtracted
(notes: deadline-cap). An iteration is as long as its slowest training and the exchange.

A device draws ``devices.idle_w`` during the whole of every iteration in which it takes part:
while it trains, sends, and waits for the slowest. So a battery pays for the seconds of all
iterations, and every device's rounds cost all others the joules of waiting for them. How long the
iterations may be is therefore a choice: with a limit T on their sum, a battery B_i pays for
⌊(B_i − exchanges − idle_w·T) / joules of a round⌋ rounds. A larger T leaves more time to train and
less energy; limits are tried, and the one is kept that gives most rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import Edit, InfeasibleError, Remedy, ScenarioError
from joulemesh.ledger import alike, slowest_s, total_of
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import Policy, allocate
from joulemesh.scenario import Scenario
from joulemesh.tolerance import TOLERANCE, affordable, left_of, within
from joulemesh.world.devices import DeviceArrays

if TYPE_CHECKING:
    from joulemesh.planning.plan import Timeline

__all__ = [
    "Allotment",
    "Demand",
    "Purse",
    "TimeLeft",
    "TimeLimits",
    "Tried",
    "Waiting",
    "affordable_s",
    "at_least",
    "enough_s",
    "enough_total_s",
    "keeps_total",
    "least_s",
    "longest_s",
    "missing_time",
    "most_rounds",
    "require_affordable",
    "rounds_cap",
    "rounds_in_all",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def rounds_cap(deadline_s: float, exchange_s: ArrayLike, round_s: FloatArray) -> IntArray:
    """Rounds that fit before the exchange in each iteration, eq. `tau` repaired."""
    seconds = np.asarray(exchange_s, np.float64)
    if seconds.ndim and alike(seconds):
        seconds = seconds[:1]
    if seconds.size > 2:  # most iterations to come are forecast alike
        seconds, which = np.unique(seconds, return_inverse=True)
        return affordable(deadline_s, round_s, seconds[:, None])[which]
    return affordable(deadline_s, round_s, seconds[..., None])


def rounds_in_all(total_s: float, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
    """Rounds, one after the other, for which the exchanges leave time; int64 [N]."""
    return affordable(total_s, round_s, total_of(exchange_s))


@dataclass(frozen=True, eq=False)
class Demand:
    """What n iterations ask of batteries and clocks, and what these allow."""

    iterations: int  # n
    least: int  # rounds that every device must run in each iteration
    battery_j: FloatArray  # [N]; exchange_j of the whole training
    exchange_j: FloatArray
    round_j: FloatArray
    exchange_s: FloatArray  # [n] seconds of the exchange
    round_s: FloatArray
    deadline_s: float | None = None  # seconds allowed to an iteration, if they are limited
    total_s: float | None = None  # seconds allowed to all iterations together, if they are limited
    idle_s: float = 0.0  # seconds of all iterations, if they are as short as they can be
    # [N] joules at rest in that time; None if they are not counted
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
    """Refuse a plan that some device cannot pay for, naming the smallest change that would do."""
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
    """What to raise, deadline or total, so that every device has time for the least rounds."""
    return _late(least, deadline_s, total_s, exchange_s, round_s)[1]


def _rounds(least: int) -> str:
    return "one round" if least == 1 else f"{least} rounds"


def enough_s(exchange_s: float, round_s: FloatArray, least: int) -> float:
    """A deadline with 4 digits in which every device has time for ``least`` rounds."""
    return at_least(exchange_s + least * float(round_s.max()))


def enough_total_s(exchange_s: FloatArray, round_s: FloatArray, rounds: int) -> float:
    """A total time with 4 digits that is enough for every device to train so many rounds."""
    return at_least(float(total_of(exchange_s)) + rounds * float(round_s.max()))


def at_least(value: float, digits: int = 4) -> float:
    """A figure with few digits that pays for the value."""
    rounded = float(f"{value:.{digits}g}")
    if rounded * (1.0 + TOLERANCE) >= value:
        return rounded
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{rounded + step:.{digits}g}")


BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class TimeLimits:
    """The time that a scenario allows."""

    deadline_s: float | None  # seconds of one iteration; None without such a limit
    total_s: float | None  # seconds of the whole training; None without such a limit

    @classmethod
    def of(cls, scenario: Scenario) -> TimeLimits:
        """The limits of a scenario."""
        return cls(scenario.budget.deadline_s, scenario.budget.total_s)

    def caps(self, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
        """Rounds that fit an iteration: before the deadline, and into its share of the total."""
        # Under a total time every iteration has the same time for training: what the exchanges
        # leave of the total, divided by n.
        return self._within(exchange_s, round_s, len(exchange_s))

    def loose_caps(self, exchange_s: FloatArray, round_s: FloatArray) -> IntArray:
        """Rounds that fit an iteration if the others only exchange; see `caps`."""
        return self._within(exchange_s, round_s, 1)

    def _within(self, exchange_s: FloatArray, round_s: FloatArray, shares: int) -> IntArray:
        caps = []
        if self.deadline_s is not None:
            caps.append(rounds_cap(self.deadline_s, exchange_s, round_s))
        if self.total_s is not None:
            whole = rounds_in_all(self.total_s, exchange_s, round_s)
            caps.append(whole[None] // shares)
        return caps[0] if len(caps) == 1 else np.minimum(*caps)

    def training_s(self, exchange_s: FloatArray) -> float:
        """Seconds of the total that the exchanges leave for training; infinite without a total."""
        if self.total_s is None:
            return math.inf
        return self.total_s - float(total_of(exchange_s))


def keeps_total(
    total_s: float, rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray
) -> bool:
    """Are all iterations together at most as long as the total?"""
    return bool(within(total_s, longest_s(rounds, round_s, exchange_s)))


def longest_s(rounds: IntArray, round_s: FloatArray, exchange_s: FloatArray) -> float:
    """Seconds of some iterations; rounds [n, N], exchange_s [n]."""
    return float((slowest_s(rounds, round_s) + exchange_s).sum())


class TimeLeft:
    """What is left of the total time while iterations go by, one after another."""

    def __init__(self, limits: TimeLimits, round_s: FloatArray) -> None:
        self.deadline_s, self.round_s = limits.deadline_s, round_s
        total_s = limits.total_s
        self.limited = total_s is not None
        self.left_s = math.inf if total_s is None else total_s

    @property
    def limits(self) -> TimeLimits:
        """The deadline, and what is left of the total."""
        return TimeLimits(self.deadline_s, self.left_s if self.limited else None)

    def within(self, limit_s: float) -> TimeLeft:
        """The same, but for no more than so many seconds in all."""
        return TimeLeft(TimeLimits(self.deadline_s, min(self.left_s, limit_s)), self.round_s)

    def pay(self, rounds: IntArray, exchange_s: float) -> None:
        """Take the seconds of one iteration; rounds [N]."""
        if self.limited:
            left = left_of(np.array(self.left_s), float((rounds * self.round_s).max()), exchange_s)
            self.left_s = float(left)

    def share_s(self, iterations: int) -> float:
        """Equal share of the remaining time per remaining iteration; at most the deadline."""
        share_s = max(0.0, self.left_s / iterations)
        return share_s if self.deadline_s is None else min(self.deadline_s, share_s)

    def rounds(self, ahead_s: FloatArray) -> IntArray:
        """[N] rounds, one after the other, for which some exchanges to come leave time."""
        return affordable(self.left_s, self.round_s, ahead_s.sum())

    def training_s(self, ahead_s: FloatArray) -> float:
        """Seconds that some exchanges to come leave for training; infinite without a total."""
        return self.left_s - float(ahead_s.sum())

    def caps(self, ahead_s: FloatArray, shares: int | None = None) -> IntArray:
        """[rows, N] rounds that fit each iteration to come, whose exchanges take ``ahead_s``."""
        rows = len(ahead_s)
        caps = []
        if self.deadline_s is not None:
            caps.append(rounds_cap(self.deadline_s, ahead_s, self.round_s))
        if self.limited:
            share = self.rounds(ahead_s) // (rows if shares is None else shares)
            caps.append(np.broadcast_to(share, (rows, len(share))))
        return caps[0] if len(caps) == 1 else np.minimum(*caps)

    def allows(
        self, rounds: IntArray | int, now_s: float, later_s: FloatArray, keep: int, who: BoolArray
    ) -> bool:
        """Is there time for some rounds and an exchange now, and for what is kept for later?"""
        each = np.where(who, rounds, 0)
        if self.deadline_s is not None:
            in_time = rounds_cap(self.deadline_s, now_s, self.round_s) >= each
            if not in_time[who].all():
                return False
        if not self.limited:
            return True
        taken_s = float((each * self.round_s).max()) + now_s + float(later_s.sum())
        return int(affordable(self.left_s, self.round_s[who].max(), taken_s)) >= keep


_GRID, _FINE, _HALVINGS, _POLISHED = 13, 7, 24, 4
_NEAR = (0.95, 1.0, 1.05)
_LARGE = 200_000  # entries of a plan, beyond which fewer limits are tried


@dataclass(frozen=True, eq=False)
class Waiting:
    """What some devices draw at rest."""

    idle_w: FloatArray | None  # float64 [N]; None if it is not counted
    round_s: FloatArray  # float64 [N]: seconds of one round

    @classmethod
    def at(cls, devices: DeviceArrays) -> Waiting:
        """Of all devices."""
        return cls(devices.idle_w, devices.round_latency_s)

    @property
    def counted(self) -> bool:
        """Does anybody draw anything at rest?"""
        return self.idle_w is not None

    def of(self, seconds: float) -> FloatArray:
        """Joules [N] at rest over some seconds; zeros if they are free."""
        return np.zeros_like(self.round_s) if self.idle_w is None else self.idle_w * seconds

    def of_iteration(self, rounds: IntArray, exchange_s: float) -> FloatArray:
        """Joules [N] at rest of an iteration with some rounds [N]; zeros if they are free."""
        return self.of(float((rounds * self.round_s).max()) + exchange_s)

    def per_iteration(self, exchange_s: ArrayLike, least: int) -> FloatArray:
        """Joules [N] or [n, N] at rest in iterations of the least rounds."""
        slowest = least * float(self.round_s.max())
        return np.asarray(self.of(1.0) * (np.asarray(exchange_s, np.float64)[..., None] + slowest))

    def over(self, timeline: Timeline) -> FloatArray:
        """Joules [N] at rest of a timeline, while each takes part; zeros if they are free."""
        seconds = np.zeros_like(self.round_s)
        if self.idle_w is None:
            return seconds
        longest_s = timeline.training_s(self.round_s) + timeline.exchange.seconds
        for active, taken_s in zip(timeline.active, longest_s.tolist(), strict=True):
            seconds[active] += taken_s
        return np.asarray(self.idle_w * seconds)

    def among(self, who: BoolArray) -> Waiting:
        """Of some devices, bool [N]."""
        return Waiting(None if self.idle_w is None else self.idle_w[who], self.round_s[who])


def least_s(exchange_s: FloatArray, round_s: FloatArray, least: int) -> float:
    """Seconds of n iterations with the least rounds."""
    slowest = float(round_s.max()) if least else 0.0
    return float(total_of(exchange_s)) + len(exchange_s) * least * slowest


@dataclass(frozen=True, eq=False)
class Purse:
    """Batteries, and what has to be paid from them beside rounds; each float64 [A]."""

    battery_j: FloatArray  # joules to spend
    exchange_j: FloatArray  # joules of all the exchanges to come
    round_j: FloatArray  # joules of one round
    waiting: Waiting  # what the devices draw at rest

    def total(self, total_s: float) -> IntArray:
        """[A] rounds that each battery pays for beside exchanges and so many seconds at rest."""
        waits_j = self.waiting.of(total_s)
        return affordable(self.battery_j, self.round_j, self.exchange_j, waits_j)

    def longest_s(self, limits: TimeLimits, iterations: int, least: int) -> float:
        """Seconds that n iterations may take at the most, with the least rounds paid for."""
        idle_w = self.waiting.of(1.0)
        spent_j = self.exchange_j + iterations * least * self.round_j
        return affordable_s(self.battery_j, spent_j, idle_w, limits, iterations)

    def among(self, who: BoolArray) -> Purse:
        """Of some devices, bool [N]."""
        return Purse(
            self.battery_j[who],
            self.exchange_j[who],
            self.round_j[who],
            self.waiting.among(who),
        )


@dataclass(frozen=True, eq=False)
class Tried:
    """Rounds that were found within a limit on the sum of all iterations."""

    total_s: float  # the limit, for which the batteries pay
    rounds: IntArray  # int64 [n, A]
    cap: IntArray  # int64 [n, A] or [1, A]
    total: IntArray  # int64 [A]: rounds that the batteries pay for beside that limit


def most_rounds(
    low_s: float,
    high_s: float,
    allot: Callable[[float, bool], Tried | None],
    taken_s: Callable[[Tried], float],
    entries: int,
    hint_s: float | None = None,
) -> Tried | None:
    """Try limits on the seconds of all iterations, and keep what gives most rounds."""
    best: Tried | None = None
    known: dict[tuple[float, bool], Tried | None] = {}

    def attempt(limit_s: float, keep: bool) -> Tried | None:
        nonlocal best
        if (limit_s, keep) not in known:
            known[limit_s, keep] = found = allot(limit_s, keep)
            more = 0 if found is None else int(found.rounds.sum())
            if found is not None and (best is None or more > int(best.rounds.sum())):
                best = found
        return known[limit_s, keep]

    high_s = max(low_s, high_s)
    if hint_s is not None:
        for factor in _NEAR:
            attempt(min(max(low_s, factor * hint_s), high_s), True)
        attempt(min(max(low_s, hint_s), high_s), False)
        if best is not None:
            attempt(min(best.total_s, taken_s(best)), True)
            return best
    few = entries > _LARGE
    grid = np.linspace(low_s, high_s, _GRID // 2 if few else _GRID).tolist()
    for limit in grid:
        if attempt(limit, True) is None:
            attempt(limit, False)  # a policy may not know how to keep to a limit
    for _ in range(1 if few else 3):
        if best is None:
            break
        at = best.total_s
        below = max((s for s in grid if s < at), default=low_s)
        above = min((s for s in grid if s > at), default=high_s)
        grid = np.linspace(below, above, _FINE).tolist()
        for limit in grid:
            attempt(limit, True)
    _unlimited(low_s, high_s, attempt, _HALVINGS // 3 if few else _HALVINGS)
    for _ in range(_POLISHED):  # what the rounds leave of their limit pays for others
        if best is None:
            break
        before, limit = best, min(best.total_s, taken_s(best))
        attempt(limit, True)
        attempt(limit, False)
        if best is before:
            break
    return best


def _unlimited(
    low_s: float, high_s: float, attempt: Callable[[float, bool], Tried | None], halvings: int
) -> None:
    """Try the least limit that rounds keep by themselves, because batteries end them."""
    if attempt(low_s, False) is not None or attempt(high_s, False) is None:
        return
    for _ in range(halvings):
        middle = (low_s + high_s) / 2
        if attempt(middle, False) is None:
            low_s = middle
        else:
            high_s = middle


def affordable_s(
    battery_j: FloatArray, spent_j: FloatArray, idle_w: FloatArray, limits: TimeLimits, n: int
) -> float:
    """Seconds that n iterations may take at the most: limits of time, and batteries at rest."""
    most = [] if limits.total_s is None else [limits.total_s]
    most += [] if limits.deadline_s is None else [n * limits.deadline_s]
    with np.errstate(divide="ignore", invalid="ignore"):
        lasts = np.where(idle_w > 0, (battery_j - spent_j) / idle_w, np.inf)
    return float(min(*most, float(lasts.min()), math.inf))


@dataclass(frozen=True, eq=False)
class Allotment:
    """The rounds that a policy gives the devices that take part, A of them."""

    ground: Ground  # the scenario, made ready
    policy: Policy  # how rounds are spread over the iterations
    iterations: int  # number n of iterations of the whole plan
    round_s: FloatArray  # float64 [A]: seconds of one round
    limits: TimeLimits  # the time for the iterations to come
    first: int = 0  # the first of these, from 0

    @property
    def rows(self) -> int:
        """Number of iterations to come."""
        return self.iterations - self.first

    def of(self, total: IntArray, exchange_s: FloatArray) -> tuple[IntArray, IntArray]:
        """Rounds [rows, A], and the caps [rows, A] or [1, A] that they keep."""
        if self.policy.fit is not None and self.limits.total_s is not None:
            return self._fitted(total, exchange_s)
        cap = self._only_where_trained(self.limits.caps(exchange_s, self.round_s))
        return self._by_policy(total, cap), cap

    def paid(self, purse: Purse, exchange_s: FloatArray) -> Tried:
        """Rounds that the batteries pay for, with all that is drawn at rest meanwhile."""
        least = self.policy.least(self.ground.scenario.plan)
        low_s = least_s(exchange_s, self.round_s, least)
        if not purse.waiting.counted:
            total = purse.total(low_s)
            return Tried(low_s, *self.of(total, exchange_s), total)

        def allot(limit_s: float, keep: bool) -> Tried | None:
            total = purse.total(limit_s)
            if (total < self.rows * least).any():
                return None
            limits = replace(self.limits, total_s=limit_s) if keep else self.limits
            try:
                rounds, cap = replace(self, limits=limits).of(total, exchange_s)
            except (InfeasibleError, ScenarioError):
                return None
            in_time = keeps_total(limit_s, rounds, self.round_s, exchange_s)
            return Tried(limit_s, rounds, cap, total) if in_time else None

        high_s = purse.longest_s(self.limits, self.rows, least)
        if self.policy.spends == "least":
            high_s = low_s
        found = most_rounds(
            low_s,
            high_s,
            allot,
            lambda one: longest_s(one.rounds, self.round_s, exchange_s),
            self.rows * len(self.round_s),
        )
        if found is not None:  # its caps were those of a limit that was only tried
            fitted = self.policy.fit is not None and self.limits.total_s is not None
            caps = self.limits.loose_caps if fitted else self.limits.caps
            cap = self._only_where_trained(caps(exchange_s, self.round_s))
            return replace(found, cap=np.maximum(cap, found.rounds.max(axis=0)))
        self.of(purse.total(low_s), exchange_s)  # refused here, if at all
        raise InfeasibleError(
            f'plan.rounds = "{self.policy.name}" finds no rounds for which the batteries pay with '
            'what is drawn at rest (devices.idle_w); use "theorem4" or "spread"',
            code="idle",
            field="plan.rounds",
        )

    def _by_policy(self, total: IntArray, cap: IntArray) -> IntArray:
        narrow = cap[0] if len(cap) == 1 else cap
        options = self.ground.scenario.plan
        return allocate(
            self.policy, self.iterations, total, narrow, options=options, start=self.first + 1
        )

    def _fitted(self, total: IntArray, exchange_s: FloatArray) -> tuple[IntArray, IntArray]:
        """Rounds of a policy that fits them to the total time by itself, and their caps."""
        limits, round_s, fit = self.limits, self.round_s, self.policy.fit
        assert fit is not None  # for mypy: such policies only
        assert limits.total_s is not None
        cap = self._only_where_trained(limits.loose_caps(exchange_s, round_s))
        rounds = self._by_policy(total, cap)
        if keeps_total(limits.total_s, rounds, round_s, exchange_s):
            return rounds, cap
        # All iterations that train are given the cap of the tightest, so that they are alike.
        trains = np.broadcast_to((cap > 0).any(axis=1), (self.rows,))
        count = max(1, int(trains.sum()))
        cap = np.where(trains[:, None], cap[cap.any(axis=1)].min(axis=0), 0)
        most = np.minimum(total, count * np.minimum(cap.max(axis=0), total // count + 1))
        goal = fit(count, most, round_s, limits.training_s(exchange_s))
        return self._by_policy(goal, cap), cap

    def _only_where_trained(self, cap: IntArray) -> IntArray:
        """No rounds in the iterations that are kept for mixing."""
        trains = self.ground.trains(self.iterations)[self.first :]
        return cap if trains.all() else cap * trains[:, None]
