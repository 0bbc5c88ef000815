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
    """

    devices: int  # number of devices N
    seeds: int  # number of seeds S
    order: NDArray[np.int64]  # int64 [padded], the device at each slot; N at slots that pad

    @classmethod
    def deal(cls, work: NDArray[Any], seeds: int, shards: int, *, shuffle: bool = True) -> Layout:
        """Deal devices to processors so that all have about the same work."""
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
        """The slot of each device that an array [..., N] names, in the order of slots."""
        slot = np.arange(self.slots)  # padding keeps to itself
        own = np.empty(self.devices, np.int64)
        own[self.order[self.filled]] = self.filled
        named = np.broadcast_to(slot, (*devices.shape[:-1], self.slots)).copy()
        named[..., self.filled] = own[devices[..., self.order[self.filled]]]
        return named.astype(np.int32)

    def spread(self, values: NDArray[Any], fill: float, axis: int = -1) -> NDArray[Any]:
        """Put an axis of N devices in the order of slots, with ``fill`` at padding."""
        values = np.moveaxis(np.asarray(values), axis, -1)
        pad = np.full((*values.shape[:-1], 1), fill, values.dtype)
        return np.moveaxis(np.concatenate([values, pad], axis=-1)[..., self.order], -1, axis)

    def rows(self, values: NDArray[Any], fill: float) -> NDArray[Any]:
        """Put [S, N] values in the order of rows."""
        return self.spread(values, fill).T.ravel()

    def matrices(self, mixing: NDArray[Any]) -> NDArray[Any]:
        """Put the devices of [..., N, N] mixing matrices in the order of slots."""
        mixed = self.spread(self.spread(mixing, 0.0), 0.0, axis=-2)
        pads = np.flatnonzero(self.order == self.devices)
        mixed[..., pads, pads] = 1.0
        return mixed

    def sparse(self, mixing: sparse.csr_array[Any, Any]) -> sparse.csr_array[Any, Any]:
        """Put the devices of a sparse mixing matrix in the order of slots."""
        missing = self.slots - self.devices
        whole = sparse.block_diag([mixing, sparse.eye_array(missing)]) if missing else mixing
        order = self.order.copy()
        order[order == self.devices] += np.arange(missing)
        return sparse.csr_array(sparse.csr_array(whole)[order][:, order])

    def rows_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put [S, N, ...] in the order of rows; padding repeats the last device."""
        slots = values[:, np.minimum(self.order, self.devices - 1)]
        return np.swapaxes(slots, 0, 1).reshape(-1, *values.shape[2:])

    def devices_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Take [rows, ...] back to [S, N, ...]."""
        slot = np.empty(self.devices, np.int64)
        slot[self.order[self.filled]] = self.filled
        stacked = rows.reshape(self.slots, self.seeds, *rows.shape[1:])[slot]
        return np.swapaxes(stacked, 0, 1)
