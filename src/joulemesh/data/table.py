"""A table with a column of labels as a data set: the user's data as they lie."""

from __future__ import annotations

__all__ = [
    "SPLIT",
    "Classes",
    "Numbers",
    "Predicted",
    "Roles",
    "Rows",
    "from_table",
    "gather",
    "held_out",
    "holder_note",
    "open_table",
    "roles_of",
    "test_roles",
]

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.dataset import (
    Codes,
    Dataset,
    Holders,
    Moments,
    canonical,
    check_classes,
    classes_in,
    feature_notes,
    has_fractions,
    in_order,
    moments,
    number_classes,
    numbers_of,
)
from joulemesh.data.readers import HOLDERS, Block, Delimited, Parquet, Table
from joulemesh.data.reading import COLUMN, Reading
from joulemesh.errors import ScenarioError
from joulemesh.files.limits import DATA

_LABELS = ("label", "class", "target", "y")
SPLIT = "split"


@dataclass(frozen=True)
class Roles:
    """Places of the columns.

    Attributes:
        label: the column of labels.
        split: the column that says train or test, if there is one.
        holder: the column that says which device holds the row, if one is asked for.
        features: all others but those to be ignored.
        numeric: whether labels are numbers that are to be predicted.
    """

    label: int
    split: int | None
    holder: int | None
    features: tuple[int, ...]
    numeric: bool = False

    @property
    def numbers(self) -> tuple[int, ...]:
        """Columns that are read as numbers; the label is the last of them."""
        return (*self.features, self.label) if self.numeric else self.features

    @property
    def texts(self) -> tuple[int, ...]:
        """Columns that are read as text."""
        label = None if self.numeric else self.label
        return tuple(k for k in (label, self.split, self.holder) if k is not None)


def roles_of(table: Table, reading: Reading) -> Roles:
    """Find the label, the split, the holder and the features among a table's columns.

    Raises:
        ScenarioError: a column that is asked for is missing, or none is left for the features.
    """
    columns = table.columns
    ignored = [_find(table, name, "training.ignore_columns") for name in reading.ignored]
    label = _label(table, reading)
    split = columns.index(SPLIT) if SPLIT in columns and SPLIT not in reading.ignored else None
    holder = None
    if reading.holder is not None:
        holder = _find(table, reading.holder, f'training.partition = "{COLUMN}{reading.holder}"')
    special = [k for k in (label, split, holder) if k is not None]
    twice = next((k for k in special if [*special, *ignored].count(k) > 1), None)
    if twice is not None:
        raise ScenarioError(
            f"{table.where}: the column {columns[twice]!r} cannot be two of label, split, holder "
            "and ignored: give each its own"
        )
    features = tuple(k for k in range(len(columns)) if k not in {*special, *ignored})
    if not features:
        raise ScenarioError(f"{table.where} has no features, only {_listed(columns)}: add a column")
    return Roles(label, split, holder, features)


def test_roles(table: Table, roles: Roles, other: Table, ignored: tuple[str, ...]) -> Roles:
    """The same columns in a second table, in whichever order they stand there.

    Raises:
        ScenarioError: it lacks a column, or has one more.
    """
    special = {table.columns[k] for k in (roles.label, *roles.texts)} | {*ignored}
    wanted = [table.columns[k] for k in (roles.label, *roles.features)]
    missing = [name for name in wanted if name not in other.columns]
    extra = [name for name in other.columns if name not in wanted and name not in special]
    if missing or extra:
        fault = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r} as well"
        raise ScenarioError(
            f"{other.where} {fault}, unlike {table.where}: give both the same columns"
        )
    label, *features = (other.columns.index(name) for name in wanted)
    return Roles(label, None, None, tuple(features), roles.numeric)


def holder_note(table: Table, roles: Roles) -> tuple[str, ...]:
    """A word on a feature that by its name says who holds a row."""
    for k in roles.features:
        name = table.columns[k]
        if name.lower() in HOLDERS and roles.holder is None:
            return (
                f"column {name!r} is used as a feature; if it says which device holds a row, set "
                f'training.partition = "{COLUMN}{name}"',
            )
    return ()


