from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence

from joulemesh.aggregation import gossip
from joulemesh.aggregation.gossip import (
    Mode,
    activity,
    contraction,
    error_after,
    matching_matrix,
    metropolis_weights,
    paper_rounds,
    rounds_for,
    second_eigenvalue,
    tick_matrix,
)
from joulemesh.aggregation.route import IntArray
from joulemesh.base.errors import InfeasibleError, ScenarioError

MODES: tuple[Mode, ...] = ("ticks", "matchings", "metropolis")


def graph(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(sorted({(min(i, j), max(i, j)) for i, j in pairs}), np.int64).reshape(-1, 2)


def ring(n: int, *chords: tuple[int, int]) -> IntArray:
    return graph([(i, (i + 1) % n) for i in range(n)] + list(chords))


def ladder(n: int) -> IntArray:
    rungs = [(2 * r, 2 * r + 1) for r in range(n // 2)]
    sides = [(2 * r + c, 2 * r + 2 + c) for r in range(n // 2 - 1) for c in (0, 1)]
    return graph(rungs + sides)


def complete(n: int) -> IntArray:
    return graph(list(combinations(range(n), 2)))


@st.composite
def connected_graphs(draw: st.DrawFn) -> tuple[IntArray, int]:
    """A random tree plus some more links."""
    n = draw(st.integers(2, 14))
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, n)]
    more = draw(st.lists(st.sampled_from(list(combinations(range(n), 2))), max_size=12))
    return graph(tree + more), n


# N, links, λ₂ of ticks, Boyd's bounds on the ticks (ε = .05 lower and upper, ε = .06 upper),
# Metropolis ζ and its rounds (ε = .05, .06).
TABLE = [
    (10, ring(10), 0.98090, (78, 466, 438), 0.8727, (22, 21)),
    (10, ring(10, (0, 5), (2, 7)), 0.97251, (54, 322, 303), 0.8257, (16, 15)),
    (10, ladder(10), 0.98654, (111, 663, 623), 0.9045, (30, 29)),
    (10, complete(10), 0.88889, (13, 76, 72), 0.0, (1, 1)),
    (20, ring(20), 0.99755, (611, 3668, 3445), 0.9674, (91, 85)),
    (20, ring(20, (0, 10), (5, 15)), 0.99433, (264, 1581, 1485), 0.9263, (40, 37)),
    (20, ladder(20), 0.99836, (910, 5463, 5130), 0.9755, (121, 114)),
    (20, complete(20), 0.94737, (28, 166, 156), 0.0, (1, 1)),
    (50, ring(50), 0.99984, (9497, 56983, 53515), 0.9947, (569, 534)),
    (50, ladder(50), 0.99989, (14239, 85433, 80234), 0.9961, (759, 713)),
]


@pytest.mark.parametrize(("n", "edges", "lambda2", "ticks", "zeta", "rounds"), TABLE)
def test_table_of_known_values(
    n: int,
    edges: IntArray,
    lambda2: float,
    ticks: tuple[int, int, int],
    zeta: float,
    rounds: tuple[int, int],
) -> None:
    found = contraction(edges, n, "ticks")
    assert round(found, 5) == lambda2
    # The table rounds Boyd's bounds to the nearest tick; the library rounds up.
    exact = [
        c * math.log(1 / eps) / -math.log(found) for c, eps in ((0.5, 0.05), (3, 0.05), (3, 0.06))
    ]
    assert tuple(round(x) for x in exact) == ticks
    for eps, x in ((0.05, exact[1]), (0.06, exact[2])):
        assert rounds_for(eps, found, mode="ticks", guarantee="probability") == math.ceil(x)
        assert rounds_for(eps, found, mode="ticks") == math.ceil(x * 2 / 3)
    weights = contraction(edges, n, "metropolis")
    assert round(weights, 4) == zeta
    assert tuple(rounds_for(eps, weights, mode="metropolis") for eps in (0.05, 0.06)) == rounds


def test_ring_in_closed_form() -> None:
    expected = 1 / 3 + 2 / 3 * math.cos(math.radians(36))
    assert contraction(ring(10), 10, "metropolis") == pytest.approx(expected, abs=1e-13)
    # Degrees are 2, so each link is in a matching one time in three: W̄ = I − L/6.
    expected = 1 - (2 - 2 * math.cos(math.radians(36))) / 6
    assert contraction(ring(10), 10, "matchings") == pytest.approx(expected, abs=1e-13)


def test_tick_matrix_is_boyds() -> None:
    edges, n = ring(7, (0, 3), (1, 3)), 7
    adjacent = np.zeros((n, n))
    adjacent[edges[:, 0], edges[:, 1]] = adjacent[edges[:, 1], edges[:, 0]] = 1.0
    p = adjacent / adjacent.sum(axis=1, keepdims=True)
    boyd = np.eye(n) - np.diag((p + p.T).sum(axis=1)) / (2 * n) + (p + p.T) / (2 * n)
    np.testing.assert_allclose(tick_matrix(edges, n).toarray(), boyd, atol=1e-15)


@settings(max_examples=60, deadline=None)
@given(connected_graphs())
def test_matrices_are_doubly_stochastic_and_contract(case: tuple[IntArray, int]) -> None:
    edges, n = case
    linked = np.eye(n, dtype=bool)
    linked[edges[:, 0], edges[:, 1]] = linked[edges[:, 1], edges[:, 0]] = True
    for make in (tick_matrix, matching_matrix, metropolis_weights):
        dense = make(edges, n).toarray()
        np.testing.assert_array_equal(dense, dense.T)
        np.testing.assert_allclose(dense.sum(axis=0), 1.0, atol=1e-14)
        assert dense.min() >= 0.0
        assert not np.any(dense[~linked])
        assert 0.0 <= second_eigenvalue(make(edges, n)) < 1.0
    assert activity(edges, n, "ticks").sum() == pytest.approx(1.0)
    assert activity(edges, n, "matchings").max() <= 1.0


@settings(max_examples=30, deadline=None)
@given(connected_graphs(), st.integers(0, 2**32 - 1), st.integers(0, 9))
def test_metropolis_error_is_within_its_bound(
    case: tuple[IntArray, int], seed: int, rounds: int
) -> None:
    edges, n = case
    start = np.random.default_rng(seed).standard_normal(n)
    start -= start.mean()
    end = np.linalg.matrix_power(metropolis_weights(edges, n).toarray(), rounds) @ start
    bound = float(error_after(rounds, contraction(edges, n, "metropolis"), "metropolis"))
    assert np.linalg.norm(end) <= (bound + 1e-9) * np.linalg.norm(start)


@settings(max_examples=80, deadline=None)
@given(
    st.floats(1e-6, 0.99),
    st.floats(0.0, 0.999),
    st.sampled_from(MODES),
)
def test_rounds_are_the_first_that_suffice(epsilon: float, factor: float, mode: Mode) -> None:
    rounds = rounds_for(epsilon, factor, mode=mode)
    assert error_after(rounds, factor, mode) <= epsilon * (1 + 1e-9)
    if rounds > 1:
        assert error_after(rounds - 1, factor, mode) > epsilon * (1 - 1e-9)


def test_rounds_by_hand() -> None:
    assert rounds_for(0.25, 0.5, mode="metropolis") == 2
    assert rounds_for(0.125, 0.5, mode="metropolis") == 3
    assert rounds_for(0.25, 0.5, mode="ticks") == 4
    assert rounds_for(0.25, 0.5, mode="matchings", guarantee="probability") == 6
    assert rounds_for(0.05, 0.0, mode="metropolis") == 1
    assert [paper_rounds(e) for e in (0.05, 0.06, 0.01, 0.9)] == [3, 3, 5, 1]
    assert error_after(3, 0.5, "metropolis") == 0.125
    assert error_after(4, 0.25, "matchings") == 0.0625


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_epsilon_outside_its_range_is_refused(epsilon: float) -> None:
    with pytest.raises(ScenarioError, match="write a number between 0 and 1"):
        rounds_for(epsilon, 0.5, mode="ticks")
    with pytest.raises(ScenarioError, match="write a number between 0 and 1"):
        paper_rounds(epsilon)


@pytest.mark.parametrize("n", [6, 640])
def test_gossip_on_a_graph_in_two_parts_is_refused(n: int) -> None:
    half = n // 2
    one = [(i, (i + 1) % half) for i in range(half)]
    edges = graph(one + [(half + i, half + j) for i, j in one])
    for mode in MODES:
        assert contraction(edges, n, mode) == 1.0
        with pytest.raises(InfeasibleError, match="connect the graph"):
            rounds_for(0.05, 1.0, mode=mode)


def test_a_device_without_links_is_named() -> None:
    with pytest.raises(ScenarioError, match="device 2 has 0 links"):
        activity(graph([(0, 1)]), 3, "ticks")


def test_one_device_agrees_with_itself() -> None:
    none = np.empty((0, 2), np.int64)
    assert [contraction(none, 1, mode) for mode in MODES] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("n", [601, 2000])
def test_large_rings_in_closed_form(n: int) -> None:
    edges, angle = ring(n), 2 * math.pi / n
    gap = 1 - math.cos(angle)
    assert 1 - contraction(edges, n, "metropolis") == pytest.approx(2 / 3 * gap, rel=1e-6)
    assert 1 - contraction(edges, n, "ticks") == pytest.approx(gap / n, rel=1e-6)


def test_large_bipartite_graph_is_ruled_by_the_other_end() -> None:
    n = 700
    edges = graph([(i, 350 + j) for i in range(350) for j in range(350)])
    assert contraction(edges, n, "metropolis") == pytest.approx(349 / 351, abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(connected_graphs(), st.sampled_from([tick_matrix, matching_matrix, metropolis_weights]))
def test_sparse_ways_equal_all_eigenvalues(case: tuple[IntArray, int], make: object) -> None:
    edges, n = case
    if n < 4:
        return
    matrix = make(edges, n)  # type: ignore[operator]
    assert gossip._sparse_second(matrix) == pytest.approx(second_eigenvalue(matrix), abs=1e-9)


def test_second_way_out_and_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip, "_largest", lambda matrix: None)
    weights = metropolis_weights(ring(40), 40)
    assert gossip._sparse_second(weights) == pytest.approx(second_eigenvalue(weights), abs=1e-10)
    # On K₅,₅ the negative end rules; Gershgorin's bound happens to be exact there.
    weights = metropolis_weights(graph([(i, 5 + j) for i in range(5) for j in range(5)]), 10)
    assert gossip._sparse_second(weights) == pytest.approx(4 / 6, abs=1e-10)


def test_a_gap_that_is_not_found_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise ArpackNoConvergence("no", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr(gossip, "eigsh", never)
    with pytest.raises(InfeasibleError, match="601 devices was not found"):
        contraction(ring(601), 601, "ticks")


def _wheel(n: int) -> list[tuple[int, int]]:
    return [(0, i) for i in range(1, n)] + [(i, i + 1) for i in range(1, n - 1)] + [(1, n - 1)]


def _clique(first: int, size: int) -> list[tuple[int, int]]:
    return [(first + i, first + j) for i in range(size) for j in range(i + 1, size)]


def _path(first: int, last: int) -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(first, last)]


# Dense parts and long tails, clustered eigenvalues and tiny gaps: what iterations find hard.
HARD: dict[str, Callable[[int], list[tuple[int, int]]]] = {
    "wheel": _wheel,
    "star": lambda n: [(0, i) for i in range(1, n)],
    "path": lambda n: _path(0, n - 1),
    "lollipop": lambda n: _clique(0, n // 2) + _path(n // 2 - 1, n - 1),
    "barbell": lambda n: (
        _clique(0, n // 3) + _path(n // 3 - 1, n - n // 3) + _clique(n - n // 3, n // 3)
    ),
}
MATRICES: dict[str, Callable[..., Any]] = {
    "ticks": tick_matrix,
    "matchings": matching_matrix,
    "metropolis": metropolis_weights,
}


@pytest.mark.parametrize("devices", [601, 800])
@pytest.mark.parametrize("mode", MATRICES)
@pytest.mark.parametrize("name", HARD)
def test_the_gap_of_hard_graphs_is_that_of_all_eigenvalues(
    name: str, mode: str, devices: int
) -> None:
    """Beyond 600 devices the gap is found without the other eigenvalues."""
    edges = np.array(sorted(HARD[name](devices)))
    matrix = MATRICES[mode](edges, devices)
    values = np.linalg.eigvalsh(matrix.toarray())
    gap = 1.0 - max(abs(values[0]), abs(values[-2]))
    # Near 1 a float64 has 16 digits, so that of a gap of 1e-9 no more than 7 are known.
    assert 1.0 - second_eigenvalue(matrix) == pytest.approx(gap, rel=1e-7, abs=1e-14)
    assert gap > 0


def test_a_wheel_of_thousands_has_a_gap() -> None:
    """On the rim a cosine is an eigenvector: its gap is hub + 2 rim (1 - cos 2π/(n - 1))."""
    n = 5000
    hub, rim = (1 / (n - 1) + 1 / 3) / (2 * n), (2 / 3) / (2 * n)
    gap = hub + 2 * rim * (1 - math.cos(2 * math.pi / (n - 1)))
    found = second_eigenvalue(tick_matrix(np.array(sorted(_wheel(n))), n))
    assert 1.0 - found == pytest.approx(gap, rel=1e-8)
