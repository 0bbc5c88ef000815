"""Scores: loss and accuracy of the mean model and of the devices' own, and their disagreement."""

from __future__ import annotations

__all__ = [
    "Evaluation",
    "MeanScores",
    "checked_metrics",
    "consensus_error",
    "device_scores",
    "figure",
    "in_groups",
    "mean_model",
    "mean_scores",
    "regulariser",
    "score",
]

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike

from joulemesh.data import Dataset
from joulemesh.errors import ScenarioError
from joulemesh.metrics.metric import LOSS, Metric
from joulemesh.models.core import Model, Params
from joulemesh.training.jax.evaluation.samples import EvalSamples, SampleBatches
from joulemesh.training.jax.loss import Array, Data, gather, logits_of
from joulemesh.training.jax.types import ProgramKey

R = TypeVar("R")
Sums: TypeAlias = tuple[jax.Array, ...]
Seed: TypeAlias = tuple[Sums, jax.Array, jax.Array]  # sums of test and training, count

# Devices whose models are evaluated side by side on an accelerator.
_ROWS_TOGETHER = 32
# Samples of the batch that a metric is tried on: a number that classes seldom have.
_TRIED = 13


class Evaluation(NamedTuple):
    """One evaluation, float [S] each: one figure per seed."""

    train_loss: Array  # of the mean model: Σ_i p_i F_i, on a fixed sample of each device
    test_loss: Array  # of the mean model
    test_score: Array
    device_score_mean: Array  # of the active devices' own models, on the same test samples
    device_score_min: Array
    device_score_max: Array
    drift: Array  # relative consensus error before the exchange
    consensus: Array  # and after it
    own: dict[str, Array]  # the curves of further metrics, by name


class MeanScores(NamedTuple):
    """Of the mean model, float [S] each: one figure per seed."""

    train_loss: Array
    test: tuple[Array, ...]  # each metric
    shared: tuple[Array, ...]  # each metric, on the samples that devices are evaluated on


def mean_scores(
    key: ProgramKey,
    train: Data,
    test: Data,
    samples: EvalSamples,
    centre: Params,
    share: jax.Array,
) -> MeanScores:
    """Score every seed's mean model on this processor's share of the samples, and add up.

    Args:
        key: model, metrics, precision; and whether there are other processors to add up with.
        train: training samples.
        test: test samples.
        samples: which of them.
        centre: mean models, stacked [S, ...].
        share: [slots, S], weight of each device in the mean and in the training loss.

    Returns:
        The scores, [S] each.
    """
    model, compute = key.model, key.compute
    minimised = next(metric for metric in key.metrics if metric.name == LOSS.name)

    def seed(given: tuple[Params, SampleBatches, jax.Array, jax.Array]) -> Seed:
        params, chosen, owner, mine = given
        sums = score(model, compute, test, samples.test, params, key.metrics)
        weight = chosen.weight * mine[owner][..., None].astype(chosen.weight.dtype)
        here = SampleBatches(chosen.index, weight)
        (trained,) = score(model, compute, train, here, params, (minimised,))
        return sums, trained, jnp.sum(samples.test.weight, axis=(0, 1))

    # One seed after another: the same operations, and so the same bits, for any number of seeds.
    totals = lax.map(seed, (centre, samples.train, samples.owner, share.T))
    if key.mesh.size > 1:
        totals = lax.psum(totals, "rows")
    sums, trained, count = totals
    penalty = lax.map(lambda params: regulariser(model, params), centre)
    train_loss = trained[:, 0] + penalty.astype(trained.dtype)
    found = [figure(metric, one, count) for metric, one in zip(key.metrics, sums, strict=True)]
    on_all, on_shared = zip(*(tuple(one.T) for one in found), strict=True)
    return MeanScores(train_loss, on_all, on_shared)


def device_scores(
    key: ProgramKey, test: Data, samples: SampleBatches, params: Params
) -> tuple[jax.Array, ...]:
    """Score every row's own model.

    Args:
        key: model, metrics, precision; and whether rows are evaluated one after another.
        test: test samples.
        samples: which of them.
        params: stacked [R, ...].

    Returns:
        [R] for each metric that measures devices' own models.
    """
    metrics = [metric for metric in key.metrics if metric.devices]

    def row(params: Params) -> tuple[jax.Array, ...]:
        sums = score(key.model, key.compute, test, samples, params, metrics)
        count = jnp.sum(samples.weight)
        return tuple(
            figure(metric, one[0], count) for metric, one in zip(metrics, sums, strict=True)
        )

    scores: tuple[jax.Array, ...] = in_groups(row, params, 1 if key.loop else _ROWS_TOGETHER)
    return scores


def figure(metric: Metric, sums: jax.Array, count: jax.Array) -> jax.Array:
    """A metric from its sums over samples: divided last, so that counts of whole numbers are alike
    to the last bit however samples are dealt.

    Args:
        metric: says what is made of the averages.
        sums: of the shape of ``count``, or with one more axis [..., k].
        count: samples.

    Returns:
        Of the shape of ``count``.
    """
    if sums.ndim == count.ndim:
        means = sums / count
        return means if metric.finish is None else _over(metric.finish, means[..., None])
    means = sums / count[..., None]
    return _over(metric.finish or (lambda one: one[0]), means)


