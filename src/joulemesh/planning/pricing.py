"""What a scheme's exchanges cost over some iterations, and which scheme costs least."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium, bits_on_air
from joulemesh.aggregation.play import (
    exchange_latency_s,
    exchange_parts_j,
    pairwise_latency_s,
    pairwise_parts_j,
)
from joulemesh.aggregation.power import Exchange, lowered
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Choice, Conditions, Scheme, SchemeKind, choose
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.units import duration, energy
from joulemesh.ledger import Ledger
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario
from joulemesh.world import World
from joulemesh.world.links import LinkCosts

__all__ = ["LINK_REPORT_BITS", "Pricer", "choose_scheme"]

FloatArray = NDArray[np.float64]

LINK_REPORT_BITS = 64.0  # one link's cost, flooded so that every device computes the same tree
_KEPT = 256  # routes with the powers of their exchanges
_BLOCK = 64  # random schedules priced at a time
_MOST_PAIRS = 200_000_000  # that meet in a plan: some minutes
_MOST_SLOTTED = 5_000_000  # the same in a shared medium, where each takes its slots by itself


class Pricer:
    """Prices routes and schemes in one world, by the scenario's accounting and clock.

    ``stretch`` are the seconds that an exchange may take, over those at the highest powers, where
    senders choose theirs (`joulemesh.aggregation.power`); None where they do not.
    """

    def __init__(
        self, scenario: Scenario, world: World, model_bits: float, stretch: float | None = None
    ) -> None:
        self.stretch = stretch
        self._sent: dict[tuple[int, int], tuple[Route, LinkCosts, LinkCosts]] = {}
        self.devices = world.graph.devices
        self.edges = world.graph.edges
        self.pays = scenario.plan.pays
        self.clock = scenario.plan.timed
        self.medium = Medium.of(scenario, world.graph.positions_m)
        self.model_bits = model_bits
        self._none = Ledger.of((1, self.devices))
        besides = world.devices.overhead_s
        # Nobody goes on before the slowest has saved: the longest overhead is everybody's.
        self.overhead_s = 0.0 if besides is None else float(besides.max())

    def route(self, route: Route | None, costs: LinkCosts) -> Ledger:
        """Price of one exchange along a route, with what an iteration takes besides."""
        # Without a route there is no exchange, which costs nothing.
        if route is None:
            return self._none
        return self._later(self._priced(route, costs, self.clock))

    def beside(self, route: Route, costs: LinkCosts) -> Ledger:
        """Price of what is sent beside an exchange, in the same iteration."""
        return self._priced(route, costs, self.clock)

    def _later(self, exchange: Ledger) -> Ledger:
        """An exchange with what an iteration takes besides."""
        if not self.overhead_s:
            return exchange
        return replace(exchange, seconds=exchange.seconds + self.overhead_s)

    def sent(self, route: Route, costs: LinkCosts) -> LinkCosts:
        """The costs at the powers with which an exchange along a route is sent."""
        if costs.radio is None or self.stretch is None:
            return costs.settled
        if costs.believed is not None:
            chosen = self.sent(route, costs.believed).power_w
            return costs.settled if chosen is None else costs.at_power(chosen)
        key = id(route), id(costs)
        if key not in self._sent:
            if len(self._sent) >= _KEPT:
                self._sent.pop(next(iter(self._sent)))
            made = lowered(self.exchange(route, costs), self.stretch)
            self._sent[key] = route, costs, made  # the first two, so that their keys stay theirs
        return self._sent[key][2]

    def exchange(self, route: Route, costs: LinkCosts) -> Exchange:
        """What is sent, and all that its price depends on."""
        return Exchange(
            route, costs, self.devices, self.clock, self.medium, self.pays, self.model_bits
        )

    def _priced(self, route: Route, costs: LinkCosts, clock: str) -> Ledger:
        costs = self.sent(route, costs)
        sent, heard = exchange_parts_j(route, costs, self.devices, self.pays, self.medium)
        seconds = exchange_latency_s(
            route, costs, self.devices, clock, self.medium, self.model_bits
        )
        return replace(
            self._none,
            transmit_j=sent[None],
            receive_j=heard[None],
            seconds=np.array([seconds]),
            bits=np.array([self.bits(route)]),
        )

    def scheme(self, scheme: Scheme, costs: LinkCosts, start: int, stop: int) -> Ledger:
        """Price of a scheme's exchanges in iterations start..stop−1 (counted from 0)."""
        if not scheme.random:
            return self.route(scheme.route(costs, start), costs).tiled(stop - start)
        most = _MOST_SLOTTED if self.medium.shared else _MOST_PAIRS
        if scheme.rounds * (stop - start) > most:
            raise ScenarioError(
                f"{stop - start} iterations with {scheme.rounds} {scheme.unit} of gossip each are "
                f"{scheme.rounds * (stop - start):,} to draw and price, more than {most:,}; "
                "lower plan.iterations or plan.gossip_rounds, or use the tree or a ring"
            )
        parts = [
            self._random(scheme, costs, low, min(low + _BLOCK, stop))
            for low in range(start, stop, _BLOCK)
        ]
        return Ledger.joined(parts)

    def _random(self, scheme: Scheme, costs: LinkCosts, start: int, stop: int) -> Ledger:
        alone = self.medium.shared or (self.stretch is not None and costs.radio is not None)
        pairs = None if alone else scheme.pairs(start, stop)
        if pairs is None:
            routes = [scheme.route(costs, t) for t in range(start, stop)]
            different = {id(route): route for route in routes}
            priced = {key: self.route(route, costs) for key, route in different.items()}
            return Ledger.joined([priced[id(route)] for route in routes])  # many may be the same
        bits = scheme.bits
        sent, heard = pairwise_parts_j(self.edges, pairs, costs, self.devices, bits, self.pays)
        if self.clock == "paper":
            each = costs.for_messages(bits)
            slower = np.append(np.maximum(each.forward_s, each.backward_s), 0.0)
            latency = scheme.rounds * slower[pairs].max(axis=1) * self.model_bits
        else:
            latency = pairwise_latency_s(self.edges, pairs, costs, self.devices, bits, self.medium)
        columns = {"transmit_j": sent, "receive_j": heard, "seconds": latency}
        on_air = 2.0 * bits * (pairs >= 0).sum(axis=1)  # each pair sends both ways
        return self._later(Ledger.of((stop - start, self.devices), **columns, bits=on_air))

    def coordination(self, scheme: Scheme, costs: LinkCosts) -> Ledger:
        """Price of flooding every link's cost over every link, before a tree is computed."""
        # All reports pass each link once in each direction, one after another and each in a message
        # of its own, so the slowest link is the critical path (one hop is nothing beside all the
        # reports).
        # Reports go at the highest power: what each sender may save is not known before.
        return self._priced(self.flood(scheme), costs.settled, "critical-path")

    def bits(self, route: Route) -> float:
        """Bits on the air in one exchange along a route; those of a broadcast count once."""
        return bits_on_air(route, broadcast=self.medium.broadcast)

    def flood_bits(self, scheme: Scheme) -> float:
        """Bits on the air when every link carries the costs of all links, both ways."""
        return self.bits(self.flood(scheme))

    def flood(self, scheme: Scheme) -> Route:
        """What is sent so that every device has the costs of all links."""
        links = scheme.graph.links
        edges = self.edges[links]
        count = 2 * len(links)
        flood = Route.build(
            "flooding",
            edges=edges,
            edge=np.repeat(np.arange(len(links)), 2),
            forward=np.arange(count) % 2 == 0,
            step=0,
            bits=LINK_REPORT_BITS,
            repeats=len(links),
            uses=len(links),
        ).on_links(links)
        return flood.for_all()


