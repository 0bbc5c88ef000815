"""The corrected bounds against the gap of real runs, whose expectations are known exactly.

On quadratics with additive noise the parameters of all devices are jointly Gaussian. Their mean
and covariance are propagated instead of sampled, so that no tolerance for Monte Carlo is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.theory.bounds import (
    Constants,
    theorem1_corrected,
    theorem2_corrected,
    theorem2_discounted,
)

Array = NDArray[np.float64]


@dataclass
class Problem:
    """N quadratics ½(w−x_i)ᵀH_i(w−x_i) in d dimensions, gradient noise of variance σ each."""

    hessians: Array  # [N, d, d]
    minima: Array  # [N, d]
    sigma: float
    eta: float

    @property
    def ends(self) -> tuple[float, float]:
        values = np.linalg.eigvalsh(self.hessians)
        return float(values.min()), float(values.max())


@dataclass
class Run:
    """What a run measured: gap, costs of averaging Δ_{i,t}, spreads; and its constants."""

    gap: float
    costs: Array  # [n, N]
    constants: Constants
    spreads: Array  # [n]: mean squared distances from the mean, before each averaging


def random_problem(rng: np.random.Generator, sigma: float) -> Problem:
    devices, d = int(rng.integers(2, 8)), int(rng.integers(1, 4))
    m, M = rng.uniform(0.05, 0.5), rng.uniform(0.5, 3.0)
    hessians = []
    for _ in range(devices):
        basis, _ = np.linalg.qr(rng.normal(size=(d, d)))
        hessians.append(basis @ np.diag(rng.uniform(m, M, d)) @ basis.T)
    minima = rng.normal(size=(devices, d)) * rng.uniform(0.1, 2)
    top = np.linalg.eigvalsh(np.array(hessians)).max()
    return Problem(np.array(hessians), minima, sigma, rng.uniform(0.05, 1.0) / top)


def run(problem: Problem, tau: NDArray[np.int64], start: Array, mixing: Array | None = None) -> Run:
    """Propagate mean [N d] and covariance [N d, N d] through training and averaging.

    ``mixing`` [n, N, N] takes the place of the exact mean after each iteration.
    """
    devices, d = problem.minima.shape
    size = devices * d
    blocks = np.zeros((size, size))
    for i, hessian in enumerate(problem.hessians):
        blocks[i * d : (i + 1) * d, i * d : (i + 1) * d] = hessian
    average = np.kron(np.full((devices, devices), 1 / devices), np.eye(d))
    mean, cov = np.tile(start, devices), np.zeros((size, size))
    noise = problem.sigma / d
    target = problem.minima.ravel()

    def losses() -> Array:
        second = cov + np.outer(mean - target, mean - target)
        return np.asarray(np.diag(blocks @ second).reshape(devices, d).sum(axis=1) / 2)

    def gradient_moments() -> tuple[float, float]:
        """max_i E‖g_i‖² and (1/N)Σ_i E‖g_i − (1/N)Σ_j ∇F_j‖², at the present points."""
        expected, spread = blocks @ (mean - target), blocks @ cov @ blocks
        square = (np.diag(spread) + expected**2).reshape(devices, d).sum(axis=1)
        centred = np.eye(size) - average
        around = np.trace(centred @ spread @ centred.T) + np.sum((centred @ expected) ** 2)
        return float(square.max() + problem.sigma), float(around / devices + problem.sigma)

    first = float(losses().mean())
    moments, costs = [gradient_moments()], []
    spreads = []
    for t, row in enumerate(tau):
        for j in range(row.max()):
            active = np.repeat(row > j, d).astype(float)
            step = np.eye(size) - problem.eta * active[:, None] * blocks
            mean = target + step @ (mean - target)
            cov = step @ cov @ step.T + np.diag(active * problem.eta**2 * noise)
            moments.append(gradient_moments())
        before = losses()
        centred = np.eye(size) - average
        spreads.append((np.trace(centred @ cov) + np.sum((centred @ mean) ** 2)) / devices)
        mix = average if mixing is None else np.kron(mixing[t], np.eye(d))
        mean, cov = mix @ mean, mix @ cov @ mix.T
        moments.append(gradient_moments())
        costs.append(losses() - before)
    m, M = problem.ends
    bound, around = np.max(moments, axis=0)
    constants = Constants(m, M, problem.sigma, bound, float(np.sqrt(around)), first)
    return Run(float(losses().mean()), np.array(costs), constants, np.array(spreads))


def random_rounds(rng: np.random.Generator, devices: int, equal: bool) -> NDArray[np.int64]:
    n, most = int(rng.integers(1, 7)), int(rng.integers(2, 9))
    width = 1 if equal else devices
    tau = rng.integers(1, most, (n, width))
    return np.broadcast_to(tau, (n, devices)).astype(np.int64)


def runs(sigma: float, equal: bool, seed: int) -> list[tuple[Problem, NDArray[np.int64], Run]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(40):
        problem = random_problem(rng, sigma)
        devices, d = problem.minima.shape
        tau = random_rounds(rng, devices, equal)
        found.append((problem, tau, run(problem, tau, 3 * rng.normal(size=(d,)))))
    return found


@pytest.mark.parametrize("sigma", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("equal", [True, False])
def test_corrected_bounds_hold_on_heterogeneous_quadratics(sigma: float, equal: bool) -> None:
    for problem, tau, seen in runs(sigma, equal, seed=int(10 * sigma) + 100 * equal):
        slack = 1 + 1e-9
        assert seen.gap <= theorem1_corrected(tau, seen.constants, problem.eta) * slack
        averaging = theorem2_corrected(tau, seen.constants, problem.eta)
        assert (seen.costs.mean(axis=1) <= averaging * slack).all()


@pytest.mark.parametrize("equal", [True, False])
def test_theorem_1_with_the_true_costs_of_averaging(equal: bool) -> None:
    for problem, tau, seen in runs(0.3, equal, seed=7 + equal):
        known = theorem1_corrected(tau, seen.constants, problem.eta, aggregation=seen.costs)
        assert seen.gap <= known * (1 + 1e-9)


def test_the_cost_of_averaging_cannot_be_left_out() -> None:
    violated = []
    for problem, tau, seen in runs(0.0, True, seed=42):
        without = theorem1_corrected(
            tau, seen.constants, problem.eta, aggregation=np.zeros(tau.shape)
        )
        violated.append(seen.gap > without)
    assert any(violated)


def test_unequal_exponents_need_a_term_of_their_own() -> None:
    # One device trains long first and is hardly discounted; the others train long afterwards. The
    # mean discount times Δ_1 is then less than the true discounted cost of the first averaging.
    problem = Problem(np.full((3, 1, 1), 1e-3), np.zeros((3, 1)), 0.0, 1.0)
    tau = np.array([[30, 1, 1], [1, 3000, 3000]])
    seen = run(problem, tau, np.ones(1))
    discounts = 0.999 ** tau[1].astype(float)
    true = float((discounts * seen.costs[0]).mean())
    averaging = theorem2_corrected(tau, seen.constants, problem.eta)
    assert true > discounts.mean() * averaging[0]
    whole = theorem2_discounted(tau, seen.constants, problem.eta)
    assert true <= whole - averaging[1]  # what is left for the first averaging


def test_identical_quadratics_without_noise_never_pay_for_averaging() -> None:
    rng = np.random.default_rng(2)
    one = random_problem(rng, 0.0)
    devices, d = one.minima.shape
    same = Problem(
        np.repeat(one.hessians[:1], devices, axis=0),
        np.repeat(one.minima[:1], devices, axis=0),
        0.0,
        one.eta,
    )
    seen = run(same, np.full((4, devices), 3), rng.normal(size=(d,)))
    np.testing.assert_allclose(seen.costs, 0.0, atol=1e-12)
    assert seen.constants.divergence == pytest.approx(0.0, abs=1e-6)


def test_moments_agree_with_sampling() -> None:
    rng = np.random.default_rng(6)
    problem = random_problem(rng, 1.0)
    devices, d = problem.minima.shape
    tau = random_rounds(rng, devices, equal=False)
    start = rng.normal(size=(d,))
    gap = run(problem, tau, start).gap
    draws = 40_000
    w = np.broadcast_to(start, (draws, devices, d)).copy()
    for row in tau:
        for j in range(row.max()):
            gradient = np.einsum("ikl,ril->rik", problem.hessians, w - problem.minima)
            gradient += rng.normal(size=w.shape) * np.sqrt(problem.sigma / d)
            w -= problem.eta * gradient * (row > j)[None, :, None]
        w[:] = w.mean(axis=1, keepdims=True)
    offset = w - problem.minima
    sampled = np.einsum("rik,ikl,ril->ri", offset, problem.hessians, offset).mean(axis=1) / 2
    error = sampled.std() / np.sqrt(draws)
    assert abs(sampled.mean() - gap) < 5 * error
