"""Theorems 1 and 2 and Corollary 1 corrected (notes: corrected-theorem-1).

Setting: constant η <= 1/M, every F_i m-strongly convex and M-smooth, unbiased gradients, exact
averaging after each of n iterations. The gap is (1/N) Σ_i E[F_i(w)] − F_i*, with F_i* the *local*
minima: that is the paper's w*, so on unlike data no common model closes it.
"""

from __future__ import annotations

__all__ = [
    "corollary1_corrected",
    "theorem1_corrected",
    "theorem2_corrected",
    "theorem2_discounted",
    "training_spread",
]

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError
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
    """Corrected Theorem 2: what each averaging costs at most, Δ_t, undiscounted.

    (γ/2)δ² + (1/(2γ)+M/2)V_t with Young's γ = η × mean rounds and V_t = η²τ_t²δ² where all
    devices run τ_t rounds (this gives ητ_tδ²(1+Mητ_t/2)), else η²G (1/N)Σ_i τ_{i,t}².

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N].
        constants: the assumptions' constants.
        learning_rate: η.

    Returns:
        Δ_t, [n].

    >>> theorem2_corrected([1, 2], Constants(1.0, 1.0, 0.0, 0.0, 1.0, 1.0), 0.5)
    array([0.625, 1.5  ])
    """
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
    """The aggregation term of Theorem 1, (1/N) Σ_i Σ_t a^{S_{i,t+1}} Δ_{i,t}, at most.

    With weights b_i = a^{S_{i,t+1}} that differ, the common vector that Theorem 2 subtracts from
    the gradients no longer cancels; what it leaves is at most sd(b) √(G V_t) by Cauchy–Schwarz.
    The bound is Σ_t max_i(b_i) Δ_t + sd(b) √(G V_t).

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N].
        constants: the assumptions' constants.
        learning_rate: η <= 1/M.

    Returns:
        The bound; NaN outside its domain.

    >>> theorem2_discounted([1, 2], Constants(1.0, 1.0, 0.0, 0.0, 1.0, 1.0), 0.5)
    1.65625
    """
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
    """Corrected Theorem 1: a^Q D_1 + c(1−a^Q) + Σ_t a^{S_{t+1}} Δ_t, device by device.

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N] (each device has its own exponents).
        constants: the assumptions' constants.
        learning_rate: η <= 1/M.
        aggregation: known costs of averaging, Δ_t [n] (equal rounds) or Δ_{i,t} [n, N]; by
            default they are bounded by corrected Theorem 2.

    Returns:
        The bound on the gap after the last averaging; NaN outside its domain.

    >>> theorem1_corrected([1, 2], Constants(1.0, 1.0, 1.0, 0.0, 0.0, 8.0), 0.5)
    1.21875
    """
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
    """Corrected Corollary 1: rounds Σ_t τ_t after which the gap is at most ε, for δ = 0.

    Linear to a noise ball of size c = σMη/(2m); no rate below it with constant η.

    Args:
        constants: the assumptions' constants.
        learning_rate: η <= 1/M.
        target_gap: ε.

    Returns:
        ln((D_1−c)/(ε−c)) / −ln a, a real number to be rounded up; 0 if the gap is there already;
        NaN if ε is inside the noise ball or η outside its domain.

    >>> round(corollary1_corrected(Constants(1.0, 1.0, 0.0, 0.0, 0.0, 8.0), 0.5, target_gap=1.0), 6)
    3.0
    """
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
