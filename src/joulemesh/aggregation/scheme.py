"""A scheme made ready for a graph: it can name its route and its mixing matrix in any iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation import gossip, spectrum
from joulemesh.aggregation.choose import Choice
from joulemesh.aggregation.gossip_rounds import Balance, balance
from joulemesh.aggregation.ring import chunked_route, ring_route
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.aggregation.tree import spanning_tree, tree_route
from joulemesh.errors import InfeasibleError
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts

__all__ = ["Scheme", "make_ready"]

FloatArray = NDArray[np.float64]

_MOST_ROUNDS = (
    5_000_000  # ticks or gossip rounds of one exchange; beyond, planning itself would take minutes
)


@dataclass(frozen=True)
class Scheme:
    """One way to average, on the devices that take part.

    Attributes:
        name: ``"tree"``, ``"ring"``, ``"ring-chunked"``, ``"gossip"`` or ``"metropolis"``.
        reason: why it was chosen.
        graph: the devices that take part and their links.
        bits: size of the parameter vector.
        duplex: ``"orthogonal"`` or ``"half"`` (it decides the tree's root).
        seed: of the random schedules.
        ring: the ring of the two ring schemes.
        kind: ``"exact"``, ``"ticks"``, ``"matchings"``, ``"metropolis"`` or ``"paper"`` (the
            paper's gossip: K uses of every link).
        rounds: K of gossip and metropolis, in ticks or gossip rounds; 0 for the exact schemes.
        contraction: factor by which one tick or gossip round shrinks the consensus error (for
            random schedules, the mean of its square).
    """

    name: str
    reason: str
    graph: Subgraph
    bits: float
    duplex: str
    seed: int
    ring: IntArray | None = None
    kind: str = "exact"
    rounds: int = 0
    contraction: float = 0.0

    @property
    def exact(self) -> bool:
        """Does every device hold the mean after one exchange?"""
        return self.kind == "exact"

    @property
    def random(self) -> bool:
        """Does every exchange have its own random schedule?"""
        return self.kind in ("ticks", "matchings")

    @property
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""
        if self.exact:
            return 0.0
        return float(spectrum.error_after(self.rounds, self.contraction, self._mode))

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """What is sent in an iteration (counted from 0), under the whole graph's numbers."""
        graph, bits = self.graph, self.bits
        if self.name == "tree":
            return self.tree(self.tree_links(costs), graph.own(costs))
        if self.ring is not None:
            along = ring_route if self.name == "ring" else chunked_route
            return graph.in_whole(along(self.ring, graph.edges, bits))
        if self.kind == "metropolis":
            return graph.in_whole(gossip.metropolis_route(graph.edges, bits, self.rounds))
        if self.kind == "paper":
            return graph.in_whole(gossip.paper_gossip_route(graph.edges, bits, self.rounds))
        if self.kind == "ticks":
            ticks = self._ticks(iteration, iteration + 1)[0]
            return graph.in_whole(gossip.tick_route(graph.edges, ticks, bits))
        return graph.in_whole(gossip.matching_route(graph.edges, self._matchings(iteration), bits))

    def tree_links(self, costs: LinkCosts) -> IntArray:
        """The minimum spanning tree, as positions in the subgraph's edge list."""
        graph = self.graph
        return spanning_tree(graph.edges, graph.own(costs).weight(), graph.devices)

    def tree(self, links: IntArray, own: LinkCosts) -> Route:
        """The tree over some links of the subgraph, with its best root."""
        graph = self.graph
        route = tree_route(graph.edges, links, own, graph.devices, self.bits, self.duplex)
        return graph.in_whole(route)

    def _ticks(self, start: int, stop: int) -> NDArray[np.int32]:
        graph, every = self.graph, np.arange(start, stop)
        return gossip.draw_ticks(
            graph.edges, graph.devices, self.rounds, seed=self.seed, iterations=every
        )

    def _matchings(self, iteration: int) -> gossip.Matchings:
        graph = self.graph
        return gossip.draw_matchings(
            graph.edges, graph.devices, self.rounds, seed=self.seed, iteration=iteration
        )

    def pairs(self, start: int, stop: int) -> IntArray:
        """int64 [n, K]: links of the pairwise exchanges of some iterations, in order; −1 for none.

        Positions in the whole graph's edge list.
        """
        links = self.graph.links
        if self.kind == "ticks":
            return links[self._ticks(start, stop)]
        rows = [self._matchings(t)[0] for t in range(start, stop)]
        pairs = np.full((len(rows), max(map(len, rows))), -1, np.int64)
        for row, drawn in enumerate(rows):
            pairs[row, : len(drawn)] = links[drawn]
        return pairs

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [n, A, A], or [1, A, A] when all are alike: what the exchanges do.

        The parameters after an exchange are this matrix times those before.
        """
        graph = self.graph
        if self.kind == "exact":
            return np.full((1, graph.devices, graph.devices), 1.0 / graph.devices)
        if self.kind == "ticks":
            return gossip.tick_mixing(graph.devices, graph.edges, self._ticks(start, stop))
        if self.kind == "matchings":
            drawn = [self._matchings(t) for t in range(start, stop)]
            return gossip.matching_mixing(graph.devices, graph.edges, drawn)
        weights = spectrum.metropolis_weights(graph.edges, graph.devices)
        return gossip.metropolis_mixing(weights, self.rounds)[None]

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """Remark 4: consensus error against joules, for every number of gossip rounds.

        None when a battery does not hold one gossip round in each iteration: there is nothing to
        balance then, and whether the plan can be paid is not for aggregation to say.
        """
        graph, own = self.graph, self.graph.own(costs)
        active = spectrum.activity(graph.edges, graph.devices, self._mode)
        forward, backward = active * own.forward_j, active * own.backward_j
        spent = np.bincount(graph.edges[:, 0], forward, graph.devices)
        spent = spent + np.bincount(graph.edges[:, 1], backward, graph.devices)
        battery_j = battery_j[graph.members]
        if (iterations * self.bits * spent > battery_j).any():
            return None
        return balance(
            self.contraction,
            mode=self._mode,
            round_energy_j=spent * self.bits,
            battery_j=battery_j,
            iterations=iterations,
        )

    @property
    def _mode(self) -> spectrum.Mode:
        return self.kind if self.kind in ("ticks", "matchings") else "metropolis"  # type: ignore[return-value]


def make_ready(
    choice: Choice,
    graph: Subgraph,
    costs: LinkCosts,
    *,
    bits: float,
    options: PlanOptions,
    duplex: str,
    seed: int,
    battery_j: FloatArray,
    iterations: int,
) -> Scheme:
    """A scheme for a graph, with its number of gossip rounds decided."""
    name = choice.scheme
    if name in ("tree", "ring", "ring-chunked"):
        return Scheme(name, choice.reason, graph, bits, duplex, seed, choice.ring)
    papers = name == "gossip" and options.physics == "paper"
    if papers:  # one message stands for a use of a link only where both ends pay for it
        kind = "paper" if options.pays == "both-ends" else "metropolis"
    else:
        kind = "metropolis" if name == "metropolis" else options.gossip_mode
    scheme = Scheme(name, choice.reason, graph, bits, duplex, seed, kind=kind)
    shrink = spectrum.contraction(graph.edges, graph.devices, scheme._mode)
    scheme = replace(scheme, contraction=shrink)
    rounds = options.gossip_rounds
    if rounds == "balanced":
        table = scheme.balance(costs, battery_j, iterations)
        rounds = 1 if table is None else table.best
    elif rounds == "epsilon" and papers:
        rounds = spectrum.paper_rounds(options.epsilon)
    elif rounds == "epsilon":
        rounds = spectrum.rounds_for(
            options.epsilon, shrink, mode=scheme._mode, guarantee=options.gossip_guarantee
        )
    if rounds > _MOST_ROUNDS:
        raise InfeasibleError(
            f"gossip on this graph of {graph.devices} devices needs {rounds} {kind} per exchange "
            f"(at most {_MOST_ROUNDS} are planned); use the tree or a ring, raise plan.epsilon or "
            "set plan.gossip_rounds",
            constraint="gossip",
        )
    return replace(scheme, rounds=int(rounds))
