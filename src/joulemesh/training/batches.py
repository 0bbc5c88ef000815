"""Which samples rows train on: the simulator's draws, made on the host; and the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulemesh.data import Dataset, Partition
from joulemesh.training import draws
from joulemesh.training.arrays import Array
from joulemesh.training.schedule import Options

IntArray = NDArray[np.int64]


class Data(NamedTuple):
    """Samples on the processor that trains; a model sees x · scale + shift."""

    x: Array  # uint8 or float32 [n, ...]; int32, tokens, which are not scaled
    y: Array  # int [n], float [n, k] or int [n, positions]
    scale: Array  # broadcasts with a sample
    shift: Array


def scale_of(dataset: Dataset, dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factor and the summand that normalise: (x - mean) / std in one multiply-add."""
    mean, std = np.asarray(dataset.mean, np.float64), np.asarray(dataset.std, np.float64)
    return np.asarray(1 / std, dtype), np.asarray(-mean / std, dtype)


class Batches:
    """Draws the batches of all rows; row s·N + i is device i of seed s."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        seeds: Sequence[int],
        options: Options,
        numbers: Sequence[int] | None = None,
    ) -> None:
        devices = partitions[0].devices
        self.sizes = np.stack([one.sizes for one in partitions])  # [S, N]
        before = np.cumsum([0, *(len(one.order) for one in partitions)])[:-1, None]
        self._start_of_rows = (before + np.stack([one.offsets[:-1] for one in partitions])).reshape(
            -1
        )
        self._order = np.concatenate([np.asarray(one.order, np.int64) for one in partitions])
        keys = [draws.seed_key(seed, draws.BATCH) for seed in seeds]
        first, second = (np.repeat(np.concatenate([k[w] for k in keys]), devices) for w in (0, 1))
        self._key: draws.Key = (first, second)
        self._device = np.tile(np.array(numbers or range(devices), np.uint32), len(seeds))
        self._epoch = options.local_round == "epoch"
        self._lanes = np.arange(options.batch_size, dtype=np.uint32)
        per_round = draws.steps_per_round(self.sizes, options.batch_size, options.local_round)
        self._per_round = per_round.reshape(-1).astype(np.int64)

    def steps(self, rounds: NDArray[np.integer[Any]]) -> IntArray:
        """int64 [R]: SGD steps of every row, given its rounds [S, N]."""
        return np.asarray(np.asarray(rounds, np.int64).reshape(-1) * self._per_round)

    def _fold(self, key: draws.Key, rows: IntArray, iteration: int) -> draws.Key:
        """Keys [rows, 1] of an iteration and device."""
        at = draws.fold((key[0][rows, None], key[1][rows, None]), np.uint32(iteration))
        return draws.fold(at, self._device[rows, None])

    def keys(
        self, purpose: int, rows: IntArray, iteration: int, start: int, stop: int
    ) -> NDArray[np.uint64]:
        """uint64 [steps, rows]: a number for each row and step, to seed what is drawn elsewhere."""
        step = np.arange(start, stop, dtype=np.uint32)[:, None, None]
        other = draws.fold(self._key, np.uint32(purpose))
        high, low = draws.fold(self._fold(other, rows, iteration), step)
        wide = high.astype(np.uint64) << np.uint64(31)  # below 2**63, which PyTorch takes
        return np.asarray((wide | low.astype(np.uint64)) >> np.uint64(1))[..., 0]

    def draw(
        self, iteration: int, rows: IntArray, start: int, stop: int
    ) -> tuple[IntArray, NDArray[np.bool_] | None]:
        """The samples of some rows in steps start..stop−1 of an iteration (from 0)."""
        key = self._fold(self._key, rows, iteration)
        step = np.arange(start, stop, dtype=np.uint32)[:, None, None]
        size = self.sizes.reshape(-1)[rows, None].astype(np.uint32)
        valid = None
        if self._epoch:
            position, valid = draws.epoch_positions(key, step, self._lanes, size)
            valid = None if valid.all() else valid
        else:
            position = draws.step_positions(key, step, self._lanes, size)
        return self._order[self._start_of_rows[rows, None] + position.astype(np.int64)], valid
