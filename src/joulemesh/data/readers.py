"""Tables in files, read a block at a time: delimited text, Parquet, and others' formats."""

from __future__ import annotations

__all__ = [
    "HOLDERS",
    "Block",
    "Delimited",
    "Frame",
    "Parquet",
    "Table",
    "check_columns",
    "is_frame",
    "largest_group",
    "text_columns",
]

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.packed import DAMAGE, Opened, open_unpacked
from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import require_regular
from joulemesh.files.limits import DATA, DATA_COLUMNS, DATA_LINE
from joulemesh.optional import require

HOLDERS = ("device", "client", "holder", "node", "site", "user")  # names that say who holds a row


class Block(NamedTuple):
    """Some rows of a table.

    Attributes:
        numbers: float64 [rows, features]; NaN where a value is missing.
        texts: the cells of each other column that was asked for; empty where one is missing.
        line_of: the line (or row) in the file of the k-th row.
        share: how much of the table has been read with it, from 0 to 1; 0 if that is unknown.
    """

    numbers: NDArray[np.float64]
    texts: tuple[Sequence[str], ...]
    line_of: Callable[[int], int]
    share: float = 0.0


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

    def blocks(self, features: Sequence[int], texts: Sequence[int]) -> Iterator[Block]:
        """Read all rows: some columns as numbers, some as text, the others not at all.

        Raises:
            ScenarioError: a column of features is not numeric, or a row is damaged.
        """
        ...


