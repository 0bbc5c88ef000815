"""How fast gossip agrees: its matrices, their second eigenvalue, and the gossip rounds that follow.

Three kinds of gossip, named by ``mode``:

* ``ticks``: at each tick one device, uniformly drawn, and one of its neighbours take the mean of
  their two models (the asynchronous model of Boyd, Ghosh, Prabhakar, Shah, "Randomized gossip
  algorithms", IEEE T-IT 52(6), 2006);
* ``matchings``: in each gossip round every link draws a priority, and the ends of the links that
  come before all links that touch them take their mean, at once: nobody talks to two at a time;
* ``metropolis``: in each gossip round everybody hears all neighbours and takes a weighted mean.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array

from joulemesh.aggregation.eigenvalue import SparseMatrix, second_eigenvalue
from joulemesh.aggregation.route import FloatArray, IntArray
from joulemesh.errors import InfeasibleError, ScenarioError

__all__ = [
    "Guarantee",
    "Mode",
    "activity",
    "contraction",
    "error_after",
    "matching_matrix",
    "metropolis_weights",
    "paper_rounds",
    "rounds_for",
    "tick_matrix",
]

Mode: TypeAlias = Literal["ticks", "matchings", "metropolis"]
Guarantee: TypeAlias = Literal["expected", "probability"]

_FACTOR = {"expected": 2.0, "probability": 3.0}
"""Of ln(1/ε)/ln(1/λ₂): 2 for the square in E‖y‖² ≤ ε²‖y₀‖²; Boyd's 3 adds Markov's Pr ≤ ε."""


def activity(edges: IntArray, devices: int, mode: Mode) -> FloatArray:
    """How often each link is used in one round of gossip, on average.

    A tick picks link (i, j) with probability (1/dᵢ + 1/dⱼ)/N. A matching holds it with probability
    1/(dᵢ + dⱼ − 1): its priority must be the first of all links that touch i or j.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.
        mode: the kind of gossip.

    Returns:
        float [E]: expected number of uses per gossip round; 1 for ``metropolis``.

    >>> activity(np.array([[0, 1], [1, 2]]), 3, "matchings").tolist()
    [0.5, 0.5]
    """
    degree = np.bincount(edges.ravel(), minlength=devices)
    if devices > 1 and not np.all(degree):
        lonely = int(np.argmin(degree))
        raise ScenarioError(
            "{device} has 0 links and cannot gossip; give it a neighbour", device=lonely
        )
    d_i, d_j = degree[edges[:, 0]], degree[edges[:, 1]]
    if mode == "ticks":
        return np.asarray((1.0 / d_i + 1.0 / d_j) / devices, np.float64)
    if mode == "matchings":
        return np.asarray(1.0 / (d_i + d_j - 1.0), np.float64)
    return np.ones(len(edges))


def metropolis_weights(edges: IntArray, devices: int) -> SparseMatrix:
    """Metropolis weights: w_ij = 1/(1 + max(dᵢ, dⱼ)), the rest of each row on the diagonal.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.

    Returns:
        Sparse [N, N], symmetric and doubly stochastic.

    >>> metropolis_weights(np.array([[0, 1]]), 2).toarray().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    degree = np.bincount(edges.ravel(), minlength=devices)
    return _mixer(edges, devices, 1.0 / (1.0 + degree[edges].max(axis=1, initial=0)))


