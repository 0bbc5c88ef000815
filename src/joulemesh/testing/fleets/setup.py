"""Small fleets to simulate, and their plans: real schemes and routes at made-up prices."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import ORTHOGONAL
from joulemesh.aggregation.patterned import patterned
from joulemesh.aggregation.peer import Peer
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import Conditions, Scheme, choose
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.continuation import first_view
from joulemesh.deploy.effects import Price
from joulemesh.deploy.view import View
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.scenario.fields import ExchangePattern
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
    """What a fleet is to do, before anything goes wrong. One is shared by many seeds."""

    devices: int  # number of devices
    links: Links  # (lower, higher), ascending
    scheme: str  # name of the aggregation scheme
    # which iterations average exactly; None where all are alike
    pattern: ExchangePattern | None = None
    # (rounds, mode), for those schemes that have gossip rounds
    gossip: tuple[int, str] = (2, "matchings")
    iterations: int = 4  # number of iterations
    size: int = 6  # number of parameters
    # seconds by the plan's clock that all iterations may take; None without a limit
    total_s: float | None = None
    reserve: float = 0.01  # share of each battery that plans leave alone
    # do those who cannot pay to the end take no part, rather than all end earlier?
    leave: bool = False
    alone: bool = False  # is there a plan for the one of two devices that goes on alone?
    spares: tuple[int, ...] = ()  # devices that are not there before the roster has them

    @cached_property
    def options(self) -> PlanOptions:
        """The section ``plan`` of a scenario that asks for it."""
        rounds, mode = self.gossip
        wanted = {"aggregation": self.scheme, "gossip_rounds": rounds, "gossip_mode": mode}
        return PlanOptions.model_validate(
            {**wanted, "exchange": self.pattern or "exact"}, context=None
        )

    def neighbours(self, device: int) -> tuple[int, ...]:
        return tuple(sorted({a if b == device else b for a, b in self.links if device in (a, b)}))

    def round_j(self, device: int) -> float:
        return _ROUND_J * (1.0 + 0.25 * (device % 3))

    def round_s(self, device: int) -> float:
        return _ROUND_S * (1.0 + 0.5 * (device % 2))

    def byte_j(self, device: int, to: int) -> float:
        """Joules of a byte that is sent to a neighbour."""
        return _JOULES_A_BYTE * (1.0 + 0.1 * ((device + 2 * to) % 4))

    def costs(self, links: Links) -> LinkCosts:
        forward = np.array([self.byte_j(a, b) / 8 for a, b in links])
        backward = np.array([self.byte_j(b, a) / 8 for a, b in links])
        seconds = np.full(len(links), _SECONDS_A_BYTE / 8)
        return LinkCosts(seconds, seconds, forward, backward)


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The exchanges of some members over some links: what does not depend on joules."""

    scheme: Scheme | None  # by which they exchange; None for a device alone
    routes: tuple[Route | None, ...]  # of each iteration; None where nothing is sent
    spent_j: NDArray[np.float64]  # [n, N]: joules of each device's messages
    seconds: NDArray[np.float64]  # [n]: of the whole exchange

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
    """Makes the plans of a fleet's views, as one device sees them."""

    def __init__(self, setup: Setup, battery_j: Sequence[float] = (), *, odd: bool = False) -> None:
        self.setup, self.battery_j, self._odd = setup, battery_j, odd
        self._made: dict[View, VirtualPlan | str] = {}

    def feasible(self) -> bool:
        return isinstance(self.plan(self._first(tuple(self.battery_j)), 0), VirtualPlan)

    def first(self, battery_j: tuple[float, ...]) -> View:
        """View 0: everybody but spare devices, from the first iteration on."""
        plan = self.plan(self._first(battery_j), 0)
        assert isinstance(plan, VirtualPlan), plan
        return plan.view

    def _first(self, battery_j: tuple[float, ...]) -> View:
        members = first_view(self.setup.devices, self.setup.spares).members
        return View(0, 1, members, left_j=tuple(battery_j[one] for one in members))

    def plan(self, view: View, device: int) -> VirtualPlan | str:
        """The plan of a view, with its digest, or why there is none."""
        more = int(self._odd and view.number > 0)
        if view not in self._made:
            self._made[view] = self._decided(view, more)
        made = self._made[view]
        return made if isinstance(made, str) else replace(made, device=device)

    def _decided(self, view: View, more: int) -> VirtualPlan | str:
        """With what is left beyond the reserve; if that does not do, with all that is left."""
        refusal = ""
        for reserve in (self.setup.reserve, 0.0):
            found = _Draft(self.setup, view, reserve, self.battery_j, more).decide()
            if not isinstance(found, str):
                content = repr((self.setup.scheme, replace(view, digest="", proof=None), more))
                digest = hashlib.sha256(content.encode()).hexdigest()
                return replace(found, view=replace(view, digest=digest))
            refusal = found
        return refusal


