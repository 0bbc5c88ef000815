"""A table with a column of labels as a data set: a CSV, TSV or Parquet file, or a data frame."""

from __future__ import annotations

import csv
import difflib
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data.dataset import (
    Dataset,
    Holders,
    canonical,
    check_classes,
    classes_in,
    feature_notes,
    has_fractions,
    in_order,
    in_portions,
    moments,
    number_classes,
    numbers_of,
    standardised,
)
from joulemesh.data.reading import COLUMN, PACKING_DAMAGE, Reading, open_unpacked

_HOLDERS = ("device", "client", "holder", "node", "site", "user")  # usual names of such a column
_LABELS = ("label", "class", "target", "y")
_SPLIT = "split"
_SPLITS = {"train": False, "test": True}
_LARGEST = float(np.finfo(np.float32).max)

Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]


class Table(Protocol):
    """A file, or a data frame, with named columns.

    Attributes:
        where: the path, for messages.
        unit: what its rows are counted in: ``"line"`` or ``"row"``.
        columns: names, all different.
    """

    where: str
    unit: str
    columns: tuple[str, ...]

    def read(self, features: Sequence[int], texts: Sequence[int]) -> tuple[NDArray[Any], list[Any]]:
        """Some columns as numbers, float64 [rows, features], NaN where one is missing; others as
        pandas series.
        """
        ...

    def place(self, row: int) -> int:
        """The line (or number) of the k-th row."""
        ...


def open_table(path: str | Path) -> Table:
    """The table in a file, by the ending of its name."""
    return _parquet(path) if str(path).lower().endswith(".parquet") else Delimited(path)


def is_frame(data: Any) -> bool:
    """Is this a pandas data frame? Told by what it can do, so that pandas is not needed."""
    return all(hasattr(data, name) for name in ("columns", "dtypes", "iloc"))


class Frame:
    """A pandas data frame."""

    unit = "row"

    def __init__(self, data: Any, where: str = "data") -> None:
        self.where, self._data = where, data
        self.columns = _checked_names(where, [str(name) for name in data.columns])

    def read(self, features: Sequence[int], texts: Sequence[int]) -> tuple[NDArray[Any], list[Any]]:
        types = require("pandas.api.types", "a data frame", "pandas")
        kinds = {k: self._data.dtypes.iloc[k] for k in features}
        wrong = [
            (self.columns[k], str(kind))
            for k, kind in kinds.items()
            if not (types.is_numeric_dtype(kind) or types.is_bool_dtype(kind))
            or types.is_complex_dtype(kind)
        ]
        if wrong:
            raise _text_columns(self.where, wrong)
        numbers = np.empty((len(self._data), len(features)))
        for j, k in enumerate(features):
            numbers[:, j] = self._data.iloc[:, k].to_numpy(np.float64, na_value=np.nan)
        return numbers, [self._data.iloc[:, k] for k in texts]

    def place(self, row: int) -> int:
        return row + 1


def _parquet(path: str | Path) -> Frame:
    arrow = require("pyarrow", f"reading {path}")
    pandas = require("pandas", f"reading {path}")
    try:
        return Frame(pandas.read_parquet(path, dtype_backend="pyarrow"), str(path))
    except FileNotFoundError:
        raise ScenarioError(f"dataset file {path} does not exist: correct its path") from None
    except (arrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not a readable Parquet file ({reason}): write it again"
        ) from None


_SEPARATORS = ",;\t|"
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")
_LOOKED_AT = 100  # rows in which the kind of a column shows


