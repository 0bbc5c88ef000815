"""The user's own data, in whatever format their name says: their sizes, or all of them."""

from __future__ import annotations

__all__ = ["own_data", "own_spec"]

import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from joulemesh.data.catalog import DataSpec
from joulemesh.data.dataset import Dataset
from joulemesh.data.disk import is_on_disk, read_disk, read_disk_sizes
from joulemesh.data.federated.folder import read_folder, stamp_of
from joulemesh.data.hub import hub_file
from joulemesh.data.npz import read_npz, read_npz_sizes
from joulemesh.data.reading import (
    FOLDER,
    HUB,
    Reading,
    check_nobody_holds,
    check_only_tables,
    is_table,
)
from joulemesh.data.table import from_table, open_table


def own_data(dataset: str, reading: Reading, cache_dir: str | Path | None = None) -> Dataset:
    """Read data of one's own, as `joulemesh.data.load` says."""
    if _is_read_through(dataset):
        return from_table(open_table(dataset), reading)
    check_only_tables(dataset, reading)
    if dataset.startswith(FOLDER):
        return read_folder(dataset, reading)
    if dataset.startswith(HUB):
        check_nobody_holds(dataset, reading)
        return replace(read_npz(hub_file(dataset, cache_dir), reading), name=dataset)
    return read_disk(dataset, reading) if is_on_disk(dataset) else read_npz(dataset, reading)


def own_spec(dataset: str, reading: Reading) -> DataSpec:
    """Sizes of data of one's own, as `joulemesh.data.spec` says."""
    if _is_read_through(dataset):
        stamps = tuple(_stamp(path) for path in (dataset, reading.test) if path is not None)
        return _table_spec(dataset, reading, stamps)
    check_only_tables(dataset, reading)
    if dataset.startswith(FOLDER):
        return _folder_spec(dataset, reading, stamp_of(dataset))
    path = hub_file(dataset) if dataset.startswith(HUB) else dataset
    read = read_disk_sizes if is_on_disk(str(path)) else read_npz_sizes
    train, test, shape, classes, kind, positions = read(path, reading)
    return DataSpec(dataset, train, test, shape, classes, None, kind, positions)


def _is_read_through(dataset: str) -> bool:
    """Is this a table that does not stay on disk?"""
    return is_table(dataset) and not is_on_disk(dataset)


def _stamp(path: str) -> tuple[int, int]:
    """Size and time of change, by which a file is known to be the same; zeros if there is none."""
    with suppress(OSError, ValueError):
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns
    return 0, 0


@lru_cache(maxsize=64)
def _table_spec(dataset: str, reading: Reading, stamps: tuple[tuple[int, int], ...]) -> DataSpec:
    """Sizes of a table; planning asks for them more than once, and reading may take seconds."""
    found = from_table(open_table(dataset), reading)
    sizes = len(found.y_train), len(found.y_test), found.shape, found.classes
    return DataSpec(dataset, *sizes, None, found.targets)


@lru_cache(maxsize=16)
def _folder_spec(dataset: str, reading: Reading, stamps: tuple[tuple[int, int], ...]) -> DataSpec:
    """Sizes of a folder of shards, which is read through."""
    found = read_folder(dataset, reading)
    positions = found.outputs[:-1]
    sizes = len(found.y_train), len(found.y_test), found.shape, found.classes
    return DataSpec(dataset, *sizes, None, found.targets, positions)