class _Draft:
    """Decides who takes part in a view, for how many iterations, and with how many rounds."""

    def __init__(
        self, setup: Setup, view: View, reserve: float, battery_j: Sequence[float], more: int
    ) -> None:
        self.setup, self.view, self.more = setup, view, more
        self.left_j = {
            one: left_j - reserve * (battery_j[one] if battery_j else left_j)
            for one, left_j in zip(view.members, view.left_j, strict=True)
        }

    def decide(self) -> VirtualPlan | str:
        """The plan as no device in particular sees it, or why there is none."""
        setup, view, who = self.setup, self.view, self.view.members
        least = 1 if setup.alone and len(who) == 1 else 2
        while len(who) >= least:
            found = exchanges(setup, who, view.cut)
            if found is None:
                parts = _parts(who, setup.links, view.cut)
                who = max(parts, key=lambda part: (len(part), -part[0]))
                continue
            able = tuple(d for d in who if self.left_j[d] >= self._least_j(found, d, view.start))
            if able == who:
                lasting = tuple(d for d in who if self.left_j[d] >= self._all_j(found, d))
                if lasting == who or not setup.leave or len(lasting) < 2:
                    return self._lasting(found, who)
                able = lasting
            who = able
        return f"fewer than two devices can pay for iteration {view.start}"

    def _trains(self, iteration: int) -> int:
        pattern = self.setup.pattern
        return int(pattern is None or bool(pattern.trains(iteration)[-1]))

    def _least_j(self, found: Exchanges, device: int, iteration: int) -> float:
        """Joules of an iteration with no more rounds than it must have."""
        rounds = self._trains(iteration) * (1 + self.more)
        return rounds * self.setup.round_j(device) + float(found.spent_j[iteration - 1, device])

    def _all_j(self, found: Exchanges, device: int) -> float:
        """Joules to the end, with no more rounds than it must have."""
        iterations = range(self.view.start, self.setup.iterations + 1)
        return sum(self._least_j(found, device, t) for t in iterations)

    def _lasting(self, found: Exchanges, who: tuple[int, ...]) -> VirtualPlan | str:
        """As many iterations as everybody can pay for in time, and more rounds where they can."""
        setup, view = self.setup, self.view
        left_j = {device: self.left_j[device] for device in who}
        left_s = None if setup.total_s is None else setup.total_s - view.elapsed_s
        last = view.start - 1
        for t in range(view.start, setup.iterations + 1):
            after_j = {device: left_j[device] - self._least_j(found, device, t) for device in who}
            slowest_s = self._trains(t) * max(setup.round_s(device) for device in who)
            if left_s is not None:
                left_s -= slowest_s + float(found.seconds[t - 1])
            if min(after_j.values()) < 0.0 or (left_s is not None and left_s < 0.0):
                break
            left_j, last = after_j, t
        if last < view.start:
            return f"no time is left for iteration {view.start}"
        rounds = {}
        for t, device in product(range(view.start, last + 1), who):
            round_j, trains = setup.round_j(device), self._trains(t)
            extra = int(setup.total_s is None and trains and (device + t) % 2)
            extra *= int(left_j[device] >= round_j)
            left_j[device] -= extra * round_j
            rounds[device, t] = trains * (1 + self.more) + extra
        return VirtualPlan(view, -1, setup, found, last, who, rounds)


def _parts(who: tuple[int, ...], links: Links, cut: Links) -> list[tuple[int, ...]]:
    number = {device: k for k, device in enumerate(who)}
    inside = [(number[a], number[b]) for a, b in links if a in number and b in number]
    inside = [one for one in inside if (who[one[0]], who[one[1]]) not in cut]
    count, label = components(np.array(inside, np.int64).reshape(-1, 2), len(who))
    return [tuple(d for d in who if label[number[d]] == part) for part in range(count)]


@dataclass(frozen=True, eq=False)
class VirtualPlan:
    """A `ViewPlan`: few rounds, fewer where the battery is low, and nobody who cannot pay."""

    view: View
    device: int
    setup: Setup
    exchanges: Exchanges
    last: int
    who: tuple[int, ...]
    planned: Mapping[tuple[int, int], int]

    def rounds(self, iteration: int) -> int:
        return self.rounds_of(self.device, iteration)

    def rounds_of(self, device: int, iteration: int) -> int:
        self._require(iteration)
        return self.planned.get((device, iteration), 0)

    def _require(self, iteration: int) -> None:
        if not self.view.start <= iteration <= self.last:
            raise ScenarioError(
                f"iteration {iteration} is not one of {self.view.start}..{self.last}"
            )

    def active(self, iteration: int) -> tuple[int, ...]:
        self._require(iteration)
        return self.who

    def route(self, iteration: int) -> Route | None:
        """Everybody's messages of the exchange; None where there is no exchange."""
        self._require(iteration)
        return self.exchanges.routes[iteration - 1]

    def peer(self, iteration: int) -> Peer | None:
        """What this device does in the exchange; None where it takes no part in one."""
        return self.peer_of(self.device, iteration)

    def peer_of(self, device: int, iteration: int) -> Peer | None:
        route, scheme = self.route(iteration), self.exchanges.scheme
        if route is None or scheme is None or device not in route.edges:
            return None
        return scheme.peer(device, route)

    def exact(self, iteration: int) -> bool:
        """Does everybody hold the same mean after the exchange?"""
        return self.exchanges.exact(iteration)

    def rest_j(self, iteration: int) -> float:
        """Joules of this device's part, from an iteration to the last."""
        prices = ((self.rounds(t), self.price(t)) for t in range(iteration, self.last + 1))
        return sum(rounds * one.round_j + one.exchange_j for rounds, one in prices)

    def price(self, iteration: int) -> Price:
        setup, row = self.setup, iteration - 1
        exchange_s = float(self.exchanges.seconds[row])
        slowest = max(self.rounds_of(one, iteration) * setup.round_s(one) for one in self.who)
        return Price(
            setup.round_j(self.device),
            setup.round_s(self.device),
            float(self.exchanges.spent_j[row, self.device]),
            exchange_s,
            slowest + exchange_s,
        )