@dataclass(frozen=True)
class _Weighed:
    """A scheme with the joules of all devices and the seconds of one of its exchanges."""

    choice: Choice
    joules: float
    seconds: float
    detail: str = ""

    @property
    def product(self) -> float:
        return self.joules * self.seconds

    def says(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        cost = f"{energy(self.joules)} in {duration(self.seconds)}"
        return f"{self.choice.kind.name} {cost}{more}"


def choose_scheme(conditions: Conditions, pricer: Pricer) -> Choice:
    """The scheme that ``plan.aggregation`` asks for, or that ``"auto"`` finds."""
    if conditions.options.aggregation != "auto":
        return choose(conditions)
    weighed = _weigh(conditions, pricer)
    if not weighed:
        rest = choose(conditions, "theorem3")
        return Choice(rest.kind, f"no exact scheme can be weighed; {rest.reason}", rest.fit)
    best, *others = sorted(weighed, key=lambda one: one.product)
    said = [f"the least joules × seconds of an exchange: {best.says()}"]
    said += [one.says() for one in others]
    if not conditions.channel_known:
        said.append("the channel is unknown, so that trees cannot be chosen by their price")
    return Choice(best.choice.kind, "; ".join(said), best.choice.fit)


def _weigh(conditions: Conditions, pricer: Pricer) -> list[_Weighed]:
    """The schemes that the graph can carry, those first that it carries in any case."""
    found: list[_Weighed] = []
    kinds = (kind for kind in SCHEMES if kind.exact and kind.advised)
    for kind in sorted(kinds, key=lambda kind: kind.least is not None):
        if kind.floods_costs and not conditions.channel_known:
            continue
        if kind.least is not None and found:
            joules, seconds = kind.least(conditions)
            if min(one.product for one in found) <= joules * seconds:
                continue  # whichever way the graph carries it, it cannot win
        one = _weighed(kind, conditions, pricer)
        if one is not None:
            found.append(one)
    return found


def _weighed(kind: SchemeKind, conditions: Conditions, pricer: Pricer) -> _Weighed | None:
    """A scheme's price; None if the graph cannot carry it."""
    try:
        choice = choose(conditions, kind.name)
    except InfeasibleError:
        return None
    scheme = Choice(kind, "", choice.fit).ready(conditions)
    prices = pricer.scheme(scheme, conditions.costs, 0, 1)
    joules, seconds = float(prices.exchange_j.sum()), float(prices.seconds[0])
    return _Weighed(choice, joules, seconds, conditions.reason(choice.fit))
