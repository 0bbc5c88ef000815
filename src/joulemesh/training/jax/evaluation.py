"""Evaluate the mean model and the devices' own: on which samples, by which programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import DTypeLike
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.metrics import LOSS, Metric
from joulemesh.models.core import Model, Params
from joulemesh.models.curves import score_columns
from joulemesh.training import hosts
from joulemesh.training.arrays import Array
from joulemesh.training.batches import Data
from joulemesh.training.jax import mixing
from joulemesh.training.jax.inputs import Inputs, ProgramKey
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.local_sgd import gather, logits_of, weighted_loss
from joulemesh.training.jax.platform import BATCHES, ROWS, WHOLE, loops_over_rows, sharding
from joulemesh.training.learner import sizes_of
from joulemesh.training.schedule import Options, Schedule
from joulemesh.training.trace import TEST_ORDER, SampleCounts, curve_samples, train_sizes


class SampleBatches(NamedTuple):
    """SampleBatches to evaluate on, in batches of equal size; weight 0 pads."""

    index: Array  # int32 [batches, size]
    weight: Array  # [batches, size, kinds]


class EvalSamples(NamedTuple):
    """Which samples models are evaluated on."""

    test: SampleBatches  # weight 1; kinds: all of them, and those that devices are evaluated on
    train: SampleBatches  # [S, batches, size, 1]: weight 1/(samples of that device here)
    owner: Array  # int32 [S, batches, size]: slot of the device that holds the sample
    device: SampleBatches | None  # weight 1; for devices' own models, where they differ

    def specs(self) -> EvalSamples:
        device = None if self.device is None else SampleBatches(WHOLE, WHOLE)
        test, train = SampleBatches(ROWS, ROWS), SampleBatches(BATCHES, BATCHES)
        return EvalSamples(test, train, BATCHES, device)


def choose_samples(
    layout: Layout,
    partitions: Sequence[Partition],
    test: int,
    counts: tuple[int, int, int],
    shards: int,
    batch: int,
    dtype: DTypeLike,
) -> EvalSamples:
    """Choose the samples: some of the test set, and the first of each device's own.

    They are the same in every evaluation, so that curves are smooth, and random: a partition
    holds its samples in random order, but a published test set may be sorted or uneven.
    """
    on_test, on_train, each = counts
    kinds = np.ones((on_test, 2), dtype)
    kinds[each:, 1] = 0
    picked = np.random.default_rng(TEST_ORDER).permutation(test)[:on_test]
    chosen = [_first_of_each(layout, partition, on_train, dtype) for partition in partitions]
    longest = max(len(index) for index, _, _ in chosen)
    train, owners = [], []
    for index, weight, owner in chosen:
        missing = (0, longest - len(index))
        weight = np.pad(weight, missing)
        train.append(in_batches(np.pad(index, missing), weight, shards, batch))
        owners.append(in_batches(np.pad(owner, missing), weight, shards, batch).index)
    return EvalSamples(
        test=in_batches(picked, kinds, shards, batch),
        train=jax.tree.map(lambda *seeds: np.stack(seeds), *train),
        owner=np.stack(owners),
        device=in_batches(picked[:each], np.ones(each, dtype), 1, batch),
    )


def _first_of_each(
    layout: Layout, partition: Partition, on_train: int, dtype: DTypeLike
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The first samples of every device: index, weight, slot of the device."""
    sizes = train_sizes(partition, on_train)
    device = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    passed_over = (partition.offsets[:-1] - (np.cumsum(sizes) - sizes)).astype(np.int32)
    index = partition.order[np.arange(len(device), dtype=np.int32) + passed_over[device]]
    slot = np.empty(layout.devices, np.int32)
    slot[layout.order[layout.filled]] = layout.filled
    return index, (1 / sizes).astype(dtype)[device], slot[device]


