"""Who holds which samples: label and quantity skew as pure functions of the seed.

Every kind but ``resample`` gives each sample to at most one device, and to exactly one unless
explicit ``sizes`` leave some over.

References:
    iid, shards: McMahan et al., "Communication-Efficient Learning of Deep Networks from
    Decentralized Data", AISTATS 2017. dirichlet: Hsu, Qi, Brown, "Measuring the Effects of
    Non-Identical Data Distribution for Federated Visual Classification", arXiv:1909.06335.
"""

from __future__ import annotations

__all__ = ["KINDS", "Partition", "partition", "regroup"]

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError

KINDS = ("iid", "dirichlet", "shards", "quantity", "resample")

_PURPOSE = 0x70617274  # "part": keeps these draws apart from every other use of the seed
_SMALLEST_ALPHA = 1e-6

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of device i are ``order[offsets[i]:offsets[i + 1]]``, in random order.

    Attributes:
        order: int32 [n_used], indices into the training set.
        offsets: int64 [N + 1], from 0 to n_used.
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
        """Samples per device, D_i: int64 [N]."""
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

        >>> partition([0, 0, 1, 1], 2, kind="shards", shards_per_device=1).histogram(
        ...     [0, 0, 1, 1], 2).max(axis=1).tolist()
        [2, 2]
        """
        known, chosen = np.asarray(labels), range(self.devices) if devices is None else devices
        return np.array([np.bincount(known[self.indices(i)], minlength=classes) for i in chosen])


def partition(
    labels: ArrayLike,
    devices: int,
    *,
    kind: str = "iid",
    alpha: float = 0.5,
    shards_per_device: int = 2,
    seed: int = 0,
    sizes: Sequence[int] | Ints | None = None,
) -> Partition:
    """Deal the training samples out to the devices.

    Args:
        labels: int [n], the class of each training sample.
        devices: number of devices N.
        kind: ``iid`` (equal sizes, give or take one), ``dirichlet`` (device i's label mix is a
            draw of Dirichlet(alpha); each class is shared out in proportion to the mixes, so
            sizes differ), ``shards`` (``shards_per_device`` runs of the label-sorted samples),
            ``quantity`` (iid labels, sizes in proportion to a draw of Dirichlet(alpha)) or
            ``resample`` (every device draws independently and with replacement, so that many
            devices may share few samples).
        alpha: concentration of ``dirichlet`` and ``quantity``; small is uneven.
        shards_per_device: runs per device of ``shards``.
        seed: the partition is a pure function of this and the other arguments.
        sizes: D_i of every device, kept exactly; samples in excess are left out.

    Returns:
        The Partition; no device is empty.

    Raises:
        ScenarioError: more devices (or samples asked for) than samples, or a bad argument.

    >>> partition([0, 1, 0, 1, 0], 2, kind="iid").sizes
    array([3, 2])
    >>> partition([0, 1, 0, 1, 0], 2, kind="dirichlet", sizes=[1, 3]).sizes
    array([1, 3])
    """
    classes_of = _check_labels(labels)
    n = len(classes_of)
    _check(devices, n, kind, alpha, shards_per_device, seed)
    wanted = None if sizes is None else _check_sizes(sizes, devices, n, kind)
    rng = np.random.default_rng([seed, _PURPOSE])
    if kind == "resample":
        if wanted is None:
            wanted = np.full(devices, -(-n // devices), dtype=np.int64)
        return _sealed(rng.integers(n, size=int(wanted.sum())), _offsets(wanted))

    pool = rng.permutation(n)
    if kind in ("iid", "quantity"):
        if wanted is None:
            share = _shares(rng, alpha, devices) if kind == "quantity" else np.ones(devices)
            wanted = 1 + _apportion(n - devices, share)
        return _sealed(pool[: wanted.sum()], _offsets(wanted))
    if wanted is not None and kind == "shards":
        pool = pool[: wanted.sum()]
    # A stable sort of a shuffled pool: label order, random within a label.
    pool = pool[np.argsort(classes_of[pool], kind="stable")]
    if kind == "shards":
        owner = _shard_owners(rng, len(pool), devices, shards_per_device, wanted)
    elif wanted is None:
        owner = _dirichlet_owners(rng, classes_of[pool], devices, alpha)
    else:
        owner = _dirichlet_owners_sized(rng, classes_of[pool], alpha, wanted)
    kept = owner >= 0
    return _deal(rng, pool[kept], owner[kept], devices)


def regroup(owner: Ints, devices: int, seed: int, note: str = "") -> Partition:
    """The partition that gives sample k to ``owner[k]``, in random order within a device.

    >>> regroup(np.array([1, 0, 1]), 2, seed=0).sizes
    array([1, 2])
    """
    rng = np.random.default_rng([seed, _PURPOSE])
    order = np.lexsort((rng.random(len(owner)), owner))
    return _sealed(order, _offsets(np.bincount(owner, minlength=devices)), note)


def _sealed(order: Ints, offsets: Ints, note: str = "") -> Partition:
    chosen = order.astype(np.int32)
    chosen.flags.writeable = offsets.flags.writeable = False
    return Partition(chosen, offsets, note)


def _offsets(sizes: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _deal(rng: np.random.Generator, pool: Ints, owner: Ints, devices: int) -> Partition:
    """Group the pool by owner, in random order within a device, leaving nobody without."""
    shuffled = np.lexsort((rng.random(len(pool)), owner))
    pool, owner = pool[shuffled], _fill_empty(owner[shuffled], devices)
    regrouped = np.argsort(owner, kind="stable")
    return _sealed(pool[regrouped], _offsets(np.bincount(owner, minlength=devices)))


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
        length = 1 + _apportion(n - devices * shards, np.ones(devices * shards))
    else:
        piece = np.tile(np.arange(shards), devices)
        length = wanted[holder] // shards + (piece < wanted[holder] % shards)
    turn = rng.permutation(len(holder))
    # Equal lengths were laid out in place order; given sizes belong to their device.
    return np.repeat(holder[turn], length if wanted is None else length[turn])


def _log_mixes(
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


def _shares(rng: np.random.Generator, alpha: float, count: int) -> NDArray[np.float64]:
    """One draw of a symmetric Dirichlet(alpha) over ``count`` shares."""
    share: NDArray[np.float64] = np.exp(_log_mixes(rng, alpha, 1, count)[0])
    return share


def _dirichlet_owners(
    rng: np.random.Generator, sorted_labels: Ints, devices: int, alpha: float
) -> Ints:
    """Share each class out in proportion to the devices' mixes."""
    counts = np.bincount(sorted_labels)
    log_mix = _log_mixes(rng, alpha, devices, len(counts))
    weight = np.exp(log_mix - log_mix.max(axis=0))
    edge = np.cumsum(weight, axis=0)
    cut = np.rint(edge / edge[-1] * counts).astype(np.int64)
    dealt = np.diff(cut, axis=0, prepend=0)
    return np.repeat(np.tile(np.arange(devices), len(counts)), dealt.T.ravel())


