"""Planning with traces: devices that come and go, move, and recharge their batteries.

An iteration is decided by what holds when it begins. Who is there by the trace, can be reached and
can pay takes part; the others neither train nor relay nor pay, and come back as soon as that
changes. A device that comes back takes up a neighbour's parameters first (`gifts`). What an
iteration harvests is in the batteries from the next one on, as far as they have room. Of the
harvest to come nothing is known: rounds are planned with the mean of what each device has gathered
so far (``plan.harvest_forecast``), and no iteration spends more than its batteries hold.
"""

from __future__ import annotations

__all__ = ["TracedPlanner", "causal_planner"]

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.errors import Edit, InfeasibleError, Remedy
from joulemesh.ledger import Ledger
from joulemesh.planning.budget import at_least
from joulemesh.planning.causal import CausalPlanner, Forecast
from joulemesh.planning.gifts import gift_route, givers, origins
from joulemesh.planning.ground import Ground
from joulemesh.planning.recharge import recharged
from joulemesh.planning.remaining import Remaining, cut_off
from joulemesh.planning.timeline import Timeline
from joulemesh.world.links import LinkCosts
from joulemesh.world.motion import Snapshot

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_WORDS = {
    "absent": "not there by devices.availability",
    "gone": "leaves for good by devices.leave",
    "depleted": "the battery cannot pay for the iteration",
    "cut-off": "no path leads to the larger part of the network",
}


def causal_planner(
    ground: Ground,
    iterations: int,
    remedy: Callable[[float], Remedy] | None = None,
    rest: Remaining | None = None,
) -> CausalPlanner:
    """The planner that goes through the iterations of a scenario one after another.

    Args:
        ground: the scenario, made ready.
        iterations: n.
        remedy: what a refusal for want of joules advises.
        rest: where to begin, if not with everybody in the first iteration.

    >>> from joulemesh.scenario import Scenario
    >>> still, sunny = Scenario(), Scenario(devices={"harvest_w": 0.1})
    >>> [type(causal_planner(Ground.of(one), 5)).__name__ for one in (still, sunny)]
    ['CausalPlanner', 'TracedPlanner']
    """
    kind = TracedPlanner if ground.world.traces.given else CausalPlanner
    return kind(ground, iterations, remedy, rest)