def in_batches(
    index: NDArray[np.integer[Any]], weight: NDArray[Any], shards: int, batch: int
) -> SampleBatches:
    """Cut samples into equal batches, the same number for each shard, padded with weight 0."""
    weight = weight.reshape(len(index), -1)
    share = -(-len(index) // shards)
    size = min(batch, share)
    padded = -(-share // size) * size * shards
    index = np.pad(index, (0, padded - len(index)))
    weight = np.pad(weight, ((0, padded - len(weight)), (0, 0)))
    return SampleBatches(
        index.reshape(-1, size).astype(np.int32), weight.reshape(-1, size, weight.shape[1])
    )


R = TypeVar("R")
Sums: TypeAlias = tuple[jax.Array, ...]
Seed: TypeAlias = tuple[Sums, jax.Array, jax.Array]  # sums of test and training, count

# Devices whose models are evaluated side by side on an accelerator.
_ROWS_TOGETHER = 32
# Samples looked at side by side on an accelerator: as many as training has at once.
_SAMPLES_TOGETHER = 4096
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
    """Score every seed's mean model on this processor's share of the samples, and add up."""
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
    """
    if sums.ndim == count.ndim:
        means = sums / count
        return means if metric.finish is None else _over(metric.finish, means[..., None])
    means = sums / count[..., None]
    return _over(metric.finish or (lambda one: one[0]), means)


def checked_metrics(metrics: tuple[Metric, ...], data: Dataset) -> tuple[Metric, ...]:
    """The metrics, unless one does not give what is averaged: then nothing is trained."""
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
    """Map a function over leading axes, some side by side, in equal groups (so one compilation)."""
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


def losses_of(
    model: Model,
    held: tuple[Data, jax.Array, jax.Array, jax.Array],
    params: Params,
    viewer: jax.Array,
    owner: jax.Array,
    samples: int,
) -> jax.Array:
    """Losses of devices' models on others' samples; see `joulemesh.training.exchange.Context`."""
    bare = replace(model, l2=0.0)  # without the regulariser
    data, order, start, size = held
    lanes = jnp.arange(samples, dtype=jnp.int32)

    def loss(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        i, j = pair
        mine = jnp.minimum(size[i].astype(jnp.int32), samples)
        at = start[i] + jnp.minimum(lanes, mine - 1)
        x, y = gather(data, order[at])
        weight = (lanes < mine).astype(x.dtype) / mine
        theirs = jax.tree.map(lambda leaf: leaf[j], params)
        return weighted_loss(bare, theirs, x, y, weight, x.dtype)[0]

    together = 1 if loops_over_rows() else max(1, _SAMPLES_TOGETHER // samples)
    found: jax.Array = in_groups(loss, (viewer, owner), together)
    return found


def score(
    model: Model,
    compute: DTypeLike,
    data: Data,
    samples: SampleBatches,
    params: Params,
    metrics: Sequence[Metric],
) -> tuple[jax.Array, ...]:
    """Sums over the samples of weight · value, of each metric and kind."""

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
    def one(leaf: jax.Array) -> jax.Array:
        wide = share.reshape(share.shape + (1,) * (leaf.ndim - 2))
        return jnp.sum(wide.astype(leaf.dtype) * leaf, axis=0)

    return jax.tree.map(one, params)


def consensus_error(params: Params, active: jax.Array) -> jax.Array:
    """sqrt(mean_i ||w_i - w̄||²) / ||w̄|| over the active devices, w̄ their plain mean."""
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


def finite(key: ProgramKey, params: Params) -> jax.Array:
    """Whether all parameters of each seed are finite, [S]."""
    checks = [
        jnp.all(jnp.isfinite(leaf), axis=(0, *range(2, leaf.ndim)))
        for leaf in jax.tree.leaves(key.by_device(params))
    ]
    return jnp.all(jnp.stack(checks), axis=0)


def evaluate(
    key: ProgramKey,
    params: Params,
    train: Data,
    test: Data,
    weights: jax.Array,
    samples: EvalSamples,
    active: jax.Array,
) -> Evaluation:
    """Evaluate the mean model and the devices' own.

    Devices that agree have no samples of their own: the mean model is theirs. Those that do not
    are evaluated on some of the mean model's samples, as it is; by how much they differ from it
    there is added to its accuracy on all of its samples. So no gap between the two is one between
    samples.
    """
    view = key.by_device(params)
    share = jnp.where(active[:, None], weights, 0)
    share = share / jnp.sum(share, axis=0)
    centre = params if key.strategy.shared else mean_model(view, share)
    scores = key.sharded(
        partial(mean_scores, key),
        (WHOLE, WHOLE, samples.specs(), WHOLE, WHOLE),
        WHOLE,
    )(train, test, samples, centre, share)
    here = active[:, None]
    own = _devices(key, params, test, samples, scores)
    curves = {f"test_{m.name}": one for m, one in zip(key.metrics, scores.test, strict=True)}
    for name, each in own.items():
        centre_score = curves[f"test_{name}"]
        apart = jnp.where(here, each - centre_score, 0)  # nothing stays exactly nothing
        curves[f"device_{name}_mean"] = centre_score + jnp.sum(apart, axis=0) / jnp.sum(active)
        curves[f"device_{name}_min"] = jnp.min(jnp.where(here, each, jnp.inf), axis=0)
        curves[f"device_{name}_max"] = jnp.max(jnp.where(here, each, -jnp.inf), axis=0)
    nothing = jnp.zeros_like(scores.train_loss)
    names = score_columns(key.metrics[0].name)
    always = {field: curves.pop(name) for field, name in names.items()}
    return Evaluation(
        train_loss=scores.train_loss,
        test_loss=curves.pop("test_loss", always["test_score"]),
        **always,
        drift=nothing,
        consensus=nothing if samples.device is None else consensus_error(view, active),
        own=curves,
    )


def _devices(
    key: ProgramKey, params: Params, test: Data, samples: EvalSamples, scores: MeanScores
) -> dict[str, jax.Array]:
    """Of each metric that measures them, the figures of the devices' own models, [slots, S]."""
    shape = (key.slots, key.seeds)
    measured = [k for k, metric in enumerate(key.metrics) if metric.devices]
    found = {key.metrics[k].name: jnp.broadcast_to(scores.test[k], shape) for k in measured}
    if samples.device is None:
        return found
    specs = (WHOLE, WHOLE, ROWS)
    each = key.sharded(partial(device_scores, key), specs, ROWS)(test, samples.device, params)
    for k, one in zip(measured, each, strict=True):
        metric = key.metrics[k]
        moved = found[metric.name] + (one.reshape(shape) - scores.shared[k])
        found[metric.name] = jnp.clip(moved, 0, 1) if metric.share else moved
    return found


# Samples evaluated at once, on a CPU (where their activations stay in the cache) and otherwise.
_TOGETHER_LOOP, _TOGETHER = 256, 1024


class Evaluator:
    """Evaluates states of a run."""

    def __init__(
        self,
        key: ProgramKey,
        inputs: Inputs,
        layout: Layout,
        partitions: Sequence[Partition],
        schedule: Schedule,
        options: Options,
    ) -> None:
        self._key, self._inputs = key, inputs
        self._layout, self._partitions, self._schedule = layout, partitions, schedule
        test = len(inputs.test.y)
        curve = curve_samples(options, schedule, sizes_of(partitions), test)
        agree = schedule.exchanged & (key.exchange is mixing.mean)
        self.counts = SampleCounts(curve, test, agree, partitions)
        self._curve = self._samples(curve)

    def _samples(self, counts: tuple[int, int, int]) -> EvalSamples:
        dtype, mesh = self._inputs.weights.dtype, self._key.mesh
        together = _TOGETHER_LOOP if self._key.loop else _TOGETHER
        held = (self._layout, self._partitions, self.counts.test)
        made = choose_samples(*held, counts, mesh.size, together, dtype)
        specs = jax.tree.map(lambda spec: sharding(mesh, spec), made.specs())
        placed: EvalSamples = hosts.put(made, specs)
        return placed

    def evaluate(
        self, program: Callable[..., Evaluation], params: Params, iteration: int
    ) -> Evaluation:
        """Evaluate parameters after an iteration (from 0): the last on all test samples."""
        counts, samples = self.counts.at(iteration), self._curve
        active = self._layout.spread(self._schedule.active[iteration], False)
        if counts != self.counts.curve:
            samples = self._samples(counts)
        if self.counts.agree[iteration]:
            samples = samples._replace(device=None)
        train, test = self._inputs.train, self._inputs.test
        return program(params, train, test, self._inputs.weights, samples, active)