def _dirichlet_owners_sized(
    rng: np.random.Generator, sorted_labels: Ints, alpha: float, wanted: Ints
) -> Ints:
    """Fill every device's slots with labels drawn from its mix, while each class lasts.

    A slot whose label has run out draws again among the classes that are left; each pass
    exhausts a class or ends, so there are at most as many passes as classes.
    """
    supply = np.bincount(sorted_labels)
    first = np.cumsum(supply) - supply
    log_mix = _log_mixes(rng, alpha, len(wanted), len(supply))
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


def _apportion(total: int, weights: NDArray[np.float64]) -> Ints:
    """Whole numbers that sum to ``total``, in proportion to ``weights`` (largest remainders)."""
    quota = weights / weights.sum() * total
    whole: Ints = np.floor(quota).astype(np.int64)
    short = total - int(whole.sum())
    whole[np.argsort(whole - quota, kind="stable")[:short]] += 1
    return whole


def _check_labels(labels: ArrayLike) -> Ints:
    array = np.asarray(labels)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 0:
        raise ScenarioError(
            f"labels must be a non-empty list of whole numbers from 0, "
            f"not {array.dtype} of shape {array.shape}"
        )
    # Numbered anew without gaps, so that absent classes cost nothing.
    present: Ints = np.unique(array, return_inverse=True)[1]
    return present


def _check(devices: int, n: int, kind: str, alpha: float, shards: int, seed: int) -> None:
    if kind not in KINDS:
        raise ScenarioError(f"partition = {kind!r} is unknown: use one of {', '.join(KINDS)}")
    if devices < 1:
        raise ScenarioError(f"{devices} devices cannot hold data: use at least 1")
    if seed < 0:
        raise ScenarioError(f"seed = {seed} is negative: use 0 or more")
    if kind != "resample" and devices > n:
        raise ScenarioError(
            f"{devices} devices cannot share {n} samples, one each at least: use at most {n} "
            f"devices or partition = 'resample'"
        )
    if kind in ("dirichlet", "quantity") and not _SMALLEST_ALPHA <= alpha < np.inf:
        raise ScenarioError(f"alpha = {alpha} is out of range: use {_SMALLEST_ALPHA} or more")
    if kind == "shards" and shards < 1:
        raise ScenarioError(f"shards_per_device = {shards} is too few: use 1 or more")


def _check_sizes(sizes: Sequence[int] | Ints, devices: int, n: int, kind: str) -> Ints:
    array = np.asarray(sizes)
    if array.shape != (devices,) or array.dtype.kind not in "iu":
        raise ScenarioError(
            f"samples per device must be {devices} whole numbers, one a device, "
            f"not {array.dtype} of shape {array.shape}"
        )
    if array.min() < 1:
        worst = int(array.argmin())
        raise ScenarioError(
            f"device {worst} has {array[worst]} samples: give every device at least 1"
        )
    if kind != "resample" and int(array.sum()) > n:
        raise ScenarioError(
            f"the devices ask for {int(array.sum())} samples in all but there are {n}: "
            f"lower devices.samples or use partition = 'resample'"
        )
    return array.astype(np.int64)
