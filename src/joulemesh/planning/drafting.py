"""Drafts the time line of one iteration from the plan alone: a bar for all that a device does.

An iteration begins with the parameters that are sent to devices that come back, and goes on with
training, the flooding of link costs, the exchange, and what an iteration takes besides. Each phase
begins when the one before it has ended everywhere: so does the plan's own clock. The bars end with
the iteration, and their joules are those of the plan.
"""

from __future__ import annotations

__all__ = ["drafted"]

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.errors import ScenarioError
from joulemesh.planning.gantt import Bar, Gantt, Phase
from joulemesh.planning.gifts import gift_route
from joulemesh.planning.pricing import Prices
from joulemesh.planning.pricing.moments import Moments, moments
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

_MOST_MESSAGES = 200_000  # listed one by one
_MOST_MERGED = 5_000_000  # looked at to be merged

FloatArray = NDArray[np.float64]


def drafted(plan: Plan, iteration: int, *, merged: bool = False) -> Gantt:
    """The time line of one iteration of a plan.

    Where packets are lost, it is the one that is expected, before anything is drawn.

    Args:
        plan: the plan.
        iteration: 1..n.
        merged: one bar for each transmission of the exchange's pattern, from its first play or
            chunk to its last, instead of one for each message.

    Raises:
        ScenarioError: there is no such iteration, or it has too many messages to be listed.
    """
    plan = plan.planned
    return _Drafter(plan, plan._place(iteration), merged).gantt()


class _Drafter:
    """Puts the phases of one iteration together."""

    def __init__(self, plan: Plan, row: int, merged: bool) -> None:
        self.plan, self.row, self.merged = plan, row, merged
        self.timeline, self.pricer = plan.timeline, plan.ground.pricer
        self.t, stand = plan.timeline.first + row, plan.timeline.snapshot(row)
        self.costs = plan.ground.costs(self.t, stand)
        self.now_s, self.ordered = 0.0, True
        self.bars: list[Bar] = []
        self.phases: list[Phase] = []

    def gantt(self) -> Gantt:
        plan, medium = self.plan, self.pricer.medium
        route = plan.route(self.row + 1)
        self._gifts()
        self._training()
        if self.timeline.flooded[self.row]:
            self._flooding()
        if route is not None:
            self._messages("exchange", route, self.pricer.beside(route, self.costs))
            self._besides()
        seconds = float(plan.latency_s[self.row])
        self._rest()
        return Gantt(
            iteration=self.row + 1,
            devices=plan.rounds.shape[1],
            seconds=seconds,
            scheme=plan.scheme_at(self.row + 1).name,
            medium="shared" if medium.shared else medium.duplex,
            ordered=self.ordered,
            phases=tuple(self.phases),
            bars=tuple(self.bars),
            deadline_s=plan.deadline_s,
            names=plan.names,
        )

    def _phase(self, name: str, seconds: float) -> None:
        """A phase from now on; the next begins when it has ended."""
        if seconds > 0:
            self.phases.append(Phase(name, self.now_s, self.now_s + seconds))
        self.now_s += seconds

    def _training(self) -> None:
        devices, rounds = self.plan.world.devices, self.plan.rounds[self.row]
        seconds, joules = rounds * devices.round_latency_s, rounds * devices.round_energy_j
        for i in np.flatnonzero(rounds).tolist():
            until = self.now_s + float(seconds[i])
            spent, often = float(joules[i]), int(rounds[i])
            self.bars.append(Bar("train", "training", i, self.now_s, until, spent, rounds=often))
        self._phase("training", float(seconds.max()))

    def _gifts(self) -> None:
        given = [(new, by) for t, new, by in self.timeline.handed if t == self.t]
        if given:
            edges, bits = self.plan.world.graph.edges, self.plan.work.model_bits
            route = gift_route(given, edges, bits)
            self._messages("gifts", route, self.pricer.beside(route, self.costs))

    def _flooding(self) -> None:
        scheme = self.plan.scheme_at(self.row + 1)
        route, prices = self.pricer.flood(scheme), self.pricer.coordination(scheme, self.costs)
        self._messages("coordination", route, prices, clock="critical-path")

    def _messages(self, phase: str, route: Route, prices: Prices, clock: str = "") -> None:
        self._check_size(route)
        pricer, seconds = self.pricer, float(prices.latency_s[0])
        found = moments(
            route, self.costs, pricer.devices, clock or pricer.clock, pricer.medium, seconds
        )
        self.ordered = self.ordered and found.ordered
        heard_j = _heard_j(route, found, self.costs, pricer.pays)
        self.bars += _sent(phase, route, found, heard_j, self.now_s, merged=self.merged)
        self._phase(phase, seconds)

    def _check_size(self, route: Route) -> None:
        most = _MOST_MERGED if self.merged else _MOST_MESSAGES
        if route.count > most:
            other = "" if self.merged else "; merge the plays of the pattern (merged=True)"
            raise ScenarioError(
                f"iteration {self.row + 1} sends {route.count:,} messages, more than {most:,}: too "
                f"many for a time line{other}"
            )

    def _besides(self) -> None:
        """What an iteration takes besides; nobody goes on before the slowest."""
        besides = self.plan.world.devices.overhead_s
        if besides is None:
            return
        for i in np.flatnonzero(self.plan.active[self.row]).tolist():
            until = self.now_s + float(besides[i])
            self.bars.append(Bar("besides", "besides", i, self.now_s, until, 0.0))
        self._phase("besides", self.pricer.overhead_s)

    def _rest(self) -> None:
        """Power at rest is drawn all the time, whatever a device does besides."""
        joules, seconds = self.plan.idle_j(self.row), float(self.plan.latency_s[self.row])
        for i in np.flatnonzero(joules).tolist():
            self.bars.append(Bar("rest", "", i, 0.0, seconds, float(joules[i])))


