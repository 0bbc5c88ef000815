"""Gossip: random pairs, matchings, and Metropolis mixing with all neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import route_j
from joulemesh.aggregation.gossip import (
    Balance,
    Matchings,
    Mode,
    SparseMatrix,
    activity,
    balance,
    contraction,
    draw_matchings,
    draw_ticks,
    error_after,
    matching_mixing,
    matching_route,
    metropolis_mixing,
    metropolis_route,
    metropolis_weights,
    paper_gossip_route,
    paper_rounds,
    rounds_for,
    tick_mixing,
    tick_route,
)
from joulemesh.aggregation.peer import Peer, RoutePeer, Vector
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import Case, Conditions, Fit, Scheme, SchemeBase, SchemeKind
from joulemesh.base.citation import Citation
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = [
    "PARAMETERS",
    "GossipMatchings",
    "GossipTicks",
    "IteratedScheme",
    "Metropolis",
    "MetropolisPeer",
    "PairPeer",
    "PaperGossip",
    "with_decided_rounds",
]

FloatArray = NDArray[np.float64]

PARAMETERS = ("epsilon", "gossip_rounds", "gossip_guarantee")
"""Fields of the section ``plan`` that decide the number of gossip rounds."""

_MOST_ROUNDS = 5_000_000  # of one exchange; beyond, planning itself would take minutes


S = TypeVar("S", bound="IteratedScheme")


@dataclass(frozen=True)
class IteratedScheme(SchemeBase):
    """A scheme of K gossip rounds (or ticks).

    Attributes:
        schedule: which links are active in a round; decides the contraction.
        rounds: K.
        broadcast: does one transmission serve all neighbours of a device?
    """

    schedule: Mode
    rounds: int = 0
    broadcast: bool = False
    _known: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mode(self) -> str:
        """How it averages, in one word."""
        return self.schedule

    @property
    def contraction(self) -> float:
        """Factor by which one round shrinks the consensus error.

        For random schedules, the mean of its square. An eigenvalue of the graph: of 100,000
        devices a matter of minutes, so that it is computed when it is first asked for.
        """
        if "contraction" not in self._known:
            graph = self.graph
            self._known["contraction"] = contraction(graph.edges, graph.devices, self.schedule)
        return self._known["contraction"]

    def with_rounds(self: S, rounds: int) -> S:
        """The same scheme with another K."""
        return replace(self, rounds=rounds)

    @property
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""
        return float(error_after(self.rounds, self.contraction, self.schedule))

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """Remark 4: consensus error against joules, for every number of gossip rounds.

        None when a battery does not hold one gossip round in each iteration: there is nothing to
        balance then, and whether the plan can be paid is not for aggregation to say.
        """
        graph, own = self.graph, self.whole(costs)
        active = activity(graph.edges, graph.devices, self.schedule)
        spent = own.device_j(graph.edges, graph.devices, active)
        if self.broadcast and not self.random:  # every device sends to all of its neighbours
            once = metropolis_route(graph.edges, 1.0, 1)
            spent = route_j(once, own, graph.devices, broadcast=True)
        battery_j = battery_j[graph.members]
        if (iterations * self.bits * spent > battery_j).any():
            return None
        return balance(
            self.contraction,
            mode=self.schedule,
            round_energy_j=spent * self.bits,
            battery_j=battery_j,
            iterations=iterations,
        )


def with_decided_rounds(scheme: S, conditions: Conditions, *, as_printed: bool = False) -> S:
    """The scheme with the K that ``plan.gossip_rounds`` asks for."""
    graph, options = conditions.graph, conditions.options
    scheme = replace(scheme, broadcast=conditions.medium.broadcast)
    rounds = options.gossip_rounds
    if rounds == "balanced":
        table = scheme.balance(conditions.costs, conditions.battery_j, conditions.iterations)
        rounds = 1 if table is None else table.best
    elif rounds == "epsilon" and as_printed:
        rounds = paper_rounds(options.epsilon)
    elif rounds == "epsilon":
        rounds = rounds_for(
            options.epsilon,
            scheme.contraction,
            mode=scheme.schedule,
            guarantee=options.gossip_guarantee,
        )
    if rounds > _MOST_ROUNDS:
        raise InfeasibleError(
            f"gossip on this graph of {{count:device}} needs {{rounds}} {scheme.unit} per exchange "
            "(at most {most} are planned); use the tree or a ring, raise plan.epsilon or set "
            "plan.gossip_rounds",
            code="gossip",
            figures={"count": graph.devices, "rounds": int(rounds), "most": _MOST_ROUNDS},
        )
    return replace(scheme, rounds=int(rounds))


@dataclass(frozen=True)
class Metropolis(IteratedScheme):
    """K rounds in which every device sends to all its neighbours."""

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Both ways over every link, K times, whatever the links cost."""
        return self.graph.in_whole(metropolis_route(self.graph.edges, self.bits, self.rounds))

    @property
    def round_weights(self) -> SparseMatrix:
        """Sparse [A, A]: the Metropolis weights."""
        return metropolis_weights(self.graph.edges, self.graph.devices)

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [1, A, A]: the K-th power of the Metropolis weights."""
        return metropolis_mixing(self.round_weights, self.rounds)[None]

    def peer(self, device: int, route: Route) -> Peer:
        """A device that mixes with all its neighbours."""
        return MetropolisPeer(device, route)


class MetropolisPeer(RoutePeer):
    """Sends what it holds to all neighbours, and moves towards what they send."""

    skips = True

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        degree = np.bincount(route.edges.ravel())
        self._weight = {
            other: 1.0 / (1.0 + float(max(degree[device], degree[other])))
            for other in self.senders(0)
        }

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """w_ij = 1 / (1 + max(d_i, d_j)) for what comes, the rest for one's own."""
        before = self.held
        for sender, payload in arrived.items():
            self.held = self.held + self._weight[sender] * (payload - before)


def _ready_metropolis(conditions: Conditions, fit: Fit, reason: str) -> Metropolis:
    scheme = Metropolis(METROPOLIS, reason, conditions.graph, conditions.bits, "metropolis")
    return with_decided_rounds(scheme, conditions)


METROPOLIS = SCHEMES.register(
    SchemeKind(
        "metropolis",
        "everybody mixes with all neighbours by Metropolis weights, in several rounds",
        _ready_metropolis,
        words="by mixing with neighbours (Metropolis weights)",
        exact=False,
        parameters=PARAMETERS,
        citation=Citation(
            "Xiao, Boyd, Lall",
            "A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus",
            2005,
            "IPSN",
            doi="10.1109/IPSN.2005.1440896",
            names="Xiao, Lin and Boyd, Stephen and Lall, Sanjay",
        ),
    )
)


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
