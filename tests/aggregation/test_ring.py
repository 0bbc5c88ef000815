from __future__ import annotations

from itertools import combinations, groupby, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.aggregation.ring import (
    chunked_route,
    exact_cycle,
    find_ring,
    grow_cycle,
    neighbours,
    obstacle,
    ring_route,
)
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.base.errors import ScenarioError, called


def graph(pairs: object) -> IntArray:
    rows = {(min(i, j), max(i, j)) for i, j in pairs}  # type: ignore[attr-defined]
    return np.array(sorted(rows), np.int64).reshape(-1, 2)


def cycle(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


def generalised_petersen(n: int, k: int) -> IntArray:
    spokes = [(i, n + i) for i in range(n)]
    return graph(cycle(n) + spokes + [(n + i, n + (i + k) % n) for i in range(n)])


def grid(rows: int, columns: int) -> IntArray:
    across = [
        (r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)
    ]
    down = [
        (r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)
    ]
    return graph(across + down)


def cube(dimension: int) -> IntArray:
    return graph((v, v ^ (1 << b)) for v in range(2**dimension) for b in range(dimension))


def coxeter() -> IntArray:
    """Triples of seven points that are no line of the Fano plane, linked when disjoint."""
    lines = [{i, (i + 1) % 7, (i + 3) % 7} for i in range(7)]
    triples = [set(t) for t in combinations(range(7), 3) if set(t) not in lines]
    return graph((a, b) for a, b in combinations(range(28), 2) if not triples[a] & triples[b])


def flower_snark(n: int) -> IntArray:
    hubs = [(4 * i, 4 * i + leaf) for i in range(n) for leaf in (1, 2, 3)]
    inner = [(4 * i + 1, 4 * ((i + 1) % n) + 1) for i in range(n)]
    outer = [4 * i + 2 for i in range(n)] + [4 * i + 3 for i in range(n)]
    return graph(hubs + inner + list(zip(outer, outer[1:] + outer[:1], strict=True)))


def scattered(n: int, degree: float, seed: int) -> IntArray:
    points = np.random.default_rng(seed).random((n, 2))
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.argwhere(np.triu(apart < np.sqrt(degree / (np.pi * n)), 1)).astype(np.int64)


def is_ring(order: IntArray, edges: IntArray, devices: int) -> bool:
    links = set(map(tuple, edges.tolist()))
    hops = zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)
    return sorted(order.tolist()) == list(range(devices)) and all(
        (min(hop), max(hop)) in links for hop in hops
    )


def has_ring(edges: IntArray, devices: int) -> bool:
    """By trying every order."""
    return any(
        is_ring(np.array((0, *rest)), edges, devices) for rest in permutations(range(1, devices))
    )


def check_against_brute_force(edges: IntArray, devices: int) -> None:
    search = find_ring(edges, devices)
    if has_ring(edges, devices):
        assert search.order is not None
        assert is_ring(search.order, edges, devices)
        assert not search.exhausted
    else:
        assert search.order is None
        assert search.exhausted


@pytest.mark.parametrize("devices", [3, 4, 5])
def test_search_equals_brute_force_on_all_small_graphs(devices: int) -> None:
    links = list(combinations(range(devices), 2))
    for chosen in range(2 ** len(links)):
        edges = graph(link for k, link in enumerate(links) if chosen >> k & 1)
        check_against_brute_force(edges, devices)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([6, 7]))
def test_search_equals_brute_force_on_larger_graphs(data: st.DataObject, devices: int) -> None:
    links = list(combinations(range(devices), 2))
    # A path through all devices makes the interesting cases likely: connected, ring or no ring.
    path = [(i, i + 1) for i in range(devices - 1)]
    more = data.draw(st.lists(st.sampled_from(links), min_size=1, max_size=8))
    check_against_brute_force(graph(path + more), devices)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([5, 6, 7]))
