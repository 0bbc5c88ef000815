"""What is on the air: the medium, a route's transmissions, and a tree hung from its root.

Links are *orthogonal* unless said otherwise: each has its own share of the spectrum. In a *shared*
medium two transmissions conflict that have a device in common, or of which one's sender is within
interference range of a receiver of the other; what conflicts takes different slots
(`joulemesh.aggregation.play`). With *broadcast* one transmission serves all receivers that are to
get the same bits in the same step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.links import LinkCosts, expected_tries

_MOST_PAIRS = 100_000_000  # within interference range: 1.6 GB


@dataclass(frozen=True, eq=False)
class Reach:
    """Which devices are within interference range of each other.

    Attributes:
        devices: number of devices.
        starts: int64 [N + 1]: where each device's entries begin in ``others``.
        others: int64: the devices within range of each, in order; never the device itself.
        everyone: is every device within range of every other? ``others`` is empty then.
    """

    devices: int
    starts: IntArray
    others: IntArray
    everyone: bool = False

    @classmethod
    def of(cls, positions_m: FloatArray, range_m: float) -> Reach:
        """Whoever is at most so far away."""
        count = len(positions_m)
        corners = positions_m.max(axis=0) - positions_m.min(axis=0)
        if float(np.hypot(*corners)) <= range_m:
            return cls(count, np.zeros(count + 1, np.int64), np.empty(0, np.int64), everyone=True)
        from scipy.spatial import KDTree  # takes long to import

        tree = KDTree(positions_m)
        pairs = (int(tree.count_neighbors(tree, range_m)) - count) // 2
        if pairs > _MOST_PAIRS:
            raise ScenarioError(
                f"network.interference_m = {range_m:g} puts {pairs:,} pairs of devices within "
                f"range of each other, more than {_MOST_PAIRS:,}; lower it, or raise it to "
                f"{np.hypot(*corners):.3g}, the extent of the network, where everybody interferes "
                "with everybody",
                field="network.interference_m",
            )
        return cls._from(count, tree.query_pairs(range_m, output_type="ndarray").astype(np.int64))

    @classmethod
    def _from(cls, count: int, pairs: IntArray) -> Reach:
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        return cls(count, np.searchsorted(ends[:, 0], np.arange(count + 1)), ends[:, 1])

    def lists(self) -> list[list[int]]:
        """The devices within range of each device."""
        if self.everyone:
            return [[j for j in range(self.devices) if j != i] for i in range(self.devices)]
        others = self.others.tolist()
        return [others[low:high] for low, high in pairwise(self.starts.tolist())]

    def among(self, members: IntArray) -> Reach:
        """The same among some of the devices, under their own numbers."""
        count = len(members)
        if self.everyone:
            return Reach(count, np.zeros(count + 1, np.int64), self.others, everyone=True)
        number = np.full(self.devices, -1)
        number[members] = np.arange(count)
        owner = np.repeat(np.arange(self.devices), np.diff(self.starts))
        ends = np.stack([number[owner], number[self.others]], axis=1)
        return Reach._from(count, ends[(ends[:, 0] >= 0) & (ends[:, 0] < ends[:, 1])])


@dataclass(frozen=True, eq=False)
class Medium:
    """How transmissions share the air.

    Attributes:
        duplex: on orthogonal links: ``"orthogonal"``, or ``"half"`` if a device serves one link at
            a time. In a shared medium it takes part in one transmission at a time anyway.
        shared: do transmissions that conflict take different slots?
        broadcast: does one transmission serve all receivers of the same bits?
        reach: in a shared medium, who interferes with whom; None if nobody does, so that only
            transmissions with a device in common conflict.
    """

    duplex: str = "orthogonal"
    shared: bool = False
    broadcast: bool = False
    reach: Reach | None = None

    @classmethod
    def of(cls, scenario: Scenario, positions_m: NDArray[np.float64]) -> Medium:
        """The medium of a scenario, with its devices where they are."""
        network = scenario.network
        range_m = network.interference_m
        reach = None if range_m is None else Reach.of(positions_m, range_m)
        return cls(network.duplex, network.medium == "shared", network.broadcast, reach)

    @property
    def turns(self) -> bool:
        """Does a device take part in one transmission at a time?"""
        return self.shared or self.duplex == "half"

    def among(self, members: IntArray | None) -> Medium:
        """The medium of some of the devices, under their own numbers; None for all of them."""
        if members is None or self.reach is None:
            return self
        return replace(self, reach=self.reach.among(members))


ORTHOGONAL = Medium()
HALF_DUPLEX = Medium("half")


@dataclass(frozen=True, eq=False)
class OnAir:
    """The transmissions of a pattern, all chunks of each together.

    Attributes:
        step: int64 [T]: the step of the pattern.
        sender: int64 [T].
        bits: float64 [T].
        seconds: float64 [T]: at the rate of the slowest receiver.
        joules: float64 [T]: of the sender, for the dearest receiver.
        carrier: int64 [M]: the transmission that carries each message of the pattern.
        receiver: int64 [M]: of each message.
    """

    step: IntArray
    sender: IntArray
    bits: FloatArray
    seconds: FloatArray
    joules: FloatArray
    carrier: IntArray
    receiver: IntArray

    def receivers(self) -> list[list[int]]:
        """The receivers of each transmission."""
        order = np.argsort(self.carrier, kind="stable")
        cuts = np.searchsorted(self.carrier[order], np.arange(len(self.sender) + 1)).tolist()
        every = self.receiver[order].tolist()
        return [every[low:high] for low, high in pairwise(cuts)]


def on_air(route: Route, costs: LinkCosts, *, broadcast: bool) -> OnAir:
    """The transmissions of a route's pattern."""
    seconds, joules, sender = route.seconds(costs), route.joules(costs), route.sender
    if not (broadcast and route.same_to_all):
        carrier = np.arange(len(sender))
        return OnAir(route.step, sender, route.bits, seconds, joules, carrier, route.receiver)
    wide = int(sender.max(initial=-1)) + 1
    key, first, carrier = np.unique(
        route.step * wide + sender, return_index=True, return_inverse=True
    )
    slowest, dearest = np.zeros(len(key)), np.zeros(len(key))
    lost = _errors(route, costs)
    once = 1.0 if lost is None else expected_tries(lost, costs.tries)
    np.maximum.at(slowest, carrier, seconds / once)
    np.maximum.at(dearest, carrier, joules / once)
    if lost is not None:
        often = _until_all_have_it(lost, carrier, costs.tries)
        slowest, dearest = slowest * often, dearest * often
    return OnAir(
        route.step[first],
        sender[first],
        route.bits[first],
        slowest,
        dearest,
        carrier,
        route.receiver,
    )


