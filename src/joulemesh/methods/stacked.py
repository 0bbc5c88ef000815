"""All devices' parameters as one matrix [N, P]."""

from __future__ import annotations

__all__ = ["flatten", "mixed"]

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from joulemesh.models.core import Params
from joulemesh.training.jax import exchange
from joulemesh.training.jax.exchange import Context, SparseMixing


def flatten(params: Params) -> tuple[jax.Array, Callable[[jax.Array], Params]]:
    """Lay each device's parameters out in one row.

    Args:
        params: stacked [N, ...].

    Returns:
        [N, P], and the way back.

    >>> flat, back = flatten({"a": jnp.ones((2, 3, 2)), "b": jnp.zeros((2, 1))})
    >>> flat.shape, back(flat)["a"].shape
    ((2, 7), (2, 3, 2))
    """
    leaves, tree = jax.tree.flatten(params)
    shapes = [leaf.shape for leaf in leaves]
    sizes = [math.prod(shape[1:]) for shape in shapes]
    flat = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)

    def back(flat: jax.Array) -> Params:
        parts, low = [], 0
        for shape, size in zip(shapes, sizes, strict=True):
            parts.append(flat[:, low : low + size].reshape(shape))
            low += size
        return jax.tree.unflatten(tree, parts)

    return flat, back


def mixed(values: jax.Array, context: Context) -> jax.Array:
    """W times the devices' values, once, with the engine's own mixing.

    Args:
        values: [N, P].
        context: of the exchange; its ``mixing`` is W.

    Returns:
        [N, P].
    """
    mixing = exchange.dense
    if isinstance(context.mixing, SparseMixing):
        mixing = exchange.sparse
        # The engine's lists may have more rows than devices: the rest only pads.
        index, weight, rounds = context.mixing
        count = len(values)
        once = SparseMixing(index[:count], weight[:count], jnp.ones_like(rounds))
        context = context._replace(mixing=once)
    made: jax.Array = mixing.apply(values[:, None], (), jnp.zeros(0), context)[0][:, 0]
    return made