def _label(table: Table, reading: Reading) -> int:
    if reading.label is not None:
        return _find(table, reading.label, "training.label")
    lower = [name.lower() for name in table.columns]
    found = next((lower.index(name) for name in _LABELS if name in lower), None)
    if found is None:
        raise ScenarioError(
            f"{table.where} has no column called {', '.join(_LABELS[:-1])} or {_LABELS[-1]}, only "
            f"{_listed(table.columns)}: name the column of labels with training.label"
        )
    return found


def _find(table: Table, name: str, field: str) -> int:
    if name in table.columns:
        return table.columns.index(name)
    near = difflib.get_close_matches(name, table.columns, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {_listed(table.columns)}"
    raise ScenarioError(f"{field}: {table.where} has no column {name!r:.60}; {hint}")


def _listed(columns: tuple[str, ...]) -> str:
    more = f" and {len(columns) - 12} more" if len(columns) > 12 else ""
    return ", ".join(name if len(name) <= 40 else name[:37] + "..." for name in columns[:12]) + more


_LARGEST = float(np.finfo(np.float32).max)
_MARGIN = 2
_SPLITS = {"train": False, "test": True}

Ints = NDArray[np.int32]


@dataclass(eq=False)
class Rows:
    """Everything that is read of a table.

    Attributes:
        table: where from.
        chunks: float32 or float64 [some rows, features].
        labels: the code of each row's label, and the texts that the codes stand for; zeros and
            none where labels are numbers.
        tested: whether each row is a test sample, if the table says so.
        holders: the code of each row's holder, if one is asked for.
        numbers: float64 [rows], where labels are numbers that are to be predicted.
    """

    table: Table
    chunks: list[NDArray[Any]]
    labels: Ints
    label_codes: Codes
    tested: NDArray[np.bool_] | None
    holders: Ints | None
    holder_codes: Codes
    numbers: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def parts(self, chosen: NDArray[np.bool_]) -> Iterator[NDArray[Any]]:
        """The chosen rows of each chunk that has some."""
        start = 0
        for chunk in self.chunks:
            mine = chosen[start : start + len(chunk)]
            start += len(chunk)
            if mine.any():
                yield chunk[mine]

    def take(self, test: NDArray[np.bool_], scale: Moments | None) -> tuple[Any, Any]:
        """Training and test samples as float32, standardised if asked for; the chunks are freed."""
        width = self.chunks[0].shape[1]
        sizes = (len(test) - int(test.sum()), int(test.sum()))
        both = [np.empty((size, width), np.float32) for size in sizes]
        filled, start = [0, 0], 0
        self.chunks.reverse()
        while self.chunks:
            chunk = self.chunks.pop()
            if scale is not None:
                chunk = scale.standardise(chunk)
            mine = test[start : start + len(chunk)]
            start += len(chunk)
            for k, rows in enumerate((~mine, mine)):
                count = int(rows.sum())
                both[k][filled[k] : filled[k] + count] = chunk[rows]
                filled[k] += count
        return both[0], both[1]


def gather(table: Table, roles: Roles, *, wide: bool) -> Rows:
    """Read a table.

    Args:
        table: to read.
        roles: of its columns.
        wide: whether to keep float64, for features that are yet to be standardised.

    Raises:
        ScenarioError: no rows, missing values, or more than this machine's memory holds.
    """
    faults = _Faults(table, roles)
    label_codes, split_codes, holder_codes = Codes(), Codes(), Codes()
    chunks, labels, numbers, splits, holders, held = [], [], [], [], [], 0
    for block in table.blocks(roles.numbers, roles.texts):
        chunk = faults.checked(block, wide)
        texts = iter(block.texts)
        if roles.numeric:
            chunk = chunk[:, :-1].copy()
            numbers.append(block.numbers[:, -1].copy())
            labels.append(np.zeros(len(chunk), np.int32))
        else:
            labels.append(label_codes.add(next(texts), block.line_of))
        chunks.append(chunk)
        if roles.split is not None:
            splits.append(split_codes.add(next(texts), block.line_of))
        if roles.holder is not None:
            holders.append(holder_codes.add(next(texts), block.line_of))
        held += chunk.nbytes + labels[-1].nbytes
        texts_bytes = sum(codes.nbytes for codes in (label_codes, split_codes, holder_codes))
        _check_room(table, held + texts_bytes, block.share)
    if not sum(map(len, chunks)):
        raise ScenarioError(f"{table.where} has no rows under its header: write a row per sample")
    faults.refuse()
    _check_texts(table, table.columns[roles.label], label_codes)
    if roles.holder is not None:
        _check_texts(table, table.columns[roles.holder], holder_codes)
    return Rows(
        table,
        chunks,
        np.concatenate(labels),
        label_codes,
        _tested(table, split_codes)[np.concatenate(splits)] if splits else None,
        np.concatenate(holders) if holders else None,
        holder_codes,
        np.concatenate(numbers) if numbers else None,
    )


class _Faults:
    """Counts missing and infinite values by column, to name them all at once."""

    def __init__(self, table: Table, roles: Roles) -> None:
        self.table = table
        self.names = [table.columns[k] for k in roles.numbers]
        self.count = np.zeros(len(self.names), np.int64)
        self.first = np.zeros(len(self.names), np.int64)
        self.rows = 0

    def checked(self, block: Block, wide: bool) -> NDArray[Any]:
        """The numbers of a block, narrowed if they may be."""
        numbers = block.numbers
        self.rows += len(numbers)
        bad = ~(np.abs(numbers) <= _LARGEST)  # NaN too
        if bad.any():
            for column in np.flatnonzero(bad.any(axis=0)):
                row = int(bad[:, column].argmax())
                if np.isfinite(numbers[row, column]) or np.isinf(numbers[row, column]):
                    raise ScenarioError(
                        f"{self.table.where}, {self.table.unit} {block.line_of(row)}, column "
                        f"{self.names[column]!r}: {numbers[row, column]:g} is beyond "
                        f"{_LARGEST:.2g}, the largest that float32 holds: correct it"
                    )
                if not self.count[column]:
                    self.first[column] = block.line_of(row)
            self.count += bad.sum(axis=0)
        return numbers if wide else numbers.astype(np.float32)

    def refuse(self) -> None:
        """Name the columns in which values are missing."""
        columns = np.flatnonzero(self.count)
        if not len(columns):
            return
        shown = ", ".join(
            f"{self.names[k]!r} ({self.count[k]:,} of {self.rows:,}, first in {self.table.unit} "
            f"{self.first[k]})"
            for k in columns[:5]
        )
        more = f" and {len(columns) - 5} more columns" if len(columns) > 5 else ""
        listed = ", ".join(f'"{self.names[k]}"' for k in columns[:5])
        raise ScenarioError(
            f"{self.table.where} has missing values in {shown}{more}: fill them in, delete these "
            f"rows, or leave the columns out with training.ignore_columns = [{listed}]"
        )


def _check_room(table: Table, held_bytes: int, share: float) -> None:
    """Refuse a table once it is, or by what was read of it will be, too large.

    A table whose rows differ may be wrongly foreseen, hence the margin.
    """
    most = DATA.now
    foreseen = held_bytes / share if share else 0.0
    if held_bytes > most or foreseen > _MARGIN * most:
        takes = f"about {foreseen / 1e9:.3g} GB, " if foreseen > _MARGIN * most else ""
        raise ScenarioError(
            f"{table.where} takes {takes}more than {most / 1e9:.3g} GB, half of this machine's "
            "memory: use a part of its rows, or a machine with more"
        )


def _check_texts(table: Table, column: str, codes: Codes) -> None:
    """Refuse a cell without a label or holder, and bytes that are not text."""
    for value, line in zip(codes.values, codes.lines, strict=True):
        if value.strip().lower() in ("", "nan"):
            what = f"no value in the column {column!r}: fill it in, or delete the row"
        elif not value.isprintable() and any("\ud800" <= c <= "\udfff" for c in value):
            what = f"the column {column!r} is not UTF-8 text: save the file as CSV in UTF-8"
        else:
            continue
        raise ScenarioError(f"{table.where}, {table.unit} {line}: {what}")


def _tested(table: Table, codes: Codes) -> NDArray[np.bool_]:
    """For each text in the column ``split``, whether it says test."""
    words = [" ".join(value.split()).lower() for value in codes.values]
    for word, line in zip(words, codes.lines, strict=True):
        if word not in _SPLITS:
            raise ScenarioError(
                f"{table.where}, {table.unit} {line}: the column 'split' says {word[:40]!r}: "
                "write train or test, or rename the column if it means something else"
            )
    return np.array([_SPLITS[word] for word in words])


_PURPOSE = 0x686F6C64  # "hold": keeps these draws apart from every other use of the seed


def held_out(
    labels: NDArray[np.int32],
    fraction: float,
    seed: int,
    holders: NDArray[np.int32] | None = None,
) -> NDArray[np.bool_]:
    """Choose the test samples.

    Args:
        labels: class of each sample.
        fraction: of each class, to the nearest whole number; one sample of a class stays at least.
        seed: of the draw.
        holders: who holds each sample; each class is then also spread evenly over its holders.

    Returns:
        bool [n], true for a test sample.

    Raises:
        ScenarioError: no class has two samples.

    >>> held_out(np.repeat([0, 1], [10, 5]).astype(np.int32), 0.2, seed=0).nonzero()[0].tolist()
    [1, 7, 14]
    """
    rng = np.random.default_rng([seed, _PURPOSE])
    order = rng.permutation(len(labels))
    keys = (labels[order],) if holders is None else (holders[order], labels[order])
    order = order[np.lexsort(keys)]
    counts = np.bincount(labels)
    wanted = np.minimum(np.rint(counts * fraction).astype(np.int64), np.maximum(counts - 1, 0))
    if not wanted.any() and counts.max() > 1:
        wanted[counts.argmax()] = 1
    if not wanted.any():
        raise ScenarioError(
            f"{len(labels)} samples of {len(counts)} classes leave none to test on: add samples, "
            "or give training.test_dataset"
        )
    chosen = np.zeros(len(labels), bool)
    first = np.cumsum(counts) - counts
    for label in np.flatnonzero(wanted):
        # Evenly spaced from a random start: neighbours in the order share a holder.
        spaced = np.arange(wanted[label]) + rng.random()
        steps = np.minimum(spaced * (counts[label] / wanted[label]), counts[label] - 1)
        chosen[order[first[label] + steps.astype(np.int64)]] = True
    return chosen


Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets as a data set holds them.

    Attributes:
        train: of the training samples.
        test: of the test samples.
        count: of classes, or of numbers of each sample.
        names: of classes.
        notes: what a user should know about them.
        said: what they are, in words.
    """

    train: NDArray[Any]
    test: NDArray[Any]
    count: int
    names: tuple[str, ...]
    notes: tuple[str, ...]
    said: str


class Predicted(Protocol):
    """The targets of a table's rows."""

    @property
    def groups(self) -> Ints:
        """By which samples are held out: the same share of each."""

    @property
    def held_out(self) -> str:
        """How samples are held out, in words."""

    def of(self, other: Table, found: Rows) -> NDArray[Any]:
        """The targets of a second table."""

    def targets(self, test: Mask, other: NDArray[Any] | None, *, normalize: bool) -> Targets:
        """The targets of all samples.

        Args:
            test: which rows are test samples.
            other: targets of the test samples, where they are of a second table.
            normalize: whether to standardise numbers.
        """


class Classes:
    """Labels, as classes 0..K-1 in sorted order.

    Args:
        rows: of the table.
        column: of the labels.
    """

    held_out = "by class and at random"

    def __init__(self, rows: Rows, column: str) -> None:
        self._rows, where = rows, f"{rows.table.where}, column {column!r}"
        try:
            self._classes, self._names = number_classes(rows.label_codes.values)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        self._count = int(self._classes.max()) + 1
        if self._count < 2:
            raise ScenarioError(
                f"{where}: all {len(rows):,} labels are equal: give 2 classes or more"
            )
        check_classes(where, self._count, len(rows))

    @property
    def groups(self) -> Ints:
        """The class of each row."""
        return self._classes[self._rows.labels]

    def of(self, other: Table, found: Rows) -> NDArray[Any]:
        """The classes of a second table's rows."""
        values = found.label_codes.values
        known = canonical(self._rows.label_codes.values)
        own = classes_in(canonical(values), known, self._classes)
        if (own < 0).any():
            stranger = int((own < 0).argmax())
            raise ScenarioError(
                f"{other.where}, {other.unit} {found.label_codes.lines[stranger]}: "
                f"{values[stranger]!r:.60} is not a label of {self._rows.table.where}: correct it, "
                "or add rows"
            )
        return np.asarray(own[found.labels])

    def targets(self, test: Mask, other: NDArray[Any] | None, *, normalize: bool) -> Targets:
        """See `Predicted`."""
        labels, names = self.groups, self._names
        train = labels[~test]
        self._check_trained(train)
        shown = f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})" if names else ""
        said = f"{self._count:,} classes{shown}"
        tested = labels[test] if other is None else other
        return Targets(train, tested, self._count, names, (), said)

    def _check_trained(self, train: Ints) -> None:
        """Refuse a class of which there are only test samples."""
        absent = ~np.isin(self._classes, train)
        if absent.any():
            first, rows = int(absent.argmax()), self._rows
            raise ScenarioError(
                f"{rows.table.where}, {rows.table.unit} {rows.label_codes.lines[first]}: the label "
                f"{rows.label_codes.values[first]!r:.60} has only test rows: mark some to train on"
            )