class Delimited:
    """A CSV or TSV file, plain or in gzip or xz."""

    unit = "line"

    def __init__(self, path: str | Path) -> None:
        self.where = str(path)
        with self._opened() as stream:
            header = next((line for line in stream if line.strip()), "")
        if not header:
            raise ScenarioError(
                f"{self.where} is empty: write the columns' names, and a row per sample"
            )
        if re.search("[\0-\x08\x0e-\x1f\ud800-\udfff]", header):
            raise ScenarioError(f"{self.where} is not UTF-8 text: save it as CSV in UTF-8")
        tabs = ".tsv" in Path(path).name.lower() and "\t" in header
        self._separator = "\t" if tabs else _separator(header)
        _, names = next(self._rows())
        if all(_number(name, ".") is not None for name in names):
            raise ScenarioError(
                f"{self.where}: the first line holds numbers ({header[:40].strip()!r}): write the "
                "columns' names above them"
            )
        self.columns = _checked_names(self.where, names)

    def read(self, features: Sequence[int], texts: Sequence[int]) -> tuple[NDArray[Any], list[Any]]:
        pandas = require("pandas", f"reading {self.where}")
        kinds = dict.fromkeys(self.columns, object)
        kinds |= {self.columns[k]: np.float64 for k in features}
        for decimal in "." if self._separator == "," else ".,":
            with self._opened() as stream, warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # a row is too long
                try:
                    found = pandas.read_csv(
                        stream,
                        sep=self._separator,
                        decimal=decimal,
                        header=0,
                        names=self.columns,
                        index_col=False,
                        dtype=kinds,
                        keep_default_na=False,
                    )
                except (ValueError, OverflowError, pandas.errors.ParserWarning):
                    continue
            return found.iloc[:, list(features)].to_numpy(), [found.iloc[:, k] for k in texts]
        return self._read_by_row(features, texts)

    def place(self, row: int) -> int:
        rows = self._rows()
        next(rows)
        return next(line for k, (line, _) in enumerate(rows) if k == row)

    @contextmanager
    def _opened(self) -> Iterator[IO[str]]:
        try:
            # Bytes that are not UTF-8 pass as lone surrogates, to be refused with their line.
            text = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
            with open_unpacked(self.where, "rt", **text) as stream:
                yield stream
        except ScenarioError:
            raise
        except FileNotFoundError:
            raise ScenarioError(
                f"dataset file {self.where} does not exist: correct its path"
            ) from None
        except EOFError:
            raise ScenarioError(
                f"{self.where} is cut short: its packing has no end; copy it again"
            ) from None
        except PACKING_DAMAGE as error:
            raise ScenarioError(f"{self.where} is corrupt ({error}): copy it again") from None
        except (OSError, ValueError) as error:  # a path may also hold what no path may
            reason = getattr(error, "strerror", None) or str(error)
            raise ScenarioError(f"{self.where!r} cannot be read ({reason}): check it") from None

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of each row from the header on, blank lines left out."""
        width = None
        with self._opened() as stream:
            reader = csv.reader(stream, delimiter=self._separator, strict=True)
            while True:
                at = reader.line_num + 1
                try:
                    row = next(reader, None)
                except csv.Error as error:
                    raise ScenarioError(
                        f"{self.where}, line {at}: {error}: correct the line"
                    ) from None
                if row is None:
                    return
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                width = len(row) if width is None else width
                if len(row) != width:
                    raise ScenarioError(
                        f"{self.where}, line {at}: {len(row)} cells under {width} columns: "
                        "complete the line"
                    )
                yield at, row

    def _read_by_row(
        self, features: Sequence[int], texts: Sequence[int]
    ) -> tuple[NDArray[Any], list[Any]]:
        """The same by the csv module, which says in which line and column something is wrong."""
        pandas = require("pandas", f"reading {self.where}")
        _, *rows = self._rows()
        self._check_kinds(rows[:_LOOKED_AT], features)
        decimal = self._decimal(rows, features)
        numbers = np.empty((len(rows), len(features)))
        for k, (at, row) in enumerate(rows):
            for j, column in enumerate(features):
                cell = row[column].strip()
                number = _number(cell, decimal)
                if number is None and cell.lower() not in _MISSING:
                    raise ScenarioError(
                        f"{self.where}, line {at}, column {self.columns[column]!r}: "
                        f"{cell[:40]!r} is not a number: correct it"
                    )
                numbers[k, j] = np.nan if number is None else number
        return numbers, [pandas.Series([row[k] for _, row in rows], dtype=object) for k in texts]

    def _check_kinds(self, rows: Sequence[tuple[int, list[str]]], features: Sequence[int]) -> None:
        """Refuse features that are text from the start, all of them by name."""
        found = []
        for k in features:
            given = ((at, row[k]) for at, row in rows if row[k].strip().lower() not in _MISSING)
            at, cell = next(given, (0, "0"))
            if all(_number(cell, decimal) is None for decimal in ".,"):
                found.append((self.columns[k], f"{cell[:40]!r} in line {at}"))
        if found:
            raise _text_columns(self.where, found)

    def _decimal(self, rows: Sequence[tuple[int, list[str]]], features: Sequence[int]) -> str:
        """The decimal sign; a file that uses both is refused."""
        if self._separator == ",":
            return "."
        lines: dict[str, int] = {}
        for at, row in rows:
            for cell in (row[k] for k in features):
                found = re.match(r"\s*[+-]?\d*([.,])\d", cell)
                if found:
                    lines.setdefault(found[1], at)
        if len(lines) == 2:
            raise ScenarioError(
                f"{self.where} writes decimals with a comma in line {lines[',']} and with a point "
                f"in line {lines['.']}: write all in one way"
            )
        return next(iter(lines), ".")


def _separator(header: str) -> str:
    """The separator that the header has most of, outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _number(text: str, decimal: str) -> float | None:
    """The number that a cell writes; None for anything else."""
    text = text.replace(",", ".") if decimal == "," else text
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _checked_names(where: str, columns: Sequence[str]) -> tuple[str, ...]:
    names = tuple(" ".join(name.split()) for name in columns)
    if "" in names:
        raise ScenarioError(
            f"{where}: column {names.index('') + 1} has no name: name it, or leave it out "
            "(pandas writes none for its index with index=False)"
        )
    counts = Counter(names)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise ScenarioError(f"{where} names the column {twice!r:.60} twice: rename one")
    return names


