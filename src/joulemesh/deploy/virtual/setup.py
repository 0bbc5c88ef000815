"""Small fleets to simulate, and their plans: real schemes and routes at made-up prices."""

from __future__ import annotations

__all__ = ["Setup", "VirtualPlan", "VirtualPlanner"]

import hashlib
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.choose import choose
from joulemesh.aggregation.medium import ORTHOGONAL
from joulemesh.aggregation.patterned import patterned
from joulemesh.aggregation.peer import Peer
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Conditions, Scheme
from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.deploy.plans import Price
from joulemesh.deploy.view import View
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.scenario.pattern import ExchangePattern
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph, components

Links = tuple[tuple[int, int], ...]

_NUMBER_BYTES = 8  # parameters are float64
_JOULES_A_BYTE = 0.01
_SECONDS_A_BYTE = 1e-4
_ROUND_J = 1.0
_ROUND_S = 0.06


@dataclass(frozen=True)
class Setup:
    """What a fleet is to do, before anything goes wrong. One is shared by many seeds.

    Attributes:
        devices: number of devices.
        links: (lower, higher), ascending.
        scheme: name of the aggregation scheme.
        pattern: which iterations average exactly; None where all are alike.
        gossip: (rounds, mode), for those schemes that have gossip rounds.
        iterations: number of iterations.
        size: number of parameters.
    """

    devices: int
    links: Links
    scheme: str
    pattern: ExchangePattern | None = None
    gossip: tuple[int, str] = (2, "matchings")
    iterations: int = 4
    size: int = 6

    @cached_property
    def options(self) -> PlanOptions:
        """The section ``plan`` of a scenario that asks for it."""
        rounds, mode = self.gossip
        wanted = {"aggregation": self.scheme, "gossip_rounds": rounds, "gossip_mode": mode}
        return PlanOptions.model_validate(
            {**wanted, "exchange": self.pattern or "exact"}, context=None
        )

    def neighbours(self, device: int) -> tuple[int, ...]:
        """The devices to which a device has a link, ascending."""
        return tuple(sorted({a if b == device else b for a, b in self.links if device in (a, b)}))

    def round_j(self, device: int) -> float:
        """Joules of a local round."""
        return _ROUND_J * (1.0 + 0.25 * (device % 3))

    def round_s(self, device: int) -> float:
        """Seconds of a local round."""
        return _ROUND_S * (1.0 + 0.5 * (device % 2))

    def byte_j(self, device: int, to: int) -> float:
        """Joules of a byte that is sent to a neighbour."""
        return _JOULES_A_BYTE * (1.0 + 0.1 * ((device + 2 * to) % 4))

    def costs(self, links: Links) -> LinkCosts:
        """The price of a bit on some links."""
        forward = np.array([self.byte_j(a, b) / 8 for a, b in links])
        backward = np.array([self.byte_j(b, a) / 8 for a, b in links])
        seconds = np.full(len(links), _SECONDS_A_BYTE / 8)
        return LinkCosts(seconds, seconds, forward, backward)


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The exchanges of some members over some links: what does not depend on joules.

    Attributes:
        scheme: by which they exchange; None for a device alone.
        routes: of each iteration; None where nothing is sent.
        spent_j: [n, N]: joules of each device's messages.
        seconds: [n]: of the whole exchange.
    """

    scheme: Scheme | None
    routes: tuple[Route | None, ...]
    spent_j: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def exact(self, iteration: int) -> bool:
        """Does everybody hold the same mean after an iteration's (from 1) exchange?"""
        return self.scheme is not None and self.scheme.exact_at(iteration - 1)


@cache
def exchanges(setup: Setup, members: tuple[int, ...], cut: Links) -> Exchanges | None:
    """Routes for some members without some links; None where they are not connected.

    A scheme that the remaining graph cannot carry gives way to the tree.
    """
    n = setup.iterations
    if len(members) == 1:
        return Exchanges(None, (None,) * n, np.zeros((n, setup.devices)), np.zeros(n))
    inside = set(members)
    links = tuple(one for one in setup.links if one not in cut and inside.issuperset(one))
    number = {device: k for k, device in enumerate(members)}
    edges = np.array([[number[a], number[b]] for a, b in links], np.int64).reshape(-1, 2)
    if not links or components(edges, len(members))[0] > 1:
        return None
    scheme = _scheme(setup, members, links)
    costs = setup.costs(links)
    routes = tuple(scheme.route(costs, t) for t in range(n))
    spent: NDArray[np.float64] = np.stack(
        [
            route.repeats * np.bincount(route.sender, route.joules(costs), setup.devices)
            for route in routes
        ]
    )
    seconds = np.array([float(route.seconds(costs).sum()) * route.repeats for route in routes])
    sending = tuple(route if len(route.edge) else None for route in routes)
    return Exchanges(scheme, sending, spent, seconds)


