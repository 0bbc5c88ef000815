"""What a method may know when an iteration begins, and what it then does.

Where devices come and go, move or recharge, a method is asked in every iteration what it does among
those who take part in it: a function of a `Moment`, which holds nothing of what is to come. What
the answer, an `Act`, costs and who can pay for it is decided in ``walk``.
"""

from __future__ import annotations

__all__ = ["Act", "BoolArray", "Copied", "Follow", "Mixings", "Moment", "first_mixing"]

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import metropolis_mixing, metropolis_route
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.spectrum import metropolis_weights
from joulemesh.ledger import Ledger
from joulemesh.methods.base import FloatArray, IntArray
from joulemesh.planning.remaining import cut_off
from joulemesh.world.links import LinkCosts
from joulemesh.world.motion import Snapshot

if TYPE_CHECKING:
    from joulemesh.methods.setting import Setting

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Moment:
    """What a method may know when an iteration begins.

    Attributes:
        setting: the terms of the comparison.
        t: the iteration, from 0.
        who: bool [N]: who takes part.
        cut: bool [E]: links of the graph that do not exist now.
        snapshot: where devices that move are; None if they do not.
        battery_j: float64 [N]: what batteries hold, with what they have harvested so far.
        memory: what the method's `Act` of the iteration before remembered; None in the first.
    """

    setting: Setting
    t: int
    who: BoolArray
    cut: BoolArray
    snapshot: Snapshot | None
    battery_j: FloatArray
    memory: Any = None

    @property
    def devices(self) -> int:
        """Number N of devices, whoever takes part."""
        return len(self.who)

    @cached_property
    def links(self) -> IntArray:
        """int [L]: positions, in the graph's list, of the links among those who take part."""
        edges = self.setting.world.graph.edges
        return np.flatnonzero(~self.cut & self.who[edges].all(axis=1))

    @property
    def edges(self) -> IntArray:
        """int [L, 2]: the links among those who take part."""
        return self.setting.world.graph.edges[self.links]

    @property
    def key(self) -> Hashable:
        """What links and their prices depend on."""
        channel = self.setting.world.channel
        return self.who.tobytes(), self.snapshot, channel.block(self.t), channel.edition(self.t)

    @property
    def costs(self) -> LinkCosts:
        """Price of a bit on every link of the graph, as it turns out."""
        return self.setting.ground.costs(self.t, self.snapshot)

    @property
    def forecast(self) -> LinkCosts:
        """Price of a bit on every link of the graph at the fade quantile."""
        ground = self.setting.ground
        if self.snapshot is None:
            return ground.latest_forecast(self.t)
        return ground.forecast_at(self.t, snapshot=self.snapshot)

    @property
    def seen(self) -> LinkCosts:
        """The costs by which links may be chosen."""
        return self.costs if self.setting.ground.channel_known else self.forecast

    def among(self, who: BoolArray) -> Moment:
        """The same with only some of the devices."""
        return self if who is self.who else replace(self, who=who)

    def connected(self) -> Moment:
        """The same without those from whom no path leads to the larger part of the others."""
        lost = cut_off(self.setting.world.graph, self.who, self.cut)
        return self.among(self.who & ~lost) if lost.any() else self

    def rounds(self, tau: int) -> IntArray:
        """int64 [N]: so many rounds for everybody who takes part."""
        return np.where(self.who, np.int64(tau), np.int64(0))

    def mixing_route(self, bits: float, times: int = 1, links: IntArray | None = None) -> Route:
        """Everybody who takes part sends to all of its neighbours, so many times.

        Args:
            bits: of one message.
            times: how often.
            links: only over these.
        """
        over = self.links if links is None else links
        edges = self.setting.world.graph.edges[over]
        return metropolis_route(edges, bits, times).on_links(over)

    def price(self, route: Route | None, costs: LinkCosts | None = None) -> Ledger:
        """What a route costs, as it turns out unless other costs are given."""
        if route is not None and not len(route.edge):
            route = None  # nobody is there to send, and nothing is waited for
        return self.setting.pricer.route(route, self.costs if costs is None else costs)

    def mean(self) -> FloatArray:
        """float64 [N, N]: the plain mean of those who take part; the others keep what they have."""
        matrix = np.diag((~self.who).astype(np.float64))
        matrix[np.ix_(self.who, self.who)] = 1.0 / max(1, int(self.who.sum()))
        return matrix


