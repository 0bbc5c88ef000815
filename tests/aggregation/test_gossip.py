from __future__ import annotations

from itertools import combinations, groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.aggregation import gossip
from joulemesh.aggregation.gossip import (
    Guarantee,
    Mode,
    activity,
    contraction,
    draw_matchings,
    draw_ticks,
    matching_matrix,
    matching_mixing,
    matching_route,
    metropolis_mixing,
    metropolis_route,
    metropolis_weights,
    paper_gossip_route,
    rounds_for,
    tick_matrix,
    tick_mixing,
    tick_route,
)
from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.base.errors import ScenarioError


def graph(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(sorted({(min(i, j), max(i, j)) for i, j in pairs}), np.int64).reshape(-1, 2)


def ring(n: int, *chords: tuple[int, int]) -> IntArray:
    return graph([(i, (i + 1) % n) for i in range(n)] + list(chords))


@st.composite
def connected_graphs(draw: st.DrawFn) -> tuple[IntArray, int]:
    """A random tree plus some more links."""
    n = draw(st.integers(2, 10))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    more = draw(st.lists(st.sampled_from(list(combinations(range(n), 2))), max_size=12))
    return graph(tree + more), n


def execute(route: Route, models: FloatArray, weights: FloatArray) -> FloatArray:
    """Message by message: whoever receives moves towards what came by the link's weight."""
    held = models.copy()
    for _, messages in groupby(route.messages(), key=lambda message: message[0]):
        before = held.copy()
        for _, sender, receiver, _ in messages:
            held[receiver] += weights[receiver, sender] * (before[sender] - before[receiver])
    return held


@settings(max_examples=40, deadline=None)
@given(connected_graphs(), st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_routes_executed_equal_mixing_matrices(
    case: tuple[IntArray, int], seed: int, rounds: int
) -> None:
    edges, n = case
    models = np.random.default_rng(seed).standard_normal((n, 3))
    half = np.full((n, n), 0.5)
    ticks = draw_ticks(edges, n, rounds, seed=seed, iterations=[1, 2])
    pairs = [draw_matchings(edges, n, rounds, seed=seed, iteration=t) for t in (1, 2)]
    weights = metropolis_weights(edges, n)
    by_ticks, by_pairs = tick_mixing(n, edges, ticks), matching_mixing(n, edges, pairs)
    by_weights = metropolis_mixing(weights, rounds)
    for t in range(2):
        got = execute(tick_route(edges, ticks[t], 8.0), models, half)
        np.testing.assert_allclose(got, by_ticks[t] @ models, atol=1e-12)
        got = execute(matching_route(edges, pairs[t], 8.0), models, half)
        np.testing.assert_allclose(got, by_pairs[t] @ models, atol=1e-12)
    got = execute(metropolis_route(edges, 8.0, rounds), models, weights.toarray())
    np.testing.assert_allclose(got, by_weights @ models, atol=1e-12)
    for mixing in (*by_ticks, *by_pairs, by_weights):
        assert mixing.min() >= 0.0
        np.testing.assert_allclose(mixing.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose((mixing @ models).mean(axis=0), models.mean(axis=0), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(connected_graphs(), st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_matchings_are_matchings(case: tuple[IntArray, int], seed: int, rounds: int) -> None:
    edges, n = case
    link, turn = draw_matchings(edges, n, rounds, seed=seed, iteration=3)
    assert sorted(set(turn.tolist())) == list(range(rounds))
    assert np.all(np.diff(turn) >= 0)
    for k in range(rounds):
        ends = edges[link[turn == k]].ravel().tolist()
        assert len(ends) == len(set(ends))


def test_draws_are_pure_functions_of_seed_and_iteration() -> None:
    edges, n = ring(9, (0, 4)), 9
    both = draw_ticks(edges, n, 30, seed=5, iterations=[7, 8])
    assert both.dtype == np.int32
    assert both.shape == (2, 30)
    np.testing.assert_array_equal(both[1], draw_ticks(edges, n, 30, seed=5, iterations=8))
    np.testing.assert_array_equal(both[1][:12], draw_ticks(edges, n, 12, seed=5, iterations=8))
    assert both[0].tolist() != both[1].tolist()
    assert both[0].tolist() != draw_ticks(edges, n, 30, seed=6, iterations=7).tolist()
    first = draw_matchings(edges, n, 30, seed=5, iteration=7)
    again = draw_matchings(edges, n, 30, seed=5, iteration=7)
    other = draw_matchings(edges, n, 30, seed=5, iteration=8)
    assert first[0].tolist() == again[0].tolist()
    assert first[0].tolist() != other[0].tolist()


def test_matchings_do_not_depend_on_how_many_are_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edges, n = ring(9, (0, 4)), 9
    whole = draw_matchings(edges, n, 25, seed=1, iteration=2)
    monkeypatch.setattr(gossip, "_AT_ONCE", 30)
    pieces = draw_matchings(edges, n, 25, seed=1, iteration=2)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_array_equal(a, b)


# A hub, a triangle and a tail: links with many different degrees at their ends.
UNEVEN = graph([(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (4, 5), (5, 6)])


@pytest.mark.parametrize("mode", ["ticks", "matchings"])
def test_links_are_used_as_often_as_stated(mode: Mode) -> None:
    draws = 40_000
    if mode == "ticks":
        link = draw_ticks(UNEVEN, 7, draws, seed=0, iterations=0)
    else:
        link, _ = draw_matchings(UNEVEN, 7, draws, seed=0, iteration=0)
    stated = activity(UNEVEN, 7, mode)
    found = np.bincount(link, minlength=len(UNEVEN)) / draws
    assert np.all(np.abs(found - stated) < 5 * np.sqrt(stated * (1 - stated) / draws))


@pytest.mark.parametrize("mode", ["ticks", "matchings"])
def test_one_round_is_a_projection_with_the_stated_mean(mode: Mode) -> None:
    n, draws = 7, 20_000
    if mode == "ticks":
        index = draw_ticks(UNEVEN, n, draws, seed=3, iterations=0)
        each = tick_mixing(n, UNEVEN, index[:, None])
        stated = tick_matrix(UNEVEN, n).toarray()
    else:
        link, turn = draw_matchings(UNEVEN, n, draws, seed=3, iteration=0)
        parts = np.split(link, np.flatnonzero(np.diff(turn)) + 1)
        each = matching_mixing(n, UNEVEN, [(part, np.zeros_like(part)) for part in parts])
        stated = matching_matrix(UNEVEN, n).toarray()
    np.testing.assert_array_equal(np.swapaxes(each, 1, 2) @ each, each)
    # An entry lies in [0, 1]: its standard error is at most .5/√draws.
    np.testing.assert_allclose(each.mean(axis=0), stated, atol=5 * 0.5 / np.sqrt(draws))


@pytest.mark.parametrize("edges", [ring(10), ring(10, (0, 5), (2, 7))], ids=["ring", "quasi-ring"])
@pytest.mark.parametrize("mode", ["ticks", "matchings"])
@pytest.mark.parametrize("guarantee", ["expected", "probability"])
def test_simulated_error_keeps_the_guarantee(
    edges: IntArray, mode: Mode, guarantee: Guarantee
) -> None:
    n, epsilon, repetitions = 10, 0.2, 400
    rounds = rounds_for(epsilon, contraction(edges, n, mode), mode=mode, guarantee=guarantee)
    if mode == "ticks":
        schedule = draw_ticks(edges, n, rounds, seed=1, iterations=np.arange(repetitions))
        mixing, mean = tick_mixing(n, edges, schedule), tick_matrix(edges, n)
    else:
        pairs = [draw_matchings(edges, n, rounds, seed=1, iteration=t) for t in range(repetitions)]
        mixing, mean = matching_mixing(n, edges, pairs), matching_matrix(edges, n)
    worst = np.linalg.eigh(mean.toarray())[1][:, -2]
    error = np.linalg.norm(mixing @ worst, axis=1)
    if guarantee == "expected":
        assert np.sqrt(np.mean(error**2)) <= epsilon
    else:
        assert np.mean(error >= epsilon) <= epsilon


def test_counts_of_the_routes() -> None:
    edges = ring(6)
    ticks = tick_route(edges, [4, 1, 4], 8.0)
    assert (ticks.scheme, ticks.count, ticks.steps, ticks.repeats, ticks.uses) == (
        "gossip",
        6,
        3,
        1,
        3,
    )
    assert ticks.link_index.tolist() == [1, 4]
    np.testing.assert_array_equal(ticks.edges, edges[[1, 4]])
    pairs = (np.array([0, 3, 2], np.int32), np.array([0, 0, 1], np.int32))
    matchings = matching_route(edges, pairs, 8.0)
    assert (matchings.count, matchings.steps, matchings.uses) == (6, 2, 2)
    assert matchings.link_index.tolist() == [0, 2, 3]
    metropolis = metropolis_route(edges, 8.0, 5)
    assert (metropolis.scheme, metropolis.count, metropolis.uses) == ("metropolis", 60, 5)
    sent = sorted((s, r) for k, s, r, _ in metropolis.messages() if k == 0)
    assert sent == sorted((i, j) for i in range(6) for j in ((i - 1) % 6, (i + 1) % 6))
    paper = paper_gossip_route(edges, 8.0, 3)
    assert (paper.scheme, paper.count, paper.uses) == ("gossip", 18, 3)
    np.testing.assert_array_equal(np.bincount(paper.edge) * paper.repeats, np.full(6, 3))


def test_no_exchange_gives_no_matrix() -> None:
    assert matching_mixing(3, ring(3), []).shape == (0, 3, 3)
    np.testing.assert_array_equal(metropolis_mixing(metropolis_weights(ring(3), 3), 0), np.eye(3))


def test_a_device_without_links_is_named() -> None:
    with pytest.raises(ScenarioError, match="device 2 has 0 links"):
        draw_ticks(graph([(0, 1)]), 3, 4, seed=0, iterations=1)
    with pytest.raises(ScenarioError, match="device 2 has 0 links"):
        draw_matchings(graph([(0, 1)]), 3, 4, seed=0, iteration=1)