def checked_metrics(metrics: tuple[Metric, ...], data: Dataset) -> tuple[Metric, ...]:
    """The metrics, unless one does not give what is averaged: then nothing is trained.

    Raises:
        ScenarioError: one is for other targets than the data hold, ``values`` gives neither [B] nor
            [B, k], or ``finish`` no scalar.
    """
    logits = jax.ShapeDtypeStruct((_TRIED, *data.outputs), jnp.float32)
    labels = jax.ShapeDtypeStruct((_TRIED, *data.y_train.shape[1:]), data.y_train.dtype)
    for metric in metrics:
        given: Any = _tried(metric, data, logits, labels)
        shape = getattr(given, "shape", None)
        if shape is None or shape[:1] != (_TRIED,) or len(shape) > 2:
            raise ScenarioError(
                f"metric {metric.name!r}: values gives {given} for {_TRIED} samples; return one "
                f"value per sample, [{_TRIED}], or several, [{_TRIED}, k]"
            )
        width = shape[1] if len(shape) == 2 else 1
        if metric.finish is None and width != 1:
            raise ScenarioError(
                f"metric {metric.name!r}: values gives {width} values per sample; give finish, "
                "which makes one figure of their averages"
            )
        if metric.finish is not None:
            means = jax.ShapeDtypeStruct((width,), jnp.float32)
            made: Any = jax.eval_shape(metric.finish, means)
            if getattr(made, "shape", None) != ():
                raise ScenarioError(
                    f"metric {metric.name!r}: finish gives {made} for {width} averages; return a "
                    "scalar"
                )
    return metrics


def _tried(metric: Metric, data: Dataset, logits: Any, labels: Any) -> Any:
    """What a metric gives, described."""
    if metric.targets not in ("any", data.targets):
        raise ScenarioError(
            f"metric {metric.name!r} is for {metric.targets}, and {data.name} holds "
            f"{data.targets}: leave it out of training.metrics and training.score"
        )
    try:
        return jax.eval_shape(metric.values, logits, labels)
    except (TypeError, ValueError) as error:  # of shapes that do not go together
        reason = " ".join(str(error).split())[:160]
        what = "the loss" if metric.name == LOSS.name else f"metric {metric.name!r}"
        raise ScenarioError(
            f"{what} cannot be computed of outputs {logits.shape} and targets {labels.shape} "
            f"({reason}): match it to the data"
        ) from error


def _over(finish: Callable[[jax.Array], jax.Array], means: jax.Array) -> jax.Array:
    """Apply a function of [k] along the last axis."""
    flat: jax.Array = jax.vmap(finish)(means.reshape(-1, means.shape[-1]))
    return flat.reshape(means.shape[:-1])


def in_groups(function: Callable[[Params], R], values: Params, most: int) -> R:
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
        one_by_one: R = lax.map(function, values)
        return one_by_one
    count = len(jax.tree.leaves(values)[0])
    groups = -(-count // most)
    size = -(-count // groups)
    # The last ones again, to fill the last group.
    at = jnp.minimum(jnp.arange(groups * size), count - 1).reshape(groups, size)
    done = lax.map(jax.vmap(function), jax.tree.map(lambda leaf: leaf[at], values))
    joined: R = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], done)
    return joined


def score(
    model: Model,
    compute: DTypeLike,
    data: Data,
    samples: SampleBatches,
    params: Params,
    metrics: Sequence[Metric],
) -> tuple[jax.Array, ...]:
    """Sums over the samples of weight · value, of each metric and kind.

    Args:
        model: what is evaluated.
        compute: dtype in which it computes.
        data: samples.
        samples: which of them, in batches.
        params: of one model.
        metrics: functions of logits and labels.

    Returns:
        Of each metric [kinds], or [kinds, k] where it has k values per sample.
    """

    def sums(index: jax.Array, weight: jax.Array) -> tuple[jax.Array, ...]:
        x, y = gather(data, index)
        logits = logits_of(model, params, x, compute)
        each = [metric.values(logits, y) for metric in metrics]

        def kind(weight: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(_weighed(weight, values) for values in each)

        kinds: tuple[jax.Array, ...] = jax.vmap(kind, in_axes=1)(weight)
        return kinds

    def batch(totals: Sums, chosen: tuple[jax.Array, jax.Array]) -> tuple[Sums, None]:
        return jax.tree.map(jnp.add, totals, sums(*chosen)), None

    shapes = jax.eval_shape(sums, samples.index[0], samples.weight[0])
    zeros = jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)
    found: tuple[jax.Array, ...] = lax.scan(batch, zeros, tuple(samples))[0]
    return found


def _weighed(weight: jax.Array, values: jax.Array) -> jax.Array:
    """Σ_b weight_b · values_b."""
    wide = weight if values.ndim == 1 else weight[:, None]
    return jnp.sum(wide * values, axis=0).astype(weight.dtype)


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
