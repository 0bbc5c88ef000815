"""Deal samples out to devices by a kind of the registry, as a pure function of the seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import MCMAHAN, Citation
from joulemesh.data.dataset import Dataset, Holders
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Training
from joulemesh.scenario.fields import parameters_of

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

        Returns:
            int64 [D, K]: of the D devices asked for, all N unless given.

        >>> Partition(np.array([0, 3, 1, 2]), np.array([0, 1, 4])).histogram([2, 0, 0, 1], 3)
        array([[0, 0, 1],
               [2, 1, 0]])
        """
        known, chosen = np.asarray(labels), range(self.devices) if devices is None else devices
        return np.array([np.bincount(known[self.indices(i)], minlength=classes) for i in chosen])


def with_sizes(order: Ints, sizes: Ints, note: str = "") -> Partition:
    """The partition that gives each device the next samples of ``order``, as many as its size."""
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


def labelled_devices(count: int) -> Ints:
    """The devices whose label counts are kept and shown: all, or 200 of more, evenly spaced."""
    return np.rint(np.linspace(0, count - 1, min(count, 200))).astype(np.int64)


_PURPOSE_PARTITION = 0x70617274  # "part": keeps these draws apart from every other use of the seed


@dataclass(frozen=True)
class PartitionKind:
    """A way to deal samples out.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        deal: (labels int [n], number of devices N, random stream, sizes int [N] or None) and the
            parameters by name -> a Partition in which no device is empty. Labels are 0, 1, ...
            without gaps; sizes, where given, must be kept exactly, and leave samples over.
            `regroup` makes a Partition of the device of each sample.
        parameters: fields of the scenario's section ``training`` that it takes.
        repeats: whether a sample may be given to several devices, or several times.
        citation: where it was published, or None.
        by_label: whether it looks at the labels. Numbers stand for their quantiles then, and
            sequences of tokens, which have no label, are refused.
        phrase: how samples are dealt out, as a clause of a sentence with the parameters in braces:
            "labels are split by Dirichlet({alpha:g}) draws"; by default from name and description.
    """

    name: str
    description: str
    deal: Callable[..., Partition]
    parameters: tuple[str, ...] = ()
    repeats: bool = False
    citation: Citation | None = None
    by_label: bool = True
    phrase: str = ""

    def __post_init__(self) -> None:
        if not self.phrase:
            said = f"{self.name} ({self.description})".replace("{", "{{").replace("}", "}}")
            object.__setattr__(self, "phrase", f"samples are split by the partition {said}")
        named = {field for _, field, _, _ in Formatter().parse(self.phrase) if field is not None}
        if not named <= {*self.parameters}:
            other = ", ".join(sorted(named - {*self.parameters}))
            raise ScenarioError(
                f"partition {self.name!r}: its phrase names {other}, which is not among its "
                f"parameters ({', '.join(self.parameters) or 'none'}): add it to them"
            )


def chance(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, _PURPOSE_PARTITION])


def partition(
    labels: ArrayLike,
    devices: int,
    *,
    kind: str = "iid",
    seed: int = 0,
    sizes: Sequence[int] | Ints | None = None,
    **options: Any,
) -> Partition:
    """Deal the training samples out to the devices.

    Args:
        labels: int [n], the class of each training sample.
        devices: number of devices N.
        kind: a name of the registry ``PARTITIONS``: ``iid``, ``dirichlet``, ``shards``,
            ``quantity``, ``resample``, or one of the user's own.
        seed: the partition is a pure function of this and the other arguments.
        sizes: D_i of every device, kept exactly; samples in excess are left out.
        options: fields of the section ``training``, such as ``alpha`` and ``shards_per_device``; a
            kind takes its own, by default as in a scenario.

    Returns:
        The Partition; no device is empty, and no sample is given twice unless the kind repeats.

    Raises:
        ScenarioError: more devices (or samples asked for) than samples, a bad argument, or a kind
            of the user's own that does not keep its promise.

    >>> partition([0, 1, 0, 1, 0], 2, kind="iid").sizes
    array([3, 2])
    >>> partition([0, 1, 0, 1, 0], 2, kind="dirichlet", sizes=[1, 3]).sizes
    array([1, 3])
    """
    known = _check_labels(labels)
    found = PARTITIONS[kind]
    _check(devices, len(known), found, seed)
    wanted = None if sizes is None else _check_sizes(sizes, devices, len(known), found)
    taken = parameters_of(f"partition {kind!r}", found.parameters, Training, options)
    dealt = found.deal(known, devices, chance(seed), wanted, **taken)
    _check_dealt(dealt, found, devices, len(known), wanted)
    return dealt


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


