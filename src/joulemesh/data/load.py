"""Load a data set by its name: one that comes with the package, a published one, or one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data.dataset import BINS, Dataset, check_loss, moments, numbers_of
from joulemesh.data.partition import Partition, held_partition, natural_partition, partition
from joulemesh.data.reading import (
    COLUMN,
    DATASETS,
    NATURAL,
    DataSpec,
    Reading,
    check_name,
    check_nobody_holds,
    check_only_tables,
    reading_of,
    spec,
)
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Scenario
from joulemesh.tables import read_table


def load(
    dataset: str,
    *,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    download: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
) -> Dataset:
    """Load a data set.

    The published files are looked for in ``data_dir``, then in the folder that the environment
    variable JOULEMESH_DATA names, then in the cache; then they are downloaded into the cache.

    Args:
        dataset: ``digits``, ``diabetes`` or ``verses`` (embedded), ``mnist``, ``fashion-mnist``,
            ``cifar-10``, the path of
            an ``.npz`` file with x_train, y_train, x_test and y_test, of a table with a column of
            labels (``.csv``, ``.tsv``, also packed as ``.gz`` or ``.xz``, or ``.parquet``), of
            samples, targets and test samples in files side by side (`joulemesh.data.own`),
            ``folder:PATH`` for one shard per device (`joulemesh.data.federated`), or
            ``hf:OWNER/NAME`` for a data set of the Hugging Face hub (see `joulemesh.data.arrays`).
        data_dir: folder that holds ``mnist/`` and the like, or the original files themselves.
        cache_dir: where downloads and decoded arrays are kept; the user's cache folder if None.
        download: whether files may be fetched.
        progress: whether to draw a bar while they are.
        reading: what is said about columns, splits and scaling of the user's own data.

    Returns:
        The Dataset, checked.

    Raises:
        ScenarioError: unknown name; a file missing, truncated or corrupt; bad values.

    >>> load("digits").x_train.shape
    (1437, 8, 8, 1)
    """
    check_name(dataset)
    reading = reading or Reading()
    # Readers are imported only when there is something to read: planning loads nothing.
    if dataset not in DATASETS:
        from joulemesh.data.own import own_data

        return own_data(dataset, reading, cache_dir)
    check_only_tables(dataset, reading)
    check_nobody_holds(dataset, reading)

    if dataset in EMBEDDED:
        made = EMBEDDED[dataset]()
        check_loss(dataset, made.targets, reading.loss, reading.targets)
        return made
    from joulemesh.data.published import published

    return published(dataset, data_dir, cache_dir, download, progress)


_NAMES = "name"  # column of the device table


def load_for(scenario: Scenario) -> Dataset:
    """Load the scenario's data set."""
    training = scenario.training
    return load(training.dataset, data_dir=training.data_dir, reading=reading_of(scenario))


def spec_for(scenario: Scenario) -> DataSpec:
    """Give the sizes of the scenario's data set, for the planner."""
    return spec(scenario.training.dataset, reading_of(scenario))


def partition_for(
    scenario: Scenario,
    dataset: Dataset,
    seed: int,
    sizes: Sequence[int] | NDArray[np.int64] | None = None,
) -> Partition:
    """Deal the training samples out as the scenario says, or as the data themselves do."""
    training, devices = scenario.training, scenario.devices.count
    if training.partition == NATURAL:
        found = natural_partition(
            dataset, devices, names=device_names(scenario), seed=seed, world=scenario.seed
        )
        return _of_sizes(found, sizes, training.partition)
    if not training.partition.startswith(COLUMN):
        _check_labelled(dataset, training.partition)
        return partition(
            dataset.strata(),
            devices,
            kind=training.partition,
            seed=seed,
            sizes=sizes,
            **dict(training),
        )
    found = held_partition(dataset, devices, names=device_names(scenario), seed=seed)
    return _of_sizes(found, sizes, training.partition)


def _of_sizes(
    found: Partition, sizes: Sequence[int] | NDArray[np.int64] | None, kind: str
) -> Partition:
    """The partition that the data themselves say, unless other sizes were asked for."""
    if sizes is not None and not np.array_equal(sizes, found.sizes):
        wrong = int((np.asarray(sizes) != found.sizes).argmax())
        raise ScenarioError(
            "devices.samples gives {device} {count:sample}, and the {partition} gives it {held}: "
            "leave devices.samples out",
            device=wrong,
            figures={"count": sizes[wrong], "partition": kind, "held": found.sizes[wrong]},
            field="devices.samples",
        )
    return found


_MOST_SHARES = 256  # devices whose label shares tell what all are like
_MOST_LABELS = 200  # of a device: of more, the shares would hardly differ


