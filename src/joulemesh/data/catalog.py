"""What there is to learn from, in numbers: nothing is loaded."""

from __future__ import annotations

__all__ = ["DATASETS", "DataSpec", "check_name", "spec"]

import difflib
from dataclasses import dataclass

from joulemesh.data.hub import PREFIX, hub_file
from joulemesh.data.npz import read_npz_sizes
from joulemesh.errors import ScenarioError


@dataclass(frozen=True)
class DataSpec:
    """Sizes of a data set, for the planner.

    Attributes:
        name: of the data set, or the path of the user's file.
        train: number of training samples.
        test: number of test samples.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes.
    """

    name: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int


_SPECS = {
    one.name: one
    for one in (
        DataSpec("digits", 1437, 360, (8, 8, 1), 10),
        DataSpec("mnist", 60_000, 10_000, (28, 28, 1), 10),
        DataSpec("fashion-mnist", 60_000, 10_000, (28, 28, 1), 10),
        DataSpec("cifar-10", 50_000, 10_000, (32, 32, 3), 10),
    )
}

DATASETS = tuple(_SPECS)


def check_name(dataset: str) -> None:
    """Refuse what is neither the name of a data set nor the path of an ``.npz`` file.

    >>> check_name("cifar10")
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: dataset = 'cifar10' is unknown (did you mean 'cifar-10'?): ...
    """
    if dataset in _SPECS or dataset.endswith(".npz") or dataset.startswith(PREFIX):
        return
    near = difflib.get_close_matches(dataset.lower(), DATASETS, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ScenarioError(
        f"dataset = {dataset!r} is unknown{hint}: use one of {', '.join(DATASETS)}, the path of "
        f"an .npz file, or hf:OWNER/NAME"
    )


def spec(dataset: str) -> DataSpec:
    """Give the sizes of a data set without loading it.

    Args:
        dataset: a name, or the path of an ``.npz`` file, of which only headers and training
            labels are read; one of the hub is fetched first, if it never was.

    Returns:
        The DataSpec.

    >>> spec("cifar-10").shape
    (32, 32, 3)
    """
    check_name(dataset)
    if dataset in _SPECS:
        return _SPECS[dataset]
    if dataset.startswith(PREFIX):
        return DataSpec(dataset, *read_npz_sizes(hub_file(dataset)))
    return DataSpec(dataset, *read_npz_sizes(dataset))
