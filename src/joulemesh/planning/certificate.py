"""How far a plan is from the best that its batteries and its time allow, given its exchanges.

The bound lets rounds be fractions and iterations be of any length (notes: certificate). Then every
device runs all its rounds at one clock: whatever a plan does within H seconds of training, its
device i pays at least Q e(H/Q) joules for Q rounds, because the price of a round is convex. So no
plan with these exchanges trains more than the largest Q for which a battery pays, in time; where
waiting costs energy, H is what is best for all devices together.

Where senders choose their powers, exchanges may take any seconds and cost what the least powers for
them do (`joulemesh.aggregation.power.least_exchange_j`), which is convex as well.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.power import Exchange, Units, least_exchange_j
from joulemesh.base.errors import called
from joulemesh.base.units import counted
from joulemesh.ledger import total_of
from joulemesh.planning.budget import rounds_cap
from joulemesh.tolerance import TOLERANCE
from joulemesh.world.clocks import Clocks

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

__all__ = ["Certificate", "best_time_s", "certificate"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_LIMITS = ("energy", "time", "deadline")


@dataclass(frozen=True)
class Certificate:
    """A bound that no plan with the same exchanges exceeds, within the same budgets.

    Attributes:
        rounds: that the plan trains, on all devices together.
        most_rounds: that any such plan can train at the most.
        joules: that the plan spends on training and at rest.
        least_j: that its rounds cost at the least, in the time that there is.
        limits: what keeps how many devices from more: ``"energy"`` (their batteries), ``"time"``
            (the total time, even at full clock) or ``"deadline"`` (likewise).
        by_energy: the devices whose batteries do.
        powers: does the bound hold for exchanges along the same routes at any powers?

    >>> import joulemesh
    >>> found = joulemesh.plan(joulemesh.Scenario.preset("adaptive")).certificate
    >>> found.rounds <= found.most_rounds, found.least_j <= found.joules * (1 + 1e-9)
    (True, True)
    """

    rounds: int
    most_rounds: int
    joules: float
    least_j: float
    limits: dict[str, int]
    by_energy: tuple[int, ...]
    powers: bool = False

    @property
    def more(self) -> float:
        """The most by which rounds could grow, as a share of the plan's; infinite of none."""
        return self.most_rounds / self.rounds - 1 if self.rounds else np.inf

    @property
    def saved(self) -> float:
        """The largest share of its joules for training and rest that could be saved."""
        return 1 - self.least_j / self.joules if self.joules else 0.0

    def to_dict(self, names: tuple[str, ...] = (), goal: str = "rounds") -> dict[str, Any]:
        """Plain values, and the sentence."""
        figures = ("rounds", "most_rounds", "more", "joules", "least_j", "saved", "limits")
        told = {name: getattr(self, name) for name in figures}
        return {**told, "text": self.text(names, goal)}

    def text(self, names: tuple[str, ...] = (), goal: str = "rounds") -> str:
        """In one sentence."""
        if goal == "joules":
            return (
                f"at most {_share(self.saved)} of the joules for training and rest can be saved "
                "with these rounds and exchanges in this time"
            )
        if not self.rounds:
            return f"at most {self.most_rounds:,} rounds are possible with these exchanges"
        by = []
        if self.by_energy:
            alone = len(self.by_energy) == 1
            who = called(self.by_energy[0], names) if alone else ""
            count = len(self.by_energy)
            by.append(f"the battery of {who}" if alone else f"the batteries of {count:,} devices")
        for kind, words in (("time", "the total time"), ("deadline", "the deadline")):
            if self.limits.get(kind):
                by.append(f"{words} on {counted(self.limits[kind], 'device')}")
        same = "along these routes, at any powers," if self.powers else "with these exchanges,"
        return (
            f"at most {_share(self.more)} more rounds are possible {same} within "
            f"these batteries and seconds: {' and '.join(by)} allow no more"
        )


def _share(value: float) -> str:
    """A share in per cent, rounded up, since it is a bound."""
    per_cent = max(0.0, 100 * value)
    digits = 1 if per_cent < 10 else 0
    return f"{np.ceil(per_cent * 10**digits - 1e-6) / 10**digits:.{digits}f} %"


