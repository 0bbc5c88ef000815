"""One price list: closed forms against messages counted one by one, on random graphs."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation import gossip
from joulemesh.aggregation.air import HALF_DUPLEX, ORTHOGONAL, Medium, half_duplex_s
from joulemesh.aggregation.play import (
    exchange_energy_j,
    exchange_latency_s,
    pairwise_latency_s,
    pairwise_parts_j,
)
from joulemesh.aggregation.ring import chunked_route, ring_route
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.tree import spanning_tree, tree_route
from joulemesh.world.links import LinkCosts, link_costs

BITS = 1e6
HZ, NOISE = 1e6, 1e-9
SCHEMES = ("tree", "ring", "ring-chunked", "metropolis", "ticks", "matchings", "paper")


@dataclass(frozen=True)
class Net:
    """A random graph that contains the ring 0, 1, ..., N-1, with unequal powers."""

    devices: int
    edges: NDArray[np.int64]
    gain: NDArray[np.float64]
    power: NDArray[np.float64]

    @property
    def costs(self) -> LinkCosts:
        return link_costs(self.edges, self.gain, self.power, HZ, NOISE)

    def seconds(self, sender: int, receiver: int, bits: float) -> float:
        """Eq. `ticm`, written out."""
        link = self.edges.tolist().index(sorted((sender, receiver)))
        snr = float(self.power[sender] * self.gain[link]) / (HZ * NOISE)
        return bits / (HZ * math.log2(1 + snr))

    def route(self, scheme: str, rounds: int = 3, seed: int = 0) -> Route:
        if scheme == "tree":
            links = spanning_tree(self.edges, self.costs.weight(), self.devices)
            return tree_route(self.edges, links, self.costs, self.devices, BITS, ORTHOGONAL)
        if scheme == "ring":
            return ring_route(np.arange(self.devices), self.edges, BITS)
        if scheme == "ring-chunked":
            return chunked_route(np.arange(self.devices), self.edges, BITS)
        if scheme == "metropolis":
            return gossip.metropolis_route(self.edges, BITS, rounds)
        if scheme == "paper":
            return gossip.paper_gossip_route(self.edges, BITS, rounds)
        if scheme == "ticks":
            return gossip.tick_route(self.edges, self.ticks(4 * rounds, seed), BITS)
        drawn = gossip.draw_matchings(self.edges, self.devices, rounds, seed=seed, iteration=0)
        return gossip.matching_route(self.edges, drawn, BITS)

    def ticks(self, count: int, seed: int) -> NDArray[np.int32]:
        return gossip.draw_ticks(self.edges, self.devices, count, seed=seed, iterations=0)


@st.composite
def nets(draw: st.DrawFn, least: int = 3, most: int = 8, equal_powers: bool = False) -> Net:
    devices = draw(st.integers(least, most))
    pairs = {tuple(sorted((i, (i + 1) % devices))) for i in range(devices)}
    every = [(i, j) for i in range(devices) for j in range(i + 1, devices)]
    pairs |= set(draw(st.lists(st.sampled_from(every), max_size=8)))
    edges = np.array(sorted(pairs), np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    power = np.ones(devices) if equal_powers else 10 ** rng.uniform(-1, 1, devices)
    return Net(devices, edges, 10 ** rng.uniform(-4, 0, len(edges)), power)


def slow_joules(route: Route, net: Net, pays: str) -> list[float]:
    spent: dict[int, float] = defaultdict(float)
    for _, sender, receiver, bits in route.messages():
        price = float(net.power[sender]) * net.seconds(sender, receiver, bits)
        spent[sender] += price
        if pays == "both-ends":
            spent[receiver] += price
    return [spent[i] for i in range(net.devices)]


def slow_seconds(route: Route, net: Net) -> float:
    """A device sends when it holds what it must; a link carries one message at a time each way."""
    holds: dict[int, float] = defaultdict(float)
    free: dict[tuple[int, int], float] = defaultdict(float)
    for _, step in groupby(route.messages(), key=lambda message: message[0]):
        before = dict(holds)
        for _, sender, receiver, bits in step:
            start = max(before.get(sender, 0.0), free[sender, receiver])
            free[sender, receiver] = start + net.seconds(sender, receiver, bits)
            holds[receiver] = max(holds[receiver], free[sender, receiver])
    return max(holds.values())


def latency(route: Route, net: Net, clock: str = "critical-path", duplex: str = "") -> float:
    medium = Medium(duplex or "orthogonal")
    return exchange_latency_s(route, net.costs, net.devices, clock, medium, BITS)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pays", ["transmitter", "both-ends"])
@given(net=nets())
@settings(max_examples=25, deadline=None)
def test_energy_is_what_the_messages_cost(scheme: str, pays: str, net: Net) -> None:
    route = net.route(scheme)
    found = exchange_energy_j(route, net.costs, net.devices, pays)
    assert found.tolist() == pytest.approx(slow_joules(route, net, pays), rel=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(net=nets())
@settings(max_examples=40, deadline=None)
def test_latency_is_the_critical_path_of_the_messages(scheme: str, net: Net) -> None:
    route = net.route(scheme)
    assert latency(route, net) == pytest.approx(slow_seconds(route, net), rel=1e-9)


@given(net=nets())
@settings(max_examples=40, deadline=None)
def test_latency_by_eq_tcp_is_k_times_the_slowest_link(net: Net) -> None:
    count = net.devices
    k = {
        "tree": 2,
        "ring": count - 1,
        "ring-chunked": 2 * (count - 1) / count,
        "metropolis": 3,
        "paper": 3,
        "ticks": 12,
        "matchings": 3,
    }
    for scheme in SCHEMES:
        route = net.route(scheme)
        slowest = max(net.seconds(s, r, BITS) for _, s, r, _ in route.messages())
        assert latency(route, net, "paper") == pytest.approx(k[scheme] * slowest, rel=1e-9)


@pytest.mark.parametrize("mode", ["ticks", "matchings"])
@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
@given(net=nets(), rounds=st.integers(1, 6))
@settings(max_examples=25, deadline=None)
def test_many_pairwise_exchanges_at_once_cost_what_each_route_does(
    mode: str, duplex: str, net: Net, rounds: int
) -> None:
    routes = [net.route(mode, rounds, seed) for seed in (0, 1, 2)]
    rows = [route.link_index[route.edge[::2]] for route in routes]
    pairs = np.full((3, max(map(len, rows))), -1, np.int64)
    for line, row in zip(pairs, rows, strict=True):
        line[: len(row)] = row
    for pays in ("transmitter", "both-ends"):
        sent, heard = pairwise_parts_j(net.edges, pairs, net.costs, net.devices, BITS, pays)
        wanted = [exchange_energy_j(route, net.costs, net.devices, pays) for route in routes]
        assert sent + heard == pytest.approx(np.array(wanted), rel=1e-9)
    found_s = pairwise_latency_s(net.edges, pairs, net.costs, net.devices, BITS, Medium(duplex))
    wanted_s = [latency(route, net, duplex=duplex) for route in routes]
    assert found_s.tolist() == pytest.approx(wanted_s, rel=1e-9)


# Half duplex -----------------------------------------------------------------------------------


def children_of(route: Route) -> dict[int, list[int]]:
    """Who hangs below whom, read from the messages that go up."""
    below: dict[int, list[int]] = defaultdict(list)
    for _, sender, receiver, _ in list(route.messages())[: route.count // 2]:
        below[receiver].append(sender)
    return below


def gather_s(net: Net, below: dict[int, list[int]], device: int) -> float:
    """Least time to gather, over all orders in which the children can be served."""
    if not below[device]:
        return 0.0
    ready = {child: gather_s(net, below, child) for child in below[device]}
    ends = []
    for order in permutations(below[device]):
        clock = 0.0
        for child in order:
            clock = max(clock, ready[child]) + net.seconds(child, device, BITS)
        ends.append(clock)
    return min(ends)


def scatter_s(net: Net, below: dict[int, list[int]], device: int) -> float:
    """Least time to scatter, over all orders in which the children can be served."""
    if not below[device]:
        return 0.0
    after = {child: scatter_s(net, below, child) for child in below[device]}
    ends = []
    for order in permutations(below[device]):
        clock, last = 0.0, 0.0
        for child in order:
            clock += net.seconds(device, child, BITS)
            last = max(last, clock + after[child])
        ends.append(last)
    return min(ends)


@given(net=nets(most=7))
@settings(max_examples=60, deadline=None)
def test_half_duplex_tree_is_the_best_order_of_children_for_the_best_root(net: Net) -> None:
    links = spanning_tree(net.edges, net.costs.weight(), net.devices)
    route = tree_route(net.edges, links, net.costs, net.devices, BITS, HALF_DUPLEX)
    below = children_of(route)
    wanted = gather_s(net, below, route.root) + scatter_s(net, below, route.root)
    assert latency(route, net, duplex="half") == pytest.approx(wanted, rel=1e-9)
    own = net.costs.take(links)
    every = [half_duplex_s(net.edges[links], own, net.devices, root) for root in range(net.devices)]
    assert latency(route, net, duplex="half") == pytest.approx(BITS * min(every), rel=1e-9)


@given(net=nets())
@settings(max_examples=40, deadline=None)
def test_half_duplex_ring_takes_two_or_three_turns_a_step(net: Net) -> None:
    count = net.devices
    link = [net.seconds(i, (i + 1) % count, BITS) for i in range(count)]
    if count % 2:  # the last link shares a device with both kinds
        turns = max(link[0:-1:2]) + max(link[1:-1:2]) + link[-1]
    else:
        turns = max(link[0::2]) + max(link[1::2])
    ring, chunked = net.route("ring"), net.route("ring-chunked")
    assert latency(ring, net, duplex="half") == pytest.approx((count - 1) * turns, rel=1e-9)
    wanted = 2 * (count - 1) / count * turns
    assert latency(chunked, net, duplex="half") == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
@given(net=nets())
@settings(max_examples=25, deadline=None)
def test_half_duplex_lies_between_the_busiest_device_and_one_at_a_time(
    scheme: str, net: Net
) -> None:
    route = net.route(scheme)
    busy: dict[int, float] = defaultdict(float)
    alone = 0.0
    for _, sender, receiver, bits in route.messages():
        duration = net.seconds(sender, receiver, bits)
        busy[sender] += duration
        busy[receiver] += duration
        alone += duration
    found = latency(route, net, duplex="half")
    assert max(busy.values()) * (1 - 1e-9) <= found <= alone * (1 + 1e-9)
    assert found >= latency(route, net) * (1 - 1e-9)


# Who is cheapest -------------------------------------------------------------------------------


@st.composite
def complete_nets(draw: st.DrawFn) -> Net:
    devices = draw(st.integers(3, 9))
    edges = np.stack(np.triu_indices(devices, 1), axis=1)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gain = 10 ** rng.uniform(-4, 0, len(edges))
    return Net(devices, edges, gain, np.ones(devices))


@given(net=complete_nets())
@settings(max_examples=80, deadline=None)
def test_the_tree_costs_no_more_than_the_chunked_ring_and_that_no_more_than_the_ring(
    net: Net,
) -> None:
    total = {
        scheme: float(
            exchange_energy_j(net.route(scheme), net.costs, net.devices, "transmitter").sum()
        )
        for scheme in ("tree", "ring-chunked", "ring")
    }
    assert total["tree"] <= total["ring-chunked"] * (1 + 1e-9)
    assert total["ring-chunked"] <= total["ring"] * (1 + 1e-9)
    # notes: price-of-an-exchange. Chunked over whole-vector is 2/N, in joules and in seconds.
    ratio = 2 / net.devices
    assert total["ring-chunked"] / total["ring"] == pytest.approx(ratio, rel=1e-9)
    seconds = latency(net.route("ring-chunked"), net) / latency(net.route("ring"), net)
    assert seconds == pytest.approx(ratio, rel=1e-9)


def test_equality_holds_on_a_ring_of_equal_links() -> None:
    # notes: tree-and-rings. Equality iff ring links are equal and the tree is the ring less one.
    edges = np.array([[0, 1], [0, 3], [1, 2], [2, 3]])
    net = Net(4, edges, np.full(4, 0.01), np.ones(4))
    tree, chunked = (
        exchange_energy_j(net.route(name), net.costs, 4, "transmitter").sum()
        for name in ("tree", "ring-chunked")
    )
    assert tree == pytest.approx(chunked, rel=1e-12)


@given(net=nets(equal_powers=True))
@settings(max_examples=40, deadline=None)
def test_totals_are_those_of_the_table(net: Net) -> None:
    """notes: price-of-an-exchange. 2 sum(E) over the tree, twice that when both ends pay."""
    route = net.route("tree")
    links = [net.seconds(i, j, BITS) for i, j in route.edges.tolist()]  # at 1 W seconds are joules
    one = exchange_energy_j(route, net.costs, net.devices, "transmitter")
    both = exchange_energy_j(route, net.costs, net.devices, "both-ends")
    assert one.sum() == pytest.approx(2 * sum(links), rel=1e-9)
    assert both == pytest.approx(2 * one, rel=1e-9)
    ring = net.route("ring")
    around = sum(net.seconds(i, (i + 1) % net.devices, BITS) for i in range(net.devices))
    both_ring = exchange_energy_j(ring, net.costs, net.devices, "both-ends").sum()
    assert both_ring == pytest.approx(2 * (net.devices - 1) * around, rel=1e-9)


def test_the_orders_of_magnitude_of_a_tree_and_a_ring() -> None:
    """notes: critical-path-of-a-tree. 20 devices in a 500 m square, 1 MHz, 159,010 parameters."""
    mst, whole, tcp, best = [], [], [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        place = rng.uniform(0, 0.5, (20, 2))
        edges = np.stack(np.triu_indices(20, 1), axis=1)
        km = np.linalg.norm(place[edges[:, 0]] - place[edges[:, 1]], axis=1)
        gain = 10 ** (-(128.1 + 37.6 * np.log10(km)) / 10) * rng.exponential(size=len(edges))
        costs = link_costs(edges, gain, np.ones(20), 1e6, 10**-20.4)
        bits = 159_010 * 32.0
        tree_links = spanning_tree(edges, costs.weight(), 20)
        tree = tree_route(edges, tree_links, costs, 20, bits, ORTHOGONAL)
        ring = ring_route(np.arange(20), edges, bits)
        mst.append(exchange_energy_j(tree, costs, 20, "transmitter").sum())
        whole.append(exchange_energy_j(ring, costs, 20, "transmitter").sum())
        tcp.append(exchange_latency_s(tree, costs, 20, "paper", ORTHOGONAL, bits))
        best.append(exchange_latency_s(tree, costs, 20, "critical-path", ORTHOGONAL, bits))
    # Means of 5 other draws: 10.2 J, 181 J, 0.63 s, 3.58 s.
    assert np.mean(mst) == pytest.approx(10.2, rel=0.25)
    assert np.mean(whole) == pytest.approx(181, rel=0.25)
    assert np.mean(tcp) == pytest.approx(0.63, rel=0.25)
    assert np.mean(best) == pytest.approx(3.58, rel=0.4)


def test_in_half_duplex_a_pattern_of_several_steps_takes_its_time_each_time() -> None:
    """0 → 1 → 2, twice: device 1 cannot receive the second while it sends the first."""
    edges = np.array([[0, 1], [1, 2]])
    costs = LinkCosts(*(np.array([1.0, 3.0]) for _ in range(4)))
    along: dict[str, Any] = {
        "edges": edges,
        "edge": [0, 1],
        "forward": True,
        "step": [0, 1],
        "bits": 2.0,
    }
    for repeats, seconds in ((1, 8.0), (2, 16.0)):
        route = Route.build("relay", **along, repeats=repeats, uses=repeats)
        assert exchange_latency_s(route, costs, 3, "critical-path", HALF_DUPLEX, 2.0) == seconds


def test_in_half_duplex_only_a_whole_tree_is_timed_as_one() -> None:
    """Half a vector goes up and a whole one down: the closed form knows one size."""
    costs = LinkCosts(*(np.ones(1) for _ in range(4)))
    route = Route.build("squeezed", edges=[[0, 1]], edge=[0, 0], forward=[True, False],
                        step=[0, 1], bits=[1.0, 2.0], repeats=1, uses=2).rooted(1)  # fmt: skip
    assert exchange_latency_s(route, costs, 2, "critical-path", HALF_DUPLEX, 2.0) == 3.0


def test_an_empty_route_costs_nothing() -> None:
    route = Route.build(
        "tree", edges=[], edge=[], forward=[], step=[], bits=BITS, repeats=1, uses=2
    )
    none = np.empty(0)
    costs = LinkCosts(none, none, none, none)
    assert exchange_energy_j(route, costs, 2, "both-ends").tolist() == [0.0, 0.0]
    assert exchange_latency_s(route, costs, 2, "critical-path", ORTHOGONAL, BITS) == 0.0
