"""Which samples models are evaluated on: some of the test set, and some of each device's own."""

from __future__ import annotations

__all__ = [
    "TEST_ORDER",
    "EvalSamples",
    "SampleBatches",
    "choose_samples",
    "in_batches",
    "train_sizes",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulemesh.data import Partition
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.loss import Array
from joulemesh.training.jax.platform import BATCHES, ROWS, WHOLE

# The choice of test samples is the same for every seed: seeds are compared on it.
TEST_ORDER = 0x74657374


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
        """Partition specs of the batches."""
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
        Indices and weights, as NumPy arrays.
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
    """Cut samples into equal batches, the same number for each shard, padded with weight 0.

    Args:
        index: int [m] (NumPy).
        weight: [m] or [m, kinds] (NumPy).
        shards: number of processors.
        batch: samples in a batch, at most.

    Returns:
        NumPy arrays, the batches of one shard side by side.

    >>> in_batches(np.arange(3), np.ones(3), 2, 256).weight[..., 0].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    weight = weight.reshape(len(index), -1)
    share = -(-len(index) // shards)
    size = min(batch, share)
    padded = -(-share // size) * size * shards
    index = np.pad(index, (0, padded - len(index)))
    weight = np.pad(weight, ((0, padded - len(weight)), (0, 0)))
    return SampleBatches(
        index.reshape(-1, size).astype(np.int32), weight.reshape(-1, size, weight.shape[1])
    )
