"""Partition by the data's own word: a column that says which device holds a row."""

from __future__ import annotations

__all__ = ["held_partition"]

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.partition import Partition, chance, regroup
from joulemesh.errors import ScenarioError

Ints = NDArray[np.int64]


def held_partition(
    dataset: Dataset, devices: int, *, names: Sequence[str] = (), seed: int = 0
) -> Partition:
    """Give each training sample to the device that holds it.

    Holders are matched to devices by name, where the devices have names; otherwise by number, if
    they are 0..N-1 or 1..N; otherwise in the order in which they appear in the data. The
    partition's note says which.

    Args:
        dataset: with `Holders`.
        devices: number of devices N.
        names: of the devices, if they have any.
        seed: of the order of each device's samples.

    Raises:
        ScenarioError: another number of holders than of devices, an unknown name, or a device
            without a training sample.

    >>> from joulemesh.data import from_arrays
    >>> x, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
    >>> data = from_arrays(x, y, x, y, held_by={"device": ["b", "a", "b"]})
    >>> part = held_partition(data, 2, names=["a", "b"])
    >>> part.sizes, part.note
    (array([1, 2]), "the column 'device' gives samples to the devices of that name: 1 to 2 each")
    """
    holders = dataset.holders
    if holders is None:
        raise ScenarioError(
            f"{dataset.name} does not say which device holds a sample: use another "
            "training.partition"
        )
    device_of, how = _matched(holders, devices, tuple(names))
    owner = device_of[holders.of]
    sizes = np.bincount(owner, minlength=devices)
    if not sizes.all():
        empty = int(sizes.argmin())
        name = holders.names[int(np.flatnonzero(device_of == empty)[0])]
        raise ScenarioError(
            f"device {empty} ({name}) has no training sample in the column {holders.column!r}: all "
            "of its rows are test samples; mark some to train on, or lower training.test_fraction"
        )
    span = f"{sizes.min():,} to {sizes.max():,} each"
    note = f"the column {holders.column!r} gives samples to the devices {how}: {span}"
    return regroup(owner, devices, chance(seed), note=note)


def _matched(holders: Holders, devices: int, names: tuple[str, ...]) -> tuple[Ints, str]:
    """The device of each holder, and how it was found."""
    found, column = holders.names, holders.column
    strangers = [name for name in found if name not in names]
    numbers = _numbers(found, devices)
    if names and strangers and (numbers is None or len(strangers) < len(found)):
        raise ScenarioError(
            f"the column {column!r} names {strangers[0]!r:.60}, which is not a name in the device "
            "table: correct it there or here"
        )
    by_name = bool(names) and not strangers
    if by_name and len(found) < devices:
        absent = next(name for name in names if name not in found)
        raise ScenarioError(
            f"the column {column!r} gives no row to the device {absent!r:.60}, and names "
            f"{len(found)} of {devices} devices: give it rows, or take it out of the device table"
        )
    if len(found) != devices:
        raise ScenarioError(
            f"the column {column!r} names {len(found)} holders for {devices} devices: set "
            f"devices.count = {len(found)}, or give every device rows"
        )
    if by_name:
        return np.array([names.index(name) for name in found]), "of that name"
    if numbers is not None:
        from_one = "" if "0" in found else ", counted from 1"
        return numbers, f"of that number{from_one}"
    shown = ", ".join(f"{name!r:.40} is device {k}" for k, name in enumerate(found[:3]))
    more = ", ..." if len(found) > 3 else ""
    return np.arange(devices), f"in the order of their appearance ({shown}{more})"


def _numbers(names: Sequence[str], devices: int) -> Ints | None:
    """The devices' numbers, if the names are 0..N-1 or 1..N."""
    for first in (0, 1):
        if set(names) == {str(k) for k in range(first, first + devices)}:
            return np.array([int(name) - first for name in names])
    return None
