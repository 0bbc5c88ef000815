"""Evaluation: the mean model, the devices' own models, and how far these are apart."""

from __future__ import annotations

__all__ = [
    "Panel",
    "Samples",
    "consensus_error",
    "in_batches",
    "in_groups",
    "mean_model",
    "regulariser",
    "sample_counts",
    "score",
]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training.objective import Array, Data, gather, weighted_loss

# Forward passes that one sample of training costs (its backward pass costs at least another).
_PASSES = 2
_LEAST_TEST, _LEAST_TRAIN, _LEAST_DEVICE = 1000, 500, 100


class Samples(NamedTuple):
    """Samples to evaluate on, in batches of equal size; weight 0 pads."""

    index: Array  # int32 [batches, size]
    weight: Array  # [batches, size, kinds]


class Panel(NamedTuple):
    """One evaluation, per seed."""

    train_loss: Array  # of the mean model: Σ_i p_i F_i, on a fixed sample of each device
    test_loss: Array  # of the mean model
    test_accuracy: Array
    device_accuracy_mean: Array  # of the active devices' own models, on the same test samples
    device_accuracy_min: Array
    device_accuracy_max: Array
    drift: Array  # relative consensus error before the exchange
    consensus: Array  # and after it


def sample_counts(
    share: float, trained: float, devices: int, test: int, device_samples: int
) -> tuple[int, int, int]:
    """How many samples curves are evaluated on, so that evaluation stays a small share.

    Half of the allowance goes to the mean model's test accuracy, a sixth to its training loss
    and a third to the devices' own models where these differ from it; each has a floor that is
    never undercut, and grows by doubling, so that similar schedules share a compilation.

    Args:
        share: of training's work that evaluation may add; 0 for no limit.
        trained: samples that all devices process between two evaluations.
        devices: number of devices N.
        test: test samples that there are.
        device_samples: the most on which each device's model is evaluated.

    Returns:
        Test samples, training samples, and how many of these test samples each device's own model
        is evaluated on, if it differs from the mean model.

    >>> sample_counts(0.08, 16_000, 20, 10_000, 1000)
    (1000, 500, 100)
    >>> sample_counts(0.0, 16_000, 20, 10_000, 1000)
    (10000, 10000, 1000)
    """
    device_samples = min(device_samples, test)
    if share == 0:
        return test, test, device_samples
    allowance = share * _PASSES * trained
    on_test = _doubled(_LEAST_TEST, allowance / 2)
    on_train = _doubled(_LEAST_TRAIN, allowance / 6)
    each = _doubled(_LEAST_DEVICE, allowance / 3 / devices)
    on_test, each = min(test, on_test), min(device_samples, each)
    return max(on_test, each), on_train, each


def _doubled(least: int, most: float) -> int:
    while 2 * least <= most:
        least *= 2
    return least


