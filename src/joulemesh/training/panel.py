"""Scoring models on the samples of one processor's share."""

from __future__ import annotations

__all__ = ["Scores", "Sheets", "device_accuracy", "make_sheets", "mean_scores", "train_sizes"]

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from joulemesh.data import Partition
from joulemesh.models.core import Model, Params
from joulemesh.training.evaluate import Samples, in_batches, in_groups, regulariser, score
from joulemesh.training.layout import Layout
from joulemesh.training.objective import Array, Data
from joulemesh.training.platform import BATCHES, ROWS, WHOLE

# Devices whose models are evaluated side by side on an accelerator.
_ROWS_TOGETHER = 32
# The choice of test samples is the same for every seed: seeds are compared on it.
_PURPOSE = 0x74657374


class Sheets(NamedTuple):
    """Which samples models are evaluated on."""

    test: Samples  # weight 1; kinds: all of them, and those that devices are evaluated on
    train: Samples  # [S, batches, size, 1]: weight 1/(samples of that device here)
    owner: Array  # int32 [S, batches, size]: place of the device that holds the sample
    device: Samples | None  # weight 1; for devices' own models, where they differ

    def specs(self) -> Sheets:
        """How the batches are shared between processors."""
        device = None if self.device is None else Samples(WHOLE, WHOLE)
        return Sheets(Samples(ROWS, ROWS), Samples(BATCHES, BATCHES), BATCHES, device)


class Scores(NamedTuple):
    """Of the mean model, per seed."""

    train_loss: Array
    test_loss: Array
    test_accuracy: Array
    shared_accuracy: Array  # on the samples that devices are evaluated on


def make_sheets(
    layout: Layout,
    partitions: Sequence[Partition],
    test: int,
    counts: tuple[int, int, int],
    shards: int,
    batch: int,
    dtype: Any,
) -> Sheets:
    """Choose the samples: some of the test set, and the first of each device's own.

    They are the same in every evaluation, so that curves are smooth, and random: a partition
    holds its samples in random order, but a published test set may be sorted or uneven.

    Args:
        layout: of devices.
        partitions: one per seed.
        test: number of test samples.
        counts: test samples, training samples in all, and how many of the test samples devices'
            own models are evaluated on.
        shards: number of processors.
        batch: samples evaluated at once, at most.
        dtype: of the weights.

    Returns:
        Sheets of NumPy arrays.
    """
    on_test, on_train, each = counts
    kinds = np.ones((on_test, 2), dtype)
    kinds[each:, 1] = 0
    picked = np.random.default_rng(_PURPOSE).permutation(test)[:on_test]
    chosen = [_first_of_each(layout, partition, on_train, dtype) for partition in partitions]
    longest = max(len(index) for index, _, _ in chosen)
    train, owners = [], []
    for index, weight, owner in chosen:
        missing = (0, longest - len(index))
        weight = np.pad(weight, missing)
        train.append(in_batches(np.pad(index, missing), weight, shards, batch))
        owners.append(in_batches(np.pad(owner, missing), weight, shards, batch).index)
    return Sheets(
        test=in_batches(picked, kinds, shards, batch),
        train=jax.tree.map(lambda *seeds: np.stack(seeds), *train),
        owner=np.stack(owners),
        device=in_batches(picked[:each], np.ones(each, dtype), 1, batch),
    )


def train_sizes(partition: Partition, on_train: int) -> NDArray[np.int64]:
    """How many of its samples each device puts into the training loss: alike, if it has so many.

    Args:
        partition: who holds which samples.
        on_train: how many there shall be in all, at least.

    Returns:
        int64 [N].
    """
    return np.minimum(partition.sizes, -(-on_train // partition.devices))


def _first_of_each(
    layout: Layout, partition: Partition, on_train: int, dtype: Any
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The first samples of every device: index, weight, place of the device."""
    sizes = train_sizes(partition, on_train)
    device = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    passed_over = (partition.offsets[:-1] - (np.cumsum(sizes) - sizes)).astype(np.int32)
    index = partition.order[np.arange(len(device), dtype=np.int32) + passed_over[device]]
    place = np.empty(layout.devices, np.int32)
    place[layout.order[layout.filled]] = layout.filled
    return index, (1 / sizes).astype(dtype)[device], place[device]


def mean_scores(
    model: Model,
    compute: Any,
    sharded: bool,
    train: Data,
    test: Data,
    sheets: Sheets,
    centre: Params,
    share: jax.Array,
) -> Scores:
    """Score every seed's mean model on this processor's share of the samples, and add up.

    Args:
        model: what is evaluated.
        compute: dtype in which it computes.
        sharded: whether there are other processors to add up with.
        train: training samples.
        test: test samples.
        sheets: which of them.
        centre: mean models, stacked [S, ...].
        share: [places, S], weight of each device in the mean and in the training loss.

    Returns:
        The scores, [S] each.
    """

    def seed(given: tuple[Any, ...]) -> tuple[jax.Array, ...]:
        params, chosen, owner, mine = given
        loss, correct = score(model, compute, test, sheets.test, params)
        weight = chosen.weight * mine[owner][..., None].astype(chosen.weight.dtype)
        trained, _ = score(model, compute, train, Samples(chosen.index, weight), params)
        return loss, correct, trained, jnp.sum(sheets.test.weight, axis=(0, 1))

    # One seed after another: the same operations, and so the same bits, for any number of seeds.
    sums = lax.map(seed, (centre, sheets.train, sheets.owner, share.T))
    if sharded:
        sums = lax.psum(sums, "rows")  # type: ignore[no-untyped-call]
    loss, correct, trained, count = sums
    penalty = lax.map(lambda params: regulariser(model, params), centre)
    # Counts of whole numbers, divided last: alike to the last bit however samples are dealt.
    accuracy = correct / count
    train_loss = trained[:, 0] + penalty.astype(loss.dtype)
    return Scores(train_loss, loss[:, 0] / count[:, 0], *accuracy.T)


def device_accuracy(
    model: Model, compute: Any, loop: bool, test: Data, samples: Samples, params: Params
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