@dataclass(frozen=True, eq=False)
class Act:
    """What a method does in an iteration.

    Attributes:
        rounds: int64 [N], τ; 0 for those who take no part.
        sent: what its messages cost.
        matrix: makes the mixing matrix [N, N] of the exchange when training asks for it; None where
            it has none.
        exact: whether the exchange is the exact mean of those who take part.
        who: bool [N]: who takes part, if not everybody who could.
        own_samples: [N]: what the method itself computes, in samples of training.
        memory: what it wants to know in the next iteration.
    """

    rounds: IntArray
    sent: Ledger
    matrix: Callable[[], FloatArray] | None = None
    exact: bool = False
    who: BoolArray | None = None
    own_samples: FloatArray | None = None
    memory: Any = None


Follow: TypeAlias = Callable[[Moment], Act]
"""A method under traces: what it does in an iteration, by what is known when it begins."""


def first_mixing(setting: Setting, bits: float) -> Route:
    """All devices send to all of their neighbours, once, where they stand at first.

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods.setting import Setting
    >>> first_mixing(Setting(Scenario.preset("adaptive")), 8.0).count  # a ring of 20
    40
    """
    graph = setting.ground.graph
    return metropolis_route(graph.edges, bits, 1).on_links(graph.links)


class Mixings:
    """Mixings of all who take part with their neighbours, at Metropolis weights among them.

    Args:
        bits: of one message.
        times: mixings in an exchange.
        lazy: mix with (I + W)/2 in place of W.
    """

    def __init__(self, bits: float, times: int = 1, *, lazy: bool = False) -> None:
        self.bits, self.times, self.lazy = bits, times, lazy
        self._priced: dict[Hashable, Ledger] = {}

    def act(self, now: Moment, rounds: IntArray, memory: Any = None) -> Act:
        """Rounds, then the mixings.

        Args:
            now: who takes part, where.
            rounds: int64 [N].
            memory: what the method wants to know in the next iteration.
        """
        return Act(rounds, self.price(now), lambda: self.matrix(now), memory=memory)

    def price(self, now: Moment) -> Ledger:
        """What the mixings cost."""
        key = now.key
        if key not in self._priced:
            route = now.mixing_route(self.bits, self.times) if self.times else None
            self._priced[key] = now.price(route)
        return self._priced[key]

    def matrix(self, now: Moment) -> FloatArray:
        """float64 [N, N]: what the mixings do; symmetric and doubly stochastic."""
        weights = metropolis_weights(now.edges, now.devices)
        if self.lazy:
            return np.asarray((weights.toarray() + np.eye(now.devices)) / 2)
        return np.asarray(metropolis_mixing(weights, self.times))


class Copied(Mixings):
    """Mixings of devices that keep copies of their neighbours, which messages change.

    Over a link that did not carry the exchange before, two devices first send each other theirs.

    Args:
        bits: of one message.
        times: mixings in an exchange; the matrix is that of one.
        copy_bits: of a copy.
    """

    def __init__(self, bits: float, times: int, copy_bits: float) -> None:
        super().__init__(bits, times)
        self.copy_bits = copy_bits

    def act(self, now: Moment, rounds: IntArray, memory: Any = None) -> Act:
        """Rounds, then copies for those who have missed messages, then the mixings."""
        mixed = super().act(now, rounds)
        fresh = np.zeros(0, np.int64) if now.memory is None else np.setdiff1d(now.links, now.memory)
        copies = now.price(now.mixing_route(self.copy_bits, links=fresh))
        return replace(mixed, sent=copies + mixed.sent, memory=now.links)

    def matrix(self, now: Moment) -> FloatArray:
        """float64 [N, N]: what one mixing does."""
        return np.asarray(metropolis_weights(now.edges, now.devices).toarray())
