"""Multilayer perceptron: dense layers with ReLU between them, He initialisation."""

from __future__ import annotations

__all__ = ["after_input", "apply", "dense", "init", "init_dense"]

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
    flat = x.reshape(len(x), -1).astype(params["dense0_w"].dtype)
    return after_input(params, flat @ params["dense0_w"])


def after_input(params: dict[str, jax.Array], z: jax.Array) -> jax.Array:
    """Compute logits [B, classes] from the product with the input layer's weights.

    Args:
        params: those of the first layer's weights are not looked at, and may be missing.
        z: [B, outputs of the first layer].

    >>> params = init((4, 3, 2))(jax.random.key(0))
    >>> bool(jnp.all(after_input(params, jnp.ones((5, 4)) @ params.pop("dense0_w"))
    ...              == apply(init((4, 3, 2))(jax.random.key(0)), jnp.ones((5, 2, 2)))))
    True
    """
    z = z + params["dense0_b"]
    last = sum(name.endswith("_b") for name in params) - 1
    for layer in range(1, last + 1):
        z = dense(params, f"dense{layer}", jax.nn.relu(z))
    return z