def test_exact_search_alone_equals_brute_force(data: st.DataObject, devices: int) -> None:
    links = list(combinations(range(devices), 2))
    edges = graph(cycle(devices) + data.draw(st.lists(st.sampled_from(links), max_size=6)))
    lost = data.draw(st.integers(0, len(edges) - 1))
    edges = np.delete(edges, lost, axis=0)
    beside = neighbours(edges, devices)
    if min(map(len, beside)) < 2:
        return
    order, proved, _ = exact_cycle(beside, limit=10**6)
    assert proved != has_ring(edges, devices)
    assert order is None if proved else order is not None and is_ring(order, edges, devices)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(8, 60), st.floats(0.0, 2.0))
def test_a_hidden_ring_is_found(seed: int, devices: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    hidden = rng.permutation(devices)
    chords = rng.integers(0, devices, (int(density * devices), 2))
    edges = graph(
        list(zip(hidden.tolist(), np.roll(hidden, -1).tolist(), strict=True))
        + [(i, j) for i, j in chords.tolist() if i != j]
    )
    search = find_ring(edges, devices)
    assert search.order is not None
    assert is_ring(search.order, edges, devices)


@pytest.mark.parametrize(
    ("edges", "devices"),
    [
        (generalised_petersen(10, 2), 20),  # the dodecahedron
        (cube(3), 8),
        (cube(6), 64),
        (grid(2, 25), 50),
        (grid(9, 12), 108),
        (graph(combinations(range(40), 2)), 40),
        (graph((i, 15 + j) for i in range(15) for j in range(15)), 30),
        (scattered(1000, 20.0, seed=0), 1000),
        # Device 450 and 453 have two neighbours each, which no simple move joins.
        (scattered(500, 20.0, seed=1), 500),
    ],
    ids=["dodecahedron", "cube3", "cube6", "ladder", "grid", "K40", "K15,15", "area", "tight-area"],
)
def test_named_graphs_with_a_ring(edges: IntArray, devices: int) -> None:
    search = find_ring(edges, devices)
    assert search.order is not None
    assert is_ring(search.order, edges, devices)
    again = find_ring(edges, devices)
    assert again.order is not None
    assert again.order.tolist() == search.order.tolist()


@pytest.mark.parametrize(
    ("edges", "devices"),
    [
        (generalised_petersen(5, 2), 10),  # Petersen's graph
        (generalised_petersen(11, 2), 22),
        (coxeter(), 28),
        (flower_snark(5), 20),
    ],
    ids=["petersen", "GP(11,2)", "coxeter", "flower-snark"],
)
def test_famous_graphs_without_a_ring_are_proved_so(edges: IntArray, devices: int) -> None:
    assert obstacle(edges, devices) is None
    search = find_ring(edges, devices)
    assert search.order is None
    assert search.exhausted
    why = f"a complete search in {search.visited} steps shows that there is none"
    assert search.reason == why


@pytest.mark.parametrize(
    ("pairs", "devices", "reason"),
    [
        ([], 1, "1 device cannot form a ring, 3 are needed"),
        ([(0, 1)], 2, "2 devices cannot form a ring, 3 are needed"),
        ([(0, 1), (1, 2), (0, 2)], 4, "device 3 has 0 links, a ring needs 2"),
        ([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)], 6, "the graph falls into 2 parts"),
        (
            [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4), (3, 4)],
            5,
            "without device 2 the graph falls apart",
        ),
        (
            [(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (3, 4)],
            5,
            "without device 0 the graph falls apart",
        ),
        (
            [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)],
            5,
            "links run only between 2 devices and the other 3",
        ),
    ],
)
def test_simple_obstacles_are_named(
    pairs: list[tuple[int, int]], devices: int, reason: str
) -> None:
    search = find_ring(graph(pairs), devices)
    assert search.order is None
    assert search.exhausted
    assert search.visited == 0
    assert search.reason.format(device=called(search.device or 0)) == reason


def test_giving_up_is_no_proof() -> None:
    search = find_ring(generalised_petersen(29, 2), 58, limit=300)
    assert search.order is None
    assert not search.exhausted
    assert 300 <= search.visited <= 600
    assert search.reason == "no ring was found within 300 steps"


