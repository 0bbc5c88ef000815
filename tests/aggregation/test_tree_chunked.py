"""The pipelined tree: what its messages cost, one by one, and what its devices deliver."""

from __future__ import annotations

import heapq
import tracemalloc
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation.air import HALF_DUPLEX, ORTHOGONAL, Medium
from joulemesh.aggregation.contract import execute
from joulemesh.aggregation.play import exchange_energy_j, exchange_latency_s
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import Conditions, Scheme, choose
from joulemesh.aggregation.tree import (
    FRAME_BITS,
    SMALL_FRAME_BITS,
    TreeChunkedPeer,
    chunked_tree_route,
    fewest_chunks,
    least_s,
    most_chunks,
    pipelined_s,
    tree_route,
)
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import Framing, LinkCosts, link_costs
from joulemesh.world.topology import Graph

BITS = 1e6
DUPLEXES = ("orthogonal", "half")


@dataclass(frozen=True)
class Net:
    """A graph, the price of its links, and the links of one of its spanning trees."""

    devices: int
    edges: NDArray[np.int64]
    costs: LinkCosts
    tree: NDArray[np.int64]

    def route(self, duplex: str, chunks: int = 1) -> Route:
        route = chunked_tree_route(
            self.edges, self.tree, self.costs, self.devices, BITS, Medium(duplex)
        )
        return replace(route, chunks=chunks)

    def plain(self, duplex: str) -> Route:
        return tree_route(self.edges, self.tree, self.costs, self.devices, BITS, Medium(duplex))

    def seconds(self, sender: int, receiver: int, bits: float) -> float:
        link = self.edges.tolist().index(sorted((sender, receiver)))
        forward = sender < receiver
        return bits * float((self.costs.forward_s if forward else self.costs.backward_s)[link])

    def latency(self, route: Route, duplex: str, clock: str = "critical-path") -> float:
        return exchange_latency_s(route, self.costs, self.devices, clock, Medium(duplex), BITS)


def random_costs(edges: NDArray[np.int64], devices: int, rng: np.random.Generator) -> LinkCosts:
    gain = 10 ** rng.uniform(-4, 0, (len(edges), 2))  # directions differ, as in a trace
    return link_costs(edges, gain, 10 ** rng.uniform(-1, 1, devices), 1e6, 1e-9)


