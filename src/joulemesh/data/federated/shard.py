"""One device's samples, and all shards as a data set that knows who holds what."""

from __future__ import annotations

__all__ = ["Shard", "joined", "split"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.arrays import from_arrays
from joulemesh.data.dataset import Dataset
from joulemesh.data.reading import HOLDER, Reading
from joulemesh.errors import ScenarioError

_PURPOSE = 0x75736572  # "user": keeps these draws apart from every other use of the seed

Arrays = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Shard:
    """What one device, or user, holds.

    Attributes:
        name: of its holder.
        train: samples and labels to train on.
        test: samples and labels to test on; empty arrays or None where there are none.
    """

    name: str
    train: Arrays
    test: Arrays | None = None


def split(shard: Shard, reading: Reading, number: int) -> Shard:
    """The shard with a share of its samples held out to test on; one at least is trained on.

    Args:
        shard: without test samples.
        reading: the share, and the seed.
        number: of the shard: each draws its own.
    """
    x, y = shard.train
    order = np.random.default_rng([reading.seed, _PURPOSE, number]).permutation(len(y))
    held_out = min(round(reading.test_fraction * len(y)), len(y) - 1)
    test, train = np.sort(order[:held_out]), np.sort(order[held_out:])
    return Shard(shard.name, (x[train], y[train]), (x[test], y[test]))


def joined(
    name: str, shards: Sequence[Shard], reading: Reading, test: Arrays | None = None
) -> Dataset:
    """All shards as one data set, which says who holds each training sample.

    Args:
        name: of the data.
        shards: one for each device or user, at least one.
        reading: whether samples are scaled; which share is held out where nothing says what to
            test on.
        test: test samples of nobody in particular, beside those of the shards.

    Raises:
        ScenarioError: shards that do not fit each other, or nothing to train or test on.
    """
    if not shards:
        raise ScenarioError(f"{name} has no shards: give it one for each device")
    for shard in shards:
        _check(name, shard)
    tested = [shard.test for shard in shards if shard.test is not None and len(shard.test[1])]
    if test is not None:
        tested.append(test)
    if not tested:
        shards = [split(shard, reading, number) for number, shard in enumerate(shards)]
        tested = [shard.test for shard in shards if shard.test is not None and len(shard.test[1])]
    if not tested:
        raise ScenarioError(
            f"{name} leaves nothing to test on: its {len(shards)} shards hold one sample each; add "
            "a test set, or raise training.test_fraction"
        )
    sizes = [len(shard.train[1]) for shard in shards]
    holders = np.repeat(np.array([shard.name for shard in shards]), sizes)
    return from_arrays(
        _stacked(name, [(shard.name, shard.train[0]) for shard in shards]),
        np.concatenate([shard.train[1] for shard in shards]),
        _stacked(name, [("the test samples", x) for x, _ in tested]),
        np.concatenate([y for _, y in tested]),
        name=name,
        normalize=reading.normalize,
        held_by={HOLDER: holders},
        targets=reading.targets,
    )


def _check(name: str, shard: Shard) -> None:
    for part, arrays in (("training", shard.train), ("test", shard.test)):
        if arrays is not None and len(arrays[0]) != len(arrays[1]):
            raise ScenarioError(
                f"{name}: {shard.name!r:.60} has {len(arrays[0])} {part} samples and "
                f"{len(arrays[1])} labels: make them equal"
            )
    if not len(shard.train[1]):
        raise ScenarioError(
            f"{name}: {shard.name!r:.60} holds no training sample: give it one, or leave it out"
        )


def _stacked(name: str, parts: Sequence[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
    first_name, first = parts[0]
    for holder, x in parts:
        if x.shape[1:] != first.shape[1:]:
            raise ScenarioError(
                f"{name}: samples of {holder!r:.60} have shape {x.shape[1:]} and those of "
                f"{first_name!r:.60} {first.shape[1:]}: give all one shape"
            )
    return np.concatenate([x for _, x in parts])