def certificate(plan: Plan) -> Certificate:
    """The bound on a plan's rounds, and on the joules of its rounds."""
    room = _Room.of(plan.planned)
    rounds = plan.planned.rounds.sum(axis=0)
    freed = _Exchanges.of(plan.planned)
    bounded = room if freed is None else freed.best(room)
    at_s = bounded.best_s
    most = bounded.rounds(at_s)
    bound = bounded.bound
    late = most >= np.minimum(bounded.fastest(at_s), bounded.most) * (1 - 1e-9)
    kinds = np.where(late, np.where(room.before_deadline, 2, 1), 0)
    limits = {name: int((kinds == k).sum()) for k, name in enumerate(_LIMITS)}
    return Certificate(
        rounds=int(rounds.sum()),
        most_rounds=max(int(bound), int(rounds.sum())),
        joules=float(plan.planned.compute_total_j.sum() + plan.planned.idle_total_j.sum()),
        least_j=room.least_j(rounds),
        limits={name: count for name, count in limits.items() if count},
        by_energy=tuple(np.flatnonzero(kinds == 0).tolist()),
        powers=freed is not None,
    )


@dataclass(frozen=True, eq=False)
class _Room:
    """What a plan's exchanges leave for training."""

    curve: Clocks
    left_j: FloatArray  # float64 [N]: joules, beside exchanges and rest during these
    rest_j: float  # joules of all devices at rest during exchanges
    time_s: FloatArray  # float64 [N]: seconds that each may train
    most: FloatArray  # float64 [N]: rounds that fit the deadlines, in whole numbers
    before_deadline: BoolArray  # bool [N]: does the deadline allow less than the total time?
    idle_w: FloatArray | None  # float64 [N]: drawn while iterations train

    @classmethod
    def of(cls, plan: Plan) -> _Room:
        devices, ground, active = plan.world.devices, plan.ground, plan.active
        curve = devices.round_prices
        if ground.clock == "full":
            curve = Clocks(devices.round_latency_s[:, None], devices.round_energy_j[:, None])
        always = active.all(axis=0)
        trains = active & ground.trains(plan.iterations)[:, None]
        time_s = np.where(trains.any(axis=0), np.inf, 0.0)
        most = before = time_s
        if plan.total_s is not None:
            time_s = np.minimum(time_s, max(0.0, plan.total_s - float(total_of(plan.exchange_s))))
        if plan.deadline_s is not None:
            spare_s = np.maximum(plan.deadline_s - plan.exchange_s, 0.0)
            before = spare_s @ trains
            cap = rounds_cap(plan.deadline_s, plan.exchange_s, curve.fastest_s)
            most = (np.maximum(cap, 0) * trains).sum(axis=0)
        left_j = plan.energy_budget_j + plan.harvested_total_j - plan.exchange_total_j
        rest_j, idle_w = np.zeros_like(left_j), None
        if devices.idle_w is not None:
            rest_j = devices.idle_w * (plan.exchange_s @ active)
            idle_w = np.where(always, devices.idle_w, 0.0)
        return cls(
            curve,
            left_j - rest_j,
            float(rest_j.sum()),
            np.minimum(time_s, before),
            np.asarray(most, np.float64),
            before < time_s,
            idle_w,
        )

    @property
    def best_s(self) -> float:
        """Seconds of training in all with which devices can train most rounds."""
        longest_s = float(self.time_s.max())
        if self.idle_w is None:
            return longest_s
        return best_time_s(self.curve, self.left_j, self.idle_w, longest_s, self.time_s)

    @property
    def bound(self) -> float:
        """Whole rounds of all devices that no plan exceeds."""
        most = self.rounds(self.best_s)
        # Where waiting costs energy, sums of whole numbers say nothing about another length.
        if self.idle_w is None:
            return float(np.floor(most * (1 + TOLERANCE)).sum())
        return float(np.floor(most.sum() * (1 + 1e-6)))

    def fastest(self, seconds: float) -> FloatArray:
        """float64 [N]: rounds at full clock, whatever they cost."""
        return np.asarray(np.minimum(seconds, self.time_s) / self.curve.fastest_s)

    def rounds(self, seconds: float) -> FloatArray:
        """float64 [N]: the most rounds of each device, fractions included."""
        rest_j = 0.0 if self.idle_w is None else self.idle_w * seconds
        most = self.curve.most(self.left_j - rest_j, np.minimum(seconds, self.time_s))
        return np.minimum(most, self.most)

    def least_j(self, rounds: NDArray[np.int64]) -> float:
        """The joules of training and rest that some rounds [N] cost at the least."""

        def joules(seconds: float) -> float:
            taken_s = np.minimum(seconds, self.time_s)[None]
            held_s = np.maximum(taken_s, rounds * self.curve.fastest_s)
            training_j = float(self.curve.joules(rounds[None], held_s).sum())
            idle_j = 0.0 if self.idle_w is None else float(self.idle_w.sum()) * seconds
            return training_j + idle_j

        longest_s = float(self.time_s.max())
        if self.idle_w is None:
            return joules(longest_s)
        shortest_s = min(float((rounds * self.curve.fastest_s).max()), longest_s)
        found = _least(joules, shortest_s, longest_s)
        return self.rest_j + joules(found) * (1 - 1e-6)