def tick_matrix(edges: IntArray, devices: int) -> SparseMatrix:
    """Mean matrix of one tick, E[W] = E[WᵀW], with P_ij = 1/dᵢ (Boyd et al., eq. for W̄).

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.

    Returns:
        Sparse [N, N], symmetric and doubly stochastic.

    >>> tick_matrix(np.array([[0, 1]]), 2).toarray().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return _mixer(edges, devices, activity(edges, devices, "ticks") / 2)


def matching_matrix(edges: IntArray, devices: int) -> SparseMatrix:
    """Mean matrix of one random matching, E[W] = E[WᵀW].

    The matrix of a matching is a projection (each pair takes its mean), so both means are equal.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.

    Returns:
        Sparse [N, N], symmetric and doubly stochastic.

    >>> matching_matrix(np.array([[0, 1], [1, 2]]), 3).toarray().tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
    """
    return _mixer(edges, devices, activity(edges, devices, "matchings") / 2)


def _mixer(edges: IntArray, devices: int, weight: FloatArray) -> SparseMatrix:
    """I minus the Laplacian of the weighted graph."""
    i, j = edges[:, 0], edges[:, 1]
    sent = np.bincount(i, weight, devices) + np.bincount(j, weight, devices)
    every = np.arange(devices)
    rows, columns = np.concatenate([i, j, every]), np.concatenate([j, i, every])
    entries = np.concatenate([weight, weight, 1.0 - sent])
    return coo_array((entries, (rows, columns)), shape=(devices, devices)).tocsr()


def contraction(edges: IntArray, devices: int, mode: Mode) -> float:
    """What one round of gossip leaves: λ₂ of E‖y‖² for the random kinds, ζ of ‖y‖ for Metropolis.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.
        mode: the kind of gossip.

    Returns:
        The factor, as ``rounds_for`` and ``error_after`` want it.

    >>> ring = np.array([[0, 1], [0, 9]] + [[i, i + 1] for i in range(1, 9)])
    >>> round(contraction(ring, 10, "ticks"), 5), round(contraction(ring, 10, "metropolis"), 5)
    (0.9809, 0.87268)
    """
    if mode == "ticks":
        return second_eigenvalue(tick_matrix(edges, devices))
    if mode == "matchings":
        return second_eigenvalue(matching_matrix(edges, devices))
    return second_eigenvalue(metropolis_weights(edges, devices))


def rounds_for(
    epsilon: float, contraction: float, *, mode: Mode, guarantee: Guarantee = "expected"
) -> int:
    """The gossip rounds (or ticks) K after which the relative consensus error is at most ε.

    Args:
        epsilon: wanted error ‖x − x̄‖/‖x₀ − x̄‖, between 0 and 1.
        contraction: what ``contraction`` gives for this graph and mode.
        mode: the kind of gossip.
        guarantee: of the random kinds: ``expected`` (root mean square at most ε) or ``probability``
            (more than ε with probability at most ε); Metropolis is certain.

    Returns:
        At least 1.

    >>> rounds_for(0.05, 0.87268, mode="metropolis")
    22
    >>> rounds_for(0.05, 0.98090, mode="ticks", guarantee="probability")
    467
    """
    if not 0.0 <= contraction < 1.0:
        raise InfeasibleError(
            f"gossip that keeps {contraction:.12g} of the error each round never agrees; "
            "connect the graph",
            code="gossip",
        )
    factor = 1.0 if mode == "metropolis" else _FACTOR[guarantee]
    wanted = factor * _log_inverse(epsilon)
    if contraction == 0.0:
        return 1
    # A part in 10¹² is rounding: a quotient that is a whole number must not become the next.
    return max(1, math.ceil(wanted / -math.log(contraction) * (1.0 - 1e-12)))


def paper_rounds(epsilon: float) -> int:
    """The paper's K = ⌈ln 1/ε⌉ (Theorem 3, third case), which forgets the spectral gap.

    Args:
        epsilon: wanted consensus error, between 0 and 1.

    Returns:
        At least 1.

    >>> paper_rounds(0.05), paper_rounds(0.06)
    (3, 3)
    """
    return math.ceil(_log_inverse(epsilon))


def _log_inverse(epsilon: float) -> float:
    if not 0.0 < epsilon < 1.0:
        raise ScenarioError(f"epsilon is {epsilon:g}; write a number between 0 and 1")
    return -math.log(epsilon)


def error_after(rounds: ArrayLike, contraction: float, mode: Mode) -> NDArray[np.float64]:
    """Bound on the relative consensus error after some gossip rounds (or ticks).

    Args:
        rounds: K, a number or an array.
        contraction: what ``contraction`` gives for this graph and mode.
        mode: the kind of gossip.

    Returns:
        √E(‖y‖²/‖y₀‖²) ≤ λ₂^(K/2) for the random kinds, ‖y‖/‖y₀‖ ≤ ζ^K for Metropolis.

    >>> error_after([0, 2], 0.25, "ticks").tolist()
    [1.0, 0.25]
    """
    power = np.asarray(rounds, np.float64) * (1.0 if mode == "metropolis" else 0.5)
    return np.asarray(np.power(contraction, power), np.float64)