def in_batches(index: Any, weight: Any, shards: int, batch: int) -> Samples:
    """Cut samples into equal batches, the same number for each shard, padded with weight 0.

    Args:
        index: int [m] (NumPy).
        weight: [m] or [m, kinds] (NumPy).
        shards: number of processors.
        batch: samples in a batch, at most.

    Returns:
        Samples as NumPy arrays, the batches of one shard side by side.

    >>> in_batches(np.arange(3), np.ones(3), 2, 256).weight[..., 0].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    weight = weight.reshape(len(index), -1)
    share = -(-len(index) // shards)
    size = min(batch, share)
    padded = -(-share // size) * size * shards
    index = np.pad(index, (0, padded - len(index)))
    weight = np.pad(weight, ((0, padded - len(weight)), (0, 0)))
    return Samples(
        index.reshape(-1, size).astype(np.int32), weight.reshape(-1, size, weight.shape[1])
    )


def in_groups(function: Any, values: Any, most: int) -> Any:
    """Map a function over leading axes, some side by side, in equal groups (so one compilation).

    Args:
        function: of one of the values.
        values: a pytree of arrays [m, ...].
        most: size of a group, at most; 1 for one after another.

    Returns:
        What the function gives, stacked [m, ...].

    >>> in_groups(lambda x: 2 * x, jnp.arange(5), 3).tolist()
    [0, 2, 4, 6, 8]
    """
    if most == 1:
        return lax.map(function, values)
    count = len(jax.tree.leaves(values)[0])
    groups = -(-count // most)
    size = -(-count // groups)
    # The last ones again, to fill the last group.
    at = jnp.minimum(jnp.arange(groups * size), count - 1).reshape(groups, size)
    done = lax.map(jax.vmap(function), jax.tree.map(lambda leaf: leaf[at], values))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], done)


def score(
    model: Model, compute: Any, data: Data, samples: Samples, params: Params
) -> tuple[jax.Array, jax.Array]:
    """Sums over the samples of weight · cross-entropy and of weight · correct, per kind.

    Args:
        model: what is evaluated.
        compute: dtype in which it computes.
        data: samples.
        samples: which of them, in batches.
        params: of one model.

    Returns:
        Two arrays [kinds]. The regulariser is not included.
    """
    bare = Model(model.name, model.init, model.apply)

    def batch(totals: Any, chosen: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        index, weight = chosen
        x, y = gather(data, index)

        def kind(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
            loss, logits = weighted_loss(bare, params, x, y, weight, compute)
            return loss, jnp.sum(weight * (jnp.argmax(logits, axis=1) == y))

        loss, correct = jax.vmap(kind, in_axes=1)(weight)
        return (totals[0] + loss, totals[1] + correct), None

    kinds = samples.weight.shape[-1]
    zero = jnp.zeros(kinds, samples.weight.dtype)
    return lax.scan(batch, (zero, zero), tuple(samples))[0]


def regulariser(model: Model, params: Params) -> jax.Array:
    """(l2/2)·||params||², which training losses include and test losses do not."""
    return sum(
        (0.5 * model.l2 * jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params)),
        start=jnp.zeros(()),
    )


def mean_model(params: Params, share: jax.Array) -> Params:
    """The weighted mean over devices.

    Args:
        params: stacked [N, S, ...].
        share: [N, S], sums to 1 over devices.

    Returns:
        Stacked [S, ...].
    """

    def one(leaf: jax.Array) -> jax.Array:
        wide = share.reshape(share.shape + (1,) * (leaf.ndim - 2))
        return jnp.sum(wide.astype(leaf.dtype) * leaf, axis=0)

    return jax.tree.map(one, params)


def consensus_error(params: Params, active: jax.Array) -> jax.Array:
    """sqrt(mean_i ||w_i - w̄||²) / ||w̄|| over the active devices, w̄ their plain mean.

    Args:
        params: stacked [N, S, ...].
        active: bool [N].

    Returns:
        [S].

    >>> consensus_error(jnp.array([[[1.0]], [[3.0]]]), jnp.array([True, True])).tolist()
    [0.5]
    """
    share = (active / jnp.sum(active))[:, None]
    apart, size = [], []
    for leaf in jax.tree.leaves(params):
        flat = leaf.reshape(*leaf.shape[:2], -1)
        wide = share[..., None].astype(flat.dtype)
        centre = jnp.sum(wide * flat, axis=0)
        # Over devices first: that sum runs along memory; the one over numbers is then short.
        apart.append(jnp.sum(jnp.sum(wide * jnp.square(flat - centre), axis=0), axis=-1))
        size.append(jnp.sum(jnp.square(centre), axis=-1))
    # At the origin (a convex model's start) only an error of 0 has a meaning.
    return jnp.sqrt(_total(apart) / jnp.maximum(_total(size), np.finfo(share.dtype).tiny))


def _total(parts: list[jax.Array]) -> jax.Array:
    return sum(parts[1:], start=parts[0])