_MOST_SENT = 20_000  # transmissions; beyond, the powers of the plan are taken as given
_HALVINGS, _NEAR = 60, 1e-3


@dataclass(frozen=True, eq=False)
class _Exchanges:
    """The exchanges of a plan along their route, at any powers."""

    plan: Plan
    exchange: Exchange

    @classmethod
    def of(cls, plan: Plan) -> _Exchanges | None:
        """None where powers are given, or exchanges differ, or a deadline binds each of them."""
        timeline, ground = plan.timeline, plan.ground
        unlike = timeline.routes is not None or timeline.scheme.random or timeline.flooded.any()
        given = plan.scenario.plan.power == "full" or plan.deadline_s is not None
        if given or unlike or not timeline.exchanged.all() or plan.total_s is None:
            return None
        route, costs = plan.route(1), ground.costs(timeline.first)
        small = route is not None and 0 < len(route.edge) <= _MOST_SENT
        if route is None or not small or not plan.active.all():
            return None
        return cls(plan, ground.pricer.exchange(route, costs))

    def within(self, room: _Room, shortest_s: float, longest_s: float) -> _Room:
        """What exchanges leave at the most if each takes between so many seconds."""
        # They take as few joules as the longest allow, and as few seconds as the shortest do; by
        # convexity it is best that all take as long.
        plan, n = self.plan, self.plan.iterations
        spent_j = n * least_exchange_j(self.exchange, longest_s) * (1 - TOLERANCE)
        each_s = shortest_s + plan.ground.pricer.overhead_s
        left_j = plan.energy_budget_j + plan.harvested_total_j - spent_j
        idle_w = plan.world.devices.idle_w
        if idle_w is not None:
            left_j = left_j - n * each_s * idle_w
        assert plan.total_s is not None
        time_s = np.full(len(left_j), max(0.0, plan.total_s * (1 + TOLERANCE) - n * each_s))
        return replace(room, left_j=left_j, time_s=np.where(room.time_s > 0, time_s, 0.0))

    def best(self, room: _Room) -> _Room:
        """The room of most rounds: the bound over all lengths, of which the loosest are halved."""
        costs, units = self.exchange.costs, Units.of(self.exchange)
        shortest_s = self.exchange.seconds(costs) * (1 - TOLERANCE)
        longest_s = self.exchange.seconds(units.costs(units.grid[:, -1])) * (1 + TOLERANCE)
        whole = self.within(room, shortest_s, longest_s)
        queue = [(-whole.bound, shortest_s, longest_s, whole)]
        for _ in range(_HALVINGS):
            _, low, high, _ = queue[0]
            if high <= low * (1 + _NEAR):
                break
            heapq.heappop(queue)
            middle = (low * high) ** 0.5
            for ends in ((low, middle), (middle, high)):
                part = self.within(room, *ends)
                heapq.heappush(queue, (-part.bound, *ends, part))
        return queue[0][3]


def best_time_s(
    curve: Clocks,
    left_j: FloatArray,
    idle_w: FloatArray,
    most_s: float,
    each_s: FloatArray | float = np.inf,
) -> float:
    """Seconds of training in all with which most rounds are paid for, and rest all the while."""
    # Rounds are concave in these seconds, since a price is convex in rounds and seconds together.

    def fewer(seconds: float) -> float:
        return -float(curve.most(left_j - idle_w * seconds, np.minimum(seconds, each_s)).sum())

    lasts = np.divide(left_j, idle_w, out=np.full(len(left_j), np.inf), where=idle_w > 0)
    return _least(fewer, 0.0, max(0.0, min(most_s, float(lasts.min()))))


def _least(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a convex function of one variable is least."""
    from scipy.optimize import minimize_scalar  # takes long to import

    if high <= low:
        return low
    found = minimize_scalar(
        value,
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9 * high, "maxiter": 200},
    )
    return float(min((low, float(found.x), high), key=value))