def _errors(route: Route, costs: LinkCosts) -> FloatArray | None:
    """float64 [M]: probability that a packet of each message is lost; None if none is."""
    if costs.forward_error is None or costs.backward_error is None:
        return None
    link = route.link_index[route.edge]
    return np.where(route.forward, costs.forward_error[link], costs.backward_error[link])


def _until_all_have_it(lost: FloatArray, carrier: IntArray, tries: int) -> FloatArray:
    """Expected transmissions of every broadcast's packet, float64 [T].

    Receivers lose it independently of each other: try k + 1 is made unless each of them has
    received one of the k before it, with probability 1 − Π(1 − p_j^k).
    """
    often: FloatArray = np.ones(int(carrier.max(initial=-1)) + 1)
    for before in range(1, tries):
        served = np.ones_like(often)
        np.multiply.at(served, carrier, 1.0 - lost**before)
        often += 1.0 - served
        if (served == 1.0).all():
            break
    return often


def bits_on_air(route: Route, *, broadcast: bool) -> float:
    """Bits on the air in one exchange; those of a broadcast count once."""
    bits, sender = route.bits, route.sender
    if broadcast and route.same_to_all:
        wide = int(sender.max(initial=-1)) + 1
        bits = bits[np.unique(route.step * wide + sender, return_index=True)[1]]
    return float(bits.sum() * route.repeats)


def route_j(route: Route, costs: LinkCosts, devices: int, *, broadcast: bool) -> FloatArray:
    """Joules of each device for one exchange, to send and to receive; float64 [N]."""
    air = on_air(route, costs, broadcast=broadcast)
    spent = np.bincount(air.sender, air.joules * route.repeats, devices).astype(np.float64)
    heard = route.receive_joules(costs)
    if heard is None:
        return spent
    return np.asarray(spent + np.bincount(route.receiver, heard * route.repeats, devices))


def levelled(route: Route, costs: LinkCosts, *, broadcast: bool) -> LinkCosts:
    """Costs of the route's own links; all receivers of a broadcast wait for the slowest."""
    own = costs.take(route.link_index)
    if len(route.edge):
        own = own.for_messages(float(route.message_bits[0]))
    if not (broadcast and route.same_to_all):
        return own
    air = on_air(route, costs, broadcast=True)
    each, there = air.seconds[air.carrier] / route.bits, route.forward
    forward_s, backward_s = own.forward_s.copy(), own.backward_s.copy()
    forward_s[route.edge[there]] = each[there]
    backward_s[route.edge[~there]] = each[~there]
    return replace(own, forward_s=forward_s, backward_s=backward_s)


