"""CSV and TSV files as other programs write them, read fast and in little memory.

Whole blocks of lines go to NumPy's reader in C, which takes the same numbers as Python does. What
it cannot take (a missing value, a damaged row) goes through Python's ``csv``, which says in which
line it is. Separators are commas, semicolons, tabs or bars, as the header has them; where they are
not commas, numbers may have decimal commas.
"""

from __future__ import annotations

__all__ = ["Delimited"]

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Block, check_columns, text_columns
from joulemesh.data.packed import DAMAGE, Opened, open_unpacked
from joulemesh.errors import ScenarioError
from joulemesh.files.limits import DATA_COLUMNS, DATA_LINE

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
        """Read all rows; see `joulemesh.data.blocks.Table`."""
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