@st.composite
def nets(draw: st.DrawFn, most: int = 9) -> Net:
    """A random tree under random numbers, and some links that it does not use."""
    devices = draw(st.integers(2, most))
    number = draw(st.permutations(range(devices)))
    hangs = [(number[draw(st.integers(0, k - 1))], number[k]) for k in range(1, devices)]
    tree = {(min(pair), max(pair)) for pair in hangs}
    every = [(i, j) for i in range(devices) for j in range(i + 1, devices)]
    edges = sorted(tree | set(draw(st.lists(st.sampled_from(every), max_size=5))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    array = np.array(edges, np.int64)
    links = np.array([k for k, edge in enumerate(edges) if edge in tree], np.int64)
    return Net(devices, array, random_costs(array, devices, rng), links)


# The price ---------------------------------------------------------------------------------------


def slow_seconds(route: Route, net: Net) -> float:
    """A chunk goes when it is held and its link is free, each way by itself."""
    holds: dict[tuple[int, int], float] = defaultdict(float)
    free: dict[tuple[int, int], float] = defaultdict(float)
    for _, chunk, sender, receiver, bits in route.chunk_messages():
        start = max(holds[sender, chunk], free[sender, receiver])
        free[sender, receiver] = start + net.seconds(sender, receiver, bits)
        holds[receiver, chunk] = max(holds[receiver, chunk], free[sender, receiver])
    return max(holds.values())


def slow_turns(route: Route, net: Net) -> float:
    """A message takes both of its ends until it has passed."""
    free: dict[int, float] = defaultdict(float)
    for _, sender, receiver, bits in route.messages():
        done = max(free[sender], free[receiver]) + net.seconds(sender, receiver, bits)
        free[sender] = free[receiver] = done
    return max(free.values())


@given(net=nets(), chunks=st.integers(2, 12))
@settings(max_examples=150, deadline=None)
def test_the_closed_form_is_the_price_of_the_messages(net: Net, chunks: int) -> None:
    route = net.route("orthogonal", chunks)
    wanted = pytest.approx(slow_seconds(route, net), rel=1e-12)
    assert net.latency(route, "orthogonal") == wanted
    assert net.latency(replace(route, root=-1), "orthogonal") == wanted  # not known as a tree
    price = pipelined_s(route, net.costs, net.devices, ORTHOGONAL)
    assert price(chunks) == wanted
    assert price(1) == pytest.approx(net.latency(net.plain("orthogonal"), "orthogonal"), rel=1e-12)


@given(net=nets(), chunks=st.integers(2, 12))
@settings(max_examples=150, deadline=None)
def test_half_duplex_is_the_price_of_the_messages_in_turns(net: Net, chunks: int) -> None:
    route = net.route("half", chunks)
    wanted = pytest.approx(slow_turns(route, net), rel=1e-12)
    assert net.latency(route, "half") == wanted
    price = pipelined_s(route, net.costs, net.devices, HALF_DUPLEX)
    assert price(chunks) == wanted
    assert price(1) == pytest.approx(net.latency(net.plain("half"), "half"), rel=1e-12)


@given(net=nets(), chunks=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_joules_are_those_of_the_tree_and_of_the_messages(net: Net, chunks: int) -> None:
    route = net.route("orthogonal", chunks)
    for pays in ("transmitter", "both-ends"):
        found = exchange_energy_j(route, net.costs, net.devices, pays)
        tree = exchange_energy_j(net.plain("orthogonal"), net.costs, net.devices, pays)
        np.testing.assert_allclose(found, tree, rtol=1e-12, atol=0.0)
        spent = np.zeros(net.devices)
        for _, sender, receiver, bits in route.messages():
            link = net.edges.tolist().index(sorted((sender, receiver)))
            way = net.costs.forward_j if sender < receiver else net.costs.backward_j
            spent[sender] += bits * way[link]
            spent[receiver] += bits * way[link] * (pays == "both-ends")
        np.testing.assert_allclose(found, spent, rtol=1e-12, atol=0.0)


@given(net=nets(), chunks=st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_every_link_carries_the_vector_once_each_way(net: Net, chunks: int) -> None:
    route = net.route("half", chunks)
    carried: dict[tuple[int, int], float] = defaultdict(float)
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)
    for step, sender, receiver, bits in route.messages():
        carried[sender, receiver] += bits
        steps[sender, receiver].append(step)
    assert len(carried) == 2 * (net.devices - 1)
    assert list(carried.values()) == pytest.approx([BITS] * len(carried), rel=1e-12)
    for when in steps.values():
        assert when == list(range(when[0], when[0] + chunks))
    assert max(when[-1] for when in steps.values()) == route.length - 1
    assert route.count == chunks * len(carried)


@given(net=nets())
@settings(max_examples=100, deadline=None)
def test_more_chunks_never_take_longer_and_tend_to_the_slowest_link(net: Net) -> None:
    price = pipelined_s(net.route("orthogonal"), net.costs, net.devices, ORTHOGONAL)
    found = [price(chunks) for chunks in (1, 2, 3, 5, 8, 100, 10**9)]
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(found))
    assert found[0] == pytest.approx(net.latency(net.plain("orthogonal"), "orthogonal"), rel=1e-12)
    slowest = BITS * max(net.costs.forward_s[net.tree].max(), net.costs.backward_s[net.tree].max())
    assert found[-1] == pytest.approx(slowest, rel=1e-6)


@given(net=nets(), chunks=st.integers(2, 30))
@settings(max_examples=100, deadline=None)
def test_half_duplex_keeps_the_busiest_device_busy_at_least(net: Net, chunks: int) -> None:
    route = net.route("half", chunks)
    busy: dict[int, float] = defaultdict(float)
    for _, sender, receiver, bits in route.messages():
        for device in (sender, receiver):
            busy[device] += net.seconds(sender, receiver, bits)
    found = net.latency(route, "half")
    assert found >= max(busy.values()) * (1 - 1e-12)
    own = net.costs.take(net.tree)
    least = least_s(net.edges[net.tree], own, net.devices, BITS, HALF_DUPLEX)
    assert least == pytest.approx(max(busy.values()), rel=1e-12)
    assert found >= net.latency(route, "orthogonal") * (1 - 1e-12)


@given(net=nets(), chunks=st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_by_eq_tcp_chunks_change_nothing(net: Net, chunks: int) -> None:
    """K = 2: every link carries the vector twice, and eq. `tcp` knows no order."""
    for duplex in DUPLEXES:
        wanted = net.latency(net.plain(duplex), duplex, "paper")
        assert net.latency(net.route(duplex, chunks), duplex, "paper") == wanted


@pytest.mark.parametrize("duplex", DUPLEXES)
@given(net=nets(most=30))
@settings(max_examples=60, deadline=None)
def test_links_that_take_turns_at_once_share_no_device(duplex: str, net: Net) -> None:
    """The busiest device has as many links as there are turns in a step."""
    edges = net.route(duplex).edges.tolist()
    turns = 1
    seen: set[int] = set()
    for edge in edges:
        if seen & set(edge):
            turns, seen = turns + 1, set()
        seen |= set(edge)
    assert turns == np.bincount(np.ravel(edges)).max()


def test_routes_that_cannot_be_pipelined_are_refused() -> None:
    fields: dict[str, Any] = {"edges": [[0, 1]], "edge": [0, 0], "bits": 8.0, "uses": 2}
    with pytest.raises(ValueError, match="2 chunks that is played 3 times"):
        Route.build("x", **fields, forward=[1, 0], step=[0, 1], repeats=3).in_chunks(2)
    with pytest.raises(ValueError, match="twice in one direction"):
        Route.build("x", **fields, forward=[1, 1], step=[0, 1], repeats=1).in_chunks(2)
    with pytest.raises(ValueError, match="0 chunks"):
        Route.build("x", **fields, forward=[1, 0], step=[0, 1], repeats=1).in_chunks(0)


# The number of chunks ----------------------------------------------------------------------------


@pytest.mark.parametrize("duplex", DUPLEXES)
@given(net=nets(), most=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_the_chosen_chunks_are_within_1_percent_of_the_best(
    duplex: str, net: Net, most: int
) -> None:
    price = pipelined_s(net.route(duplex), net.costs, net.devices, Medium(duplex))
    every = [price(chunks) for chunks in range(1, most + 1)]
    chosen = fewest_chunks(price, most, Medium(duplex))
    assert 1 <= chosen <= most
    assert every[chosen - 1] <= every[0] * (1 + 1e-12)  # never above the tree's
    if duplex == "orthogonal":
        assert chosen == 1 + next(k for k, s in enumerate(every) if s <= 1.01 * min(every))
    else:  # not unimodal: the search may miss the best by little
        assert every[chosen - 1] <= 1.02 * min(every)


@given(net=nets())
@settings(max_examples=10, deadline=None)
def test_many_chunks_in_half_duplex_are_foreseen(net: Net) -> None:
    price = pipelined_s(net.route("half"), net.costs, net.devices, HALF_DUPLEX)
    every = [price(chunks) for chunks in (*range(1, 65), *range(70, 400, 15), 400)]
    assert price(fewest_chunks(price, 400, HALF_DUPLEX)) <= 1.02 * min(every)


def test_no_chunk_is_smaller_than_a_frame() -> None:
    assert most_chunks(FRAME_BITS * 10 - 1, 5) == 9
    assert most_chunks(FRAME_BITS * 10 - 1, 50) == 50  # as many as the chunked ring has
    assert most_chunks(SMALL_FRAME_BITS * 10, 50) == 10
    assert most_chunks(SMALL_FRAME_BITS, 50) == most_chunks(1.0, 50) == 1


def ready(net: Net, duplex: str = "orthogonal", bits: float = BITS, **options: Any) -> Scheme:
    graph = Graph(net.devices, net.edges, np.zeros((net.devices, 2)))
    conditions = Conditions(
        Subgraph.of(graph),
        net.costs,
        bits,
        PlanOptions(aggregation="tree-chunked", **options),
        Medium(duplex),
        channel_known=True,
        seed=0,
        battery_j=np.ones(net.devices),
        iterations=1,
    )
    return choose(conditions).ready(conditions)


def test_the_number_of_chunks_can_be_asked_for() -> None:
    net = path(5)
    assert ready(net, chunks=7).route(net.costs).chunks == 7
    assert ready(net, "half", chunks=7).route(net.costs).chunks == 7
    assert ready(net, bits=SMALL_FRAME_BITS).route(net.costs).chunks == 1
    assert "7 chunks of 142,857 bits" in ready(net, chunks=7).reason
    with pytest.raises(ScenarioError, match=r"plan\.chunks = 9 .* set plan\.chunks to at most 8"):
        ready(net, bits=8.0, chunks=9)


@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
@pytest.mark.parametrize(
    "framing",
    [
        Framing(12_000.0, message_s=1e-3),
        Framing(11_584.0, header_bits=720.0, packet_s=1.8e-4),
        Framing(928.0, header_bits=136.0, packet_s=2.6e-3, message_s=5e-3),
    ],
)
def test_chunks_are_chosen_with_what_packets_and_messages_cost(
    framing: Framing, duplex: str
) -> None:
    """Nearly the least joules × seconds of all numbers of chunks, found by trying them all."""
    net = path(6)
    costs = net.costs.framed(net.edges, framing)
    chosen = ready(replace(net, costs=costs), duplex).route(costs)

    def product(chunks: int) -> float:
        sent = replace(chosen, chunks=chunks)
        seconds = exchange_latency_s(sent, costs, 6, "critical-path", Medium(duplex), BITS)
        return float(exchange_energy_j(sent, costs, 6, "transmitter").sum() * seconds)

    most = max(84, int(BITS // framing.packet_bits))
    assert product(chosen.chunks) <= 1.02 * min(map(product, range(1, most)))
    assert ready(replace(net, costs=costs), duplex, chunks=7).route(costs).chunks == 7


def test_a_message_that_takes_very_long_to_handle_carries_everything() -> None:
    net = path(6)
    costs = net.costs.framed(net.edges, Framing(12_000.0, message_s=1e9))
    assert ready(replace(net, costs=costs)).route(costs).chunks == 1


def path(devices: int) -> Net:
    edges = np.stack([np.arange(devices - 1), np.arange(1, devices)], axis=1)
    costs = random_costs(edges, devices, np.random.default_rng(1))
    return Net(devices, edges, costs, np.arange(devices - 1))


@pytest.mark.parametrize("duplex", DUPLEXES)
def test_a_star_in_half_duplex_gains_nothing(duplex: str) -> None:
    """The hub is busy from the beginning to the end: one chunk is enough."""
    edges = np.array([[0, k] for k in range(1, 8)])
    costs = random_costs(edges, 8, np.random.default_rng(3))
    chunks = ready(Net(8, edges, costs, np.arange(7)), duplex).route(costs).chunks
    assert chunks == 1 if duplex == "half" else chunks > 1


# The devices -------------------------------------------------------------------------------------


def timed(net: Net, route: Route, values: NDArray[np.float64]) -> tuple[float, Any]:
    """The devices on links with a rate: a message is sent when it is due and its link is free."""
    peers = {i: TreeChunkedPeer(i, route) for i in range(net.devices)}
    free: dict[tuple[int, int], float] = defaultdict(float)
    events: list[tuple[float, int, int, int, int, Any]] = []
    now, number = 0.0, 0

    def post(device: int) -> None:
        nonlocal number
        for step, to, payload in peers[device].due():
            bits = BITS / route.chunks
            free[device, to] = max(now, free[device, to]) + net.seconds(device, to, bits)
            number += 1
            heapq.heappush(events, (free[device, to], number, step, device, to, payload))

    for device, peer in peers.items():
        peer.start(values[device])
        post(device)
    while events:
        now, _, step, sender, to, payload = heapq.heappop(events)
        peers[to].receive(step, sender, payload)
        post(to)
    return now, np.stack([peers[i].finish() for i in range(net.devices)])


@given(net=nets(), chunks=st.integers(2, 10), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_devices_that_forward_at_once_take_the_priced_seconds(
    net: Net, chunks: int, seed: int
) -> None:
    route = net.route("orthogonal", chunks)
    values = np.random.default_rng(seed).normal(size=(net.devices, 11))
    took, after = timed(net, route, values)
    assert took == pytest.approx(net.latency(route, "orthogonal"), rel=1e-12)
    assert np.array_equal(after, execute(ready(net), route, values))


@given(net=nets(), chunks=st.integers(2, 10), size=st.integers(0, 23), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_devices_hold_the_same_bits_of_the_mean_in_any_order(
    net: Net, chunks: int, size: int, seed: int
) -> None:
    """Chunks that overtake each other on a link, too, and those of the plain tree."""
    rng = np.random.default_rng(seed)
    route = net.route("orthogonal", chunks)
    values = rng.normal(size=(net.devices, size))
    peers = [TreeChunkedPeer(i, route) for i in range(net.devices)]
    for peer, own in zip(peers, values, strict=True):
        peer.start(own)
    waiting = [(i, *message) for i, peer in enumerate(peers) for message in peer.due()]
    carried = 0
    while waiting:
        sender, step, to, payload = waiting.pop(int(rng.integers(len(waiting))))
        peers[to].receive(step, sender, payload)
        waiting += [(to, *message) for message in peers[to].due()]
        carried += 1
    assert carried == route.count
    ends = np.stack([peer.finish() for peer in peers])
    assert (ends == ends[0]).all()
    np.testing.assert_allclose(ends[0], values.mean(axis=0), rtol=0, atol=1e-12)
    plain = replace(route, chunks=1)
    assert np.array_equal(ends, execute(ready(net), plain, values))


def test_a_device_refuses_what_is_doubled_unknown_or_missing() -> None:
    net = path(3)
    route = net.route("orthogonal", 2)
    peer = TreeChunkedPeer(route.root, route)
    peer.start(np.ones(4))
    child = next(i for i in range(3) if i != route.root)
    peer.receive(0, child, np.ones(2))
    for step, sender in ((0, child), (-1, child), (9, child), (0, 17)):
        with pytest.raises(RuntimeError, match="expects no message"):
            peer.receive(step, sender, np.ones(2))
    with pytest.raises(RuntimeError, match="has 0 of 2 chunks"):
        peer.finish()


# Large trees -------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplex", DUPLEXES)
def test_a_route_is_as_small_as_its_tree(duplex: str) -> None:
    """5,000 devices in 400 chunks would be 4 million messages."""
    rng = np.random.default_rng(0)
    devices = 5_000
    child = np.arange(1, devices)
    edges = np.stack([rng.integers(0, child), child], axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    net = Net(devices, edges, random_costs(edges, devices, rng), np.arange(devices - 1))
    route = net.route(duplex, 400)
    assert len(route.edge) == 2 * (devices - 1)
    assert route.count == 400 * len(route.edge)
    tracemalloc.start()
    assert net.latency(route, duplex) > 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6  # two bytes a message
