"""Samples of a data set on disk, read for the iterations that are about to be trained.

The host draws the batches of a chunk of iterations, as the programs will, and reads the samples in
them, each once. The programs take these few samples for the training set and find theirs by another
list of indices: what they compute is the same to the last bit.
"""

from __future__ import annotations

__all__ = ["POOL_BYTES", "Pools", "checked_samples"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.training.batches import Batches
from joulemesh.training.options import Options
from joulemesh.training.schedule import Members, Schedule

POOL_BYTES = 2**25
"""Bytes of samples that are in memory at a time, unless a single iteration needs more."""


class Pools:
    """Reads the samples of some iterations."""

    def __init__(
        self,
        dataset: Dataset,
        partitions: Sequence[Partition],
        schedule: Schedule,
        options: Options,
        seeds: Sequence[int],
        most: int,
    ) -> None:
        self._dataset, self._schedule = dataset, schedule
        self._batches = Batches(partitions, seeds, options)
        self._order = np.concatenate([np.asarray(one.order, np.int32) for one in partitions])
        self._place = np.zeros(len(dataset.y_train), np.int32)
        drawn = [int(self._steps(t).sum()) for t in range(schedule.iterations)]
        so_far = np.concatenate([[0], np.cumsum(drawn)]) * options.batch_size
        each = max(1, dataset.x_train[:1].nbytes)
        self.chunk = most
        while self.chunk > 1 and self._most(so_far) * each > POOL_BYTES:
            self.chunk -= 1
        self.capacity = max(1, min(len(dataset.y_train), self._most(so_far)))

    def _most(self, so_far: NDArray[np.int64]) -> int:
        """Samples drawn in the chunk that draws most."""
        width = min(self.chunk, len(so_far) - 1)
        return int((so_far[width:] - so_far[:-width]).max())

    def _steps(self, t: int) -> NDArray[np.int64]:
        rounds = self._schedule.rounds[t]
        if isinstance(self._schedule, Members):
            rounds = self._schedule.each[t].T
        return self._batches.steps(np.broadcast_to(rounds, self._batches.sizes.shape))

    def _drawn(self, t: int) -> NDArray[np.int64]:
        """Indices of the samples that some row draws in an iteration (from 0)."""
        steps = self._steps(t)
        rows = np.flatnonzero(steps)
        if not len(rows):
            return np.zeros(0, np.int64)
        index, _ = self._batches.draw(t, rows, 0, int(steps.max()))
        taken = np.arange(len(index))[:, None] < steps[rows]
        return np.unique(index[taken])

    def read(self, start: int, stop: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int32]]:
        """The samples of iterations start..stop−1, their targets, and the rows' indices of them."""
        needed = np.unique(np.concatenate([self._drawn(t) for t in range(start, stop)]))
        data, count = self._dataset, len(needed)
        x = np.zeros((self.capacity, *data.shape), data.x_train.dtype)
        y = np.zeros((self.capacity, *data.y_train.shape[1:]), data.y_train.dtype)
        x[:count] = checked_samples(data, "x_train", needed)
        y[:count] = data.y_train[needed]
        self._place[needed] = np.arange(count, dtype=np.int32)
        return x, y, self._place[self._order]


def checked_samples(data: Dataset, part: str, index: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Samples that are read from disk."""
    x: NDArray[Any] = getattr(data, part)[index]
    flat = x.reshape(len(x), -1)
    good: NDArray[Any] = np.ones(len(x), bool)
    if x.dtype == np.float32:
        good = np.asarray(np.isfinite(flat).all(axis=1))
    elif x.dtype == np.int32:
        inside: NDArray[Any] = (flat >= 0) & (flat < data.classes)
        good = np.asarray(inside.all(axis=1))
    if not good.all():
        first = int(index[int(good.argmin())])
        raise ScenarioError(
            f"{data.name}: {part}[{first}] holds NaN, infinity or a token that is not among "
            f"0..{data.classes - 1}: correct the sample"
        )
    return x
