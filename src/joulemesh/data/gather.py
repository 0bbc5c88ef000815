"""All rows of a table in compact arrays, with what is missing in them counted by column."""

from __future__ import annotations

__all__ = ["Rows", "gather"]

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Block, Table
from joulemesh.data.labels import Codes
from joulemesh.data.roles import Roles
from joulemesh.data.scaling import Moments
from joulemesh.errors import ScenarioError
from joulemesh.files.limits import DATA

_LARGEST = float(np.finfo(np.float32).max)
_MARGIN = 2
_SPLITS = {"train": False, "test": True}

Ints = NDArray[np.int32]


@dataclass(eq=False)
class Rows:
    """Everything that is read of a table.

    Attributes:
        table: where from.
        chunks: float32 or float64 [some rows, features].
        labels: the code of each row's label, and the texts that the codes stand for; zeros and
            none where labels are numbers.
        tested: whether each row is a test sample, if the table says so.
        holders: the code of each row's holder, if one is asked for.
        numbers: float64 [rows], where labels are numbers that are to be predicted.
    """

    table: Table
    chunks: list[NDArray[Any]]
    labels: Ints
    label_codes: Codes
    tested: NDArray[np.bool_] | None
    holders: Ints | None
    holder_codes: Codes
    numbers: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def parts(self, chosen: NDArray[np.bool_]) -> Iterator[NDArray[Any]]:
        """The chosen rows of each chunk that has some."""
        start = 0
        for chunk in self.chunks:
            mine = chosen[start : start + len(chunk)]
            start += len(chunk)
            if mine.any():
                yield chunk[mine]

    def take(self, test: NDArray[np.bool_], scale: Moments | None) -> tuple[Any, Any]:
        """Training and test samples as float32, standardised if asked for; the chunks are freed."""
        width = self.chunks[0].shape[1]
        sizes = (len(test) - int(test.sum()), int(test.sum()))
        both = [np.empty((size, width), np.float32) for size in sizes]
        filled, start = [0, 0], 0
        self.chunks.reverse()
        while self.chunks:
            chunk = self.chunks.pop()
            if scale is not None:
                chunk = scale.standardise(chunk)
            mine = test[start : start + len(chunk)]
            start += len(chunk)
            for k, rows in enumerate((~mine, mine)):
                count = int(rows.sum())
                both[k][filled[k] : filled[k] + count] = chunk[rows]
                filled[k] += count
        return both[0], both[1]


def gather(table: Table, roles: Roles, *, wide: bool) -> Rows:
    """Read a table.

    Args:
        table: to read.
        roles: of its columns.
        wide: whether to keep float64, for features that are yet to be standardised.

    Raises:
        ScenarioError: no rows, missing values, or more than this machine's memory holds.
    """
    faults = _Faults(table, roles)
    label_codes, split_codes, holder_codes = Codes(), Codes(), Codes()
    chunks, labels, numbers, splits, holders, held = [], [], [], [], [], 0
    for block in table.blocks(roles.numbers, roles.texts):
        chunk = faults.checked(block, wide)
        texts = iter(block.texts)
        if roles.numeric:
            chunk = chunk[:, :-1].copy()
            numbers.append(block.numbers[:, -1].copy())
            labels.append(np.zeros(len(chunk), np.int32))
        else:
            labels.append(label_codes.add(next(texts), block.line_of))
        chunks.append(chunk)
        if roles.split is not None:
            splits.append(split_codes.add(next(texts), block.line_of))
        if roles.holder is not None:
            holders.append(holder_codes.add(next(texts), block.line_of))
        held += chunk.nbytes + labels[-1].nbytes
        texts_bytes = sum(codes.nbytes for codes in (label_codes, split_codes, holder_codes))
        _check_room(table, held + texts_bytes, block.share)
    if not sum(map(len, chunks)):
        raise ScenarioError(f"{table.where} has no rows under its header: write a row per sample")
    faults.refuse()
    _check_texts(table, table.columns[roles.label], label_codes)
    if roles.holder is not None:
        _check_texts(table, table.columns[roles.holder], holder_codes)
    return Rows(
        table,
        chunks,
        np.concatenate(labels),
        label_codes,
        _tested(table, split_codes)[np.concatenate(splits)] if splits else None,
        np.concatenate(holders) if holders else None,
        holder_codes,
        np.concatenate(numbers) if numbers else None,
    )


