"""Label skew by shards: runs of the label-sorted samples.

Reference:
    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    AISTATS 2017.
"""

from __future__ import annotations

import numpy as np

from joulemesh.bibliography import MCMAHAN
from joulemesh.data.held import Ints, Partition, regroup
from joulemesh.data.kinds.shares import apportion
from joulemesh.data.partition import PartitionKind
from joulemesh.errors import ScenarioError
from joulemesh.registries import PARTITIONS


def _deal(
    labels: Ints,
    devices: int,
    rng: np.random.Generator,
    sizes: Ints | None,
    *,
    shards_per_device: int,
) -> Partition:
    if shards_per_device < 1:
        raise ScenarioError(f"shards_per_device = {shards_per_device} is too few: use 1 or more")
    pool = rng.permutation(len(labels))
    if sizes is not None:
        pool = pool[: sizes.sum()]
    # A stable sort of a shuffled pool: label order, random within a label.
    pool = pool[np.argsort(labels[pool], kind="stable")]
    owner = _shard_owners(rng, len(pool), devices, shards_per_device, sizes)
    return regroup(owner, devices, rng, pool=pool)


def _shard_owners(
    rng: np.random.Generator, n: int, devices: int, shards: int, wanted: Ints | None
) -> Ints:
    """Owner of each place in the label-sorted pool: contiguous shards in a random order."""
    holder = np.repeat(np.arange(devices), shards)
    if wanted is None:
        if devices * shards > n:
            raise ScenarioError(
                f"{devices} devices with {shards} shards each need {devices * shards} samples but "
                f"there are {n}: lower shards_per_device or use partition = 'resample'"
            )
        length = 1 + apportion(n - devices * shards, np.ones(devices * shards))
    else:
        piece = np.tile(np.arange(shards), devices)
        length = wanted[holder] // shards + (piece < wanted[holder] % shards)
    turn = rng.permutation(len(holder))
    # Equal lengths were laid out in place order; given sizes belong to their device.
    return np.repeat(holder[turn], length if wanted is None else length[turn])


PARTITIONS.register(
    PartitionKind(
        "shards",
        "each device holds shards_per_device runs of the label-sorted samples",
        _deal,
        ("shards_per_device",),
        phrase="each device holds {shards_per_device} shards of the samples sorted by label",
        citation=MCMAHAN,
    )
)