def _text_columns(where: str, found: Sequence[tuple[str, str]]) -> ScenarioError:
    """The refusal of columns of features that hold text: names, and where one was seen."""
    shown = ", ".join(repr(name) for name, _ in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    plural = "s" if len(found) > 1 else ""
    listed = ", ".join(f'"{name}"' for name, _ in found[:5])
    holder = next((name for name, _ in found if name.lower() in _HOLDERS), None)
    hint = (
        ""
        if holder is None
        else f"; if {holder!r} says which device holds a row, set "
        f'training.partition = "column:{holder}"'
    )
    return ScenarioError(
        f"{where}: column{plural} {shown}{more} hold{'' if plural else 's'} no numbers "
        f"({found[0][1]}): leave {'them' if plural else 'it'} out with "
        f"training.ignore_columns = [{listed}], or write the values as numbers{hint}"
    )


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


def _roles(table: Table, reading: Reading) -> Roles:
    """Find the label, the split, the holder and the features among a table's columns."""
    columns = table.columns
    ignored = [_find(table, name, "training.ignore_columns") for name in reading.ignored]
    label = _label(table, reading)
    split = columns.index(_SPLIT) if _SPLIT in columns and _SPLIT not in reading.ignored else None
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


def _test_roles(table: Table, roles: Roles, other: Table, ignored: tuple[str, ...]) -> Roles:
    """The same columns in a second table, in whichever order they stand there."""
    special = {table.columns[k] for k in (roles.label, roles.split, roles.holder) if k is not None}
    wanted = [table.columns[k] for k in (roles.label, *roles.features)]
    missing = [name for name in wanted if name not in other.columns]
    extra = [name for name in other.columns if name not in {*wanted, *special, *ignored}]
    if missing or extra:
        fault = f"lacks {missing[0]!r}" if missing else f"has {extra[0]!r} as well"
        raise ScenarioError(
            f"{other.where} {fault}, unlike {table.where}: give both the same columns"
        )
    label, *features = (other.columns.index(name) for name in wanted)
    return Roles(label, None, None, tuple(features), roles.numeric)


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


class Texts:
    """A column of texts: a code for each row, and the distinct texts in the order of appearance."""

    def __init__(self, table: Table, column: int, cells: Any) -> None:
        codes, values = require("pandas", "a table").factorize(cells)
        self._table, self.name = table, table.columns[column]
        self.values = [*map(str, values.tolist()), *([""] if (codes < 0).any() else [])]
        self.codes: Ints = np.where(codes < 0, len(values), codes).astype(np.int32)

    def place(self, code: int) -> str:
        row = int((self.codes == code).argmax())
        return f"{self._table.where}, {self._table.unit} {self._table.place(row)}"

    def check(self) -> None:
        """Refuse a cell without a label or holder, and bytes that are not text."""
        for code, value in enumerate(self.values):
            if value.strip().lower() in ("", "nan"):
                what = f"no value in the column {self.name!r}: fill it in, or delete the row"
            elif any("\ud800" <= letter <= "\udfff" for letter in value):
                what = f"the column {self.name!r} is not UTF-8 text: save the file as CSV in UTF-8"
            else:
                continue
            raise ScenarioError(f"{self.place(code)}: {what}")

    def tested(self) -> Mask:
        """For each row, whether the column ``split`` says test."""
        words = [" ".join(value.split()).lower() for value in self.values]
        strange = next((k for k, word in enumerate(words) if word not in _SPLITS), None)
        if strange is not None:
            raise ScenarioError(
                f"{self.place(strange)}: the column {_SPLIT!r} says {words[strange][:40]!r}: "
                "write train or test, or rename the column if it means something else"
            )
        return np.array([_SPLITS[word] for word in words])[self.codes]


@dataclass(frozen=True, eq=False)
class Rows:
    """What is read of a table.

    Attributes:
        table: where from.
        x: float64 [rows, features].
        labels: texts, or float64 [rows] where numbers are to be predicted.
        tested: whether each row is a test sample, if the table says so.
        holders: who holds each row, if that is asked for.
    """

    table: Table
    x: NDArray[np.float64]
    labels: Texts | NDArray[np.float64]
    tested: Mask | None
    holders: Texts | None

    def __len__(self) -> int:
        return len(self.x)


def _gather(table: Table, roles: Roles) -> Rows:
    """Read a table, and refuse one without rows or with values that are missing or too large."""
    columns = (*roles.features, roles.label) if roles.numeric else roles.features
    texts = [None if roles.numeric else roles.label, roles.split, roles.holder]
    wanted = [k for k in texts if k is not None]
    numbers, cells = table.read(columns, wanted)
    if not len(numbers):
        raise ScenarioError(f"{table.where} has no rows under its header: write a row per sample")
    _check_numbers(table, columns, numbers)
    found = {k: Texts(table, k, column) for k, column in zip(wanted, cells, strict=True)}
    for k in (texts[0], roles.holder):
        if k is not None:
            found[k].check()
    return Rows(
        table,
        numbers[:, :-1] if roles.numeric else numbers,
        numbers[:, -1] if roles.numeric else found[roles.label],
        None if roles.split is None else found[roles.split].tested(),
        None if roles.holder is None else found[roles.holder],
    )


def _check_numbers(table: Table, columns: Sequence[int], numbers: NDArray[np.float64]) -> None:
    """Refuse values beyond float32, then those that are missing, all columns of them at once."""
    names = [table.columns[k] for k in columns]
    bad = ~(np.abs(numbers) <= _LARGEST)  # NaN too
    if not bad.any():
        return
    far = np.argwhere(bad & ~np.isnan(numbers))
    if len(far):
        row, column = far[0]
        raise ScenarioError(
            f"{table.where}, {table.unit} {table.place(int(row))}, column {names[column]!r}: "
            f"{numbers[row, column]:g} is beyond {_LARGEST:.2g}, the largest that float32 holds: "
            "correct it"
        )
    lacking = np.flatnonzero(bad.any(axis=0))
    shown = ", ".join(
        f"{names[k]!r} ({bad[:, k].sum():,} of {len(numbers):,}, first in {table.unit} "
        f"{table.place(int(bad[:, k].argmax()))})"
        for k in lacking[:5]
    )
    more = f" and {len(lacking) - 5} more columns" if len(lacking) > 5 else ""
    listed = ", ".join(f'"{names[k]}"' for k in lacking[:5])
    raise ScenarioError(
        f"{table.where} has missing values in {shown}{more}: fill them in, delete these rows, or "
        f"leave the columns out with training.ignore_columns = [{listed}]"
    )


_PURPOSE = 0x686F6C64  # "hold": keeps these draws apart from every other use of the seed


def held_out(
    labels: NDArray[np.int32],
    fraction: float,
    seed: int,
    holders: NDArray[np.int32] | None = None,
) -> NDArray[np.bool_]:
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


class Classes:
    """Labels, as classes 0..K-1 in sorted order."""

    held_out = "by class and at random"

    def __init__(self, rows: Rows, labels: Texts) -> None:
        self._labels = labels
        self._where = rows.table.where
        where = f"{self._where}, column {labels.name!r}"
        try:
            self._classes, self._names = number_classes(labels.values)
        except ScenarioError as error:
            raise ScenarioError(f"{where}: {error}") from None
        self._count = int(self._classes.max()) + 1
        if self._count < 2:
            raise ScenarioError(
                f"{where}: all {len(rows):,} labels are equal: give 2 classes or more"
            )
        check_classes(where, self._count, len(rows))
        self.groups: Ints = self._classes[labels.codes]
        """By which samples are held out: the same share of each."""

    def of(self, found: Rows) -> NDArray[Any]:
        labels = found.labels
        assert isinstance(labels, Texts)
        known = canonical(self._labels.values)
        own = classes_in(canonical(labels.values), known, self._classes)
        if (own < 0).any():
            stranger = int((own < 0).argmax())
            raise ScenarioError(
                f"{labels.place(stranger)}: {labels.values[stranger]!r:.60} is not a label of "
                f"{self._where}: correct it, or add rows"
            )
        return np.asarray(own[labels.codes])

    def targets(self, test: Mask, other: NDArray[Any] | None, *, normalize: bool) -> Targets:
        """The targets of all samples; ``other`` are those of a second table."""
        train, names = self.groups[~test], self._names
        absent = ~np.isin(self._classes, train)
        if absent.any():
            first = int(absent.argmax())
            raise ScenarioError(
                f"{self._labels.place(first)}: the label {self._labels.values[first]!r:.60} has "
                "only test rows: mark some to train on"
            )
        shown = f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})" if names else ""
        tested = self.groups[test] if other is None else other
        said = f"{self._count:,} classes{shown}"
        return Targets(train, tested, self._count, names, (), said)


