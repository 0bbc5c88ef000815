"""CSV files with a header, as columns of text or numbers."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError

__all__ = ["number_column", "read_table"]


def read_table(path: str | Path) -> dict[str, list[str]]:
    """Columns of a CSV file by the names in its first row.

    Raises:
        ScenarioError: the file cannot be read, is empty, or a row has another length.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, csv.Error) as error:
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
    return {name: [row[k] for row in body] for k, name in enumerate(header)}


def number_column(
    columns: dict[str, list[str]], name: str, path: str | Path
) -> NDArray[np.float64]:
    """One column as finite numbers.

    >>> number_column({"cpu_hz": ["2e9", "1e9"]}, "cpu_hz", "devices.csv").tolist()
    [2000000000.0, 1000000000.0]
    """
    if name not in columns:
        raise ScenarioError(
            f"{path} has no column {name!r}; it has {', '.join(columns)}: add it or name another"
        )
    values = np.empty(len(columns[name]))
    for row, cell in enumerate(columns[name]):
        try:
            values[row] = float(cell)
        except ValueError:
            values[row] = math.nan
        if not math.isfinite(values[row]):
            raise ScenarioError(
                f"{path}, row {row + 2}, column {name!r}: {cell!r} is not a finite number; mend it"
            )
    return values