def _scheme(setup: Setup, members: tuple[int, ...], links: Links) -> Scheme:
    graph = Graph(setup.devices, np.array(links, np.int64), np.zeros((setup.devices, 2)))
    active = np.zeros(setup.devices, np.bool_)
    active[list(members)] = True
    part = Subgraph.of(graph, active)
    options = setup.options
    if not SCHEMES[setup.scheme].fit(part, options).possible:
        options = options.model_copy(update={"aggregation": "tree"})
    conditions = Conditions(
        part,
        setup.costs(links),
        8.0 * _NUMBER_BYTES * setup.size,
        options,
        ORTHOGONAL,
        channel_known=True,
        seed=5,
        battery_j=np.full(setup.devices, 1e9),
        iterations=setup.iterations,
    )
    return patterned(conditions, lambda: choose(conditions).ready(conditions))


class VirtualPlanner:
    """Makes the plans of a fleet's views, as one device sees them.

    Args:
        setup: the fleet.
        odd: make other plans than the others' planners do, except of view 0: another version.
    """

    def __init__(self, setup: Setup, *, odd: bool = False) -> None:
        self.setup, self._odd = setup, odd
        self._views: dict[View, View] = {}  # with their digests

    def first(self, battery_j: tuple[float, ...]) -> View:
        """View 0: everybody, from the first iteration on."""
        view = View(0, 1, tuple(range(self.setup.devices)), left_j=battery_j)
        plan = self.plan(view, 0)
        assert isinstance(plan, VirtualPlan), plan
        return plan.view

    def plan(self, view: View, device: int) -> VirtualPlan | str:
        """The plan of a view, with its digest, or why there is none."""
        found = exchanges(self.setup, view.members, view.cut)
        if found is None:
            return f"the members {view.members} of view {view.number} are not connected"
        more = int(self._odd and view.number > 0)
        if view not in self._views:
            content = repr((self.setup.scheme, replace(view, digest="", proof=None), more))
            digest = hashlib.sha256(content.encode()).hexdigest()
            self._views[view] = replace(view, digest=digest)
        return VirtualPlan(self._views[view], device, self.setup, found, more)


@dataclass(frozen=True, eq=False)
class VirtualPlan:
    """A `ViewPlan`: few rounds, fewer where the battery is low."""

    view: View
    device: int
    setup: Setup
    exchanges: Exchanges
    more: int = 0  # rounds than others plan

    @property
    def last(self) -> int:
        """The last iteration."""
        return self.setup.iterations

    def rounds(self, iteration: int) -> int:
        """Local rounds of this device."""
        return self.rounds_of(self.device, iteration)

    def rounds_of(self, device: int, iteration: int) -> int:
        """Local rounds of any device."""
        pattern = self.setup.pattern
        if pattern is not None and not pattern.trains(iteration)[-1]:
            return 0
        left = self.view.left_j[self.view.members.index(device)]
        remaining = self.setup.iterations - self.view.start + 1
        rich = left > 4.0 * remaining * self.setup.round_j(device)
        return self.more + (1 + (device + iteration) % 2 if rich else 1)

    def active(self, iteration: int) -> tuple[int, ...]:
        """All members take part."""
        return self.view.members

    def route(self, iteration: int) -> Route | None:
        """Everybody's messages of the exchange; None where there is no exchange."""
        return self.exchanges.routes[iteration - 1]

    def peer(self, iteration: int) -> Peer | None:
        """What this device does in the exchange; None where it takes no part in one."""
        return self.peer_of(self.device, iteration)

    def peer_of(self, device: int, iteration: int) -> Peer | None:
        """What any device does in the exchange."""
        route, scheme = self.route(iteration), self.exchanges.scheme
        if route is None or scheme is None or device not in route.edges:
            return None
        return scheme.peer(device, route)

    def exact(self, iteration: int) -> bool:
        """Does everybody hold the same mean after the exchange?"""
        return self.exchanges.exact(iteration)

    def price(self, iteration: int) -> Price:
        """What the iteration costs this device."""
        setup, row = self.setup, iteration - 1
        exchange_s = float(self.exchanges.seconds[row])
        slowest = max(
            self.rounds_of(one, iteration) * setup.round_s(one) for one in self.view.members
        )
        return Price(
            setup.round_j(self.device),
            setup.round_s(self.device),
            float(self.exchanges.spent_j[row, self.device]),
            exchange_s,
            slowest + exchange_s,
        )
