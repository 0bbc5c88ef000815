"""Theorems 1 and 2 and Corollary 1 corrected (notes: corrected-theorem-1).

Setting: constant η <= 1/M, every F_i m-strongly convex and M-smooth, unbiased gradients, exact
averaging after each of n iterations. The gap is (1/N) Σ_i E[F_i(w)] − F_i*, with F_i* the *local*
minima: that is the paper's w*, so on unlike data no common model closes it.
"""

from __future__ import annotations

__all__ = [
    "corollary1_corrected",
    "exchange_costs",
    "spread_roots",
    "theorem1_corrected",
    "theorem1_inexact",
    "theorem2_corrected",
    "theorem2_discounted",
    "training_spread",
]

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.theory import terms
from joulemesh.theory.terms import (
    Constants,
    columns,
    contraction,
    noise_ball,
    outside_domain,
    suffix_sums,
)


def training_spread(
    values: NDArray[np.float64], constants: Constants, learning_rate: float
) -> NDArray[np.float64]:
    """Bound [n] on (1/N) Σ_i E‖w̃_i − w̄‖²: by δ² where all devices run alike, else by G."""
    alike = (values == values[:, :1]).all(axis=1)
    square = np.where(alike, constants.divergence * constants.divergence, constants.gradient_bound)
    return np.asarray(learning_rate * learning_rate * square * (values**2).mean(axis=1))


def theorem2_corrected(
    rounds: ArrayLike, constants: Constants, learning_rate: float
) -> NDArray[np.float64]:
    """Corrected Theorem 2: what each averaging costs at most, Δ_t, undiscounted."""
    # (γ/2)δ² + (1/(2γ)+M/2)V_t with Young's γ = η × mean rounds and V_t = η²τ_t²δ² where all
    # devices run τ_t rounds (this gives ητ_tδ²(1+Mητ_t/2)), else η²G (1/N)Σ_i τ_{i,t}².
    values = columns(rounds)
    spread = training_spread(values, constants, learning_rate)
    gamma = learning_rate * values.mean(axis=1)
    # Nobody trains, nothing moves: the limit of both terms is 0.
    share = np.divide(spread, 2 * gamma, out=np.zeros_like(spread), where=gamma > 0)
    return np.asarray(
        gamma * constants.divergence * constants.divergence / 2
        + share
        + constants.smoothness * spread / 2
    )


def theorem2_discounted(rounds: ArrayLike, constants: Constants, learning_rate: float) -> float:
    """The aggregation term of Theorem 1, (1/N) Σ_i Σ_t a^{S_{i,t+1}} Δ_{i,t}, at most."""
    # With weights b_i = a^{S_{i,t+1}} that differ, the common vector that Theorem 2 subtracts from
    # the gradients no longer cancels; what it leaves is at most sd(b) √(G V_t) by Cauchy–Schwarz.
    # The bound is Σ_t max_i(b_i) Δ_t + sd(b) √(G V_t).
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    weights = contraction(constants, learning_rate) ** suffix_sums(values)[1:]
    spread = training_spread(values, constants, learning_rate)
    cost = theorem2_corrected(values, constants, learning_rate)
    uneven = weights.std(axis=1) * np.sqrt(constants.gradient_bound * spread)
    return float((weights.max(axis=1) * cost + uneven).sum())


def theorem1_corrected(
    rounds: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    aggregation: ArrayLike | None = None,
) -> float:
    """Corrected Theorem 1: a^Q D_1 + c(1−a^Q) + Σ_t a^{S_{t+1}} Δ_t, device by device."""
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    a = contraction(constants, learning_rate)
    ball = noise_ball(constants, learning_rate)
    left = a ** values.sum(axis=0)
    if aggregation is None:
        averaging = theorem2_discounted(values, constants, learning_rate)
    else:
        costs = _costs(aggregation, values)
        averaging = float((a ** suffix_sums(values)[1:] * costs).sum(axis=0).mean())
    # Only the mean of the initial gaps is known, so the slowest device's factor must do for all.
    return float(left.max() * constants.initial_gap + ball * (1 - left).mean() + averaging)


