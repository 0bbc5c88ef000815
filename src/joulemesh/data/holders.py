"""Partition by the data's own word: a column that says which device holds a row."""

from __future__ import annotations

__all__ = ["held_partition", "natural_partition"]

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.partition import Partition, chance, regroup
from joulemesh.errors import ScenarioError

Ints = NDArray[np.int64]
_PURPOSE = 0x6E617475  # "natu": keeps these draws apart from every other use of the seed


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


def natural_partition(
    dataset: Dataset, devices: int, *, names: Sequence[str] = (), seed: int = 0, world: int = 0
) -> Partition:
    """Give each device the samples of one holder: that of its name, or one drawn for it.

    Where there are more holders than devices, some are drawn by the seed of the world, the same in
    all repetitions, and the samples of the others are left out.

    Args:
        dataset: with `Holders`, such as the users of a federated data set.
        devices: number of devices N.
        names: of the devices, if they have any.
        seed: of the order of each device's samples.
        world: the scenario's seed, which draws the holders.

    Raises:
        ScenarioError: the data do not say who holds a sample, or have fewer holders than devices.

    >>> from joulemesh.data import from_arrays
    >>> x, y = [[0.0], [1.0], [2.0]], [0, 1, 1]
    >>> data = from_arrays(x, y, x, y, held_by={"user": ["ann", "bob", "bob"]})
    >>> natural_partition(data, 2).note
    "each device has the samples of one of the 2 holders ('user'): 1 to 2 each"
    """
    holders = dataset.holders
    if holders is None:
        raise ScenarioError(
            f'training.partition = "natural" is for data with one shard per device, and '
            f"{dataset.name} does not say who holds a sample: use folder:PATH, or another partition"
        )
    found = holders.names
    if len(found) < devices:
        raise ScenarioError(
            f"{dataset.name} has {len(found)} holders ({holders.column!r}) for {devices} devices: "
            f"set devices.count = {len(found)} or fewer, or use another training.partition"
        )
    chosen = _by_name(found, tuple(names))
    if chosen is None:
        chosen = np.arange(len(found))
        if len(found) > devices:
            drawn = np.random.default_rng([world, _PURPOSE])
            chosen = np.sort(drawn.choice(len(found), devices, replace=False))
    device_of = np.full(len(found), -1)
    device_of[chosen] = np.arange(devices)
    owner = device_of[holders.of]
    kept = np.flatnonzero(owner >= 0)
    sizes = np.bincount(owner[kept], minlength=devices)
    drawn_from = f"{devices} of " if len(found) > devices else ""
    note = (
        f"each device has the samples of one of the {drawn_from}{len(found)} holders "
        f"({holders.column!r}): {sizes.min():,} to {sizes.max():,} each"
    )
    return regroup(owner[kept], devices, chance(seed), pool=kept, note=note)


def _by_name(found: Sequence[str], names: tuple[str, ...]) -> Ints | None:
    """The holders of the devices' names, in the order of the devices; None if not all are there."""
    number = {name: k for k, name in enumerate(found)}
    return np.array([number[name] for name in names]) if names and set(names) <= {*found} else None


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
