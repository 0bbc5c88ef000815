"""What schemes have in common, to be built on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.eigenvalue import SparseMatrix
from joulemesh.aggregation.gossip_rounds import Balance
from joulemesh.aggregation.peer import Peer
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.scheme import RoutesToTry, SchemeKind
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.world.links import LinkCosts

__all__ = ["ExactScheme", "SchemeBase"]

FloatArray = NDArray[np.float64]

S = TypeVar("S", bound="SchemeBase")


@dataclass(frozen=True)
class SchemeBase(ABC):
    """A scheme without gossip rounds. A subclass has ``route``, ``mixing``, ``error`` and ``peer``.

    Attributes:
        kind: the record in the registry.
        reason: why it was chosen.
        graph: the devices that take part and their links.
        bits: size of the parameter vector.
    """

    kind: SchemeKind
    reason: str
    graph: Subgraph
    bits: float

    @property
    def name(self) -> str:
        """The name of its kind."""
        return self.kind.name

    @property
    def exact(self) -> bool:
        """Does every device hold the mean after one exchange?"""
        return self.kind.exact

    def exact_at(self, iteration: int) -> bool:
        """Does every device hold the mean after the exchange of an iteration (from 0)?"""
        return self.exact

    def silent(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which nothing is sent; none by default."""
        return np.zeros(stop - start, np.bool_)

    @property
    def random(self) -> bool:
        """Do exchanges differ from one another, as those of random schedules do? No by default."""
        return False

    @property
    def mode(self) -> str:
        """How it averages, in one word."""
        return "exact" if self.exact else self.name

    @property
    def rounds(self) -> int:
        """0: it has no gossip rounds."""
        return 0

    @property
    def unit(self) -> str:
        """What ``rounds`` counts."""
        return "rounds"

    @property
    def contraction(self) -> float | None:
        """None: it has no gossip rounds."""
        return None

    @property
    @abstractmethod
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""

    def with_rounds(self: S, rounds: int) -> S:
        """The scheme itself: it has no gossip rounds."""
        return self

    def whole(self, costs: LinkCosts) -> LinkCosts:
        """Price of a bit on the subgraph's links, in messages that carry the whole vector."""
        return self.graph.own(costs).for_messages(self.bits)

    @abstractmethod
    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """What is sent in an iteration (counted from 0), under the whole graph's numbers."""

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The one route by the costs that the planner knows: those of now, or their forecast."""

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            yield self.route(forecast if seen is None else seen, iteration)

        return to_try

    @abstractmethod
    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A], or [1, A, A] if all are alike: what the exchanges do."""

    @property
    def round_weights(self) -> SparseMatrix | None:
        """None: exchanges are not powers of one sparse matrix."""
        return None

    def pairs(self, start: int, stop: int) -> IntArray | None:
        """None: devices do not exchange in pairs."""
        return None

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """None: there are no gossip rounds to weigh against joules."""
        return None

    @abstractmethod
    def peer(self, device: int, route: Route) -> Peer:
        """What one device does in an exchange along a route."""

    def parts(self, route: Route) -> int:
        """Into how many parts the devices cut the parameters: the chunks of the route."""
        return route.chunks


@dataclass(frozen=True)
class ExactScheme(SchemeBase):
    """A scheme after which every device holds the mean. A subclass has ``route`` and ``peer``."""

    @property
    def error(self) -> float:
        """0: nothing is left to agree on."""
        return 0.0

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [1, A, A]: the mean, for every device."""
        devices = self.graph.devices
        return np.full((1, devices, devices), 1.0 / devices)