def test_a_true_hint_is_taken_and_a_false_one_ignored() -> None:
    edges = grid(2, 3)
    taken = find_ring(edges, 6, hint=[3, 0, 1, 2, 5, 4])
    assert taken.order is not None
    assert taken.order.tolist() == [3, 0, 1, 2, 5, 4]
    assert taken.visited == 0
    for wrong in ([0, 1, 2, 3, 4, 5], [0, 1, 4, 3], [0, 1, 2, 5, 4, 4], [0, 1, 2, 5, 4, 9], []):
        search = find_ring(edges, 6, hint=wrong)
        assert search.order is not None
        assert is_ring(search.order, edges, 6)


def test_growth_gives_up_where_there_is_no_ring() -> None:
    order, visited = grow_cycle(neighbours(generalised_petersen(5, 2), 10), limit=10**6)
    assert order is None
    assert visited < 10_000


def test_links_outside_the_graph_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"link \(1, 4\) does not fit a graph of 4 devices"):
        find_ring(np.array([[0, 1], [1, 4]]), 4)
    with pytest.raises(ScenarioError, match=r"link \(2, 1\)"):
        find_ring(np.array([[2, 1]]), 4)


def execute_ring(route: Route, models: np.ndarray) -> np.ndarray:
    """Each receiver replaces its partial sum by what came plus its own model."""
    held = models.copy()
    for _, messages in groupby(route.messages(), key=lambda message: message[0]):
        before = held.copy()
        for _, sender, receiver, _ in messages:
            held[receiver] = before[sender] + models[receiver]
    return held / len(models)


def execute_chunked(route: Route, order: IntArray, models: np.ndarray) -> np.ndarray:
    """Reduce-scatter (receivers add), then all-gather (receivers copy), chunk by chunk."""
    n = len(models)
    place = np.argsort(order)
    chunks = np.array_split(np.arange(models.shape[1]), n)
    held = models.copy()
    for step, messages in groupby(route.messages(), key=lambda message: message[0]):
        before = held.copy()
        for _, sender, receiver, _ in messages:
            if step < n - 1:
                chunk = chunks[(place[sender] - step) % n]
                held[receiver, chunk] += before[sender, chunk]
            else:
                chunk = chunks[(place[sender] + 1 - (step - (n - 1))) % n]
                held[receiver, chunk] = before[sender, chunk]
    return held / n


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 12))
def test_both_rings_deliver_the_mean_to_everybody(seed: int, devices: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(devices)
    spare = [(i, j) for i, j in rng.integers(0, devices, (5, 2)).tolist() if i != j]
    edges = graph(list(zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)) + spare)
    models = rng.standard_normal((devices, 2 * devices + 1))
    mean = np.broadcast_to(models.mean(axis=0), models.shape)
    whole = ring_route(order, edges, bits=64.0)
    chunked = chunked_route(order, edges, bits=64.0)
    np.testing.assert_allclose(execute_ring(whole, models), mean, atol=1e-12)
    got = execute_chunked(chunked, order, models)
    np.testing.assert_allclose(got, mean, atol=1e-12)
    assert np.all(got == got[0])
    for route in (whole, chunked):
        np.testing.assert_array_equal(edges[route.link_index], route.edges)
        np.testing.assert_array_equal(route.sender, order)


@pytest.mark.parametrize("devices", [3, 10, 20])
def test_bits_of_the_rings(devices: int) -> None:
    edges, order = graph(cycle(devices)), np.arange(devices)
    whole, chunked = ring_route(order, edges, 100.0), chunked_route(order, edges, 100.0)
    whole_bits = sum(bits for *_, bits in whole.messages())
    chunked_bits = sum(bits for *_, bits in chunked.messages())
    assert whole_bits == pytest.approx(devices * (devices - 1) * 100.0)
    assert chunked_bits / whole_bits == pytest.approx(2 / devices)
    assert (whole.scheme, whole.repeats, whole.uses) == ("ring", devices - 1, devices - 1)
    assert (chunked.scheme, chunked.repeats) == ("ring-chunked", 2 * (devices - 1))
    assert chunked.uses == pytest.approx(2 * (devices - 1) / devices)


@pytest.mark.parametrize("make", [ring_route, chunked_route])
@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1], [0, 1, 0, 1], []])
def test_an_order_that_is_no_ring_is_refused(make: object, order: list[int]) -> None:
    with pytest.raises(ScenarioError, match="is not a ring of the graph"):
        make(order, graph(cycle(4)), 8.0)  # type: ignore[operator]
