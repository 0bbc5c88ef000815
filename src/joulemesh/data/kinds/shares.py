"""Whole shares, and draws of Dirichlet distributions."""

from __future__ import annotations

__all__ = ["apportion", "log_mixes", "require_alpha"]

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.held import Ints
from joulemesh.errors import ScenarioError

_SMALLEST_ALPHA = 1e-6


def require_alpha(alpha: float) -> None:
    """Refuse a concentration that is not one.

    >>> require_alpha(0.5)
    """
    if not _SMALLEST_ALPHA <= alpha < np.inf:
        raise ScenarioError(f"alpha = {alpha} is out of range: use {_SMALLEST_ALPHA} or more")


def apportion(total: int, weights: NDArray[np.float64]) -> Ints:
    """Whole numbers that sum to ``total``, in proportion to ``weights`` (largest remainders).

    >>> apportion(5, np.array([1.0, 1.0, 2.0]))
    array([1, 1, 3])
    """
    quota = weights / weights.sum() * total
    whole: Ints = np.floor(quota).astype(np.int64)
    short = total - int(whole.sum())
    whole[np.argsort(whole - quota, kind="stable")[:short]] += 1
    return whole


def log_mixes(
    rng: np.random.Generator, alpha: float, rows: int, columns: int
) -> NDArray[np.float64]:
    """Logarithm of rows drawn from Dirichlet(alpha), exact where alpha is tiny.

    Gamma(alpha) = Gamma(alpha + 1) * U^(1/alpha) keeps the draw finite in the logarithm, where
    numpy's own Dirichlet underflows to zeros (and to NaN).

    >>> log_mixes(np.random.default_rng(0), 0.5, 2, 3).shape
    (2, 3)
    """
    log_gamma: NDArray[np.float64] = np.log(rng.standard_gamma(alpha + 1.0, size=(rows, columns)))
    log_gamma += np.log1p(-rng.random((rows, columns))) / alpha
    log_gamma -= log_gamma.max(axis=1, keepdims=True)
    log_gamma -= np.log(np.exp(log_gamma).sum(axis=1, keepdims=True))
    return log_gamma
