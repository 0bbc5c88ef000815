"""The bound for inexact exchanges and skipped training, on quadratics with exact moments.

Every problem is run with its own sequence of exchanges: none, neighbours, exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import joulemesh
from joulemesh.aggregation.gossip import metropolis_weights
from joulemesh.base.errors import ScenarioError
from joulemesh.theory.bounds import (
    Constants,
    exchange_costs,
    spread_roots,
    theorem1_corrected,
    theorem1_inexact,
    theorem2_corrected,
)
from tests.theory.test_quadratics import Problem, Run, random_problem, run

Array = NDArray[np.float64]
UNIT = Constants(1.0, 1.0, 0.0, 4.0, 1.0, 1.0)


def neighbours(rng: np.random.Generator, devices: int) -> Array:
    """Metropolis weights of a random connected graph, once or twice."""
    tree = [(int(rng.integers(0, j)), j) for j in range(1, devices)]
    more = [(i, j) for j in range(devices) for i in range(j) if rng.random() < 0.3]
    edges = np.array(sorted({*tree, *more}))
    weights = metropolis_weights(edges, devices).toarray()
    return np.linalg.matrix_power(weights, int(rng.integers(1, 3)))


def exchanges(rng: np.random.Generator, n: int, devices: int) -> tuple[Array, Array, Array]:
    """Matrices [n, N, N], their contractions [n], and how far they move devices [n]."""
    mean, kept = np.full((devices, devices), 1 / devices), np.eye(devices)
    matrices, contraction, moved = [], [], []
    for kind in rng.integers(0, 3, n):
        matrix = (kept, mean, neighbours(rng, devices))[kind]
        away = np.linalg.norm(matrix - mean, 2)
        matrices.append(matrix)
        contraction.append((1.0, 0.0, min(1.0, away * (1 + 1e-12)))[kind])
        moved.append(np.linalg.norm(kept - matrix, 2) * (1 + 1e-12))
    return np.array(matrices), np.array(contraction), np.minimum(moved, 2.0)


def random_run(
    seed: int, sigma: float, *, equal: bool
) -> tuple[Problem, NDArray[np.int64], Array, Array, Run]:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, sigma)
    devices, d = problem.minima.shape
    n = int(rng.integers(1, 9))
    tau = rng.integers(0, int(rng.integers(1, 6)) + 1, (n, 1 if equal else devices))
    tau = np.broadcast_to(tau, (n, devices)).astype(np.int64)
    matrices, contraction, moved = exchanges(rng, n, devices)
    seen = run(problem, tau, 3 * rng.normal(size=(d,)), matrices)
    return problem, tau, contraction, moved, seen


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_bound_holds_on_heterogeneous_quadratics(seed: int, sigma: float, equal: bool) -> None:
    problem, tau, contraction, moved, seen = random_run(seed, sigma, equal=equal)
    known, eta = seen.constants, problem.eta
    roots = spread_roots(tau, contraction, known, eta)
    assert (np.sqrt(np.maximum(seen.spreads, 0)) <= roots * (1 + 1e-9) + 1e-7).all()
    for figure in (None, moved):
        costs = exchange_costs(tau, contraction, known, eta, moved=figure)
        assert (seen.costs.mean(axis=1) <= costs * (1 + 1e-9) + 1e-9).all()
        bound = theorem1_inexact(tau, contraction, known, eta, moved=figure)
        assert seen.gap <= bound * (1 + 1e-9)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_mean_model_is_bounded_by_one_more_exact_exchange(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 0.3)
    devices, d = problem.minima.shape
    n = int(rng.integers(1, 5))
    matrices, contraction, _ = exchanges(rng, n, devices)
    tau = np.vstack([rng.integers(0, 4, (n, devices)), np.zeros((1, devices), int)])
    last = np.full((1, devices, devices), 1 / devices)
    seen = run(problem, tau, rng.normal(size=(d,)), np.concatenate([matrices, last]))
    bound = theorem1_inexact(tau, [*contraction, 0.0], seen.constants, problem.eta)
    assert seen.gap <= bound * (1 + 1e-9)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.integers(0, 1))
@settings(max_examples=100, deadline=None)
def test_with_exact_exchanges_it_is_corrected_theorem_1(seed: int, equal: bool, least: int) -> None:
    rng = np.random.default_rng(seed)
    m, eta = rng.uniform(0.05, 1.0), rng.uniform(0.01, 0.5)
    known = Constants(m, 2.0, *rng.uniform(0, 3, 4))
    tau = rng.integers(least, 6, (int(rng.integers(1, 8)), 1 if equal else 4))
    exact = theorem1_inexact(tau, 0.0, known, eta)
    assert exact == pytest.approx(theorem1_corrected(tau, known, eta), rel=1e-12)
    costs = exchange_costs(tau, 0.0, known, eta)
    np.testing.assert_allclose(costs, theorem2_corrected(tau, known, eta), rtol=1e-12)


def test_by_hand() -> None:
    # η = ½, δ = 1: a round adds ½. Half of the spread is left, then all of it, then nothing.
    tau, contraction = [1, 2, 0, 1], [0.5, 1.0, 0.0, 0.0]
    roots = spread_roots(tau, contraction, UNIT, 0.5)
    assert roots.tolist() == [0.5, 1.25, 1.25, 0.5]
    costs = exchange_costs(tau, contraction, UNIT, 0.5)
    # κ = 1.5: 0.75 + 0.75²/2. No exchange: 0. Exact, of spread devices: 1.25 + 1.25²/2.
    # Exact, of devices that began alike: ½·½ + ½·½ + ½·¼.
    assert costs == pytest.approx([1.03125, 0.0, 2.03125, 0.625])
    # a = ½ and one exponent for all devices: 2^-3, 2^-1, 2^-1 and 1 times these.
    whole = 1 / 16 + 1.03125 / 8 + 0.0 / 2 + 2.03125 / 2 + 0.625
    assert theorem1_inexact(tau, contraction, UNIT, 0.5) == pytest.approx(whole)


def test_the_spread_of_earlier_iterations_cannot_be_left_out() -> None:
    problem = Problem(np.ones((2, 1, 1)), np.array([[-1.0], [1.0]]), 0.0, 0.2)
    tau = np.full((4, 2), 1)
    seen = run(problem, tau, np.zeros(1), np.tile(np.eye(2), (4, 1, 1)))
    alone = spread_roots(tau, 0.0, seen.constants, problem.eta)
    assert (np.sqrt(seen.spreads) > alone * 1.5).any()
    carried = spread_roots(tau, 1.0, seen.constants, problem.eta)
    assert (np.sqrt(seen.spreads) <= carried * (1 + 1e-12)).all()


def test_less_contraction_is_never_better() -> None:
    tau = [[1, 3], [0, 2], [2, 0]]
    found = [theorem1_inexact(tau, one, UNIT, 0.3, moved=1.0) for one in np.linspace(0.1, 1, 10)]
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize(
    ("contraction", "moved"), [(1.5, None), (-0.1, None), ([0.5], None), (0.5, 2.5), (np.nan, None)]
)
def test_what_cannot_be_a_contraction_is_refused(contraction: Any, moved: float | None) -> None:
    with pytest.raises(ScenarioError, match=r"must be numbers in \[0, [12]\], one for all"):
        theorem1_inexact([1, 2], contraction, UNIT, 0.5, moved=moved)


def test_outside_its_domain_it_says_nothing() -> None:
    assert np.isnan(theorem1_inexact([1, 2], 0.5, UNIT, 1.5))


NEIGHBOURS = {
    "network.topology": "ring",
    "plan.aggregation": "metropolis",
    "plan.gossip_rounds": 2,
    "budget.deadline_s": 1.0,
}
FADING = {
    "network.fading": "rayleigh",
    "network.channel_known": False,
    "plan.fade_quantile": 0.3,
    "budget.deadline_s": 0.031,
}


@pytest.mark.parametrize(
    ("changes", "inexact"),
    [
        (NEIGHBOURS, True),
        (FADING, True),
        ({"plan.aggregation": "tree"}, False),
    ],
    ids=["neighbours", "skipped", "exact"],
)
def test_a_plan_is_bounded_with_its_own_exchanges(changes: dict[str, Any], inexact: bool) -> None:
    known = {"strong_convexity": 0.1, "smoothness": 2.0, "gradient_variance": 0.5}
    known |= {"gradient_bound": 4.0, "divergence": 1.0, "initial_gap": 2.0}
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "network.topology": "complete",
            "plan.iterations": 20,
            "budget.energy_j": 100.0,
            "plan.aggregation": "tree",
            **{f"bounds.{name}": value for name, value in known.items()},
            **changes,
        }
    )
    plan = joulemesh.plan(scenario)
    left, constants = plan.timeline.contraction, Constants(**known)
    assert left.shape == (20,)
    assert (left[~plan.exchanged] == 1).all()
    assert left.any() == inexact
    assert plan.bounds is not None
    found, rate = plan.bounds["theorem1_corrected"], scenario.training.learning_rate
    assert found == pytest.approx(theorem1_inexact(plan.rounds, left, constants, rate), rel=1e-12)
    assert (found > theorem1_corrected(plan.rounds, constants, rate) * (1 + 1e-9)) == inexact
