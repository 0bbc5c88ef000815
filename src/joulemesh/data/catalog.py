"""What there is to learn from, in numbers: nothing is loaded."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import CIFAR_10, DIABETES, DIGITS, FASHION_MNIST, MNIST, Citation
from joulemesh.data.dataset import check_loss
from joulemesh.data.reading import FOLDER, HUB, Reading, check_only_tables, is_own


@dataclass(frozen=True)
class DataSpec:
    """Sizes of a data set, for the planner.

    Attributes:
        name: of the data set, or the path of the user's file.
        train: number of training samples.
        test: number of test samples.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes; of tokens, how many there are; of numbers, how many are to be
            predicted of each sample.
        citation: where it was published, if that is known.
        targets: what is to be predicted: ``"classes"``, ``"numbers"`` or ``"tokens"``.
        positions: of tokens, the shape of a sample's targets.
    """

    name: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    citation: Citation | None = None
    targets: str = "classes"
    positions: tuple[int, ...] = ()

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of what a model gives for one sample."""
        return (*self.positions, self.classes)

    @property
    def seen(self) -> Literal["float32", "int32"]:
        """How a model sees samples: scaled, or as the tokens that they are."""
        return "int32" if self.targets == "tokens" else "float32"


_SPECS = {
    one.name: one
    for one in (
        DataSpec("digits", 1437, 360, (8, 8, 1), 10, DIGITS),
        DataSpec("mnist", 60_000, 10_000, (28, 28, 1), 10, MNIST),
        DataSpec("fashion-mnist", 60_000, 10_000, (28, 28, 1), 10, FASHION_MNIST),
        DataSpec("cifar-10", 50_000, 10_000, (32, 32, 3), 10, CIFAR_10),
        DataSpec("diabetes", 354, 88, (10,), 1, DIABETES, "numbers"),
        DataSpec("verses", 2000, 500, (32,), 28, None, "tokens", (32,)),
    )
}

DATASETS = tuple(_SPECS)


def check_name(dataset: str) -> None:
    """Refuse what is neither the name of a data set nor the path of a file that can be read."""
    if dataset in _SPECS or is_own(dataset) or dataset.startswith((HUB, FOLDER)):
        return
    near = difflib.get_close_matches(dataset.lower(), DATASETS, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ScenarioError(
        f"dataset = {dataset!r} is unknown{hint}: use one of {', '.join(DATASETS)}, the path of "
        f"a .csv, .tsv, .parquet, .npz, .npy or .arrow file, folder:PATH or hf:OWNER/NAME"
    )


def spec(dataset: str, reading: Reading | None = None) -> DataSpec:
    """Give the sizes of a data set without keeping it."""
    check_name(dataset)
    reading = reading or Reading()
    if dataset not in _SPECS:
        from joulemesh.data.own import own_spec  # a known data set needs no reader

        return own_spec(dataset, reading)
    check_only_tables(dataset, reading)
    known = _SPECS[dataset]
    check_loss(dataset, known.targets, reading.loss, reading.targets)
    return known
