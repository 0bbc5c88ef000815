"""How the user's own data are to be read: what a scenario says about columns and splits."""

from __future__ import annotations

import difflib
import gzip
import lzma
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import CIFAR_10, DIABETES, DIGITS, FASHION_MNIST, MNIST, Citation
from joulemesh.data.dataset import check_loss
from joulemesh.metrics import loss_named
from joulemesh.scenario import Scenario

COLUMN = "column:"
FOLDER = "folder:"  # of federated data
HUB = "hf:"  # of Hugging Face
NATURAL = "natural"  # partition: as the data come
HOLDER = "user"  # what says so in a file
_TEXT = (".csv", ".tsv")
_PACKED = (".gz", ".xz")


@dataclass(frozen=True)
class Reading:
    """Choices that turn a table into training and test samples.

    Attributes:
        label: column of the labels; None for the first of label, class, target and y.
        test: a second table with the test samples; None for a column ``split`` or a hold-out.
        test_fraction: share of each class that is held out where nothing else says what to test on.
        holder: column that says which device holds a row, or None.
        ignored: columns that are neither features nor anything else.
        normalize: whether features are standardised by the training samples' mean and deviation.
        seed: of the hold-out.
        targets: what is to be predicted: classes, numbers, tokens, or any of them, as the type of
            the arrays says.
        loss: what is minimised, for refusals.
    """

    label: str | None = None
    test: str | None = None
    test_fraction: float = 0.2
    holder: str | None = None
    ignored: tuple[str, ...] = ()
    normalize: bool = False
    seed: int = 0
    targets: Literal["classes", "numbers", "tokens", "any"] = "classes"
    loss: str = "cross-entropy"


def reading_of(scenario: Scenario) -> Reading:
    """What a scenario says about reading its data."""
    training = scenario.training
    kind = training.partition
    holder = kind.removeprefix(COLUMN) if kind.startswith(COLUMN) else None
    if kind == NATURAL and is_own(training.dataset):
        holder = HOLDER
    return Reading(
        training.label,
        training.test_dataset,
        training.test_fraction,
        holder,
        training.ignore_columns,
        training.normalize,
        scenario.seed,
        loss_named(training.loss).targets,
        training.loss,
    )


def is_table(dataset: str) -> bool:
    """Is this the path of a table: CSV or TSV, plain or packed, or Parquet?"""
    name = dataset.lower()
    for suffix in _PACKED:
        if name.removesuffix(suffix) != name:
            return name.removesuffix(suffix).endswith(_TEXT)
    return name.endswith((*_TEXT, ".parquet"))


def is_own(dataset: str) -> bool:
    """Is this the path of the user's own file, in any format that is read?"""
    return is_table(dataset) or dataset.lower().endswith((".npz", ".npy", ".arrow"))


def check_only_tables(dataset: str, reading: Reading) -> None:
    """Refuse choices that say something about columns where there are none."""
    given = {
        "label": reading.label,
        "test_dataset": reading.test,
        "ignore_columns": reading.ignored,
    }
    for field, value in given.items():
        if value:
            raise ScenarioError(
                f"training.{field} is for tables (.csv, .tsv, .parquet), which {dataset!r} is not: "
                "leave it out"
            )


def check_nobody_holds(dataset: str, reading: Reading) -> None:
    """Refuse a column of holders where the data do not say who holds a sample."""
    if reading.holder is not None:
        raise ScenarioError(
            f'training.partition = "{COLUMN}{reading.holder}" is for data of your own that say who '
            f"holds a sample, and {dataset!r} does not: use another partition",
            field="training.partition",
        )


PACKING_DAMAGE = (zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def open_unpacked(
    path: str | Path,
    mode: Literal["rt", "rb"],
    *,
    encoding: str | None = None,
    errors: str | None = None,
) -> Any:
    """Open a file, plain or in gzip or xz: told by its first bytes, as browsers unpack some."""
    with open(path, "rb") as file:
        head = file.read(6)
    opened: Any = open
    if head[:2] == b"\x1f\x8b":
        opened = gzip.open
    elif head == b"\xfd7zXZ\x00":
        opened = lzma.open
    return opened(path, mode, encoding=encoding, errors=errors)


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