def check_columns(where: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Refuse columns without a name, and names that occur twice.

    >>> check_columns("a.csv", ["x", "", "label"])
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: a.csv: column 2 has no name: name it, or leave it out ...
    """
    if len(columns) > DATA_COLUMNS.now:
        raise ScenarioError(
            f"{where} has {len(columns):,} columns, more than the {DATA_COLUMNS} that are read: "
            "write one row per sample, or leave columns out"
        )
    names = tuple(" ".join(name.split()) for name in columns)
    seen: set[str] = set()
    for index, name in enumerate(names):
        if not name:
            raise ScenarioError(
                f"{where}: column {index + 1} has no name: name it, or leave it out "
                "(pandas writes none for its index with index=False)"
            )
        if name in seen:
            raise ScenarioError(f"{where} names the column {name!r:.60} twice: rename one")
        seen.add(name)
    return names


def text_columns(where: str, found: Sequence[tuple[str, str]]) -> ScenarioError:
    """The refusal of columns of features that hold text: names, and where one was seen."""
    shown = ", ".join(repr(name) for name, _ in found[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    plural = "s" if len(found) > 1 else ""
    listed = ", ".join(f'"{name}"' for name, _ in found[:5])
    holder = next((name for name, _ in found if name.lower() in HOLDERS), None)
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


_SEPARATORS = ",;\t|"
_BLOCK_CHARACTERS = 1 << 22
_LONGEST_LINE = DATA_LINE.now
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")
_BLANK_LINES = 1000  # before the header
_LOOKED_AT = 100  # rows in which the kind of a column shows
_SAVE = "save it as CSV in UTF-8"


class Delimited:
    """A CSV or TSV file, plain or in gzip or xz."""

    unit = "line"

    def __init__(self, path: str | Path) -> None:
        self.where = str(path)
        with self._opened() as (stream, _):
            header, self._header_lines = _header(self.where, stream)
        tabs = ".tsv" in Path(path).name.lower() and "\t" in header
        self._separator = "\t" if tabs else _separator(header)
        if header.count(self._separator) >= DATA_COLUMNS.now:
            raise ScenarioError(
                f"{self.where} has more than the {DATA_COLUMNS} that are read: write one row per "
                "sample, or leave columns out"
            )
        try:
            names = next(csv.reader(io.StringIO(header), delimiter=self._separator))
        except csv.Error as error:
            raise ScenarioError(
                f"{self.where}, line {self._header_lines}: {error}: correct the columns' names"
            ) from None
        if all(_number(name, ".") is not None for name in names):
            raise ScenarioError(
                f"{self.where}: the first line holds numbers ({header[:40].strip()!r}): write the "
                "columns' names above them"
            )
        self.columns = check_columns(self.where, names)
        self._decimals: dict[str, int] = {}  # first line with each decimal sign

    def blocks(self, features: Sequence[int], texts: Sequence[int]) -> Iterator[Block]:
        """Read all rows; see `joulemesh.data.readers.Table`."""
        wanted = _Wanted(len(self.columns), features, texts)
        with self._opened() as (stream, opened):
            for _ in range(self._header_lines):
                stream.readline(_LONGEST_LINE)
            first = True
            for text, line in _pieces(self.where, stream, self._header_lines + 1):
                if not text.strip("\n"):  # any number of blank lines costs little
                    continue
                if first and text.strip():
                    self._check_kinds(text, line, wanted)
                    first = False
                decimal = self._decimal(text, line)
                block = self._fast(text, line, wanted, decimal)
                block = self._slow(text, line, wanted, decimal) if block is None else block
                yield block._replace(share=opened.share)

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[str], Opened]]:
        try:
            # Bytes that are not UTF-8 pass as lone surrogates, to be refused with their line.
            with (
                open_unpacked(Path(self.where)) as opened,
                io.TextIOWrapper(opened.stream, "utf-8-sig", "surrogateescape") as stream,
            ):
                yield stream, opened
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
        except DAMAGE as error:
            raise ScenarioError(f"{self.where} is corrupt ({error}): copy it again") from None
        except (OSError, ValueError) as error:  # a path may also hold what no path may
            reason = getattr(error, "strerror", None) or str(error)
            raise ScenarioError(f"{self.where!r} cannot be read ({reason}): check it") from None

    def _decimal(self, text: str, line: int) -> str:
        """The decimal sign of a block; a file that uses both is refused."""
        if self._separator == ",":
            return "."
        for sign in (",", "."):
            if sign in self._decimals or sign not in text:
                continue
            cut = re.escape(self._separator)
            found = re.search(rf"(?:^|{cut})\s*\"?[+-]?\d*{re.escape(sign)}\d", text, re.MULTILINE)
            if found:
                self._decimals[sign] = line + text.count("\n", 0, found.end())
        if len(self._decimals) == 2:
            raise ScenarioError(
                f"{self.where} writes decimals with a comma in line {self._decimals[',']} and with "
                f"a point in line {self._decimals['.']}: write all in one way"
            )
        return "," if "," in self._decimals else "."

    def _check_kinds(self, text: str, line: int, wanted: _Wanted) -> None:
        """Refuse features that are text from the start, all of them by name."""
        left, found = set(wanted.features), {}
        for count, (at, row) in enumerate(self._rows(text, line)):
            if count == _LOOKED_AT or not left:
                break
            for column in [k for k in left if row[k].strip().lower() not in _MISSING]:
                left.discard(column)
                if _number(row[column], "," if self._separator != "," else ".") is None:
                    found[column] = f"{row[column][:40]!r} in line {at}"
        if found:
            named = [(self.columns[column], found[column]) for column in sorted(found)]
            raise text_columns(self.where, named)

    def _fast(self, text: str, line: int, wanted: _Wanted, decimal: str) -> Block | None:
        """A block without any fault, or None."""
        quotes = text.count('"')
        if quotes % 2:
            return None
        lines = [one + "\n" for one in text.split("\n")] if quotes else text.split("\n")
        try:
            if decimal == "," and "," in text:  # in texts, a comma stays a comma
                rows = self._load([one.replace(",", ".") for one in lines], wanted.dtype)
                texts = [self._load(lines, np.dtype(object), column) for column in wanted.texts]
            else:
                rows = self._load(lines, wanted.dtype)
                texts = [rows[str(column)] for column in wanted.texts]
        except ValueError:
            return None
        numbers = np.empty((len(rows), len(wanted.features)))
        for k, column in enumerate(wanted.features):
            numbers[:, k] = rows[str(column)]
        if len(rows) == text.count("\n"):
            return Block(numbers, tuple(one.tolist() for one in texts), lambda row: line + row)
        numbered = [at for at, _ in self._rows(text, line)]  # blank lines, or cells of several
        return Block(numbers, tuple(one.tolist() for one in texts), lambda row: numbered[row])

    def _load(
        self, lines: list[str], dtype: np.dtype[Any], column: int | None = None
    ) -> NDArray[Any]:
        return np.loadtxt(
            lines,
            dtype,
            comments=None,
            delimiter=self._separator,
            quotechar='"',
            usecols=column,
            ndmin=1,
        )

    def _slow(self, text: str, line: int, wanted: _Wanted, decimal: str) -> Block:
        """The same through Python: missing values are NaN, what is damaged has its line."""
        rows = list(self._rows(text, line))
        numbers = np.empty((len(rows), len(wanted.features)))
        for k, (at, row) in enumerate(rows):
            for j, column in enumerate(wanted.features):
                cell = row[column].strip()
                number = _number(cell, decimal)
                if number is None and cell.lower() not in _MISSING:
                    raise ScenarioError(
                        f"{self.where}, line {at}, column {self.columns[column]!r}: "
                        f"{cell[:40]!r} is not a number: correct it"
                    )
                numbers[k, j] = np.nan if number is None else number
        texts = tuple([row[column] for _, row in rows] for column in wanted.texts)
        return Block(numbers, texts, lambda k: rows[k][0])

    def _rows(self, text: str, line: int) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of each row, blank lines left out."""
        lines = io.StringIO(text, newline="\n")
        reader = csv.reader(lines, delimiter=self._separator, strict=True)
        while True:
            at = line + reader.line_num
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise ScenarioError(f"{self.where}, line {at}: {error}: correct the line") from None
            if row is None:
                return
            if not row or (len(row) == 1 and not row[0].strip()):
                continue
            if len(row) != len(self.columns):
                raise ScenarioError(
                    f"{self.where}, line {at}: {len(row)} cells under {len(self.columns)} "
                    "columns: complete the line"
                )
            yield at, row


class _Wanted:
    """Which columns are read as what, for NumPy's reader."""

    def __init__(self, columns: int, features: Sequence[int], texts: Sequence[int]) -> None:
        self.features, self.texts = tuple(features), tuple(texts)
        numbers = set(features)
        # All columns are named, so that a row with another number of cells does not pass.
        self.dtype: np.dtype[Any] = np.dtype(
            [(str(k), "f8" if k in numbers else "O") for k in range(columns)]
        )


def _header(where: str, stream: IO[str]) -> tuple[str, int]:
    """The first line that is not blank, and how many lines there are up to its end."""
    header, lines = "", 0
    while not header.strip() or (
        header.count('"') % 2 and lines < _LOOKED_AT and len(header) < _LONGEST_LINE
    ):
        if lines == _BLANK_LINES and not header.strip():
            raise ScenarioError(f"{where} begins with {lines:,} blank lines: remove them")
        line = stream.readline(_LONGEST_LINE)
        if not line:
            break
        header, lines = header.lstrip() + line, lines + 1
    if not header.strip():
        raise ScenarioError(f"{where} is empty: write the columns' names, and a row per sample")
    if not header.isprintable() and re.search("[\0-\x08\x0e-\x1f\ud800-\udfff]", header):
        raise ScenarioError(f"{where} is not UTF-8 text: {_SAVE}")
    if not header.endswith("\n") and len(header) >= _LONGEST_LINE:
        raise _too_long(where, lines)
    return header, lines


def _too_long(where: str, line: int) -> ScenarioError:
    return ScenarioError(
        f"{where}, line {line} is longer than {_LONGEST_LINE:,} characters, so this is not a "
        f"table; {_SAVE}"
    )


def _separator(header: str) -> str:
    """The separator that the header has most of, outside of quotes.

    >>> _separator('"a, b, c";d;e')
    ';'
    """
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _number(text: str, decimal: str) -> float | None:
    """The number that a cell writes; None for anything else.

    >>> _number(" 1,5", ","), _number("1_0", "."), _number("1,5", ".")
    (1.5, None, None)
    """
    text = text.replace(",", ".") if decimal == "," else text
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _pieces(where: str, stream: IO[str], line: int) -> Iterator[tuple[str, int]]:
    """Some whole lines at a time, and the number of the first; never cut within quotes."""
    rest = ""
    while read := stream.read(_BLOCK_CHARACTERS):
        text = rest + read
        cut = text.rfind("\n") + 1
        closed = text.count('"', 0, cut) % 2 == 0
        if cut and (closed or len(text) > _LONGEST_LINE):
            yield text[:cut], line
            line, rest = line + text.count("\n", 0, cut), text[cut:]
        elif len(text) > _LONGEST_LINE:
            raise _too_long(where, line)
        else:
            rest = text
    if rest:
        yield rest if rest.endswith("\n") else rest + "\n", line


_BLOCK_ROWS = 1 << 16


def largest_group(metadata: Any) -> int:
    """Bytes of the largest group of rows of a Parquet file, which is read as a whole."""
    groups = range(metadata.num_row_groups)
    return max((int(metadata.row_group(k).total_byte_size) for k in groups), default=0)


class Parquet:
    """A Parquet file."""

    unit = "row"

    def __init__(self, path: str | Path) -> None:
        self.where = str(path)
        self._arrow = require("pyarrow", f"reading {self.where}")
        self._parquet = require("pyarrow.parquet", f"reading {self.where}", "pyarrow")
        with self._explained():
            require_regular(Path(self.where), sys.maxsize)
        with self._explained(), self._parquet.ParquetFile(self.where) as file:
            schema = file.schema_arrow
        self.columns = check_columns(self.where, schema.names)
        self._names, self._types = list(schema.names), list(schema.types)

    def blocks(self, features: Sequence[int], texts: Sequence[int]) -> Iterator[Block]:
        """Read all rows; see `joulemesh.data.readers.Table`."""
        wrong = [k for k in features if not self._is_number(self._types[k])]
        if wrong:
            raise text_columns(self.where, [(self.columns[k], str(self._types[k])) for k in wrong])
        names = [self._names[k] for k in (*features, *texts)]
        # A text that many rows share is read once: a small file can repeat a long one for ever.
        shared = [self._names[k] for k in texts if self._is_text(self._types[k])]
        start = 1
        opened = self._parquet.ParquetFile(self.where, read_dictionary=shared)
        with self._explained(), opened as file:
            self._check_claims(file.metadata, len(features))
            for batch in file.iter_batches(_BLOCK_ROWS, columns=names):
                columns = [batch.column(name) for name in names]
                numbers = [self._numbers(column) for column in columns[: len(features)]]
                words = [_cells(column) for column in columns[len(features) :]]
                block = Block(_side_by_side(numbers, len(batch)), tuple(words), _counted(start))
                start += len(batch)
                yield block._replace(share=min(1.0, (start - 1) / max(1, file.metadata.num_rows)))

    def _check_claims(self, metadata: Any, features: int) -> None:
        """Refuse what the file says about itself if it cannot be held."""
        takes = max(metadata.num_rows * features * 4, largest_group(metadata))
        if takes > DATA.now:
            raise ScenarioError(
                f"{self.where} claims {metadata.num_rows:,} rows of {features:,} features, which "
                f"take {takes / 1e9:.3g} GB, more than {DATA.now / 1e9:.3g} GB, half of this "
                "machine's memory: use a part of its rows, or a machine with more"
            )

    def _is_number(self, kind: Any) -> bool:
        types = self._arrow.types
        tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        return types.is_null(kind) or any(test(kind) for test in tests)

    def _is_text(self, kind: Any) -> bool:
        types = self._arrow.types
        tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
        return any(test(kind) for test in tests)

    def _numbers(self, column: Any) -> NDArray[np.float64]:
        kind = column.type
        if self._arrow.types.is_boolean(kind):
            column = column.cast(self._arrow.int8())
        numbers = column.cast(self._arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(numbers, np.float64)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what can go wrong inside a Parquet file into one line."""
        try:
            yield
        except ScenarioError:
            raise
        except FileNotFoundError:
            raise ScenarioError(
                f"dataset file {self.where} does not exist: correct its path"
            ) from None
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:160]
            raise ScenarioError(
                f"{self.where} is not a readable Parquet file ({reason}): write it again"
            ) from None


class Frame:
    """A pandas data frame."""

    unit = "row"

    def __init__(self, data: Any, where: str = "data") -> None:
        self.where, self._data = where, data
        self.columns = check_columns(where, [str(name) for name in data.columns])

    def blocks(self, features: Sequence[int], texts: Sequence[int]) -> Iterator[Block]:
        """Read all rows; see `joulemesh.data.readers.Table`."""
        is_number = require("pandas.api.types", "a data frame", "pandas").is_numeric_dtype
        kinds = {k: self._data.dtypes.iloc[k] for k in features}
        wrong = [k for k, kind in kinds.items() if not is_number(kind) or _complex(kind)]
        if wrong:
            raise text_columns(self.where, [(self.columns[k], str(kinds[k])) for k in wrong])
        for start in range(0, len(self._data), _BLOCK_ROWS):
            part = self._data.iloc[start : start + _BLOCK_ROWS]
            columns = [part.iloc[:, k] for k in features]
            numbers = [column.to_numpy(np.float64, na_value=np.nan) for column in columns]
            words = [_words(_known(part.iloc[:, k])) for k in texts]
            yield Block(_side_by_side(numbers, len(part)), tuple(words), _counted(start))


def is_frame(data: Any) -> bool:
    """Is this a pandas data frame? Told by what it can do, so that pandas is not needed.

    >>> is_frame({"x": [1]})
    False
    """
    return all(hasattr(data, name) for name in ("columns", "dtypes", "iloc"))


def _complex(kind: Any) -> bool:
    return getattr(kind, "kind", "") == "c"


def _known(column: Any) -> list[Any]:
    """Values of a pandas series, None for those that are missing."""
    values, missing = column.tolist(), column.isna().tolist()
    return [None if gone else value for value, gone in zip(values, missing, strict=True)]


def _cells(column: Any) -> list[str]:
    """The texts of a column's cells; those of one dictionary are made once."""
    if not hasattr(column, "dictionary"):
        return _words(column.to_pylist())
    values = _words(column.dictionary.to_pylist())
    return ["" if index is None else values[index] for index in column.indices.to_pylist()]


def _words(values: Sequence[Any]) -> list[str]:
    return ["" if value is None else str(value) for value in values]


def _side_by_side(columns: Sequence[NDArray[np.float64]], rows: int) -> NDArray[np.float64]:
    return np.stack(columns, axis=1) if columns else np.empty((rows, 0))


def _counted(start: int) -> Callable[[int], int]:
    """Rows by number, from ``start``."""
    return lambda row: start + row
