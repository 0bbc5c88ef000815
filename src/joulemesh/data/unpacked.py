"""Parquet files with a sample in each row: unpacked once into a file that can be read by index.

Parquet is packed by columns, so that a single row cannot be read; what is read again and again in
any order is therefore unpacked first, some rows at a time, and kept in the user's cache with its
digest: what is damaged there is unpacked again.
"""

from __future__ import annotations

__all__ = ["is_listed", "unpacked"]

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.columnar import largest_group
from joulemesh.errors import ScenarioError
from joulemesh.files.cache import find, keep, user_cache
from joulemesh.files.limits import DATA
from joulemesh.files.manifest import sha256_of
from joulemesh.files.whole import make_folder, sweep, write_whole
from joulemesh.optional import require

_ROWS = 1 << 12  # that are unpacked at a time
_NARROWED = {"double": "float", "int64": "int32"}


def is_listed(path: str | Path) -> bool:
    """Is this a Parquet file whose column x holds lists, a sample in each?

    >>> is_listed("absent.parquet"), is_listed("mine.csv")
    (False, False)
    """
    if not str(path).lower().endswith(".parquet") or not Path(path).is_file():
        return False
    with suppress(Exception):  # whatever is wrong with it, reading it as a table will say
        parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
        schema = parquet.read_schema(str(path))
        return "x" in schema.names and hasattr(schema.field("x").type, "value_type")
    return False


def unpacked(path: Path) -> tuple[NDArray[Any], Any]:
    """Samples [n, k], mapped, and the column y, as Arrow has it.

    Raises:
        ScenarioError: it is not such a file, or there is no room for the samples.
    """
    parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
    arrow = require("pyarrow", f"reading {path}")
    try:
        with parquet.ParquetFile(str(path)) as file:
            _check_claims(path, file.metadata)
            y = file.read(columns=["y"]).column("y")
            kept = user_cache() / "unpacked" / f"{_fingerprint(path)}.npy"
            if not _is_whole(kept):
                _unpack(path, file, kept)
        return np.load(kept, mmap_mode="r", allow_pickle=False), y
    except FileNotFoundError:
        raise ScenarioError(f"dataset file {path} does not exist: write it") from None
    except (KeyError, arrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not a Parquet file with columns x (lists of one length) and y ({reason}): "
            "write it again"
        ) from error


def _check_claims(path: Path, metadata: Any) -> None:
    """Refuse what the file says about itself if its labels, or a group of rows, cannot be held."""
    takes = max(metadata.num_rows * 8, largest_group(metadata))
    if takes > DATA.now:
        raise ScenarioError(
            f"{path} claims {metadata.num_rows:,} rows, whose labels or largest group take "
            f"{takes / 1e9:.3g} GB, more than {DATA.now / 1e9:.3g} GB, half of this machine's "
            "memory: write smaller groups of rows, or use a machine with more"
        )


def _fingerprint(path: Path) -> str:
    found = path.stat()
    named = repr((str(path.resolve()), found.st_size, found.st_mtime_ns))
    return hashlib.sha256(named.encode()).hexdigest()[:24]


def _digest(kept: Path) -> Path:
    return kept.with_suffix(".sha256")


def _is_whole(kept: Path) -> bool:
    digest = find(_digest(kept))
    with suppress(OSError):
        return digest is not None and digest.decode() == sha256_of(kept)
    return False


def _unpack(path: Path, file: Any, kept: Path) -> None:
    """Write the samples, whole or not at all, then their digest."""

    def write(draft: IO[bytes]) -> None:
        first, width = 0, 0
        for batch in file.iter_batches(_ROWS, columns=["x"]):
            rows = _rows(path, batch.column(0), first)
            if not first:
                width = rows.shape[1]
                kind = np.lib.format.dtype_to_descr(rows.dtype)
                shape = (file.metadata.num_rows, width)
                head = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(draft, head)
            if rows.shape[1] != width:
                raise _unequal(path, first, rows.shape[1], width)
            draft.write(rows.tobytes())
            first += len(rows)
        if not first:
            raise ScenarioError(f"{path} has no rows: write a row per sample")

    sweep(make_folder(kept.parent))
    write_whole(kept, write)
    keep(_digest(kept), sha256_of(kept).encode())


def _rows(path: Path, column: Any, first: int) -> NDArray[Any]:
    """The lists of some rows, [rows, k]."""
    compute = require("pyarrow.compute", f"reading {path}", "pyarrow")
    values = column.flatten()
    if column.null_count or values.null_count:
        raise ScenarioError(f"{path}: column x has missing values: fill them in")
    lengths = np.asarray(compute.list_value_length(column).to_numpy(zero_copy_only=False))
    odd = np.flatnonzero(lengths != lengths[0])
    if len(odd):
        raise _unequal(path, first + int(odd[0]), int(lengths[odd[0]]), int(lengths[0]))
    kind = _NARROWED.get(str(values.type))
    values = values if kind is None else values.cast(kind, safe=kind != "float")
    made = np.asarray(values.to_numpy(zero_copy_only=False))
    if made.dtype.kind not in "uif":
        raise ScenarioError(f"{path}: column x holds lists of {values.type}: use numbers")
    return made.reshape(len(lengths), -1)


def _unequal(path: Path, row: int, length: int, usual: int) -> ScenarioError:
    return ScenarioError(
        f"{path}: the list x of row {row + 1} has {length} numbers, and those before it {usual}: "
        "make them equally long"
    )
