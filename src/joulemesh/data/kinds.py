"""The built-in ways to deal samples out to devices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import MCMAHAN, Citation
from joulemesh.data.partition import Ints, Partition, PartitionKind, regroup, with_sizes
from joulemesh.registries import PARTITIONS

_SMALLEST_ALPHA = 1e-6


def require_alpha(alpha: float) -> None:
    """Refuse a concentration that is not one."""
    if not _SMALLEST_ALPHA <= alpha < np.inf:
        raise ScenarioError(f"alpha = {alpha} is out of range: use {_SMALLEST_ALPHA} or more")


def apportion(total: int, weights: NDArray[np.float64]) -> Ints:
    """Whole numbers that sum to ``total``, in proportion to ``weights`` (largest remainders)."""
    quota = weights / weights.sum() * total
    whole: Ints = np.floor(quota).astype(np.int64)
    short = total - int(whole.sum())
    whole[np.argsort(whole - quota, kind="stable")[:short]] += 1
    return whole


def log_mixes(
    rng: np.random.Generator, alpha: float, rows: int, columns: int
) -> NDArray[np.float64]:
    """Logarithm of rows drawn from Dirichlet(alpha), exact where alpha is tiny.

    Gamma(alpha) = Gamma(alpha + 1) * U^(1/alpha) keeps the draw finite in the logarithm, where
    numpy's own Dirichlet underflows to zeros (and to NaN).
    """
    log_gamma: NDArray[np.float64] = np.log(rng.standard_gamma(alpha + 1.0, size=(rows, columns)))
    log_gamma += np.log1p(-rng.random((rows, columns))) / alpha
    log_gamma -= log_gamma.max(axis=1, keepdims=True)
    log_gamma -= np.log(np.exp(log_gamma).sum(axis=1, keepdims=True))
    return log_gamma


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


def _deal_dirichlet(
    labels: Ints, devices: int, rng: np.random.Generator, sizes: Ints | None, *, alpha: float
) -> Partition:
    require_alpha(alpha)
    pool = rng.permutation(len(labels))
    # A stable sort of a shuffled pool: label order, random within a label.
    pool = pool[np.argsort(labels[pool], kind="stable")]
    if sizes is None:
        owner = _owners(rng, labels[pool], devices, alpha)
    else:
        owner = _owners_sized(rng, labels[pool], alpha, sizes)
    return regroup(owner, devices, rng, pool=pool)


def _owners(rng: np.random.Generator, sorted_labels: Ints, devices: int, alpha: float) -> Ints:
    """Share each class out in proportion to the devices' mixes."""
    counts = np.bincount(sorted_labels)
    log_mix = log_mixes(rng, alpha, devices, len(counts))
    weight = np.exp(log_mix - log_mix.max(axis=0))
    edge = np.cumsum(weight, axis=0)
    cut = np.rint(edge / edge[-1] * counts).astype(np.int64)
    dealt = np.diff(cut, axis=0, prepend=0)
    return np.repeat(np.tile(np.arange(devices), len(counts)), dealt.T.ravel())


def _owners_sized(
    rng: np.random.Generator, sorted_labels: Ints, alpha: float, wanted: Ints
) -> Ints:
    """Fill every device's slots with labels drawn from its mix, while each class lasts.

    A slot whose label has run out draws again among the classes that are left; each pass
    exhausts a class or ends, so there are at most as many passes as classes.
    """
    supply = np.bincount(sorted_labels)
    first = np.cumsum(supply) - supply
    log_mix = log_mixes(rng, alpha, len(wanted), len(supply))
    owner = np.full(len(sorted_labels), -1, dtype=np.int64)
    slots = np.repeat(np.arange(len(wanted)), wanted)
    while len(slots):
        drawn = _draw_labels(rng, log_mix, slots, supply > 0)
        shuffled = rng.permutation(len(slots))
        by_label = shuffled[np.argsort(drawn[shuffled], kind="stable")]
        label = drawn[by_label]
        demand = np.bincount(label, minlength=len(supply))
        rank = np.arange(len(label)) - (np.cumsum(demand) - demand)[label]
        served = rank < supply[label]
        owner[first[label[served]] + rank[served]] = slots[by_label[served]]
        taken = np.minimum(demand, supply)
        first, supply = first + taken, supply - taken
        slots = slots[by_label[~served]]
    return owner


def _draw_labels(
    rng: np.random.Generator,
    log_mix: NDArray[np.float64],
    slots: Ints,
    left: NDArray[np.bool_],
) -> Ints:
    """One label per slot from its device's mix restricted to the classes that are ``left``."""
    choices = np.flatnonzero(left)
    logits = log_mix[:, choices]
    cdf = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    # One search serves all rows: row i's distribution function runs from i to i + 1.
    ladder = (cdf / cdf[:, -1:] + np.arange(len(cdf))[:, None]).ravel()
    found = np.searchsorted(ladder, slots + rng.random(len(slots)), side="right")
    column = np.minimum(found - slots * len(choices), len(choices) - 1)
    label: Ints = choices[column]
    return label


PARTITIONS.register(
    PartitionKind(
        "dirichlet",
        "label mixes drawn from Dirichlet(alpha); classes are shared out by them, so sizes differ",
        _deal_dirichlet,
        ("alpha",),
        phrase="labels are split among the devices by Dirichlet({alpha:g}) draws",
        citation=Citation(
            "Hsu, Qi, Brown",
            "Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
            "Classification",
            2019,
            arxiv="1909.06335",
            names="Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        ),
    )
)


def _deal_shards(
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
        _deal_shards,
        ("shards_per_device",),
        phrase="each device holds {shards_per_device} shards of the samples sorted by label",
        citation=MCMAHAN,
    )
)
