"""A table with a column of labels as a data set: the user's data as they lie."""

from __future__ import annotations

__all__ = ["from_table", "open_table"]

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Table
from joulemesh.data.columnar import Parquet
from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.delimited import Delimited
from joulemesh.data.gather import Rows, gather
from joulemesh.data.holdout import held_out
from joulemesh.data.labels import has_fractions, in_order
from joulemesh.data.predicted import Classes, Numbers, Predicted
from joulemesh.data.reading import Reading
from joulemesh.data.roles import SPLIT, Roles, holder_note, roles_of, test_roles
from joulemesh.data.scaling import Moments, feature_notes, moments
from joulemesh.errors import ScenarioError

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
            "an .npz file with x and y of shape [samples, positions]"
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
