"""Gossip (case 3 of Theorem 3): random pairs of neighbours average (Boyd et al., 2006).

One pair at a time (``plan.gossip_mode = "ticks"``), or many that share no device
(``"matchings"``). With ``plan.physics = "paper"`` gossip is what the paper charges for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import (
    Matchings,
    draw_matchings,
    draw_ticks,
    matching_mixing,
    matching_route,
    paper_gossip_route,
    tick_mixing,
    tick_route,
)
from joulemesh.aggregation.peer import Peer, RoutePeer, Vector
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import Case, Conditions, Fit, Scheme, SchemeKind
from joulemesh.aggregation.schemes.iterated import (
    PARAMETERS,
    IteratedScheme,
    with_decided_rounds,
)
from joulemesh.aggregation.schemes.metropolis import Metropolis
from joulemesh.citation import Citation
from joulemesh.errors import ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["GossipMatchings", "GossipTicks", "PairPeer", "PaperGossip"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Pairs(IteratedScheme):
    """Exchanges in pairs, drawn for every iteration.

    Attributes:
        seed: of the draws.
    """

    seed: int = 0

    @property
    def random(self) -> bool:
        """True: every exchange has its own pairs."""
        return True

    def peer(self, device: int, route: Route) -> PairPeer:
        """A device that averages with one other at a time."""
        return PairPeer(device, route)


@dataclass(frozen=True)
class GossipTicks(_Pairs):
    """One random pair after another."""

    @property
    def unit(self) -> str:
        """Every pair is a tick."""
        return "ticks"

    def _ticks(self, start: int, stop: int) -> NDArray[np.int32]:
        graph, every = self.graph, np.arange(start, stop)
        return draw_ticks(graph.edges, graph.devices, self.rounds, seed=self.seed, iterations=every)

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """The pairs drawn for an iteration, whatever the links cost."""
        ticks = self._ticks(iteration, iteration + 1)[0]
        return self.graph.in_whole(tick_route(self.graph.edges, ticks, self.bits))

    def pairs(self, start: int, stop: int) -> IntArray:
        """int64 [stop−start, K]: the link of each tick, a position in the graph's edge list."""
        return self.graph.links[self._ticks(start, stop)]

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A]: the products of the pairs' means."""
        return tick_mixing(self.graph.devices, self.graph.edges, self._ticks(start, stop))


@dataclass(frozen=True)
class GossipMatchings(_Pairs):
    """Random pairs that share no device average at once."""

    def _matchings(self, iteration: int) -> Matchings:
        graph = self.graph
        return draw_matchings(
            graph.edges, graph.devices, self.rounds, seed=self.seed, iteration=iteration
        )

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """The matchings drawn for an iteration, whatever the links cost."""
        drawn = self._matchings(iteration)
        return self.graph.in_whole(matching_route(self.graph.edges, drawn, self.bits))

    def pairs(self, start: int, stop: int) -> IntArray:
        """int64 [stop−start, M]: the links of all matchings in order; −1 where there are fewer."""
        rows = [self._matchings(t)[0] for t in range(start, stop)]
        pairs = np.full((len(rows), max(map(len, rows))), -1, np.int64)
        for row, drawn in enumerate(rows):
            pairs[row, : len(drawn)] = self.graph.links[drawn]
        return pairs

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A]: the products of the matchings' means."""
        drawn = [self._matchings(t) for t in range(start, stop)]
        return matching_mixing(self.graph.devices, self.graph.edges, drawn)


class PairPeer(RoutePeer):
    """Sends what it holds to its partner of a step, and keeps the mean of the two."""

    skips = True

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Average with the partner, if there is one."""
        for payload in arrived.values():
            self.held = 0.5 * (self.held + payload)


@dataclass(frozen=True)
class PaperGossip(Metropolis):
    """Gossip as the paper charges it: K uses of every link, by the Metropolis matrix."""

    @property
    def mode(self) -> str:
        """The paper's."""
        return "paper"

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """One message stands for a use of a link, since both ends pay for it: a price."""
        return self.graph.in_whole(paper_gossip_route(self.graph.edges, self.bits, self.rounds))

    def peer(self, device: int, route: Route) -> Peer:
        """Refused: this route is a price and not a schedule that devices could follow."""
        raise ScenarioError(
            'plan.aggregation = "gossip" with plan.physics = "paper" has a price but no messages '
            'that devices could exchange; set plan.physics = "physical"',
            field="plan.aggregation",
        )


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Scheme:
    graph, options, bits = conditions.graph, conditions.options, conditions.bits
    if options.physics == "paper":  # one message is enough only where both ends pay for it
        kind = PaperGossip if options.pays == "both-ends" else Metropolis
        scheme = kind(GOSSIP, reason, graph, bits, "metropolis")
        return with_decided_rounds(scheme, conditions, as_printed=True)
    pairs = GossipTicks if options.gossip_mode == "ticks" else GossipMatchings
    drawn = pairs(GOSSIP, reason, graph, bits, options.gossip_mode, seed=conditions.seed)
    return with_decided_rounds(drawn, conditions)


GOSSIP = SCHEMES.register(
    SchemeKind(
        "gossip",
        "random pairs of neighbours average, until little disagreement is left",
        _ready,
        words="by gossip",
        exact=False,
        parameters=("gossip_mode", *PARAMETERS),
        case=Case(
            3,
            "the channel is unknown and the graph contains no ring: {before} (Theorem 3, case 3)",
        ),
        citation=Citation(
            "Boyd, Ghosh, Prabhakar, Shah",
            "Randomized Gossip Algorithms",
            2006,
            "IEEE Transactions on Information Theory 52(6):2508-2530",
            names="Boyd, Stephen and Ghosh, Arpita and Prabhakar, Balaji and Shah, Devavrat",
        ),
    )
)
