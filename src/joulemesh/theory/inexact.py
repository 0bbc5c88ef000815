"""Theorem 1 where exchanges average inexactly or not at all, and devices skip training.

See notes: inexact-exchanges. In iteration t device i trains τ_{i,t} >= 0 rounds; the exchange then
multiplies the parameters by a symmetric doubly stochastic matrix W_t. All that the bound knows of
it is its contraction λ_t, the factor by which it shrinks the distance from the mean.
"""

from __future__ import annotations

__all__ = ["exchange_costs", "spread_roots", "theorem1_inexact"]

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError
from joulemesh.theory import terms
from joulemesh.theory.corrected import training_spread
from joulemesh.theory.terms import Constants, columns, noise_ball, outside_domain, suffix_sums

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
    """Root of V_t, the mean squared distance from the mean before each exchange, at most.

    √V_t <= λ_{t−1} √V_{t−1} + √P_t, with P_t what the rounds of the iteration add: η²τ_t²δ² where
    all devices run τ_t rounds, else η²G (1/N)Σ_i τ_{i,t}².

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N]; 0 where a device does not train.
        contraction: λ, one for all exchanges or [n]: 0 for an exact mean, 1 for no exchange.
        constants: the assumptions' constants.
        learning_rate: η.

    Returns:
        float64 [n].

    >>> spread_roots([2, 0, 2], [0.5, 0.5, 0.0], Constants(1.0, 1.0, 0.0, 0.0, 1.0, 1.0), 0.5)
    array([1.  , 0.5 , 1.25])
    """
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
    """What each exchange costs at most, Δ_t, undiscounted: δκ_t√V_t + (M/2)κ_t²V_t.

    For an exact mean of devices that began the iteration alike, it is that of corrected Theorem 2,
    whose γ is η times the mean rounds.

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N]; 0 where a device does not train.
        contraction: λ, one for all exchanges or [n]: 0 for an exact mean, 1 for no exchange.
        constants: the assumptions' constants.
        learning_rate: η.
        moved: κ, at least ‖I − W_t‖, one for all or [n], if it is known: 1 if no eigenvalue of W_t
            is negative. By default 1 for an exact mean, 0 for no exchange, and otherwise 1 + λ_t.

    Returns:
        float64 [n].

    >>> exchange_costs([1, 2], [1.0, 0.0], Constants(1.0, 1.0, 0.0, 0.0, 1.0, 1.0), 0.5)
    array([0.   , 2.625])
    """
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
    """The gap of the devices' own models after the last exchange, at most.

    a^Q D_1 + c(1−a^Q) + Σ_t max_i(b_{i,t}) Δ_t + sd(b_t) κ_t √(G V_t), with b_{i,t} = a^{S_{i,t+1}}
    and Q and S device by device. Where every exchange is an exact mean it is corrected Theorem 1.
    For the gap of the mean model, add an iteration without rounds and with an exact exchange.

    Args:
        rounds: τ, [n] (equal on all devices) or [n, N]; 0 where a device does not train.
        contraction: λ, one for all exchanges or [n]: 0 for an exact mean, 1 for no exchange.
        constants: the assumptions' constants.
        learning_rate: η <= 1/M.
        moved: κ, at least ‖I − W_t‖, if it is known; see `exchange_costs`.

    Returns:
        The bound; NaN outside its domain.

    >>> known = Constants(1.0, 1.0, 1.0, 1.0, 1.0, 8.0)
    >>> [round(theorem1_inexact([[1, 0], [2, 2]], one, known, 0.5), 4) for one in (0.0, 0.5)]
    [3.8125, 5.6939]
    """
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
