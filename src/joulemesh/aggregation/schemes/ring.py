"""The paper's ring (case 2 of Theorem 3): every device passes on a whole vector, N−1 times."""

from __future__ import annotations

from dataclasses import dataclass

from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.ring import find_ring, ring_route
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import Case, Conditions, Fit, SchemeKind
from joulemesh.aggregation.schemes.base import ExactScheme
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.bibliography import PAPER
from joulemesh.errors import Edit
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts

__all__ = ["Ring", "RingPeer", "fit_ring", "order_of"]


@dataclass(frozen=True, eq=False)
class Ring(ExactScheme):
    """Whole vectors travel around a ring.

    Attributes:
        order: int [A]: the devices in ring order, in the subgraph's numbers.
    """

    order: IntArray

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Around the ring, whatever the links cost."""
        return self.graph.in_whole(ring_route(self.order, self.graph.edges, self.bits))

    def peer(self, device: int, route: Route) -> RingPeer:
        """A device of the ring."""
        return RingPeer(device, route)


class RingPeer(RoutePeer):
    """Passes on what came, and adds everything up in the end, in the order of the devices.

    Partial sums, which are of the same size, would be added up from another device on by each, and
    the devices' means would differ in their last bits.

    Args:
        device: its number in the whole graph.
        route: around a ring.
    """

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        before = dict(zip(route.receiver.tolist(), route.sender.tolist(), strict=True))
        self._origin: list[int] = []  # of what comes, by step
        for _ in range(self.steps):
            self._origin.append(before[self._origin[-1] if self._origin else device])

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        super().start(own)
        self._vectors = {self.device: own}

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Keep what came, which is sent next."""
        (self.held,) = arrived.values()
        self._vectors[self._origin[step]] = self.held

    def instead(self, step: int, sender: int) -> Vector:
        """This device's own vector, which it passes on in the place of the lost one."""
        return self._vectors[self.device]

    def result(self) -> Vector:
        """The mean of all devices."""
        first, *others = [self._vectors[device] for device in sorted(self._vectors)]
        return sum(others, start=first) / len(self._vectors)


def fit_ring(graph: Subgraph, options: PlanOptions) -> Fit:
    """Look for a ring through all devices, within ``plan.ring_search_limit`` steps.

    >>> import numpy as np
    >>> path = Subgraph(3, np.array([[0, 1], [1, 2]]), None)
    >>> fit_ring(path, PlanOptions()).reason
    '{device} has 1 link, a ring needs 2'
    """
    search = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=options.ring_search_limit)
    if search.order is not None:
        return Fit(reason=search.reason, order=search.order)
    doubt = "" if search.exhausted else ", which does not prove that none exists"
    more = "" if search.exhausted else ", or a larger plan.ring_search_limit find one"
    return Fit(
        possible=False,
        reason=search.reason,
        device=search.device,
        refusal=f"needs a ring through all devices: {search.reason}{doubt} (more links may make "
        f"one{more})",
        remedies=((Edit("plan.aggregation", "tree"),),),  # every connected graph has one
    )


def order_of(fit: Fit) -> IntArray:
    """The ring that `fit_ring` found."""
    assert fit.order is not None
    return fit.order


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Ring:
    return Ring(RING, reason, conditions.graph, conditions.bits, order_of(fit))


RING = SCHEMES.register(
    SchemeKind(
        "ring",
        "whole vectors travel around a ring of all devices",
        _ready,
        words="around a ring",
        fit=fit_ring,
        case=Case(
            2,
            "the channel is unknown, so that links cannot be chosen by their energy, and the "
            "graph contains a ring: {fit} (Theorem 3, case 2)",
        ),
        citation=PAPER,
    )
)