class Numbers:
    """Numbers that are to be predicted, one of each row."""

    held_out = "at random"

    def __init__(self, rows: Rows, numbers: NDArray[np.float64]) -> None:
        self._where, self._numbers = rows.table.where, numbers
        self.groups: Ints = np.zeros(len(rows), np.int32)

    def of(self, found: Rows) -> NDArray[Any]:
        assert isinstance(found.labels, np.ndarray)
        return found.labels

    def targets(self, test: Mask, other: NDArray[Any] | None, *, normalize: bool) -> Targets:
        """The targets of all samples; ``other`` are those of a second table."""
        numbers = self._numbers
        tested = numbers[test] if other is None else other
        train, test_y, notes = numbers_of(self._where, numbers[~test], tested, normalize=normalize)
        said = f"numbers from {numbers.min():.4g} to {numbers.max():.4g}"
        return Targets(train, test_y, 1, (), notes, said)


def from_table(table: Table, reading: Reading) -> Dataset:
    roles, rows, labelled = _gathered(table, reading)
    holders = None
    if rows.holders is not None:
        new_index, names = in_order(rows.holders.values)
        holders = Holders(rows.holders.name, names, new_index[rows.holders.codes])
    test, split_note = _test_rows(rows, reading, labelled, holders)
    features = tuple(table.columns[k] for k in roles.features)
    odd = [*_holder_note(table, roles), *_row_number_notes(rows.x, features)]
    x_train: NDArray[Any] = rows.x[~test]
    x_test: NDArray[Any] = rows.x[test]
    other = None
    if reading.test is not None:
        second = open_table(reading.test)
        found = _gather(second, _test_roles(table, roles, second, reading.ignored))
        x_test, other = found.x, labelled.of(found)
        split_note = f"{len(other):,} test samples are read from {reading.test}"
    if reading.normalize:
        figures = moments(in_portions(x_train))
        x_train, x_test = standardised(x_train, figures), standardised(x_test, figures)
    else:
        x_train, x_test = x_train.astype(np.float32), x_test.astype(np.float32)
        odd += feature_notes(moments(in_portions(x_train)), features)
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


