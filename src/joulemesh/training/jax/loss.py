"""The loss of a weighted batch, and the data that batches are gathered from."""

from __future__ import annotations

__all__ = ["Array", "Data", "gather", "logits_of", "scale_of", "weighted_loss"]

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.models.core import Model, Params

# Of JAX; of NumPy before it is placed; or a description of one (a shape, a sharding).
Array: TypeAlias = Any


class Data(NamedTuple):
    """Samples on the accelerator; a model sees x · scale + shift."""

    x: Array  # uint8 or float32 [n, ...]; int32, tokens, which are not scaled
    y: Array  # int32 [n], float32 [n, k] or int32 [n, positions]
    scale: Array  # broadcasts with a sample
    shift: Array


def scale_of(dataset: Dataset, dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factor and the summand that normalise: (x - mean) / std in one multiply-add.

    >>> x, y = np.ones((2, 1), np.float32), np.array([0, 1], np.int32)
    >>> scale_of(Dataset("toy", x, y, x, y, 2, mean=1.0, std=0.5), np.float64)
    (array(2.), array(-2.))
    """
    mean, std = np.asarray(dataset.mean, np.float64), np.asarray(dataset.std, np.float64)
    return np.asarray(1 / std, dtype), np.asarray(-mean / std, dtype)


def gather(data: Data, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take samples by index, normalised, with their targets."""
    x = data.x[index]
    if data.x.dtype != np.int32:
        x = x.astype(data.scale.dtype) * data.scale + data.shift
    return x, data.y[index]


def logits_of(model: Model, params: Params, x: jax.Array, compute: DTypeLike) -> jax.Array:
    """The outputs (logits [B, classes], say) of normalised samples, in float32 or wider.

    Args:
        model: supplies ``apply``.
        params: of one device.
        x: [B, ...], normalised.
        compute: dtype in which the model computes.
    """
    low = jax.tree.map(lambda leaf: leaf.astype(compute), params)
    logits = model.apply(low, x if x.dtype == np.int32 else x.astype(compute))
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def weighted_loss(
    model: Model, params: Params, x: jax.Array, y: jax.Array, weight: jax.Array, compute: DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Σ_b weight_b · loss_b + (l2/2)·||params||², with the outputs.

    With weights 1/B this is ``models.loss``; weights also mask the end of a pass.

    Args:
        model: supplies ``apply``, ``loss`` and ``l2``.
        params: of one device.
        x: [B, ...], normalised.
        y: targets [B, ...].
        weight: [B].
        compute: dtype in which the model computes; sums are float32 or wider.

    Returns:
        The loss and the outputs [B, ...].

    >>> toy = Model("toy", lambda key: jnp.ones((1, 2)), lambda w, x: x @ w, l2=0.5)
    >>> x, y = jnp.ones((4, 1)), jnp.zeros(4, jnp.int32)
    >>> value, _ = weighted_loss(toy, jnp.ones((1, 2)), x, y, jnp.full(4, 0.25), jnp.float32)
    >>> round(float(value), 4)  # ln 2 + 0.25 * 2
    1.1931
    """
    logits = logits_of(model, params, x, compute)
    value = jnp.sum(weight * model.loss.values(logits, y))
    if model.l2:
        squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params)]
        value += 0.5 * model.l2 * sum(squares[1:], start=squares[0])
    return value, logits
