"""What each column of a table is: the label, the split, who holds the row, or a feature."""

from __future__ import annotations

__all__ = ["SPLIT", "Roles", "holder_note", "roles_of", "test_roles"]

import difflib
from dataclasses import dataclass

from joulemesh.data.blocks import HOLDERS, Table
from joulemesh.data.reading import COLUMN, Reading
from joulemesh.errors import ScenarioError

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
