"""Tables that are kept by columns and know their types: Parquet files and pandas data frames.

Parquet needs pyarrow, which is installed with the extra ``parquet``; nothing here imports it before
such a file is read.
"""

from __future__ import annotations

__all__ = ["Frame", "Parquet", "is_frame", "largest_group"]

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.blocks import Block, check_columns, text_columns
from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import require_regular
from joulemesh.files.limits import DATA
from joulemesh.optional import require

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
        """Read all rows; see `joulemesh.data.blocks.Table`."""
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
        """Read all rows; see `joulemesh.data.blocks.Table`."""
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
