"""Multilayer perceptron: dense layers with ReLU between them, He initialisation."""

from __future__ import annotations

__all__ = ["apply", "dense", "init", "init_dense"]

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp


def init_dense(key: jax.Array, inputs: int, outputs: int, *, gain: float = 2.0) -> jax.Array:
    """Draw a float32 [inputs, outputs] matrix of variance gain/inputs (He et al. 2015: 2).

    >>> init_dense(jax.random.key(0), 3, 2).shape
    (3, 2)
    """
    standard = jax.random.normal(key, (inputs, outputs), jnp.float32)
    return standard * math.sqrt(gain / inputs)


def dense(params: dict[str, jax.Array], layer: str, x: jax.Array) -> jax.Array:
    """Apply ``x @ w + b`` with the parameters that carry the layer's name."""
    return x @ params[f"{layer}_w"] + params[f"{layer}_b"]


def init(widths: Sequence[int]) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser for layers of these widths, inputs first and classes last.

    Args:
        widths: at least two.

    Returns:
        key -> {"dense0_w", "dense0_b", ...}.

    >>> sorted(init((784, 200, 10))(jax.random.key(0)))
    ['dense0_b', 'dense0_w', 'dense1_b', 'dense1_w']
    """
    sizes = tuple(pairwise(widths))

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        params = {}
        for layer, (inputs, outputs) in enumerate(sizes):
            # Nothing rectifies the last layer, so half the variance keeps the logits' scale.
            gain = 2.0 if layer < len(sizes) - 1 else 1.0
            params[f"dense{layer}_w"] = init_dense(
                jax.random.fold_in(key, layer), inputs, outputs, gain=gain
            )
            params[f"dense{layer}_b"] = jnp.zeros(outputs, jnp.float32)
        return params

    return draw


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of samples of any shape, in the dtype of the parameters.

    >>> apply(init((4, 3, 2))(jax.random.key(0)), jnp.ones((5, 2, 2))).shape
    (5, 2)
    """
    h = x.reshape(len(x), -1).astype(params["dense0_w"].dtype)
    last = len(params) // 2 - 1
    for layer in range(last):
        h = jax.nn.relu(dense(params, f"dense{layer}", h))
    return dense(params, f"dense{last}", h)
