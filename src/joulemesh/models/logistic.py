"""Multinomial logistic regression: convex, and strongly so with L2, with known constants."""

from __future__ import annotations

__all__ = ["apply", "curvature", "init"]

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh


def init(features: int, classes: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser: all zeros, since a convex problem has no symmetry to break.

    Args:
        features: numbers per sample.
        classes: number of classes.

    Returns:
        key -> {"w": [features, classes], "b": [classes]}.

    >>> init(64, 10)(jax.random.key(0))["w"].shape
    (64, 10)
    """

    def zeros(key: jax.Array) -> dict[str, jax.Array]:
        del key
        return {
            "w": jnp.zeros((features, classes), jnp.float32),
            "b": jnp.zeros(classes, jnp.float32),
        }

    return zeros


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of samples of any shape, in the dtype of the parameters.

    >>> apply(init(4, 3)(jax.random.key(0)), jnp.ones((5, 2, 2))).shape
    (5, 3)
    """
    flat = x.reshape(len(x), -1).astype(params["w"].dtype)
    return flat @ params["w"] + params["b"]


def curvature(x: NDArray[np.floating], l2: float) -> tuple[float, float]:
    """Bound the Hessian of the regularised loss over the whole parameter space.

    The Hessian of one sample is (diag p − p pᵀ) ⊗ x̃ x̃ᵀ + l2·I with x̃ = (x, 1), and the first
    factor lies between 0 and 1/2, whatever the number of classes (1/2 is reached at p = ½, ½).

    Args:
        x: [n, ...], as the model sees it (normalised).
        l2: weight of the regulariser, which covers biases too.

    Returns:
        (m, M): m = l2 and M = l2 + λ_max(X̃ᵀX̃/n)/2.

    >>> curvature(np.array([[1.0], [-1.0]]), 0.1)
    (0.1, 0.6)
    """
    flat = np.asarray(x).reshape(len(x), -1)
    n, features = flat.shape[0], flat.shape[1] + 1
    gram = np.zeros((features, features))
    for start in range(0, n, 4096):  # a float64 copy of a portion, never of the whole set
        portion = np.asarray(flat[start : start + 4096], np.float64)
        portion = np.concatenate([portion, np.ones((len(portion), 1))], axis=1)
        gram += portion.T @ portion
    top = features - 1
    largest = eigh(gram / n, eigvals_only=True, subset_by_index=[top, top])[0]
    return float(l2), float(l2 + largest / 2)
