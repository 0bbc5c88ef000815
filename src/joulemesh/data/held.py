"""Who holds which samples, and how a partition is put together."""

from __future__ import annotations

__all__ = ["Ints", "Partition", "regroup", "with_sizes"]

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of device i are ``order[offsets[i]:offsets[i + 1]]``, in random order.

    Attributes:
        order: integers [used], indices into the training set.
        offsets: int64 [N + 1], from 0 to ``used``.
        note: how it was found, where that is not plain from the scenario.

    >>> p = Partition(np.array([4, 0, 2]), np.array([0, 1, 3]))
    >>> p.sizes, p.indices(1)
    (array([1, 2]), array([0, 2]))
    """

    order: NDArray[np.integer[Any]]
    offsets: Ints
    note: str = ""

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Ints:
        """int64 [N]: samples of each device, D_i."""
        return np.diff(self.offsets)

    def indices(self, device: int) -> NDArray[np.integer[Any]]:
        """The training-set indices that ``device`` holds."""
        if not 0 <= device < self.devices:
            raise ScenarioError(
                f"device {device} does not exist: devices are 0..{self.devices - 1}"
            )
        return self.order[self.offsets[device] : self.offsets[device + 1]]

    def histogram(
        self, labels: ArrayLike, classes: int, devices: Iterable[int] | None = None
    ) -> Ints:
        """Count each device's labels.

        Args:
            labels: labels of the whole training set.
            classes: number of classes K.
            devices: D of the devices; all N unless given.

        Returns:
            int64 [D, K].

        >>> Partition(np.array([0, 3, 1, 2]), np.array([0, 1, 4])).histogram([2, 0, 0, 1], 3)
        array([[0, 0, 1],
               [2, 1, 0]])
        """
        known, chosen = np.asarray(labels), range(self.devices) if devices is None else devices
        return np.array([np.bincount(known[self.indices(i)], minlength=classes) for i in chosen])


def with_sizes(order: Ints, sizes: Ints, note: str = "") -> Partition:
    """The partition that gives each device the next samples of ``order``, as many as its size.

    >>> with_sizes(np.array([4, 0, 2]), np.array([1, 2])).indices(1)
    array([0, 2], dtype=int32)
    """
    chosen, offsets = order.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)])
    offsets = offsets.astype(np.int64)
    chosen.flags.writeable = offsets.flags.writeable = False
    return Partition(chosen, offsets, note)


def regroup(
    owner: Ints,
    devices: int,
    rng: np.random.Generator,
    *,
    pool: Ints | None = None,
    note: str = "",
) -> Partition:
    """The partition that gives sample k to the device ``owner[k]``, in random order within it.

    A device without samples gets one of whichever device then has most.

    Args:
        owner: int [n], the device of each sample; -1 leaves the sample out.
        devices: number of devices N.
        rng: of the order within a device.
        pool: int [n], the samples, if they are not 0..n-1.
        note: of the partition.

    >>> regroup(np.array([1, 0, 1, -1]), 2, np.random.default_rng(0)).sizes
    array([1, 2])
    """
    owner = np.asarray(owner)
    pool = np.arange(len(owner)) if pool is None else pool
    kept = owner >= 0
    pool, owner = pool[kept], owner[kept]
    if len(owner) < devices or owner.max() >= devices:
        raise ScenarioError(
            f"{len(owner)} samples for devices 0..{int(owner.max(initial=0))} cannot be dealt to "
            f"{devices} devices: give each device of 0..{devices - 1} at least one"
        )
    shuffled = np.lexsort((rng.random(len(pool)), owner))
    pool, owner = pool[shuffled], _fill_empty(owner[shuffled], devices)
    together = np.argsort(owner, kind="stable")
    return with_sizes(pool[together], np.bincount(owner, minlength=devices), note)


def _fill_empty(owner: Ints, devices: int) -> Ints:
    """Give each device without samples the last one of whichever device then has most."""
    sizes = np.bincount(owner, minlength=devices)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return owner
    owner = owner.copy()
    last = np.cumsum(sizes) - 1  # owner is sorted
    heap = [(-int(size), device) for device, size in enumerate(sizes) if size > 1]
    heapq.heapify(heap)
    for receiver in empty:
        size, donor = heap[0]
        heapq.heapreplace(heap, (size + 1, donor))
        owner[last[donor]] = receiver
        last[donor] -= 1
    return owner