def label_distance(
    scenario: Scenario, dataset: Dataset | None = None, *, load: bool = True
) -> float | None:
    """Mean squared distance of the devices' label shares from those of all devices.

    It is 0 where all have the same shares, and 1 − 1/K where each of many devices has one of K
    labels. Partitions by a rule are drawn for labels that are equally frequent, without the data;
    those that the data decide are looked up if it is given, or may be loaded. None where there are
    no labels, or none at hand.
    """
    training, count = scenario.training, scenario.devices.count
    labels: NDArray[Any]
    try:
        if dataset is None and _by_rule(training.partition):
            sizes = spec_for(scenario)
            if sizes.targets == "tokens":
                return None
            few = min(count, _MOST_SHARES)
            groups = sizes.classes if sizes.targets == "classes" else BINS
            most = min(sizes.train * few // count, _MOST_LABELS * few)
            labels = np.arange(max(most, few)) % groups
            kind, values = training.partition, dict(training)
            dealt = partition(labels, few, kind=kind, seed=scenario.seed, **values)
        elif dataset is None and not load:
            return None
        else:
            data = load_for(scenario) if dataset is None else dataset
            if data.targets == "tokens":
                return None
            labels = data.strata()
            dealt = partition_for(scenario, data, scenario.seed)
    except ScenarioError:  # what is wrong is said where the data are needed
        return None
    held = dealt.histogram(labels, int(labels.max()) + 1)
    shares = held / held.sum(axis=1, keepdims=True)
    return float(((shares - shares.mean(axis=0)) ** 2).sum(axis=1).mean())


def _by_rule(kind: str) -> bool:
    """Does a rule deal samples out, and not the data themselves?"""
    return kind != NATURAL and not kind.startswith(COLUMN)


def _check_labelled(dataset: Dataset, kind: str) -> None:
    if dataset.targets == "tokens" and PARTITIONS[kind].by_label:
        even = [name for name in PARTITIONS.built_in if not PARTITIONS[name].by_label]
        raise ScenarioError(
            f"training.partition = {kind!r} deals samples out by their labels, and the sequences "
            f"of {dataset.name} have none: use {', '.join(even)} or column:NAME",
            field="training.partition",
        )


def device_names(scenario: Scenario) -> tuple[str, ...]:
    """Names of the devices in the device table's column ``name``; empty without it."""
    table = scenario.devices.table
    columns: dict[str, Any] = {} if table is None else read_table(table)
    names = tuple(columns.get(_NAMES, ()))
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ScenarioError(f"{table} has two devices called {twice!r:.60}: rename one")
    return names


_DIGITS_FILE = Path(__file__).with_name("digits.csv.gz")
_DIGITS_ORDER = 1797  # seed of the one fixed shuffle of digits
_ORDER = 442  # seed of the one fixed shuffle of diabetes
_TRAIN = 354
_VERSES, _TESTED, _LENGTH, _SEED = 2000, 500, 32, 28
LETTERS = "abcdefghijklmnopqrstuvwxyz ."
"""The tokens of ``verses``, in their order."""

_NOUNS = "river mountain city garden letter winter sailor engine mirror forest window harvest"
_VERBS = "follows remembers carries answers watches forgets crosses measures"
_ADJECTIVES = "quiet old narrow bright distant patient hollow green"


def digits() -> Dataset:
    """1,797 images of handwritten digits, 8 by 8 pixels."""
    table = _digits_table()
    table = table[np.random.default_rng(_DIGITS_ORDER).permutation(len(table))]
    x = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    y = table[:, -1].astype(np.int32)
    train = spec("digits").train
    mean, std = 0.3052, 0.3761  # of the training pixels
    return Dataset("digits", x[:train], y[:train], x[train:], y[train:], 10, mean, std)


def _digits_table() -> NDArray[np.float64]:
    """64 pixels and the label of each digit, from the package's own file.

    It is the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
    1998, UCI Machine Learning Repository, doi:10.24432/C50P49, CC BY 4.0), byte for byte as
    scikit-learn ships it: without a package of 50 MB for 57 kB of data.
    """
    return np.loadtxt(_DIGITS_FILE, delimiter=",")


def diabetes() -> Dataset:
    """442 patients: ten measurements each, and how far a disease had progressed a year later.

    Targets are standardised by the training targets.

    Reference:
        Efron, Hastie, Johnstone, Tibshirani, "Least Angle Regression", Annals of Statistics 32(2),
        2004; the file is that of scikit-learn.
    """
    file = Path(__file__).parent / "embedded" / "diabetes.csv"
    names = file.read_text("utf-8").split("\n", 1)[0].split(",")
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    table = table[np.random.default_rng(_ORDER).permutation(len(table))]
    x, y = table[:, :-1].astype(np.float32), table[:, -1]
    train, test, notes = numbers_of("diabetes", y[:_TRAIN], y[_TRAIN:], normalize=True)
    found = moments([x[:_TRAIN]])
    mean, std = found.mean.astype(np.float32), found.divisor.astype(np.float32)
    return Dataset(
        "diabetes", x[:_TRAIN], train, x[_TRAIN:], test, 1, mean, std,
        feature_names=tuple(names[:-1]), notes=notes,
    )  # fmt: skip


def verses() -> Dataset:
    """Sequences of 32 letters of sentences of a small grammar; each next letter is the target."""
    draw = np.random.default_rng(_SEED)
    nouns, verbs, adjectives = (words.split() for words in (_NOUNS, _VERBS, _ADJECTIVES))
    wanted = (_VERSES + _TESTED) * (_LENGTH + 1)
    sentences: list[str] = []
    size = 0
    while size < wanted:
        first, second, which, said, other = (
            words[draw.integers(len(words))]
            for words in (adjectives, nouns, adjectives, verbs, nouns)
        )
        sentences.append(f"the {first} {second} {said} the {which} {other}. ")
        size += len(sentences[-1])
    text = "".join(sentences)[:wanted]
    number = {letter: token for token, letter in enumerate(LETTERS)}
    tokens = np.array([number[letter] for letter in text], np.int32).reshape(-1, _LENGTH + 1)
    x, y = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    return Dataset(
        "verses", x[:_VERSES], y[:_VERSES], x[_VERSES:], y[_VERSES:], len(LETTERS),
        class_names=tuple(LETTERS),
    )  # fmt: skip


EMBEDDED: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    "diabetes": diabetes,
    "verses": verses,
}
"""Those data sets by their names."""