def _gathered(table: Table, reading: Reading) -> tuple[Roles, Rows, Classes | Numbers]:
    """The columns, the rows, and what is to be predicted."""
    if reading.targets == "tokens":
        raise ScenarioError(
            f"training.loss = {reading.loss!r} is for tokens, of which a table has no column: give "
            "an .npz file with x and y of shape [samples, positions]",
            field="training.loss",
        )
    roles = _roles(table, reading)
    if reading.targets != "numbers":
        rows = _gather(table, roles)
        assert isinstance(rows.labels, Texts)
        if reading.targets == "classes" or not has_fractions(rows.labels.values):
            return roles, rows, Classes(rows, rows.labels)
    roles = replace(roles, numeric=True)
    rows = _gather(table, roles)
    assert isinstance(rows.labels, np.ndarray)
    return roles, rows, Numbers(rows, rows.labels)


def _test_rows(
    rows: Rows, reading: Reading, labelled: Classes | Numbers, holders: Holders | None
) -> tuple[Mask, str]:
    """Which rows are test samples, and a sentence that says why."""
    if reading.test is not None:
        if rows.tested is not None:
            raise ScenarioError(
                f"{rows.table.where} has a column {_SPLIT!r}, and training.test_dataset is given "
                f'as well: leave one out (training.ignore_columns = ["{_SPLIT}"])'
            )
        return np.zeros(len(rows), bool), ""
    if rows.tested is not None:
        for part, mine in (("train", ~rows.tested), ("test", rows.tested)):
            if not mine.any():
                raise ScenarioError(
                    f"{rows.table.where}: no row of the column {_SPLIT!r} says {part}: mark some"
                )
        return rows.tested, (
            f"{int(rows.tested.sum()):,} test samples as the column {_SPLIT!r} says"
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


def _holder_note(table: Table, roles: Roles) -> tuple[str, ...]:
    """A word on a feature that by its name says who holds a row."""
    for k in roles.features:
        name = table.columns[k]
        if name.lower() in _HOLDERS and roles.holder is None:
            return (
                f"column {name!r} is used as a feature; if it says which device holds a row, set "
                f'training.partition = "{COLUMN}{name}"',
            )
    return ()


def _row_number_notes(x: NDArray[np.float64], features: tuple[str, ...]) -> list[str]:
    """Features that only count the rows, which a model learns nothing from."""
    if len(x) < 3:
        return []
    first = np.flatnonzero((np.diff(x[:3], axis=0) == 1).all(axis=0))
    counts = [k for k in first if (np.diff(x[:, k]) == 1).all()]
    return [
        f"column {features[k]!r} only counts the rows: leave it out with "
        f'training.ignore_columns = ["{features[k]}"]'
        for k in counts
    ]
