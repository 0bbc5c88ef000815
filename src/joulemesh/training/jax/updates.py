"""Sums of the devices' updates (parameters after local training minus before)."""

from __future__ import annotations

__all__ = ["RowWork", "UpdateSum", "added", "consensus_from", "seeds_of", "square", "wide"]

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from joulemesh.models.core import Params
from joulemesh.training.jax.local_sgd import Rows
from joulemesh.training.jax.loss import Array


class RowWork(NamedTuple):
    """Rows and what they do in one iteration."""

    rows: Rows  # [R]
    steps: Array  # int32 [R]
    shares: Array  # [R, K]: weight of the row in each of K sums


class UpdateSum(NamedTuple):
    """The rows' updates, added up."""

    weighted: Params  # [K, S, ...]: Σ share · (w − start)
    squared: Array  # [S]: Σ share · ||w − start||², with the last of the K shares
    diverged: Array  # int32 [S]: rows whose loss is not finite


def consensus_from(sums: UpdateSum, centres: Params) -> jax.Array:
    """sqrt(mean_i ||w_i - w̄||²) / ||w̄||, as ``evaluation.scores.consensus_error``.

    Args:
        sums: of K = 2 sums, the last with the shares of a plain mean.
        centres: start + sums.weighted, [2, S, ...].

    Returns:
        [S].
    """
    update, centre = (
        jax.tree.map(lambda leaf: leaf[-1], tree) for tree in (sums.weighted, centres)
    )
    apart = jnp.maximum(sums.squared - square(update, 1), 0)
    size = square(centre, 1)
    return jnp.sqrt(apart / jnp.maximum(size, np.finfo(size.dtype).tiny))


def added(row_work: RowWork, update: Params, squared: jax.Array, loss: jax.Array) -> UpdateSum:
    """Sums over the slots of [P, S, ...]."""
    total = jax.tree.map(lambda own: jnp.sum(wide(row_work.shares, own) * own, axis=1), update)
    diverged = jnp.sum(~jnp.isfinite(loss), axis=0, dtype=jnp.int32)
    return UpdateSum(total, jnp.sum(row_work.shares[..., -1] * squared, axis=0), diverged)


def seeds_of(start: Params) -> int:
    """S, of parameters stacked [S, ...]."""
    return len(jax.tree.leaves(start)[0])


def square(tree: Params, axes: int) -> jax.Array:
    """Sum of squares over all but the first axes of all leaves.

    >>> square({"w": jnp.array([[1.0, 2.0], [3.0, 0.0]])}, 1).tolist()
    [5.0, 9.0]
    """
    parts = [
        jnp.sum(jnp.square(leaf), axis=tuple(range(axes, leaf.ndim)))
        for leaf in jax.tree.leaves(tree)
    ]
    return sum(parts[1:], start=parts[0])


def wide(share: jax.Array, leaf: jax.Array) -> jax.Array:
    """Shares [..., K] as [K, ..., 1, 1], to be multiplied with [..., a, b].

    >>> wide(jnp.ones((3, 2)), jnp.ones((3, 4, 5))).shape
    (2, 3, 1, 1)
    """
    first = jnp.moveaxis(share, -1, 0).astype(leaf.dtype)
    return first.reshape(first.shape + (1,) * (leaf.ndim - share.ndim + 1))
