"""A table with a column of labels as a data set: the user's data as they lie."""

from __future__ import annotations

__all__ = ["from_table", "open_table"]

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Table
from joulemesh.data.columnar import Parquet
from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.delimited import Delimited
from joulemesh.data.gather import Rows, gather
from joulemesh.data.holdout import held_out
from joulemesh.data.labels import canonical, check_classes, classes_in, in_order, number_classes
from joulemesh.data.reading import Reading
from joulemesh.data.roles import SPLIT, Roles, holder_note, roles_of, test_roles
from joulemesh.data.scaling import Moments, feature_notes, moments
from joulemesh.errors import ScenarioError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


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
        The data set. Labels are classes 0..K-1 in sorted order, with their names. The test samples
        are those of a second table, or those that the column ``split`` says, or a hold-out.

    Raises:
        ScenarioError: what is wrong, with the line and the column.
    """
    roles = roles_of(table, reading)
    rows = gather(table, roles, wide=reading.normalize)
    classes, names = _classes(rows, table.columns[roles.label])
    labels = classes[rows.labels]
    holders = _holders(rows, roles)
    test, split_note = _test_rows(rows, roles, reading, labels, holders)
    figures = moments(rows.parts(~test))
    features = tuple(table.columns[k] for k in roles.features)
    odd = [*holder_note(table, roles), *_row_number_notes(rows, features)]
    if not reading.normalize:
        odd += feature_notes(figures, features)
    scale = figures if reading.normalize else None
    x_train, x_test = rows.take(test, scale)
    y_train, y_test = labels[~test], labels[test]
    if reading.test is not None:
        x_test, y_test = _second(table, roles, reading, rows, classes, scale)
        split_note = f"{len(y_test):,} test samples are read from {reading.test}"
    count = int(classes.max()) + 1
    _check_trained(rows, classes, y_train)
    said = _described(table.where, y_train, features, table.columns[roles.label], count, names)
    return Dataset(
        table.where,
        x_train,
        y_train,
        x_test,
        y_test,
        count,
        class_names=names,
        feature_names=features,
        holders=holders and Holders(holders.column, holders.names, holders.of[~test]),
        notes=(said, split_note, *odd),
    )


def _classes(rows: Rows, column: str) -> tuple[Ints, tuple[str, ...]]:
    """The class of each label's text, and the classes' names."""
    where = f"{rows.table.where}, column {column!r}"
    try:
        classes, names = number_classes(rows.label_codes.values)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    count = int(classes.max()) + 1
    if count < 2:
        raise ScenarioError(f"{where}: all {len(rows):,} labels are equal: give 2 classes or more")
    check_classes(where, count, len(rows))
    return classes, names


def _holders(rows: Rows, roles: Roles) -> Holders | None:
    if rows.holders is None or roles.holder is None:
        return None
    new_index, names = in_order(rows.holder_codes.values)
    return Holders(rows.table.columns[roles.holder], names, new_index[rows.holders])


def _test_rows(
    rows: Rows, roles: Roles, reading: Reading, labels: Ints, holders: Holders | None
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
        test = held_out(labels, reading.test_fraction, reading.seed, held_by)
    except ScenarioError as error:
        raise ScenarioError(f"{rows.table.where}: {error}") from None
    return test, (
        f"{int(test.sum()):,} of {len(rows):,} rows are held out as test samples, by class and at "
        f"random (training.test_fraction = {reading.test_fraction:g}, seed {reading.seed})"
    )


def _second(
    table: Table,
    roles: Roles,
    reading: Reading,
    rows: Rows,
    classes: Ints,
    scale: Moments | None,
) -> tuple[Floats, Ints]:
    """Test samples and their classes from a table of their own."""
    other = open_table(str(reading.test))
    found = gather(other, test_roles(table, roles, other, reading.ignored), wide=scale is not None)
    values = found.label_codes.values
    own = classes_in(canonical(values), canonical(rows.label_codes.values), classes)
    if (own < 0).any():
        stranger = int((own < 0).argmax())
        raise ScenarioError(
            f"{other.where}, {other.unit} {found.label_codes.lines[stranger]}: "
            f"{values[stranger]!r:.60} is not a label of {table.where}: correct it, or add rows"
        )
    return found.take(np.ones(len(found), bool), scale)[1], own[found.labels]


def _check_trained(rows: Rows, classes: Ints, y_train: Ints) -> None:
    """Refuse a class of which there are only test samples."""
    absent = ~np.isin(classes, y_train)
    if absent.any():
        first = int(absent.argmax())
        raise ScenarioError(
            f"{rows.table.where}, {rows.table.unit} {rows.label_codes.lines[first]}: the label "
            f"{rows.label_codes.values[first]!r:.60} has only test rows: mark some to train on"
        )


def _described(
    where: str,
    y_train: Ints,
    features: tuple[str, ...],
    column: str,
    classes: int,
    names: tuple[str, ...],
) -> str:
    shown = f" ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})" if names else ""
    return (
        f"{Path(where).name}: {len(y_train):,} training samples with {len(features):,} features; "
        f"{classes:,} classes{shown} from the column {column!r}"
    )


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