class TracedPlanner(CausalPlanner):
    """A causal planner whose devices come and go, move and recharge."""

    waits = True

    def __init__(
        self,
        ground: Ground,
        iterations: int,
        remedy: Callable[[float], Remedy] | None = None,
        rest: Remaining | None = None,
    ) -> None:
        super().__init__(ground, iterations, remedy, rest)
        self.traces, self.motion = ground.world.traces, ground.world.motion
        self.elapsed_s = 0.0 if rest is None else rest.elapsed_s
        self.invited, self.kept_cut = self.active.copy(), self.cut
        self.members: BoolArray | None = None  # who holds parameters that are not old
        self.expected_s = 0.0  # of an iteration, before any is over
        self.gifts: list[tuple[int, int, int]] = []
        self.handed: list[tuple[int, int, int]] = []
        self._bestowed: tuple[tuple[int, int], ...] = ()
        self._known: dict[bytes, Forecast] = {}
        self._snapshots: list[Snapshot | None] = []
        self._stored: list[FloatArray] = []
        self._spilled: list[FloatArray] = []
        self._look(self.first)

    def walk(self) -> Timeline:
        """Plan every iteration in turn."""
        walked = super().walk()
        if not walked.active.any():
            raise InfeasibleError(
                f"fewer than two devices can take part in each of the {self.iterations} "
                "iterations; add rows to devices.availability, or raise budget.energy_j",
                code="topology",
            )
        walked = replace(
            walked,
            gifts=tuple(self.gifts),
            handed=tuple(self.handed),
            snapshots=tuple(self._snapshots),
        )
        if not self.traces.harvests:
            return walked
        stored, spilled = np.stack(self._stored), np.stack(self._spilled)
        total = self._total(self.budget_j + stored.sum(axis=0), walked)
        exchange = replace(walked.exchange, harvested_j=stored)
        return replace(walked, exchange=exchange, spilled_j=spilled, total=total)

    # Who takes part -----------------------------------------------------------------------------

    def _look(self, t: int) -> None:
        """See where devices are, and how links are."""
        snapshot = self.snapshot
        if self.motion is not None:
            snapshot = self.traces.snapshot(t, self.elapsed_s)
            self.cut = self.kept_cut | ~self.motion.exists(snapshot)
        edition = self.world.channel.edition
        if snapshot != self.snapshot or (t > self.first and edition(t) != edition(t - 1)):
            self.snapshot = snapshot
            self.forecast_costs = self.ground.forecast_at(t, snapshot=snapshot)
            self._known.clear()

    def _gathered(self, t: int, forecast: Forecast) -> Forecast:
        self._look(t)
        before, present = self.active, self.traces.present(t, self.elapsed_s)
        reasons: dict[str, BoolArray] = {}
        gone = self.traces.gone(t)
        if gone is not None:
            reasons["gone"] = self.invited & gone
            self.invited = self.invited & ~gone
        self.active = self.invited
        if present is not None:
            reasons["absent"] = self.invited & ~present
            self.active = self.invited & present
        forecast = self._settled(t, forecast, reasons)
        self._tell(t, before, reasons)
        self.expected_s = float(forecast.latency_s(t)[0]) + max(1, self.least) * float(
            self.round_s.max()
        )
        return forecast

    def _settled(self, t: int, forecast: Forecast, reasons: dict[str, BoolArray]) -> Forecast:
        """Leave out those who cannot be reached or cannot pay, until the others can go on."""
        stays = self.options.on_depletion == "refuse"
        while self.active.sum() >= 2:
            lost = cut_off(self.world.graph, self.active, self.cut, self.members)
            if lost.any():
                reasons["cut-off"] = reasons.get("cut-off", False) | lost
                self.active = self.active & ~lost
                continue
            key = self.active.tobytes()
            if key not in self._known:
                self._known[key] = self.forecast(t)
            forecast = self._known[key]
            waits_j = self.waits_j(forecast.now_s(t), self.least)
            broke = self.active & (self.affords(forecast.now_j(t), waits_j) < self.least)
            if not broke.any() or (stays and not self.traces.harvests):
                return forecast
            if stays:
                raise self._unpaid(t, broke, forecast)
            reasons["depleted"] = reasons.get("depleted", False) | broke
            self.active = self.active & ~broke
            if not self.traces.harvests:  # nothing will change that
                self.invited = self.invited & ~broke
        self.active = np.zeros_like(self.active)
        return forecast

    def _unpaid(self, t: int, broke: BoolArray, forecast: Forecast) -> InfeasibleError:
        device = int(np.argmax(broke))
        need = float(forecast.now_j(t)[device] + self.least * self.round_j[device])
        need += float(self.waits_j(forecast.now_s(t), self.least)[device])
        held = float(self.battery[device])
        # As much for every iteration to come, whatever it will harvest.
        enough = float(self.budget_j[device]) + (self.iterations - t) * need - held
        return InfeasibleError(
            "{device} cannot pay for iteration {iteration}: it needs {needs_j} and holds {has_j}, "
            "what it has harvested included",
            code="energy",
            device=device,
            figures={"iteration": t + 1, "needs_j": need, "has_j": held},
            remedies=[
                (Edit("plan.on_depletion", "leave"),),
                (Edit("budget.energy_j", at_least(enough), "raise"),),
            ],
        )

    def _tell(self, t: int, before: BoolArray, reasons: dict[str, BoolArray]) -> None:
        """Record who has left since the last iteration, and who has come back."""
        gone = before & ~self.active
        for kind, who in reasons.items():
            if (gone & who).any():
                self._record(t, kind, gone & who, _WORDS[kind])
                gone = gone & ~who
        if before.any() and not self.active.any():
            self._record(t, "waiting", gone, "fewer than two devices can take part")
        back = self.active & ~before
        if back.any():
            self._record(t, "returned", back, "takes part again")

    # The iteration ------------------------------------------------------------------------------

    def _besides(self, t: int, costs: LinkCosts) -> tuple[Ledger, ...]:
        """The gifts to those who have been away."""
        self._bestowed = ()
        if self.members is None or not (self.active & self.members).any():
            return ()
        newcomers = np.flatnonzero(self.active & ~self.members)
        if not len(newcomers):
            return ()
        graph, who = self.world.graph, np.flatnonzero(self.active)
        links = graph.edges[~self.cut & self.active[graph.edges].all(axis=1)]
        left_j = dict(zip(who.tolist(), self.battery[who].tolist(), strict=True))
        pairs = ((int(i), int(j)) for i, j in links)
        self._bestowed = givers(left_j, set(newcomers.tolist()), pairs)
        route = gift_route(self._bestowed, graph.edges, self.ground.work.model_bits)
        return (self.ground.pricer.beside(route, costs),)

    def _iteration(
        self, t: int, forecast: Forecast, costs: LinkCosts
    ) -> tuple[Route | None, Ledger, IntArray, IntArray]:
        if not self.active.any():
            return self._waiting(t)
        decided = super()._iteration(t, forecast, costs)
        members = self.active if self.members is None else self.members & self.active
        if decided[0] is not None:
            given = origins(self._bestowed)
            self.handed += [(t, newcomer, giver) for newcomer, giver in self._bestowed]
            self.gifts += [(t, newcomer, giver) for newcomer, giver in sorted(given.items())]
            members = self.active
        # Without an exchange there are no gifts: who came back stays behind for now.
        self.members = members if members.any() else self.active
        return decided

    def _waiting(self, t: int) -> tuple[None, Ledger, IntArray, IntArray]:
        """An iteration that passes without anybody: as long as it may be."""
        rounds = np.zeros(len(self.battery), np.int64)
        wait_s = self.time.share_s(self.iterations - t)
        return None, Ledger.of((1, len(rounds)), seconds=wait_s), rounds, rounds

    def _payable(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        price_s: float,
        rounds: IntArray | int,
    ) -> bool:
        """As everywhere; and what the batteries hold now pays, whatever may come."""
        waits_j = self.waiting.of_iteration(np.where(self.active, rounds, 0), price_s)
        holds = self.affords(price_j, waits_j) >= rounds
        return bool(holds[self.active].all()) and super()._payable(
            t, forecast, price_j, price_s, rounds
        )

    def _rounds(
        self,
        t: int,
        forecast: Forecast,
        price_j: FloatArray,
        *,
        exchange: bool,
        now_s: float | None = None,
    ) -> tuple[IntArray, IntArray]:
        """As everywhere, and no more than what the batteries hold now pays for."""
        rounds, cap = super()._rounds(t, forecast, price_j, exchange=exchange, now_s=now_s)
        taken_s = (forecast.now_s(t) if now_s is None else now_s) if exchange else 0.0
        waits_j = self.waiting.of_iteration(rounds, taken_s)
        return np.clip(rounds, 0, np.maximum(self.affords(price_j, waits_j), 0)), cap

    # The batteries ------------------------------------------------------------------------------

    def coming_j(self, t: int) -> FloatArray | None:
        """What each device has gathered per iteration so far, for each iteration to come.

        Before any is over: what it gathers now, over the shortest iteration.
        """
        if not self.traces.harvests or self.options.harvest_forecast == "none":
            return None
        if self._stored:
            each_j = (sum(self._stored) + sum(self._spilled)) / len(self._stored)
        else:
            watts = self.traces.watts(t, self.elapsed_s)
            each_j = np.zeros_like(self.battery) if watts is None else watts * self.expected_s
        return np.asarray(each_j * (self.iterations - t - 1))

    def _passed(self, t: int, rounds: IntArray, price_s: float) -> None:
        if self.motion is not None:
            self._snapshots.append(self.snapshot)
        length_s = float((rounds * self.round_s).max()) + price_s
        gained = recharged(self.traces, self.battery, t, self.elapsed_s, length_s)
        self.elapsed_s += length_s
        if gained is None:
            return
        self.battery = gained.held_j
        self._stored.append(gained.stored_j)
        self._spilled.append(gained.spilled_j)