def _heard_j(route: Route, found: Moments, costs: LinkCosts, pays: str) -> FloatArray:
    """float64 [M]: joules of receiving each message of the pattern once."""
    own = route.receive_joules(costs)
    if pays == "both-ends":
        return found.air.joules[found.air.carrier] / route.chunks
    return np.zeros(len(route.edge)) if own is None else own / route.chunks


def _sent(
    phase: str, route: Route, found: Moments, heard_j: FloatArray, since_s: float, *, merged: bool
) -> Iterator[Bar]:
    """A bar for each transmission at its sender, and for each message at its receiver."""
    air, times = found.air, len(found.start_s)
    ready_s, start_s, end_s = (
        since_s + part for part in (found.ready_s, found.start_s, found.end_s)
    )
    joules = air.joules / route.chunks
    if merged:
        ready_s, start_s, end_s = ready_s[:1], start_s[:1], end_s[-1:]
        joules, heard_j = joules * times, heard_j * times
    messages = times if merged else 1
    receivers, heard = air.receivers(), _grouped(air.carrier, heard_j)
    order = np.argsort(start_s, axis=None, kind="stable")
    for number in order.tolist():
        time, one = divmod(number, len(air.sender))
        sender, begins = int(air.sender[one]), float(start_s[time, one])
        sent = Bar(
            "send",
            phase,
            sender,
            begins,
            float(end_s[time, one]),
            float(joules[one]),
            others=tuple(receivers[one]),
            ready_s=float(ready_s[time, one]),
            messages=messages,
            step=int(air.step[one]),
            time=time,
        )
        yield sent
        for receiver, spent in zip(receivers[one], heard[one], strict=True):
            yield replace(
                sent,
                kind="receive",
                device=receiver,
                others=(sender,),
                ready_s=begins,
                joules=spent,
            )


def _grouped(carrier: NDArray[np.int64], values: FloatArray) -> list[list[float]]:
    """The values of each transmission's messages, in the order of `OnAir.receivers`."""
    order = np.argsort(carrier, kind="stable")
    cuts = np.searchsorted(carrier[order], np.arange(int(carrier.max(initial=-1)) + 2)).tolist()
    every = values[order].tolist()
    return [every[low:high] for low, high in pairwise(cuts)]
