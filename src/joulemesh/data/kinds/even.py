"""Partitions that do not look at labels: of equal sizes, of unequal ones, and with replacement.

Reference:
    iid: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", AISTATS 2017.
"""

from __future__ import annotations

import numpy as np

from joulemesh.data.held import Ints, Partition, with_sizes
from joulemesh.data.kinds.shares import apportion, log_mixes, require_alpha
from joulemesh.data.partition import PartitionKind
from joulemesh.registries import PARTITIONS


def _iid(labels: Ints, devices: int, rng: np.random.Generator, sizes: Ints | None) -> Partition:
    pool = rng.permutation(len(labels))
    if sizes is None:
        sizes = 1 + apportion(len(labels) - devices, np.ones(devices))
    return with_sizes(pool[: sizes.sum()], sizes)


def _quantity(
    labels: Ints, devices: int, rng: np.random.Generator, sizes: Ints | None, *, alpha: float
) -> Partition:
    require_alpha(alpha)
    pool = rng.permutation(len(labels))
    if sizes is None:
        share = np.exp(log_mixes(rng, alpha, 1, devices)[0])
        sizes = 1 + apportion(len(labels) - devices, share)
    return with_sizes(pool[: sizes.sum()], sizes)


def _resample(
    labels: Ints, devices: int, rng: np.random.Generator, sizes: Ints | None
) -> Partition:
    count = len(labels)
    if sizes is None:
        sizes = np.full(devices, -(-count // devices), dtype=np.int64)
    return with_sizes(rng.integers(count, size=int(sizes.sum())), sizes)


for _kind in (
    PartitionKind(
        "iid",
        "labels and sizes alike, give or take one sample",
        _iid,
        by_label=False,
        phrase="samples are split evenly and at random among the devices",
    ),
    PartitionKind(
        "quantity",
        "labels alike; sizes in proportion to a draw of Dirichlet(alpha)",
        _quantity,
        ("alpha",),
        by_label=False,
        phrase="labels are alike on all devices, and sizes are in proportion to a draw of "
        "Dirichlet({alpha:g})",
    ),
    PartitionKind(
        "resample",
        "each device draws independently and with replacement: many may share few samples",
        _resample,
        repeats=True,
        by_label=False,
        phrase="each device draws its samples at random, with replacement",
    ),
):
    PARTITIONS.register(_kind)
