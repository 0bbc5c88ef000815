"""Metropolis gossip: everybody mixes with all neighbours at once (Xiao, Boyd, Lall, 2005)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.eigenvalue import SparseMatrix
from joulemesh.aggregation.gossip import metropolis_mixing, metropolis_route
from joulemesh.aggregation.peer import Peer, RoutePeer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Conditions, Fit, SchemeKind
from joulemesh.aggregation.schemes.iterated import (
    PARAMETERS,
    IteratedScheme,
    with_decided_rounds,
)
from joulemesh.aggregation.spectrum import metropolis_weights
from joulemesh.citation import Citation
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

__all__ = ["Metropolis", "MetropolisPeer"]

FloatArray = NDArray[np.float64]


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
    """Sends what it holds to all neighbours, and moves towards what they send.

    Args:
        device: its number in the whole graph.
        route: both ways over every link of its graph.
    """

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


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Metropolis:
    scheme = Metropolis(METROPOLIS, reason, conditions.graph, conditions.bits, "metropolis")
    return with_decided_rounds(scheme, conditions)


METROPOLIS = SCHEMES.register(
    SchemeKind(
        "metropolis",
        "everybody mixes with all neighbours by Metropolis weights, in several rounds",
        _ready,
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
