"""What every kind of table gives: its columns' names, and its rows a block at a time."""

from __future__ import annotations

__all__ = ["HOLDERS", "Block", "Table", "check_columns", "text_columns"]

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files.limits import DATA_COLUMNS

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
