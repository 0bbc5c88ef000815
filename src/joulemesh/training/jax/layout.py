"""Where each device's row lies: rows = devices × seeds, dealt evenly to the processors."""

from __future__ import annotations

__all__ = ["Layout"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Layout:
    """Slots 0..padded-1 hold devices; row slot·S + s is that device under seed s.

    Devices come before seeds, so that the rows of a seed are cut at the same devices however
    many seeds there are, and a mean over devices adds in the same order.

    Attributes:
        devices: number of devices N.
        seeds: number of seeds S.
        order: int64 [padded], the device at each slot; N at slots that pad.
    """

    devices: int
    seeds: int
    order: NDArray[np.int64]

    @classmethod
    def deal(cls, work: NDArray[Any], seeds: int, shards: int, *, shuffle: bool = True) -> Layout:
        """Deal devices to processors so that all have about the same work.

        Args:
            work: [N], expected work of each device.
            seeds: number of seeds.
            shards: number of processors, at most N.
            shuffle: False keeps devices in order (and pads at the end).

        Returns:
            The layout; with equal work devices stay in order.

        >>> Layout.deal(np.array([9, 9, 1, 1]), 1, 2).order
        array([0, 3, 1, 2])
        """
        devices = len(work)
        each = -(-devices // shards)
        order = np.full(each * shards, devices)
        if shards == 1 or not shuffle or np.all(work == work[0]):
            order[:devices] = np.arange(devices)
            return cls(devices, seeds, order)
        ranked = order.copy()
        ranked[:devices] = np.argsort(-work, kind="stable")
        # Back and forth: each processor gets one of every `shards` devices, ends evened out.
        dealt = ranked.reshape(each, shards)
        dealt[1::2] = dealt[1::2, ::-1]
        return cls(devices, seeds, dealt.T.ravel())

    @property
    def slots(self) -> int:
        """Number of slots, padding included."""
        return len(self.order)

    @property
    def filled(self) -> NDArray[np.int64]:
        """The slots that hold a device."""
        return np.flatnonzero(self.order < self.devices)

    def slots_of(self, devices: NDArray[np.int64]) -> NDArray[np.int32]:
        """The slot of each device that an array [..., N] names, in the order of slots.

        >>> Layout.deal(np.array([9, 9, 1, 1]), 1, 2).slots_of(np.array([0, 1, 2, 0])).tolist()
        [0, 0, 2, 3]
        """
        slot = np.arange(self.slots)  # padding keeps to itself
        own = np.empty(self.devices, np.int64)
        own[self.order[self.filled]] = self.filled
        named = np.broadcast_to(slot, (*devices.shape[:-1], self.slots)).copy()
        named[..., self.filled] = own[devices[..., self.order[self.filled]]]
        return named.astype(np.int32)

    def spread(self, values: NDArray[Any], fill: float, axis: int = -1) -> NDArray[Any]:
        """Put an axis of N devices in the order of slots, with ``fill`` at padding.

        >>> Layout.deal(np.ones(3), 1, 2).spread(np.array([5, 6, 7]), 0)
        array([5, 6, 7, 0])
        """
        values = np.moveaxis(np.asarray(values), axis, -1)
        pad = np.full((*values.shape[:-1], 1), fill, values.dtype)
        return np.moveaxis(np.concatenate([values, pad], axis=-1)[..., self.order], -1, axis)

    def rows(self, values: NDArray[Any], fill: float) -> NDArray[Any]:
        """Put [S, N] values in the order of rows.

        >>> Layout.deal(np.ones(2), 2, 1).rows(np.array([[1, 2], [3, 4]]), 0)
        array([1, 3, 2, 4])
        """
        return self.spread(values, fill).T.ravel()

    def matrices(self, mixing: NDArray[Any]) -> NDArray[Any]:
        """Put the devices of [..., N, N] mixing matrices in the order of slots.

        >>> Layout.deal(np.ones(1), 1, 1).matrices(np.ones((4, 1, 1))).shape
        (4, 1, 1)
        """
        mixed = self.spread(self.spread(mixing, 0.0), 0.0, axis=-2)
        pads = np.flatnonzero(self.order == self.devices)
        mixed[..., pads, pads] = 1.0
        return mixed

    def sparse(self, mixing: sparse.csr_array[Any, Any]) -> sparse.csr_array[Any, Any]:
        """Put the devices of a sparse mixing matrix in the order of slots.

        >>> Layout.deal(np.ones(3), 1, 2).sparse(sparse.csr_array(np.eye(3))).nnz
        4
        """
        missing = self.slots - self.devices
        whole = sparse.block_diag([mixing, sparse.eye_array(missing)]) if missing else mixing
        order = self.order.copy()
        order[order == self.devices] += np.arange(missing)
        return sparse.csr_array(sparse.csr_array(whole)[order][:, order])

    def rows_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put [S, N, ...] in the order of rows; padding repeats the last device.

        >>> Layout.deal(np.ones(3), 1, 2).rows_of(np.array([[[5], [6], [7]]])).ravel()
        array([5, 6, 7, 7])
        """
        slots = values[:, np.minimum(self.order, self.devices - 1)]
        return np.swapaxes(slots, 0, 1).reshape(-1, *values.shape[2:])

    def devices_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Take [rows, ...] back to [S, N, ...].

        >>> layout = Layout.deal(np.array([9, 9, 1, 1]), 1, 2)
        >>> layout.devices_of(layout.rows(np.array([[4, 5, 6, 7]]), 0))
        array([[4, 5, 6, 7]])
        """
        slot = np.empty(self.devices, np.int64)
        slot[self.order[self.filled]] = self.filled
        stacked = rows.reshape(self.slots, self.seeds, *rows.shape[1:])[slot]
        return np.swapaxes(stacked, 0, 1)