class Numbers:
    """Numbers that are to be predicted, one of each row.

    Args:
        rows: of the table.
    """

    held_out = "at random"

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def groups(self) -> Ints:
        """All rows are of one."""
        return self._rows.labels

    def of(self, other: Table, found: Rows) -> NDArray[Any]:
        """The numbers of a second table's rows."""
        assert found.numbers is not None
        return found.numbers

    def targets(self, test: Mask, other: NDArray[Any] | None, *, normalize: bool) -> Targets:
        """See `Predicted`."""
        numbers, where = self._rows.numbers, self._rows.table.where
        assert numbers is not None
        tested = numbers[test] if other is None else other
        train, test_y, notes = numbers_of(where, numbers[~test], tested, normalize=normalize)
        said = f"numbers from {numbers.min():.4g} to {numbers.max():.4g}"
        return Targets(train, test_y, 1, (), notes, said)


Floats = NDArray[np.float32]


def open_table(path: str | Path) -> Table:
    """The table in a file, by the ending of its name."""
    return Parquet(path) if str(path).lower().endswith(".parquet") else Delimited(path)


def from_table(table: Table, reading: Reading) -> Dataset:
    """Read a table as a data set.

    Args:
        table: with a column of labels; all other columns are features, except a column ``split``
            (train or test) and those to which ``reading`` gives another meaning.
        reading: what is said about columns and splits.

    Returns:
        The data set. Labels are classes 0..K-1 in sorted order, with their names, or numbers that
        are to be predicted, as ``reading.targets`` says. The test samples
        are those of a second table, or those that the column ``split`` says, or a hold-out.

    Raises:
        ScenarioError: what is wrong, with the line and the column.
    """
    roles, rows, labelled = _gathered(table, reading)
    holders = _holders(rows, roles)
    test, split_note = _test_rows(rows, roles, reading, labelled, holders)
    figures = moments(rows.parts(~test))
    features = tuple(table.columns[k] for k in roles.features)
    odd = [*holder_note(table, roles), *_row_number_notes(rows, features)]
    if not reading.normalize:
        odd += feature_notes(figures, features)
    scale = figures if reading.normalize else None
    x_train, x_test = rows.take(test, scale)
    other = None
    if reading.test is not None:
        x_test, other = _second(table, roles, reading, labelled, scale)
        split_note = f"{len(other):,} test samples are read from {reading.test}"
    y = labelled.targets(test, other, normalize=reading.normalize)
    said = (
        f"{Path(table.where).name}: {len(y.train):,} training samples with {len(features):,} "
        f"features; {y.said} from the column {table.columns[roles.label]!r}"
    )
    return Dataset(
        table.where,
        x_train,
        y.train,
        x_test,
        y.test,
        y.count,
        class_names=y.names,
        feature_names=features,
        holders=holders and Holders(holders.column, holders.names, holders.of[~test]),
        notes=(said, split_note, *y.notes, *odd),
    )


