"""Exchanges that differ by iteration: an exact average in some, neighbours or nothing in others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Peer, RoutePeer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import (
    Conditions,
    Fit,
    RoutesToTry,
    Scheme,
    SchemeBase,
    SchemeKind,
)
from joulemesh.registries import SCHEMES
from joulemesh.scenario.fields import ExchangePattern
from joulemesh.world.links import LinkCosts

FloatArray = NDArray[np.float64]

NEIGHBOURS = "metropolis"
"""The scheme by which devices mix with their neighbours."""


@dataclass(frozen=True)
class Patterned(SchemeBase):
    """Two schemes, of which the iteration decides.

    Attributes:
        average: of the iterations that end with an exact average.
        between: of the others; None if nothing is sent in them.
        pattern: which is which.
        iterations: number n of all iterations.
    """

    average: Scheme
    between: Scheme | None
    pattern: ExchangePattern
    iterations: int
    _latest: dict[bool, tuple[LinkCosts, Route]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def random(self) -> bool:
        """Exchanges differ, so that each is looked at by itself."""
        return True

    @property
    def mode(self) -> str:
        """How it averages, in one word."""
        return "pattern"

    @property
    def error(self) -> float:
        """What an exchange between two exact averages leaves."""
        return 1.0 if self.between is None else self.between.error

    @property
    def contraction(self) -> float | None:
        """Of the mixing with neighbours."""
        return None if self.between is None else self.between.contraction

    @cached_property
    def averages(self) -> NDArray[np.bool_]:
        """bool [n]: the iterations that end with an exact average."""
        return self.pattern.averages(self.iterations)

    def at(self, iteration: int) -> Scheme | None:
        """The scheme of an iteration (counted from 0); None where nothing is sent."""
        return self.average if self.averages[iteration] else self.between

    def exact_at(self, iteration: int) -> bool:
        """Does every device hold the mean after this iteration's exchange?"""
        part = self.at(iteration)
        return part is not None and part.exact

    def silent(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which nothing is sent."""
        averages = self.averages[start:stop]
        return ~averages if self.between is None else np.zeros(len(averages), np.bool_)

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """What the scheme of an iteration sends."""
        part = self.at(iteration)
        if part is None:
            return _nothing()
        if part.random:
            return part.route(costs, self._turn(iteration))
        key = part is self.average
        if key not in self._latest or self._latest[key][0] is not costs:
            self._latest[key] = costs, part.route(costs, iteration)
        return self._latest[key][1]

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The routes that the scheme of an iteration would try."""
        tries = {
            id(part): part.routes(forecast)
            for part in (self.average, self.between)
            if part is not None
        }

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            part = self.at(iteration)
            if part is None:
                yield _nothing()
            else:
                yield from tries[id(part)](seen, self._turn(iteration))

        return to_try

    def _turn(self, iteration: int) -> int:
        """The iteration; for exact averages their number, so that all trees in turn have theirs."""
        if not self.averages[iteration]:
            return iteration
        return int(self.averages[:iteration].sum())

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [n, A, A]: what the exchanges do."""
        parts = [self.at(t) for t in range(start, stop)]
        alone = np.eye(self.graph.devices)
        return np.stack(
            [
                alone if part is None else part.mixing(t, t + 1)[0]
                for t, part in enumerate(parts, start)
            ]
        )

    def peer(self, device: int, route: Route) -> Peer:
        """A device of the scheme whose route it is."""
        part = self._whose(route)
        return IdlePeer(device, route) if part is None else part.peer(device, route)

    def parts(self, route: Route) -> int:
        """As the scheme whose route it is cuts them."""
        part = self._whose(route)
        return 1 if part is None else part.parts(route)

    def _whose(self, route: Route) -> Scheme | None:
        """The scheme that made a route; None if nothing is sent."""
        for part in (self.average, self.between):
            if part is not None and len(route.edge) and part.name == route.scheme:
                return part
        return None


class IdlePeer(RoutePeer):
    """Sends nothing, and keeps what it holds."""

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Nothing arrives."""


def patterned(conditions: Conditions, average: Callable[[], Scheme]) -> Scheme:
    """The scheme that ``plan.exchange`` asks for."""
    wanted = conditions.options.exchange
    if wanted == "exact":
        return average()
    pattern = ExchangePattern() if isinstance(wanted, str) else wanted
    reason = f"plan.exchange: {pattern}"
    if not pattern.exact:
        return _neighbours(conditions, pattern.times, reason)
    mean = average()
    between = None
    if pattern.between == "neighbours":
        between = _neighbours(conditions, pattern.times, reason)
    return Patterned(
        _both(mean.kind),
        f"{reason} ({mean.name}: {mean.reason})",
        conditions.graph,
        conditions.bits,
        mean,
        between,
        pattern,
        conditions.iterations,
        width=conditions.width,
    )


def _neighbours(conditions: Conditions, times: int, reason: str) -> Scheme:
    options = conditions.options.model_copy(update={"gossip_rounds": times})
    return SCHEMES[NEIGHBOURS].ready(replace(conditions, options=options), Fit(), reason)


def _both(kind: SchemeKind) -> SchemeKind:
    """A record for an exact scheme and what is between; no registry has it."""
    return replace(
        kind,
        name="pattern",
        description="an exact average in some iterations, neighbours or nothing in the others",
        words="exactly in some iterations, with neighbours or not at all in the others",
        exact=False,
        case=None,
        advised=False,
    )


@cache
def _nothing() -> Route:
    return Route.build(
        "nothing", edges=[], edge=[], forward=[], step=[], bits=[], repeats=1, uses=0
    )
