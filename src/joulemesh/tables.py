"""CSV files with a header, as columns of text or numbers.

Cells are separated by commas, semicolons or tabs. Where semicolons or tabs separate them, numbers
may have decimal commas, as spreadsheets write them in much of Europe. A file that can be read in
two ways is refused.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError, UnitError
from joulemesh.base.files import write_text
from joulemesh.base.units import parse

__all__ = ["is_number", "merge_rows", "number_column", "read_links", "read_table", "table_of"]


_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_FIRST_LINE = re.compile(r"sep=([,;\t])\r?\n")  # by which some spreadsheets name the separator
_NUMBER = re.compile(r"[+-]?(?:\d+|\d*(?P<mark>[.,])\d+)(?:[eE][+-]?\d+)?(?:\s*[^\W\d].*)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}(?!\d).*")


def read_table(path: str | Path) -> dict[str, list[str]]:
    """Columns of a CSV file by the names in its first row; decimal commas become points."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{path} is not a CSV file ({error}); save it as CSV in UTF-8"
        ) from None
    return table_of(text, path)


def table_of(text: str, path: str | Path) -> dict[str, list[str]]:
    """Columns of a CSV file's text, as `read_table` gives them."""
    try:
        rows, separator = _rows(text, path)
    except csv.Error as error:
        raise ScenarioError(
            f"{path} is not a CSV file ({error}); save it as CSV in UTF-8"
        ) from None
    if len(rows) < 2:
        raise ScenarioError(f"{path} has no rows under its header; write one row per device")
    header, body = [" ".join(name.split()) for name in rows[0]], rows[1:]  # one line each
    if len(set(header)) != len(header):
        raise ScenarioError(f"{path} names a column twice ({', '.join(header)}); rename one")
    for line, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise ScenarioError(
                f"{path}, row {line}: {len(row)} cells under {len(header)} columns; fill the row"
            )
    if separator != ",":
        body = _with_points(body, separator, path)
    return {name: [row[k] for row in body] for k, name in enumerate(header)}


def _rows(text: str, path: str | Path) -> tuple[list[list[str]], str]:
    """Rows of cells, blank lines left out, and what separates the cells."""
    named = _FIRST_LINE.match(text)
    if named:
        return list(_cells(text[named.end() :], named[1])), named[1]
    likely = [mark for mark in _SEPARATORS if len(next(_cells(text, mark), [])) > 1]
    if len(likely) > 1:  # one of them stands within a name: the other cuts all rows alike
        alike = [mark for mark in likely if len({len(row) for row in _cells(text, mark)}) == 1]
        if len(alike) != 1:
            ways = " or ".join(_SEPARATORS[mark] for mark in likely)
            raise ScenarioError(f"{path} may be separated by {ways}; save it with one of them only")
        likely = alike
    separator = likely[0] if likely else ","
    return list(_cells(text, separator)), separator


def _cells(text: str, separator: str) -> Iterator[list[str]]:
    for row in csv.reader(io.StringIO(text), delimiter=separator):
        if row:
            yield [cell.strip() for cell in row]


def _with_points(body: list[list[str]], separator: str, path: str | Path) -> list[list[str]]:
    """The rows with decimal points in place of decimal commas."""
    found: dict[str, list[str]] = {".": [], ",": []}
    for column in zip(*body, strict=True):
        numbers = [_NUMBER.fullmatch(cell) for cell in column]
        if all(numbers):  # elsewhere a point may be part of a version or a name
            for number in numbers:
                if number and number["mark"]:
                    found[number["mark"]].append(number[0])
    if all(found.values()):
        raise ScenarioError(
            f"{path} writes decimals with a comma ({found[','][0]!r}) and with a point "
            f"({found['.'][0]!r}); write all of them in one way"
        )
    for mark, cells in found.items():
        # Points are what a table with tabs has anyway; what else it is written with says nothing.
        doubtful = cells and (mark == "," or separator == ";")
        if doubtful and all(map(_THOUSANDS.fullmatch, cells)):
            plain, grouped = cells[0].replace(",", "."), cells[0].replace(mark, "")
            raise ScenarioError(
                f"{path}: {cells[0]!r} may mean {plain} or {grouped}, and no other figure shows "
                f"which; write {plain}0 or {grouped}"
            )
    return [[_with_point(cell) for cell in row] for row in body]


def _with_point(cell: str) -> str:
    number = _NUMBER.fullmatch(cell)
    return cell.replace(",", ".", 1) if number and number["mark"] == "," else cell


def number_column(
    columns: dict[str, list[str]], name: str, path: str | Path, unit: str | None = None
) -> NDArray[np.float64]:
    """One column as finite numbers."""
    if name not in columns:
        raise ScenarioError(
            f"{path} has no column {name!r}; it has {', '.join(columns)}: add it or name another"
        )
    values = np.empty(len(columns[name]))
    for row, cell in enumerate(columns[name]):
        try:
            values[row] = float(cell) if unit is None or is_number(cell) else parse(cell, unit)
        except UnitError as error:
            raise ScenarioError(f"{path}, row {row + 2}, column {name!r} = {error}") from None
        except ValueError:
            values[row] = math.nan
        if not math.isfinite(values[row]):
            raise ScenarioError(
                f"{path}, row {row + 2}, column {name!r}: {cell[:40]!r} is not a finite number; "
                "write one"
            )
    return values


def is_number(cell: str) -> bool:
    """Whether a cell is a number, without a unit."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read_links(columns: dict[str, list[str]], path: str | Path, count: int) -> NDArray[np.int64]:
    """int64 [rows, 2]: the links that the columns i and j of a CSV file name."""
    ends = np.stack([number_column(columns, name, path) for name in ("i", "j")], axis=1)
    bad = ((ends != np.floor(ends)) | (ends < 0) | (ends >= count)).any(axis=1)
    bad |= ends[:, 0] == ends[:, 1]
    if bad.any():
        row = int(np.argmax(bad))
        raise ScenarioError(
            f"{path}, row {row + 2}: link {ends[row, 0]:g}-{ends[row, 1]:g} must join two "
            f"different devices of 0..{count - 1}"
        )
    return ends.astype(np.int64)


def merge_rows(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    rows: Sequence[Mapping[str, str]],
    key: Sequence[str],
) -> int:
    """Write a CSV file whose rows are replaced by those with the same key, or followed by them.

    Columns and rows that are not among the new ones stay as they are. Gives the number of rows.
    """
    kept = dict[tuple[str, ...], dict[str, str]]()
    old = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    for row in (*old, *rows):
        kept.setdefault(tuple(row[name] for name in key), {}).update(row)
    text = io.StringIO()
    header = dict.fromkeys([*columns, *chain.from_iterable(rows)])
    writer = csv.DictWriter(text, list(header), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(kept.values())
    write_text(path, text.getvalue())
    return len(kept)