def _costs(aggregation: ArrayLike, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Known costs of averaging in a shape that fits the rounds."""
    costs = np.asarray(aggregation, dtype=np.float64)
    if costs.shape == values.shape:
        return costs
    if costs.shape == values.shape[:1] and (values == values[:, :1]).all():
        return costs[:, None]
    raise ScenarioError(
        f"costs of averaging of shape {costs.shape} do not fit rounds {values.shape}; give [n] for "
        "equal rounds, else [n, N]"
    )


def corollary1_corrected(constants: Constants, learning_rate: float, *, target_gap: float) -> float:
    """Corrected Corollary 1: rounds Σ_t τ_t after which the gap is at most ε, for δ = 0."""
    # Linear to a noise ball of size c = σMη/(2m); no rate below it with constant η.
    if outside_domain(constants, learning_rate, printed=False) or math.isnan(target_gap):
        return math.nan
    ball = noise_ball(constants, learning_rate)
    if target_gap >= constants.initial_gap:
        return 0.0
    if target_gap <= ball:
        return math.nan
    a = contraction(constants, learning_rate)
    if a <= 0:
        return 1.0
    return math.log((constants.initial_gap - ball) / (target_gap - ball)) / -math.log(a)


Floats = NDArray[np.float64]


def _per_iteration(values: ArrayLike, name: str, most: float, iterations: int) -> Floats:
    """One figure in [0, most] for each iteration, from one for all or from [n]."""
    given = np.asarray(values, dtype=np.float64)
    if given.shape not in ((), (iterations,)) or not ((given >= 0) & (given <= most)).all():
        raise ScenarioError(
            f"{name} must be numbers in [0, {most:g}], one for all or for each of the "
            f"{iterations} iterations"
        )
    return np.broadcast_to(given, iterations)


def _moved(contraction: Floats, moved: ArrayLike | None) -> Floats:
    """κ_t >= ‖I − W_t‖: how far an exchange moves a device, in distances from the mean."""
    if moved is not None:
        return _per_iteration(moved, "moved", 2.0, len(contraction))
    between = np.where(contraction == 1, 0.0, 1 + contraction)
    return np.where(contraction == 0, 1.0, between)


def spread_roots(
    rounds: ArrayLike, contraction: ArrayLike, constants: Constants, learning_rate: float
) -> Floats:
    """Root of V_t, the mean squared distance from the mean before each exchange, at most."""
    # √V_t <= λ_{t−1} √V_{t−1} + √P_t, with P_t what the rounds of the iteration add: η²τ_t²δ² where
    # all devices run τ_t rounds, else η²G (1/N)Σ_i τ_{i,t}².
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    added = np.sqrt(training_spread(values, constants, learning_rate))
    roots, carried = np.empty(len(values)), 0.0
    for t, (own, factor) in enumerate(zip(added, factors, strict=True)):
        roots[t] = carried + own
        carried = factor * roots[t]
    return roots


def exchange_costs(
    rounds: ArrayLike,
    contraction: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    moved: ArrayLike | None = None,
) -> Floats:
    """What each exchange costs at most, Δ_t, undiscounted: δκ_t√V_t + (M/2)κ_t²V_t."""
    # For an exact mean of devices that began the iteration alike, it is that of corrected Theorem
    # 2, whose γ is η times the mean rounds.
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    roots = spread_roots(values, factors, constants, learning_rate)
    moves = _moved(factors, moved) * roots
    divergence = constants.divergence
    costs = divergence * moves + constants.smoothness * moves**2 / 2
    # The same γ as in Theorem 2, though another may be better where rounds are unequal.
    gamma = learning_rate * values.mean(axis=1)
    alike = np.concatenate([[True], factors[:-1] * roots[:-1] == 0])
    as_before = alike & (factors == 0) & (gamma > 0) & (moves == roots)
    young = np.divide(moves**2, 2 * gamma, out=np.zeros_like(moves), where=gamma > 0)
    known = gamma * divergence * divergence / 2 + young + constants.smoothness * moves**2 / 2
    return np.where(as_before, known, costs)


def theorem1_inexact(
    rounds: ArrayLike,
    contraction: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    moved: ArrayLike | None = None,
) -> float:
    """The gap of the devices' own models after the last exchange, at most."""
    # a^Q D_1 + c(1−a^Q) + Σ_t max_i(b_{i,t}) Δ_t + sd(b_t) κ_t √(G V_t), with b_{i,t} =
    # a^{S_{i,t+1}} and Q and S device by device. Where every exchange is an exact mean it is
    # corrected Theorem 1. For the gap of the mean model, add an iteration without rounds and with
    # an exact exchange.
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    a = terms.contraction(constants, learning_rate)
    weights = a ** suffix_sums(values)[1:]
    roots = spread_roots(values, factors, constants, learning_rate)
    costs = exchange_costs(values, factors, constants, learning_rate, moved=moved)
    uneven = weights.std(axis=1) * _moved(factors, moved) * roots
    exchanges = weights.max(axis=1) * costs + math.sqrt(constants.gradient_bound) * uneven
    left = a ** values.sum(axis=0)
    ball = noise_ball(constants, learning_rate)
    return float(left.max() * constants.initial_gap + ball * (1 - left).mean() + exchanges.sum())
