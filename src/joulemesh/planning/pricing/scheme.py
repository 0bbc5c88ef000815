"""A scheme's price in some iterations: joules of each device, seconds of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.medium import Medium
from joulemesh.aggregation.on_air import bits_on_air
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import ScenarioError
from joulemesh.planning.exact import exact_sum
from joulemesh.planning.pricing.route import (
    exchange_latency_s,
    exchange_parts_j,
    pairwise_latency_s,
    pairwise_parts_j,
)
from joulemesh.scenario import Scenario
from joulemesh.world import World
from joulemesh.world.links import LinkCosts

__all__ = ["LINK_REPORT_BITS", "Pricer", "Prices"]

FloatArray = NDArray[np.float64]

LINK_REPORT_BITS = 64.0  # one link's cost, flooded so that every device computes the same tree
_BLOCK = 64  # random schedules priced at a time
_MOST_PAIRS = 200_000_000  # that meet in a plan: some minutes
_MOST_SLOTTED = 5_000_000  # the same in a shared medium, where each takes its slots by itself


@dataclass(frozen=True, eq=False)
class Prices:
    """What the exchanges of n iterations cost; n = 1 when all are alike.

    Attributes:
        energy_j: float64 [n, N]: joules of each device.
        latency_s: float64 [n]: seconds.
        receive_j: float64 [n, N]: what of these joules is for receiving; None where it is free.
    """

    energy_j: FloatArray
    latency_s: FloatArray
    receive_j: FloatArray | None = None

    @classmethod
    def joined(cls, parts: Sequence[Prices]) -> Prices:
        """The prices of iterations that follow each other."""
        heard = [one.receive_j for one in parts if one.receive_j is not None]
        return cls(
            np.concatenate([one.energy_j for one in parts]),
            np.concatenate([one.latency_s for one in parts]),
            np.concatenate(heard) if len(heard) == len(parts) else None,
        )

    def later(self, seconds: float) -> Prices:
        """The same with so many seconds more."""
        return replace(self, latency_s=self.latency_s + seconds) if seconds else self

    def total_j(self, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Joules [N] of the first ``iterations`` exchanges, and what that sum leaves out."""
        if len(self.energy_j) == 1:
            return exact_sum(self.energy_j, iterations)
        return exact_sum(self.energy_j[:iterations])

    def with_floods(self, flood: Prices, fresh: NDArray[np.bool_]) -> Prices:
        """These prices, and a flooding of link costs in the iterations where ``fresh`` [n]."""
        heard = self.receive_j
        if heard is not None and flood.receive_j is not None:
            heard = heard + fresh[:, None] * flood.receive_j
        return Prices(
            self.energy_j + fresh[:, None] * flood.energy_j,
            self.latency_s + fresh * flood.latency_s,
            heard,
        )


class Pricer:
    """Prices routes and schemes in one world, by the scenario's accounting and clock."""

    def __init__(self, scenario: Scenario, world: World, model_bits: float) -> None:
        self.devices = world.graph.devices
        self.edges = world.graph.edges
        self.pays = scenario.plan.pays
        self.clock = scenario.plan.clock
        self.medium = Medium.of(scenario, world.graph.positions_m)
        self.model_bits = model_bits
        besides = world.devices.overhead_s
        # Nobody goes on before the slowest has saved: the longest overhead is everybody's.
        self.overhead_s = 0.0 if besides is None else float(besides.max())

    def route(self, route: Route, costs: LinkCosts) -> Prices:
        """Price of one exchange along a route, with what an iteration takes besides."""
        return self._priced(route, costs, self.clock).later(self.overhead_s)

    def beside(self, route: Route, costs: LinkCosts) -> Prices:
        """Price of what is sent beside an exchange, in the same iteration."""
        return self._priced(route, costs, self.clock)

    def _priced(self, route: Route, costs: LinkCosts, clock: str) -> Prices:
        spent, heard = exchange_parts_j(route, costs, self.devices, self.pays, self.medium)
        latency = exchange_latency_s(
            route, costs, self.devices, clock, self.medium, self.model_bits
        )
        return Prices(spent[None], np.array([latency]), None if heard is None else heard[None])

    def scheme(self, scheme: Scheme, costs: LinkCosts, start: int, stop: int) -> Prices:
        """Price of a scheme's exchanges in iterations start..stop−1 (counted from 0)."""
        if not scheme.random:
            return self.route(scheme.route(costs, start), costs)
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
        return Prices.joined(parts)

    def _random(self, scheme: Scheme, costs: LinkCosts, start: int, stop: int) -> Prices:
        pairs = None if self.medium.shared else scheme.pairs(start, stop)
        if pairs is None:
            routes = [scheme.route(costs, t) for t in range(start, stop)]
            different = {id(route): route for route in routes}
            priced = {key: self.route(route, costs) for key, route in different.items()}
            return Prices.joined([priced[id(route)] for route in routes])  # many may be the same
        bits = scheme.bits
        spent, heard = pairwise_parts_j(self.edges, pairs, costs, self.devices, bits, self.pays)
        if self.clock == "paper":
            each = costs.for_messages(bits)
            slower = np.append(np.maximum(each.forward_s, each.backward_s), 0.0)
            latency = scheme.rounds * slower[pairs].max(axis=1) * self.model_bits
        else:
            latency = pairwise_latency_s(self.edges, pairs, costs, self.devices, bits, self.medium)
        return Prices(spent, latency, heard).later(self.overhead_s)

    def coordination(self, scheme: Scheme, costs: LinkCosts) -> Prices:
        """Price of flooding every link's cost over every link, before a tree is computed.

        All reports pass each link once in each direction, one after another and each in a message
        of its own, so the slowest link is the critical path (one hop is nothing beside all the
        reports).
        """
        return self._priced(self.flood(scheme), costs, "critical-path")

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
