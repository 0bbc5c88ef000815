"""Theorems 1 and 2 and Corollary 1 as the paper prints them, for comparison only.

Their errors are listed (notes: printed-bounds); the statements to rely on are in
``corrected``. The printed T is n+1.
"""

from __future__ import annotations

__all__ = [
    "corollary1_printed",
    "phi_printed",
    "theorem1_printed",
    "theorem2_limit_printed",
    "theorem2_printed",
]

import math

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.theory.terms import (
    Constants,
    columns,
    contraction,
    noise_ball,
    outside_domain,
    suffix_sums,
)

_PI2_12 = math.pi**2 / 12


def theorem1_printed(
    rounds: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    aggregation: float = 0.0,
    literal_index: bool = True,
) -> float:
    """Eq. `gap1`: aggregation + A_1 + A_2, as printed."""
    if outside_domain(constants, learning_rate, printed=True):
        return math.nan
    values = columns(rounds)
    a = contraction(constants, learning_rate)
    left = np.arange(len(values), 0, -1.0)[:, None]  # terms from t = j to T−1
    exponents = left * values if literal_index else suffix_sums(values)[:-1]
    noise = noise_ball(constants, learning_rate) * (1 + (a**exponents).sum(axis=0))
    whole = a ** values.sum(axis=0) * constants.initial_gap
    return float(aggregation + (whole + noise).mean())


def phi_printed(devices: int, parameters: int) -> float:
    """The printed φ(N) = (k/N)(N−1)(2N−1) of eq. `p114`; the norm it stands for is 1."""
    return parameters * (devices - 1) * (2 * devices - 1) / devices


def theorem2_printed(
    iterations: int,
    devices: int,
    parameters: int,
    constants: Constants,
    learning_rate: float | None = None,
) -> float:
    """Eq. `gap2`: h(δ_m, N, T) with T = n+1, as printed."""
    M, delta = constants.smoothness, constants.divergence
    eta = 1 / (M * (iterations + 1) ** 4) if learning_rate is None else learning_rate
    if not eta > 0:
        return math.nan
    phi = phi_printed(devices, parameters)
    noise = constants.gradient_variance * (1 + (eta + delta * math.sqrt(eta)) * M) * phi
    norm = delta * delta + constants.gradient_bound
    bracket = norm * norm + noise  # products overflow to infinity where powers would raise
    return _PI2_12 / math.sqrt(M) * (math.sqrt(eta) * bracket + delta * phi)


def theorem2_limit_printed(devices: int, parameters: int, constants: Constants) -> float:
    """Eq. `gap3`: π²δ_mφ(N)/(12√M), the printed limit."""
    phi = phi_printed(devices, parameters)
    return _PI2_12 * constants.divergence * phi / math.sqrt(constants.smoothness)


def corollary1_printed(
    constants: Constants,
    learning_rate: float,
    *,
    devices: int,
    parameters: int,
    target_gap: float,
) -> float:
    """Eq. `rate`: the T that the paper says suffices for a gap of ε, stated for δ_m = 0."""
    if outside_domain(constants, learning_rate, printed=True) or not target_gap > 0:
        return math.nan
    m, M, sigma = constants.strong_convexity, constants.smoothness, constants.gradient_variance
    noise = sigma * phi_printed(devices, parameters)
    a = contraction(constants, learning_rate)
    descent = constants.initial_gap / -math.log(a) if a > 0 else 0.0
    first = _PI2_12 * (constants.gradient_bound * constants.gradient_bound + noise) / M
    return 1 + (first + _PI2_12 * noise / M + sigma / (2 * m) + descent) / target_gap
