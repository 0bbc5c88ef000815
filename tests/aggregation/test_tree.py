"""The spanning tree against Kruskal written out, its root against every root."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation import tree
from joulemesh.aggregation.air import HALF_DUPLEX, ORTHOGONAL, Medium, half_duplex_s
from joulemesh.aggregation.tree import (
    best_root,
    root_latencies_s,
    shortest_path_tree,
    spanning_tree,
    tree_route,
)
from joulemesh.world.links import LinkCosts

Edges = NDArray[np.int64]
Net = tuple[int, Edges, LinkCosts]


@st.composite
def nets(draw: st.DrawFn, most: int = 9) -> Net:
    """A connected random graph whose two directions cost differently."""
    devices = draw(st.integers(2, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = {(int(rng.integers(j)), j) for j in range(1, devices)}
    every = list(combinations(range(devices), 2))
    pairs |= set(draw(st.lists(st.sampled_from(every), max_size=12)))
    edges = np.array(sorted(pairs), np.int64)
    # Few distinct values, so that ties occur.
    if draw(st.booleans()):
        four = [rng.integers(1, 4, len(edges)).astype(float) for _ in range(4)]
    else:
        four = [rng.uniform(0.1, 10, len(edges)) for _ in range(4)]
    return devices, edges, LinkCosts(*four)


def kruskal(devices: int, edges: Edges, weight: NDArray[np.float64]) -> list[int]:
    part = list(range(devices))
    chosen = []
    for k in sorted(range(len(edges)), key=lambda k: weight[k]):
        i, j = edges[k].tolist()
        if part[i] != part[j]:
            chosen.append(k)
            old, new = part[i], part[j]
            part = [new if p == old else p for p in part]
    return sorted(chosen)


@given(net=nets())
@settings(max_examples=100, deadline=None)
def test_spanning_tree_is_kruskals(net: Net) -> None:
    devices, edges, costs = net
    weight = costs.weight()
    found = spanning_tree(edges, weight, devices)
    wanted = kruskal(devices, edges, weight)
    assert len(found) == devices - 1
    assert len(kruskal(devices, edges[found], weight[found])) == devices - 1  # it spans
    assert weight[found].sum() == pytest.approx(weight[wanted].sum(), rel=1e-12)


@given(net=nets(most=5))
@settings(max_examples=40, deadline=None)
def test_no_spanning_tree_is_lighter(net: Net) -> None:
    devices, edges, costs = net
    weight = costs.weight()
    found = weight[spanning_tree(edges, weight, devices)].sum()
    for links in combinations(range(len(edges)), devices - 1):
        rows = list(links)
        if len(kruskal(devices, edges[rows], weight[rows])) == devices - 1:
            assert found <= weight[rows].sum() * (1 + 1e-12)


def test_links_that_cost_nothing_are_links() -> None:
    edges = np.array([[0, 1], [0, 2], [1, 2]])
    assert spanning_tree(edges, np.zeros(3), 3).tolist() == [0, 1]


def path_seconds(edges: Edges, costs: LinkCosts, start: int) -> dict[int, tuple[float, float]]:
    """Seconds per bit from every device to ``start``, and from ``start`` to it, along the tree."""
    beside: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for k, (i, j) in enumerate(edges.tolist()):
        there, back = float(costs.forward_s[k]), float(costs.backward_s[k])
        beside[i].append((j, back, there))  # from j to i, and from i to j
        beside[j].append((i, there, back))
    found = {start: (0.0, 0.0)}
    todo = [start]
    while todo:
        at = todo.pop()
        for other, inward, outward in beside[at]:
            if other not in found:
                found[other] = (found[at][0] + inward, found[at][1] + outward)
                todo.append(other)
    return found


def slow_latency_s(edges: Edges, costs: LinkCosts, root: int) -> float:
    reached = path_seconds(edges, costs, root).values()
    return max(inward for inward, _ in reached) + max(outward for _, outward in reached)


@given(net=nets())
@settings(max_examples=100, deadline=None)
def test_latency_of_every_root_and_the_best_of_them(net: Net) -> None:
    devices, edges, costs = net
    links = spanning_tree(edges, costs.weight(), devices)
    tree, own = edges[links], costs.take(links)
    wanted = [slow_latency_s(tree, own, root) for root in range(devices)]
    for hung in range(devices):
        found = root_latencies_s(tree, own, devices, hung)
        assert found.tolist() == pytest.approx(wanted, rel=1e-9)
    root = best_root(tree, own, devices, ORTHOGONAL)
    assert wanted[root] == pytest.approx(min(wanted), rel=1e-9)
    half = [half_duplex_s(tree, own, devices, u) for u in range(devices)]
    assert half[best_root(tree, own, devices, HALF_DUPLEX)] == pytest.approx(min(half), rel=1e-9)
    assert all(h >= w * (1 - 1e-9) for h, w in zip(half, wanted, strict=True))


def test_a_star_in_half_duplex_by_hand() -> None:
    # Hub 0, leaves 1, 2, 3 at 1, 2 and 4 s/bit both ways. Root 0: 7 up and 7 down.
    edges = np.array([[0, 1], [0, 2], [0, 3]])
    cost = np.array([1.0, 2.0, 4.0])
    costs = LinkCosts(cost, cost, cost, cost)
    assert half_duplex_s(edges, costs, 4, 0) == 14.0
    # Root 3: up (1 + 2) + 4; down 4, then 2 and 1.
    assert half_duplex_s(edges, costs, 4, 3) == 14.0
    # With orthogonal channels: root 0 takes 4 + 4, root 1 (4 + 1) + (1 + 4).
    assert root_latencies_s(edges, costs, 4, 2).tolist() == [8.0, 10.0, 12.0, 12.0]


def test_a_long_path_is_rooted_in_its_middle() -> None:
    count = 401
    edges = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)
    one = np.ones(count - 1)
    costs = LinkCosts(one, one, one, one)
    assert best_root(edges, costs, count, ORTHOGONAL) == 200
    # Beyond 256 devices the half-duplex root is found by descent.
    timed = [half_duplex_s(edges, costs, count, root) for root in (198, 199, 200, 201, 202)]
    root = best_root(edges, costs, count, HALF_DUPLEX)
    assert half_duplex_s(edges, costs, count, root) == min(timed)


@given(net=nets(), duplex=st.sampled_from(["orthogonal", "half"]))
@settings(max_examples=60, deadline=None)
def test_route_goes_up_then_down_along_the_tree(net: Net, duplex: str) -> None:
    devices, edges, costs = net
    links = spanning_tree(edges, costs.weight(), devices)
    route = tree_route(edges, links, costs, devices, 8.0, Medium(duplex))
    messages = list(route.messages())
    assert len(messages) == 2 * (devices - 1)
    up, down = messages[: devices - 1], messages[devices - 1 :]
    assert sorted((s, r) for _, s, r, _ in up) == sorted((r, s) for _, s, r, _ in down)
    # Everybody but the root sends up exactly once, after all that came to it.
    assert sorted(s for _, s, _, _ in up) == sorted(set(range(devices)) - {route.root})
    sent_at = {sender: step for step, sender, _, _ in up}
    for step, _, receiver, _ in up:
        assert receiver == route.root or sent_at[receiver] > step
    got_at = {receiver: step for step, _, receiver, _ in down}
    for step, sender, _, _ in down:
        assert sender == route.root or got_at[sender] < step
    assert max(step for step, *_ in up) < min(step for step, *_ in down)
    assert {bits for *_, bits in messages} == {8.0}
    assert route.uses == 2


@given(net=nets())
@settings(max_examples=60, deadline=None)
def test_energy_of_a_device_does_not_depend_on_the_root(net: Net) -> None:
    """Hang the same tree from every root and count what each device sends."""
    devices, edges, costs = net
    links = spanning_tree(edges, costs.weight(), devices)
    tree, own = edges[links], costs.take(links)
    route = tree_route(edges, links, costs, devices, 1.0, ORTHOGONAL)
    joules = {
        **{(i, j): float(e) for (i, j), e in zip(tree.tolist(), own.forward_j, strict=True)},
        **{(j, i): float(e) for (i, j), e in zip(tree.tolist(), own.backward_j, strict=True)},
    }
    wanted = [sum(e for (i, _), e in joules.items() if i == device) for device in range(devices)]
    for root in range(devices):
        spent = [0.0] * devices
        reached = path_seconds(tree, own, root)
        hops = path_seconds(tree, LinkCosts(*[np.ones(len(tree))] * 4), root)
        assert len(reached) == devices
        for i, j in tree.tolist():
            child, parent = (i, j) if hops[i] > hops[j] else (j, i)
            spent[child] += joules[child, parent]
            spent[parent] += joules[parent, child]
        assert spent == pytest.approx(wanted, rel=1e-9)
    found = [0.0] * devices
    for _, sender, receiver, _ in route.messages():
        found[sender] += joules[sender, receiver]
    assert found == pytest.approx(wanted, rel=1e-9)


@given(net=nets())
@settings(max_examples=60, deadline=None)
def test_shortest_path_tree_spans_and_is_quick(net: Net) -> None:
    devices, edges, costs = net
    links = shortest_path_tree(edges, costs, devices)
    assert len(links) == devices - 1
    assert len(kruskal(devices, edges[links], np.ones(len(links)))) == devices - 1
    # Some root of the tree reaches every device along a path that no path of the graph beats.
    both = costs.forward_s + costs.backward_s
    shortest = np.full((devices, devices), np.inf)
    np.fill_diagonal(shortest, 0.0)
    for (i, j), seconds in zip(edges.tolist(), both, strict=True):
        shortest[i, j] = shortest[j, i] = min(shortest[i, j], seconds)
    for via in range(devices):
        shortest = np.minimum(shortest, shortest[:, via, None] + shortest[None, via])
    own = costs.take(links)
    kept = [
        all(
            sum(pair) == pytest.approx(shortest[root, device], rel=1e-9)
            for device, pair in path_seconds(edges[links], own, root).items()
        )
        for root in range(devices)
    ]
    assert any(kept)


@pytest.mark.parametrize("spread", [3, 10**6])  # many equal weights, and none
def test_looking_at_the_cheapest_links_alone_finds_the_tree_of_all(
    spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(spread)
    edges = np.array(list(combinations(range(40), 2)))
    weight = rng.integers(1, spread + 1, len(edges)).astype(float)
    of_all = spanning_tree(edges, weight, 40)
    monkeypatch.setattr(tree, "_FEW", 1)
    monkeypatch.setattr(tree, "_CHEAPEST", 6)
    np.testing.assert_array_equal(spanning_tree(edges, weight, 40), of_all)
