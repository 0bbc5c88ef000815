"""What the label column of a table holds: classes, or numbers that are to be predicted."""

from __future__ import annotations

__all__ = ["Classes", "Numbers", "Predicted"]

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Table
from joulemesh.data.gather import Rows
from joulemesh.data.labels import canonical, check_classes, classes_in, number_classes
from joulemesh.data.targets import numbers_of
from joulemesh.errors import ScenarioError

Ints = NDArray[np.int32]
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