def link_graph(edges: IntArray, weight: FloatArray, devices: int) -> csr_array:
    """Links and their weights as SciPy's graph; no link may be there twice.

    SciPy's own way, through a list of coordinates, takes longer than the searches in a small tree.
    """
    key = edges[:, 0] * devices + edges[:, 1]
    if (key[1:] < key[:-1]).any():
        order = np.argsort(key)
        edges, weight = edges[order], weight[order]
    begins = np.zeros(devices + 1, np.int32)
    np.cumsum(np.bincount(edges[:, 0], minlength=devices), out=begins[1:])
    to = edges[:, 1].astype(np.int32)
    return csr_array((weight, to, begins), shape=(devices, devices))


@dataclass(frozen=True, eq=False)
class Rooted:
    """A tree hung from a device: ``levels[d]`` are the devices at depth d."""

    parent: IntArray  # [N], −1 at the root and for devices outside the tree
    link: IntArray  # [N], position in the tree's edges of the link to the parent
    up: FloatArray  # [N], seconds per bit from the device to its parent
    down: FloatArray  # [N], seconds per bit from the parent to the device
    levels: list[IntArray]


def hang(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> Rooted:
    """The tree of some links, hung from one of its devices."""
    found = breadth_first_order(
        link_graph(edges, np.ones(len(edges)), devices), root, directed=False
    )
    order, parent = found[0].astype(np.int64), np.maximum(found[1], -1).astype(np.int64)
    # In breadth-first order a level is a run: a device's depth is one more than its parent's.
    position = np.full(devices, -1)
    position[order] = np.arange(len(order))
    starts, levels = [0, 1], [order[:1]]
    parent_position = position[parent[order]]
    while starts[-1] < len(order):
        end = int(np.searchsorted(parent_position[1:], starts[-1], side="left")) + 1
        levels.append(order[starts[-1] : end])
        starts.append(end)
    link, toward = np.full(devices, -1), np.zeros(devices, np.bool_)
    for column in (0, 1):  # the child is one end of each link
        child = edges[:, column]
        is_child = parent[child] == edges[:, 1 - column]
        link[child[is_child]] = np.flatnonzero(is_child)
        toward[child[is_child]] = column == 0
    return Rooted(
        parent,
        link,
        up=np.where(toward, costs.forward_s[link], costs.backward_s[link]),
        down=np.where(toward, costs.backward_s[link], costs.forward_s[link]),
        levels=levels,
    )


def half_duplex_s(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> float:
    """Critical path in seconds per bit when a device serves one link at a time.

    Up: children are received in the order in which they are ready. Down: the child with the most
    work below it is served first. Both orders are optimal (notes: critical-path-of-a-tree).
    """
    up, down, _, _ = _in_turns(hang(edges, costs, devices, root), devices)
    return up[root] + down[root]


def half_duplex_order(
    edges: IntArray, costs: LinkCosts, devices: int, root: int
) -> list[tuple[int, int]]:
    """The messages of a tree in the order of `half_duplex_s`: (sender, receiver).

    If each begins when both of its ends are free, they end when that says.
    """
    tree = hang(edges, costs, devices, root)
    _, _, gathered, served = _in_turns(tree, devices)
    levels = [level.tolist() for level in tree.levels]
    upwards = [
        (child, device)
        for level in reversed(levels)
        for device in level
        for child in gathered.get(device, ())
    ]
    downwards = [
        (device, child) for level in levels for device in level for child in served.get(device, ())
    ]
    return [*upwards, *downwards]


_Order: TypeAlias = dict[int, list[int]]  # the children of each device


def _in_turns(tree: Rooted, devices: int) -> tuple[list[float], list[float], _Order, _Order]:
    """Seconds per bit from below each device and to all below it; the orders of its children."""
    children: _Order = {}
    for level in tree.levels[1:]:
        for child in level.tolist():
            children.setdefault(int(tree.parent[child]), []).append(child)
    up, down = [0.0] * devices, [0.0] * devices
    gathered: _Order = {}
    served: _Order = {}
    for level in reversed(tree.levels):
        for device in level.tolist():
            own = children.get(device, ())
            clock = 0.0
            gathered[device] = sorted(own, key=up.__getitem__)
            for child in gathered[device]:
                clock = max(clock, up[child]) + float(tree.up[child])
            up[device] = clock
            busy, last = 0.0, 0.0
            served[device] = sorted(own, key=down.__getitem__, reverse=True)
            for child in served[device]:
                busy += float(tree.down[child])
                last = max(last, busy + down[child])
            down[device] = last
    return up, down, gathered, served
