"""Every scheme, played out message by message on random vectors."""

from __future__ import annotations

from itertools import combinations, groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation.air import ORTHOGONAL
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import Conditions, Scheme, choose
from joulemesh.base.errors import InfeasibleError
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts, link_costs
from joulemesh.world.topology import Graph, components

Vectors = NDArray[np.float64]
BITS = 64.0


def graph_of(devices: int, pairs: set[tuple[int, int]], ring: bool = False) -> Graph:
    edges = np.array(sorted(pairs), np.int64)
    known = np.arange(devices) if ring else None
    return Graph(devices, edges, np.zeros((devices, 2)), known)


def around(devices: int) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i in range(devices) for j in [(i + 1) % devices]}


def costs_of(graph: Graph, seed: int) -> LinkCosts:
    rng = np.random.default_rng(seed)
    gain = 10 ** rng.uniform(-4, 0, len(graph.edges))
    return link_costs(graph.edges, gain, 10 ** rng.uniform(-1, 1, graph.devices), 1e6, 1e-9)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Subgraph, LinkCosts]:
    """Part of a random graph: some devices may have left, and a ring runs through the rest."""
    devices = draw(st.integers(3, 9))
    gone = draw(st.sets(st.integers(0, devices - 1), max_size=devices - 3))
    rest = [i for i in range(devices) if i not in gone]
    order = draw(st.permutations(rest))
    pairs = {(min(a, b), max(a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    pairs |= {(min(i, rest[0]), max(i, rest[0])) for i in gone}
    every = list(combinations(range(devices), 2))
    pairs |= set(draw(st.lists(st.sampled_from(every), max_size=6)))
    graph = graph_of(devices, pairs)
    active = np.isin(np.arange(devices), rest)
    return Subgraph.of(graph, active), costs_of(graph, draw(st.integers(0, 1000)))


def ready(part: Subgraph, costs: LinkCosts, wanted: str, **options: Any) -> Scheme:
    conditions = Conditions(
        part,
        costs,
        BITS,
        PlanOptions(aggregation=wanted, ring_search_limit=10_000, **options),
        ORTHOGONAL,
        channel_known=True,
        seed=3,
        battery_j=np.full(int(part.members.max()) + 1, 1e9),
        iterations=5,
    )
    return choose(conditions).ready(conditions)


def steps(route: Route) -> list[list[tuple[int, int, float]]]:
    """(sender, receiver, bits) of every step, in order."""
    return [
        [(sender, receiver, bits) for _, sender, receiver, bits in step]
        for _, step in groupby(route.messages(), key=lambda message: message[0])
    ]


def play_tree(route: Route, own: dict[int, Vectors]) -> dict[int, Vectors]:
    """Sums of what is new are added; a sum that covers one's own replaces it."""
    held = {i: (vector, {i}) for i, vector in own.items()}
    for step in steps(route):
        before = dict(held)
        for sender, receiver, bits in step:
            assert bits == BITS
            total, who = before[sender]
            if who & held[receiver][1]:
                assert who >= held[receiver][1]
                held[receiver] = total, who
            else:
                held[receiver] = held[receiver][0] + total, held[receiver][1] | who
    assert all(who == set(own) for _, who in held.values())
    return {i: total / len(own) for i, (total, _) in held.items()}


def play_ring(route: Route, own: dict[int, Vectors]) -> dict[int, Vectors]:
    """notes: price-of-an-exchange. Send the partial sum; what comes plus one's own is the next."""
    held = dict(own)
    for step in steps(route):
        before = dict(held)
        assert sorted(s for s, *_ in step) == sorted(r for _, r, _ in step) == sorted(own)
        for sender, receiver, bits in step:
            assert bits == BITS
            held[receiver] = before[sender] + own[receiver]
    return {i: vector / len(own) for i, vector in held.items()}


def play_chunked(route: Route, own: dict[int, Vectors]) -> dict[int, Vectors]:
    """Patarasuk and Yuan: N-1 steps of reduce-scatter, N-1 of all-gather."""
    count = len(own)
    following = {sender: receiver for sender, receiver, _ in steps(route)[0]}
    order = [next(iter(own))]
    while len(order) < count:
        order.append(following[order[-1]])
    place = {device: k for k, device in enumerate(order)}
    chunks = {i: np.array_split(vector.copy(), count) for i, vector in own.items()}
    for number, step in enumerate(steps(route)):
        before = {i: [chunk.copy() for chunk in parts] for i, parts in chunks.items()}
        gathering = number >= count - 1
        for sender, receiver, bits in step:
            assert bits == pytest.approx(BITS / count)
            which = place[sender] - number + (count if gathering else 0)
            piece = before[sender][which % count]
            if gathering:
                chunks[receiver][which % count] = piece
            else:
                chunks[receiver][which % count] = chunks[receiver][which % count] + piece
    return {i: np.concatenate(parts) / count for i, parts in chunks.items()}


def play_pairs(route: Route, own: dict[int, Vectors]) -> dict[int, Vectors]:
    """Both ends of a pair send their vector and keep the mean of the two."""
    held = dict(own)
    for step in steps(route):
        before = dict(held)
        assert len({s for s, *_ in step}) == len(step)  # everybody in one pair at most
        assert {(s, r) for s, r, _ in step} == {(r, s) for s, r, _ in step}
        for sender, receiver, bits in step:
            assert bits == BITS
            held[receiver] = (before[receiver] + before[sender]) / 2
    return held


def play_metropolis(route: Route, own: dict[int, Vectors]) -> dict[int, Vectors]:
    """w_ij = 1 / (1 + max(d_i, d_j)) for what comes, the rest for one's own."""
    degree = {i: sum(r == i for _, r, _ in steps(route)[0]) for i in own}
    held = dict(own)
    for step in steps(route):
        before = dict(held)
        for sender, receiver, bits in step:
            assert bits == BITS
            weight = 1 / (1 + max(degree[sender], degree[receiver]))
            held[receiver] = held[receiver] + weight * (before[sender] - before[receiver])
    return held


PLAY = {
    "tree": play_tree,
    "ring": play_ring,
    "ring-chunked": play_chunked,
    "gossip": play_pairs,
    "metropolis": play_metropolis,
}


def vectors(part: Subgraph, seed: int) -> dict[int, Vectors]:
    drawn = np.random.default_rng(seed).normal(size=(part.devices, 11))
    return dict(zip(part.members.tolist(), drawn, strict=True))


@pytest.mark.parametrize("name", ["tree", "ring", "ring-chunked"])
@given(network=networks(), seed=st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_exact_schemes_give_everybody_the_exact_mean(
    name: str, network: tuple[Subgraph, LinkCosts], seed: int
) -> None:
    part, costs = network
    scheme = ready(part, costs, name)
    own = vectors(part, seed)
    after = PLAY[name](scheme.route(costs), own)
    mean = sum(own.values()) / len(own)
    assert set(after) == set(part.members.tolist())
    for vector in after.values():
        np.testing.assert_allclose(vector, mean, rtol=0, atol=1e-12)
    assert scheme.exact
    assert scheme.error == 0
    np.testing.assert_allclose(scheme.mixing(0, 1)[0], 1 / part.devices)


@pytest.mark.parametrize(
    ("name", "mode"), [("gossip", "ticks"), ("gossip", "matchings"), ("metropolis", "ticks")]
)
@given(
    network=networks(),
    seed=st.integers(0, 1000),
    rounds=st.integers(1, 9),
    iteration=st.integers(0, 5),
)
@settings(max_examples=40, deadline=None)
def test_messages_of_gossip_do_what_the_mixing_matrix_says(
    name: str,
    mode: str,
    network: tuple[Subgraph, LinkCosts],
    seed: int,
    rounds: int,
    iteration: int,
) -> None:
    part, costs = network
    scheme = ready(part, costs, name, gossip_mode=mode, gossip_rounds=rounds)
    own = vectors(part, seed)
    after = PLAY[name](scheme.route(costs, iteration), own)
    before = np.array([own[i] for i in part.members.tolist()])
    mixing = scheme.mixing(iteration, iteration + 1)[0]
    wanted = mixing @ before
    found = np.array([after[i] for i in part.members.tolist()])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mixing.sum(axis=0), 1)
    np.testing.assert_allclose(mixing.sum(axis=1), 1)


@pytest.mark.parametrize("mode", ["ticks", "matchings"])
@given(network=networks(), rounds=st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_pairs_are_those_of_the_routes(
    mode: str, network: tuple[Subgraph, LinkCosts], rounds: int
) -> None:
    part, costs = network
    scheme = ready(part, costs, "gossip", gossip_mode=mode, gossip_rounds=rounds)
    pairs = scheme.pairs(2, 5)
    assert pairs is not None
    for row, iteration in zip(pairs.tolist(), range(2, 5), strict=True):
        route = scheme.route(costs, iteration)
        assert [link for link in row if link >= 0] == route.link_index[route.edge[::2]].tolist()


@given(network=networks())
@settings(max_examples=30, deadline=None)
def test_routes_stay_among_those_who_take_part(network: tuple[Subgraph, LinkCosts]) -> None:
    part, costs = network
    for name in PLAY:
        route = ready(part, costs, name, gossip_rounds=3).route(costs)
        assert set(route.edges.ravel().tolist()) <= set(part.members.tolist())
        assert set(route.link_index.tolist()) <= set(part.links.tolist())


def test_rounds_meet_the_wanted_error() -> None:
    graph = graph_of(10, around(10), ring=True)
    costs = costs_of(graph, 0)
    scheme = ready(Subgraph.of(graph), costs, "metropolis", epsilon=0.05)
    # notes: randomized-gossip. 22 rounds on a ring of ten, zeta = 1/3 + 2/3 cos 36 deg.
    assert scheme.rounds == 22
    assert scheme.contraction is not None
    assert scheme.contraction == pytest.approx(1 / 3 + 2 / 3 * np.cos(np.pi / 5))
    assert scheme.error <= 0.05 < scheme.error / scheme.contraction
    left = scheme.mixing(0, 1)[0] - 0.1
    assert np.linalg.norm(left, 2) == pytest.approx(scheme.error, rel=1e-6)


def test_rounds_that_nobody_could_plan_are_refused() -> None:
    graph = graph_of(4, around(4), ring=True)
    with pytest.raises(InfeasibleError, match=r"raise plan\.epsilon or set plan\.gossip_rounds"):
        ready(Subgraph.of(graph), costs_of(graph, 0), "gossip", gossip_rounds=6_000_000)


# Theorem 3 -------------------------------------------------------------------------------------


def pick(
    pairs: set[tuple[int, int]], devices: int, wanted: str, known: bool, limit: int = 10_000
) -> tuple[str, str]:
    graph = graph_of(devices, pairs)
    conditions = Conditions(
        Subgraph.of(graph),
        costs_of(graph, 0),
        BITS,
        PlanOptions(aggregation=wanted, ring_search_limit=limit),
        ORTHOGONAL,
        channel_known=known,
        seed=0,
        battery_j=np.ones(devices),
        iterations=1,
    )
    choice = choose(conditions)
    return choice.kind.name, choice.reason


def test_theorem_3_chooses_and_says_why() -> None:
    ring, path = around(5), around(5) - {(0, 4)}
    assert pick(ring, 5, "theorem3", True)[0] == "tree"
    assert pick(path, 5, "theorem3", True)[0] == "tree"
    assert pick(ring, 5, "theorem3", False)[0] == "ring"
    assert pick(path, 5, "theorem3", False)[0] == "gossip"
    assert "known" in pick(ring, 5, "theorem3", True)[1]
    assert "unknown" in pick(ring, 5, "theorem3", False)[1]
    assert "no ring" in pick(path, 5, "theorem3", False)[1]


@pytest.mark.parametrize("name", ["tree", "ring", "ring-chunked", "gossip", "metropolis"])
def test_a_scheme_can_be_forced_by_name(name: str) -> None:
    assert pick(around(5), 5, name, True)[0] == name
    assert pick(around(5), 5, name, False)[0] == name


def test_a_ring_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InfeasibleError) as refusal:
        pick(around(5) - {(0, 4)}, 5, "ring", True)
    assert refusal.value.code == "topology"
    assert 'plan.aggregation = "tree"' in str(refusal.value)
    assert "does not prove" not in str(refusal.value)


def test_not_found_within_the_limit_is_not_called_absent() -> None:
    """A ring hidden in a large graph, and one step to find it in."""
    rng = np.random.default_rng(0)
    order = rng.permutation(60).tolist()
    pairs = {(min(a, b), max(a, b)) for a, b in zip(order, order[1:] + order[:1], strict=True)}
    pairs |= {(min(a, b), max(a, b)) for a, b in rng.integers(60, size=(60, 2)).tolist() if a != b}
    with pytest.raises(InfeasibleError, match=r"does not prove.*plan\.ring_search_limit"):
        pick(pairs, 60, "ring", True, limit=1)


@given(network=networks())
@settings(max_examples=30, deadline=None)
def test_subgraph_keeps_exactly_the_links_among_its_devices(
    network: tuple[Subgraph, LinkCosts],
) -> None:
    part, _ = network
    assume(part.devices >= 3)
    assert components(part.edges, part.devices)[0] == 1
    assert (part.edges[:, 0] < part.edges[:, 1]).all()
    assert part.edges.tolist() == sorted(part.edges.tolist())
    assert len(part.links) == len(part.edges)
