"""Deal samples out to devices by a kind of the registry, as a pure function of the seed."""

from __future__ import annotations

__all__ = ["Partition", "PartitionKind", "chance", "partition", "regroup"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.citation import Citation
from joulemesh.data.held import Ints, Partition, regroup
from joulemesh.errors import ScenarioError
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Training
from joulemesh.scenario.registered import parameters_of

_PURPOSE = 0x70617274  # "part": keeps these draws apart from every other use of the seed


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
    """The random stream of a partition.

    >>> chance(0).random() == chance(0).random()
    True
    """
    return np.random.default_rng([seed, _PURPOSE])


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
            f"device {worst} has {array[worst]} samples: give every device at least 1"
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
            f"{what} gives device {wrong} {sizes[wrong]} samples, and {wanted[wrong]} are asked "
            "for: keep the sizes that are given"
        )