def _gathered(table: Table, reading: Reading) -> tuple[Roles, Rows, Predicted]:
    """The columns, the rows, and what is to be predicted."""
    if reading.targets == "tokens":
        raise ScenarioError(
            f"training.loss = {reading.loss!r} is for tokens, of which a table has no column: give "
            "an .npz file with x and y of shape [samples, positions]",
            field="training.loss",
        )
    roles = roles_of(table, reading)
    column = table.columns[roles.label]
    if reading.targets != "numbers":
        rows = gather(table, roles, wide=reading.normalize)
        if reading.targets == "classes" or not has_fractions(rows.label_codes.values):
            return roles, rows, Classes(rows, column)
    roles = replace(roles, numeric=True)
    rows = gather(table, roles, wide=reading.normalize)
    return roles, rows, Numbers(rows)


def _holders(rows: Rows, roles: Roles) -> Holders | None:
    if rows.holders is None or roles.holder is None:
        return None
    new_index, names = in_order(rows.holder_codes.values)
    return Holders(rows.table.columns[roles.holder], names, new_index[rows.holders])


def _test_rows(
    rows: Rows, roles: Roles, reading: Reading, labelled: Predicted, holders: Holders | None
) -> tuple[Mask, str]:
    """Which rows are test samples, and a sentence that says why."""
    if reading.test is not None:
        if roles.split is not None:
            raise ScenarioError(
                f"{rows.table.where} has a column {SPLIT!r}, and training.test_dataset is given as "
                f'well: leave one out (training.ignore_columns = ["{SPLIT}"])'
            )
        return np.zeros(len(rows), bool), ""
    if rows.tested is not None:
        for part, mine in (("train", ~rows.tested), ("test", rows.tested)):
            if not mine.any():
                raise ScenarioError(
                    f"{rows.table.where}: no row of the column {SPLIT!r} says {part}: mark some"
                )
        return rows.tested, (
            f"{int(rows.tested.sum()):,} test samples as the column {SPLIT!r} says"
        )
    try:
        held_by = None if holders is None else holders.of
        test = held_out(labelled.groups, reading.test_fraction, reading.seed, held_by)
    except ScenarioError as error:
        raise ScenarioError(f"{rows.table.where}: {error}") from None
    return test, (
        f"{int(test.sum()):,} of {len(rows):,} rows are held out as test samples, "
        f"{labelled.held_out} (training.test_fraction = {reading.test_fraction:g}, seed "
        f"{reading.seed})"
    )


def _second(
    table: Table, roles: Roles, reading: Reading, labelled: Predicted, scale: Moments | None
) -> tuple[Floats, NDArray[Any]]:
    """Test samples and their targets from a table of their own."""
    other = open_table(str(reading.test))
    found = gather(other, test_roles(table, roles, other, reading.ignored), wide=scale is not None)
    wanted = labelled.of(other, found)
    return found.take(np.ones(len(found), bool), scale)[1], wanted


def _row_number_notes(rows: Rows, features: tuple[str, ...]) -> list[str]:
    """Features that only count the rows, which a model learns nothing from."""
    left = np.arange(len(features)) if len(rows) > 2 else np.zeros(0, np.int64)
    last = None
    for chunk in rows.chunks:
        body = chunk[:, left] if last is None else np.vstack([last[left], chunk[:, left]])
        left = left[(np.diff(body, axis=0) == 1).all(axis=0)]
        last = chunk[-1]
        if not len(left):
            return []
    return [
        f"column {features[k]!r} only counts the rows: leave it out with "
        f'training.ignore_columns = ["{features[k]}"]'
        for k in left
    ]
