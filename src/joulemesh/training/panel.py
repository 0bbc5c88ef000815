"""Scoring models on the samples of one processor's share."""

from __future__ import annotations

__all__ = ["Scores", "Sheets", "device_accuracy", "make_sheets", "mean_scores"]

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from joulemesh.data import Partition
from joulemesh.models.core import Model, Params
from joulemesh.training.evaluate import Samples, in_batches, regulariser, score
from joulemesh.training.layout import Layout
from joulemesh.training.objective import Data

# Devices whose models are evaluated side by side on an accelerator.
_ROWS_TOGETHER = 32


class Sheets(NamedTuple):
    """Which samples models are evaluated on."""

    test: Samples  # kinds: all of them, and those that devices are evaluated on
    train: Samples  # [S, batches, size, 1]: weight 1/(samples of that device here)
    owner: jax.Array  # int32 [S, batches, size]: place of the device that holds the sample
    device: Samples  # for devices' own models

    def specs(self) -> Sheets:
        """How the batches are shared between processors."""
        batches, later = P("rows"), P(None, "rows")
        return Sheets(Samples(batches, batches), Samples(later, later), later, Samples(P(), P()))  # type: ignore[arg-type]


class Scores(NamedTuple):
    """Of the mean model, per seed."""

    train_loss: jax.Array
    test_loss: jax.Array
    test_accuracy: jax.Array
    shared_accuracy: jax.Array  # on the samples that devices are evaluated on


def make_sheets(
    layout: Layout,
    partitions: Sequence[Partition],
    test: int,
    counts: tuple[int, int, int],
    shards: int,
    dtype: Any,
) -> Sheets:
    """Choose the samples: the first of the test set, and the first of each device's own.

    Both orders are random (the partition's, and the data set's as published), and the same in
    every evaluation, so that curves are smooth.

    Args:
        layout: of devices.
        partitions: one per seed.
        test: number of test samples.
        counts: test samples, training samples in all, and test samples for devices' own models.
        shards: number of processors.
        dtype: of the weights.

    Returns:
        Sheets of NumPy arrays.
    """
    on_test, on_train, each = (min(count, test) if k != 1 else count for k, count in enumerate(counts))
    kinds = np.zeros((on_test, 2), dtype)
    kinds[:, 0] = 1 / on_test
    kinds[:each, 1] = 1 / min(each, on_test)
    place = np.argsort(layout.order, kind="stable")[: layout.devices]
    quota = -(-on_train // layout.devices)
    chosen = [_first_of_each(partition, quota, place, shards, dtype) for partition in partitions]
    widest = max(samples.index.shape[0] for samples, _ in chosen)
    train, owner = zip(*[_pad(samples, own, widest, shards) for samples, own in chosen], strict=True)
    return Sheets(
        test=in_batches(np.arange(on_test), kinds, shards),
        train=Samples(np.stack([s.index for s in train]), np.stack([s.weight for s in train])),  # type: ignore[arg-type]
        owner=np.stack(owner),  # type: ignore[arg-type]
        device=in_batches(np.arange(each), np.full(each, 1 / each, dtype), 1),
    )