def _check(devices: int, n: int, kind: PartitionKind, seed: int) -> None:
    if devices < 1:
        raise ScenarioError(f"{devices} devices cannot hold data: use at least 1")
    if seed < 0:
        raise ScenarioError(f"seed = {seed} is negative: use 0 or more")
    if not kind.repeats and devices > n:
        raise ScenarioError(
            f"{devices} devices cannot share {n} samples, one each at least: use at most {n} "
            f"devices or partition = 'resample'"
        )


def _check_sizes(sizes: Sequence[int] | Ints, devices: int, n: int, kind: PartitionKind) -> Ints:
    array = np.asarray(sizes)
    if array.shape != (devices,) or array.dtype.kind not in "iu":
        raise ScenarioError(
            f"samples per device must be {devices} whole numbers, one a device, "
            f"not {array.dtype} of shape {array.shape}"
        )
    if array.min() < 1:
        worst = int(array.argmin())
        raise ScenarioError(
            "{device} has {count:sample}: give every device at least 1",
            device=worst,
            figures={"count": array[worst]},
        )
    if not kind.repeats and int(array.sum()) > n:
        raise ScenarioError(
            f"the devices ask for {int(array.sum())} samples in all but there are {n}: "
            f"lower devices.samples or use partition = 'resample'"
        )
    return array.astype(np.int64)


def _check_dealt(
    dealt: Partition, kind: PartitionKind, devices: int, n: int, wanted: Ints | None
) -> None:
    """Refuse a partition that does not keep the promises of `PartitionKind`."""
    what = f"partition {kind.name!r}"
    if not isinstance(dealt, Partition):
        raise ScenarioError(
            f"{what} gives a {type(dealt).__name__}: its deal must give a Partition"
        )
    order, sizes = np.asarray(dealt.order), dealt.sizes
    if len(sizes) != devices or len(order) != sizes.sum() or sizes.min() < 1:
        raise ScenarioError(
            f"{what} deals {len(order)} samples to {int((sizes > 0).sum())} of {devices} devices: "
            "give each device at least one"
        )
    if order.min() < 0 or order.max() >= n:
        worst = int(order.min() if order.min() < 0 else order.max())
        raise ScenarioError(f"{what} deals the sample {worst}: samples are 0..{n - 1}")
    if not kind.repeats and np.bincount(order).max() > 1:
        twice = int(np.bincount(order).argmax())
        raise ScenarioError(
            f"{what} deals the sample {twice} more than once: deal each once, or say repeats=True"
        )
    if wanted is not None and not np.array_equal(sizes, wanted):
        wrong = int((sizes != wanted).argmax())
        raise ScenarioError(
            f"partition {kind.name!r} gives {{device}} {{count:sample}}, and {{wanted}} are asked "
            "for: keep the sizes that are given",
            device=wrong,
            figures={"count": sizes[wrong], "wanted": wanted[wrong]},
        )


_PURPOSE_HOLDERS = 0x6E617475  # "natu": keeps these draws apart from every other use of the seed


def held_partition(
    dataset: Dataset, devices: int, *, names: Sequence[str] = (), seed: int = 0
) -> Partition:
    """Give each training sample to the device that holds it.

    Holders are matched to devices by name, where the devices have names; otherwise by number, if
    they are 0..N-1 or 1..N; otherwise in the order in which they appear in the data. The
    partition's note says which.
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
            "device {index} ({holder}) has no training sample in the column {column}: all of its "
            "rows are test samples; mark some to train on, or lower training.test_fraction",
            figures={"index": empty, "holder": name, "column": repr(holders.column)},
            field="training.test_fraction",
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
    """
    holders = dataset.holders
    if holders is None:
        raise ScenarioError(
            f'training.partition = "natural" is for data with one shard per device, and '
            f"{dataset.name} does not say who holds a sample: use folder:PATH, or another "
            f"partition",
            field="training.partition",
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
            drawn = np.random.default_rng([world, _PURPOSE_HOLDERS])
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


_SMALLEST_ALPHA = 1e-6


def require_alpha(alpha: float) -> None:
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
