"""Scores: loss and accuracy of the mean model and of the devices' own, and their disagreement."""

from __future__ import annotations

__all__ = [
    "Evaluation",
    "MeanScores",
    "consensus_error",
    "device_accuracy",
    "in_groups",
    "mean_model",
    "mean_scores",
    "regulariser",
    "score",
]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training.jax.evaluation.samples import EvalSamples, SampleBatches
from joulemesh.training.jax.loss import Array, Data, gather, weighted_loss

# Devices whose models are evaluated side by side on an accelerator.
_ROWS_TOGETHER = 32


class Evaluation(NamedTuple):
    """One evaluation, per seed."""

    train_loss: Array  # of the mean model: Σ_i p_i F_i, on a fixed sample of each device
    test_loss: Array  # of the mean model
    test_accuracy: Array
    device_accuracy_mean: Array  # of the active devices' own models, on the same test samples
    device_accuracy_min: Array
    device_accuracy_max: Array
    drift: Array  # relative consensus error before the exchange
    consensus: Array  # and after it


class MeanScores(NamedTuple):
    """Of the mean model, per seed."""

    train_loss: Array
    test_loss: Array
    test_accuracy: Array
    shared_accuracy: Array  # on the samples that devices are evaluated on


def mean_scores(
    model: Model,
    compute: Any,
    sharded: bool,
    train: Data,
    test: Data,
    samples: EvalSamples,
    centre: Params,
    share: jax.Array,
) -> MeanScores:
    """Score every seed's mean model on this processor's share of the samples, and add up.

    Args:
        model: what is evaluated.
        compute: dtype in which it computes.
        sharded: whether there are other processors to add up with.
        train: training samples.
        test: test samples.
        samples: which of them.
        centre: mean models, stacked [S, ...].
        share: [places, S], weight of each device in the mean and in the training loss.

    Returns:
        The scores, [S] each.
    """

    def seed(given: tuple[Any, ...]) -> tuple[jax.Array, ...]:
        params, chosen, owner, mine = given
        loss, correct = score(model, compute, test, samples.test, params)
        weight = chosen.weight * mine[owner][..., None].astype(chosen.weight.dtype)
        trained, _ = score(model, compute, train, SampleBatches(chosen.index, weight), params)
        return loss, correct, trained, jnp.sum(samples.test.weight, axis=(0, 1))

    # One seed after another: the same operations, and so the same bits, for any number of seeds.
    sums = lax.map(seed, (centre, samples.train, samples.owner, share.T))
    if sharded:
        sums = lax.psum(sums, "rows")
    loss, correct, trained, count = sums
    penalty = lax.map(lambda params: regulariser(model, params), centre)
    # Counts of whole numbers, divided last: alike to the last bit however samples are dealt.
    accuracy = correct / count
    train_loss = trained[:, 0] + penalty.astype(loss.dtype)
    return MeanScores(train_loss, loss[:, 0] / count[:, 0], *accuracy.T)


def device_accuracy(
    model: Model, compute: Any, loop: bool, test: Data, samples: SampleBatches, params: Params
) -> jax.Array:
    """Accuracy of every row's own model.

    Args:
        model: what is evaluated.
        compute: dtype in which it computes.
        loop: one row after another, or some of them at a time.
        test: test samples.
        samples: which of them.
        params: stacked [R, ...].

    Returns:
        [R].
    """

    def row(params: Params) -> jax.Array:
        correct: jax.Array = score(model, compute, test, samples, params)[1][0]
        return correct / jnp.sum(samples.weight)

    accuracy: jax.Array = in_groups(row, params, 1 if loop else _ROWS_TOGETHER)
    return accuracy


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
    model: Model, compute: Any, data: Data, samples: SampleBatches, params: Params
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
        # Sum over devices first: it is contiguous in memory and leaves a short second sum.
        apart.append(jnp.sum(jnp.sum(wide * jnp.square(flat - centre), axis=0), axis=-1))
        size.append(jnp.sum(jnp.square(centre), axis=-1))
    # At the origin (a convex model's start) only an error of 0 has a meaning.
    return jnp.sqrt(_total(apart) / jnp.maximum(_total(size), np.finfo(share.dtype).tiny))


def _total(parts: list[jax.Array]) -> jax.Array:
    return sum(parts[1:], start=parts[0])