class _Faults:
    """Counts missing and infinite values by column, to name them all at once."""

    def __init__(self, table: Table, roles: Roles) -> None:
        self.table = table
        self.names = [table.columns[k] for k in roles.numbers]
        self.count = np.zeros(len(self.names), np.int64)
        self.first = np.zeros(len(self.names), np.int64)
        self.rows = 0

    def checked(self, block: Block, wide: bool) -> NDArray[Any]:
        """The numbers of a block, narrowed if they may be."""
        numbers = block.numbers
        self.rows += len(numbers)
        bad = ~(np.abs(numbers) <= _LARGEST)  # NaN too
        if bad.any():
            for column in np.flatnonzero(bad.any(axis=0)):
                row = int(bad[:, column].argmax())
                if np.isfinite(numbers[row, column]) or np.isinf(numbers[row, column]):
                    raise ScenarioError(
                        f"{self.table.where}, {self.table.unit} {block.line_of(row)}, column "
                        f"{self.names[column]!r}: {numbers[row, column]:g} is beyond "
                        f"{_LARGEST:.2g}, the largest that float32 holds: correct it"
                    )
                if not self.count[column]:
                    self.first[column] = block.line_of(row)
            self.count += bad.sum(axis=0)
        return numbers if wide else numbers.astype(np.float32)

    def refuse(self) -> None:
        """Name the columns in which values are missing."""
        columns = np.flatnonzero(self.count)
        if not len(columns):
            return
        shown = ", ".join(
            f"{self.names[k]!r} ({self.count[k]:,} of {self.rows:,}, first in {self.table.unit} "
            f"{self.first[k]})"
            for k in columns[:5]
        )
        more = f" and {len(columns) - 5} more columns" if len(columns) > 5 else ""
        listed = ", ".join(f'"{self.names[k]}"' for k in columns[:5])
        raise ScenarioError(
            f"{self.table.where} has missing values in {shown}{more}: fill them in, delete these "
            f"rows, or leave the columns out with training.ignore_columns = [{listed}]"
        )


def _check_room(table: Table, held_bytes: int, share: float) -> None:
    """Refuse a table once it is, or by what was read of it will be, too large.

    A table whose rows differ may be wrongly foreseen, hence the margin.
    """
    most = DATA.now
    foreseen = held_bytes / share if share else 0.0
    if held_bytes > most or foreseen > _MARGIN * most:
        takes = f"about {foreseen / 1e9:.3g} GB, " if foreseen > _MARGIN * most else ""
        raise ScenarioError(
            f"{table.where} takes {takes}more than {most / 1e9:.3g} GB, half of this machine's "
            "memory: use a part of its rows, or a machine with more"
        )


def _check_texts(table: Table, column: str, codes: Codes) -> None:
    """Refuse a cell without a label or holder, and bytes that are not text."""
    for value, line in zip(codes.values, codes.lines, strict=True):
        if value.strip().lower() in ("", "nan"):
            what = f"no value in the column {column!r}: fill it in, or delete the row"
        elif not value.isprintable() and any("\ud800" <= c <= "\udfff" for c in value):
            what = f"the column {column!r} is not UTF-8 text: save the file as CSV in UTF-8"
        else:
            continue
        raise ScenarioError(f"{table.where}, {table.unit} {line}: {what}")


def _tested(table: Table, codes: Codes) -> NDArray[np.bool_]:
    """For each text in the column ``split``, whether it says test."""
    words = [" ".join(value.split()).lower() for value in codes.values]
    for word, line in zip(words, codes.lines, strict=True):
        if word not in _SPLITS:
            raise ScenarioError(
                f"{table.where}, {table.unit} {line}: the column 'split' says {word[:40]!r}: "
                "write train or test, or rename the column if it means something else"
            )
    return np.array([_SPLITS[word] for word in words])
