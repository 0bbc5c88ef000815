"""Trees between the least joules and the fastest links, against all spanning trees of a graph."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation.air import ORTHOGONAL, Medium
from joulemesh.aggregation.play import exchange_energy_j, exchange_latency_s
from joulemesh.aggregation.route import Subgraph
from joulemesh.aggregation.scheme import Conditions, choose
from joulemesh.aggregation.tree import (
    TreeChunked,
    chunked_tree_route,
    device_joules,
    fewest_chunks,
    hull_of_trees,
    link_seconds,
    most_chunks,
    pipelined_s,
    spanning_tree,
    tree_route,
)
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import Framing, LinkCosts, link_costs
from joulemesh.world.topology import Graph

BITS = 3e5


def spanning_trees(edges: NDArray[np.int64], devices: int) -> list[NDArray[np.int64]]:
    """All of them: sets of N − 1 links that join everybody."""
    found = []
    for links in combinations(range(len(edges)), devices - 1):
        group = list(range(devices))
        for i, j in edges[list(links)].tolist():
            group = [group[i] if one == group[j] else one for one in group]
        if len(set(group)) == 1:
            found.append(np.array(links, np.int64))
    return found


@st.composite
def networks(draw: st.DrawFn) -> tuple[Graph, LinkCosts, NDArray[np.float64]]:
    """A small connected graph whose devices send with unequal powers, and their batteries."""
    devices = draw(st.integers(2, 6))
    pairs = {(draw(st.integers(0, k - 1)), k) for k in range(1, devices)}
    pairs |= set(draw(st.lists(st.sampled_from(list(combinations(range(devices), 2))), max_size=5)))
    edges = np.array(sorted(pairs), np.int64)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    power = 10 ** rng.uniform(-1, 1, devices)
    gain = 10 ** rng.uniform(-4, 0, len(edges))
    graph = Graph(devices, edges, np.zeros((devices, 2)))
    return graph, link_costs(edges, gain, power, 1e6, 1e-9), rng.uniform(1, 9, devices)


@given(network=networks(), bits=st.integers(1, 20_000), access_s=st.floats(1e-5, 1e-2))
@settings(max_examples=50, deadline=None)
def test_no_spanning_tree_takes_fewer_joules_than_the_tree(
    network: tuple[Any, ...], bits: int, access_s: float
) -> None:
    """With headers and channel access, which weigh on links by the power of their ends."""
    graph, plain, _ = network
    costs = plain.framed(graph.edges, Framing(1000.0, 300.0, access_s))

    def joules(links: NDArray[np.int64]) -> float:
        route = tree_route(graph.edges, links, costs, graph.devices, float(bits), ORTHOGONAL)
        return float(exchange_energy_j(route, costs, graph.devices, "transmitter").sum())

    every = [joules(links) for links in spanning_trees(graph.edges, graph.devices)]
    weight = costs.for_messages(float(bits)).weight()
    chosen = spanning_tree(graph.edges, weight, graph.devices)
    assert joules(chosen) == pytest.approx(min(every), rel=1e-12)


@given(network=networks())
@settings(max_examples=100, deadline=None)
def test_the_trees_are_the_corners_of_the_lower_hull(network: tuple[Any, ...]) -> None:
    graph, costs, _ = network
    edges, devices = graph.edges, graph.devices
    joules, seconds = costs.weight(), link_seconds(costs)
    every = [(joules[t].sum(), seconds[t].sum()) for t in spanning_trees(edges, devices)]
    found = hull_of_trees(edges, costs, devices)
    assert np.array_equal(found[0].links, spanning_tree(edges, joules, devices))
    corners = [(tree.joules, tree.seconds) for tree in found]
    assert corners == sorted(corners)
    assert corners[0][0] == pytest.approx(min(j for j, _ in every), rel=1e-12)
    assert corners[-1][1] == pytest.approx(min(s for _, s in every), rel=1e-12)
    weights = [0.0]  # between neighbouring corners, and at the ends: no tree lies below the hull
    for (j1, s1), (j2, s2) in pairwise(corners):
        weights.append((j2 - j1) / (s1 - s2))
    assert weights == sorted(weights)  # convex
    for weight in weights:
        below = min(j + weight * s for j, s in every)
        assert min(j + weight * s for j, s in corners) == pytest.approx(below, rel=1e-12)


@given(network=networks(), slack=st.sampled_from([0.0, 0.05, 0.5, 5.0]))
@settings(max_examples=60, deadline=None)
def test_trees_over_a_limit_are_left_out(network: tuple[Any, ...], slack: float) -> None:
    graph, costs, _ = network
    whole = hull_of_trees(graph.edges, costs, graph.devices)
    most = (1 + slack) * whole[0].joules
    cut = hull_of_trees(graph.edges, costs, graph.devices, most_joules=most)
    assert [tree.links.tolist() for tree in cut] == [
        tree.links.tolist() for tree in whole if tree.joules <= most
    ]


def ready(
    network: tuple[Any, ...], duplex: str, channel_known: bool = True, **options: Any
) -> TreeChunked:
    graph, costs, battery_j = network
    conditions = Conditions(
        Subgraph.of(graph),
        costs,
        BITS,
        PlanOptions(aggregation="tree-chunked", **options),
        Medium(duplex),
        channel_known=channel_known,
        seed=0,
        battery_j=battery_j,
        iterations=1,
    )
    scheme = choose(conditions).ready(conditions)
    assert isinstance(scheme, TreeChunked)
    return scheme


def price_of(network: tuple[Any, ...], links: NDArray[np.int64], duplex: str) -> float:
    """Seconds with the number of chunks that suits this tree."""
    graph, costs, _ = network
    route = chunked_tree_route(graph.edges, links, costs, graph.devices, BITS, Medium(duplex))
    price = pipelined_s(route, costs, graph.devices, Medium(duplex))
    return price(fewest_chunks(price, most_chunks(BITS, graph.devices), Medium(duplex)))


@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
@given(network=networks(), slack=st.sampled_from([0.0, 0.05, 0.3, 3.0]))
@settings(max_examples=60, deadline=None)
def test_the_fastest_tree_is_taken_that_costs_little_more(
    duplex: str, network: tuple[Any, ...], slack: float
) -> None:
    graph, costs, battery_j = network
    edges, devices = graph.edges, graph.devices
    scheme = ready(network, duplex, tree_slack=slack)
    route = scheme.route(costs)
    spent = exchange_energy_j(route, costs, devices, "transmitter")
    least = spanning_tree(edges, costs.weight(), devices)
    cheapest = BITS * device_joules(edges, least, costs, devices)
    assert spent.sum() <= (1 + slack) * cheapest.sum() * (1 + 1e-9)
    assert (spent / battery_j).max() <= (1 + slack) * (cheapest / battery_j).max() * (1 + 1e-9)
    took = exchange_latency_s(route, costs, devices, "critical-path", Medium(duplex), BITS)
    assert took <= price_of(network, least, duplex) * (1 + 1e-9)
    allowed = [
        tree.links
        for tree in hull_of_trees(edges, costs, devices)
        if tree.joules <= (1 + slack) * costs.weight()[least].sum()
        and (BITS * device_joules(edges, tree.links, costs, devices) / battery_j).max()
        <= (1 + slack) * (cheapest / battery_j).max()
    ]
    best = min(price_of(network, links, duplex) for links in (least, *allowed))
    assert took == pytest.approx(best, rel=1e-9)
    if slack == 0.0:
        assert sorted(route.link_index.tolist()) == least.tolist()
        assert scheme.weight_w == 0


def test_what_a_faster_tree_costs_is_said() -> None:
    """Device 2 sends at little power: its links are cheap, and slow."""
    edges = np.array([[0, 1], [0, 2], [1, 2]])
    seconds = np.array([1.0, 1.0, 4.0]) * 1e-6
    joules = np.array([1.0, 0.7, 0.99]) * 1e-6
    costs = LinkCosts(seconds, seconds, joules, joules)
    network = (Graph(3, edges, np.zeros((3, 2))), costs, np.array([1.0, 9.0, 9.0]))
    slow = ready(network, "orthogonal", tree_slack=0.0)
    assert "more joules" not in slow.reason
    fast = ready((*network[:2], np.array([9.0, 1.0, 1.0])), "orthogonal", tree_slack=0.05)
    assert sorted(fast.route(costs).link_index.tolist()) == [0, 1]
    assert "a tree of 0.59 % more joules and " in fast.reason
    pressed = ready(network, "orthogonal", tree_slack=0.05)  # device 0 would pay twice as much
    assert sorted(pressed.route(costs).link_index.tolist()) == [1, 2]


def test_equal_powers_have_one_tree() -> None:
    """Joules are then seconds times the power, so that the cheapest tree has the fastest links."""
    rng = np.random.default_rng(0)
    edges = np.array(list(combinations(range(12), 2)))
    costs = link_costs(edges, 10 ** rng.uniform(-4, 0, len(edges)), np.full(12, 0.5), 1e6, 1e-9)
    assert len(hull_of_trees(edges, costs, 12)) == 1
