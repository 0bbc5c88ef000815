"""The user's own data, in whatever format their name says: their sizes, or all of them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data.arrays import classes_of, from_arrays, hub_file, read_npz, read_npz_sizes
from joulemesh.data.dataset import (
    Dataset,
    targets_of,
)
from joulemesh.data.federated import read_folder, stamp_of
from joulemesh.data.reading import (
    FOLDER,
    HUB,
    DataSpec,
    Reading,
    check_nobody_holds,
    check_only_tables,
    is_table,
)
from joulemesh.data.table import from_table, open_table


def is_listed(path: str | Path) -> bool:
    """Is this a Parquet file whose column x holds lists, a sample in each?"""
    if not str(path).lower().endswith(".parquet") or not Path(path).is_file():
        return False
    with suppress(Exception):  # whatever is wrong with it, reading it as a table will say
        parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
        schema = parquet.read_schema(str(path))
        return "x" in schema.names and hasattr(schema.field("x").type, "value_type")
    return False


def in_several_files(dataset: str) -> bool:
    """Is this the path of samples whose targets or test samples lie in files beside it?"""
    return dataset.lower().endswith((".npy", ".arrow")) or is_listed(dataset)


Arrays: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def read_several(path: str | Path, reading: Reading | None = None) -> Dataset:
    """Load and check samples and targets that lie in several files."""
    reading = reading or Reading()
    if reading.holder is not None:
        raise ScenarioError(
            f"training.partition = 'column:{reading.holder}' is for tables and .npz files, which "
            f"{path} is not: use another partition",
            field="training.partition",
        )
    arrays = _opened(Path(path))
    return from_arrays(
        *arrays, name=str(path), normalize=reading.normalize, targets=reading.targets
    )


def read_several_sizes(
    path: str | Path, reading: Reading | None = None
) -> tuple[int, int, tuple[int, ...], int, str, tuple[int, ...]]:
    """Sizes for the planner, as `read_npz_sizes` gives them."""
    x_train, y_train, x_test, _ = _opened(Path(path))
    kind = targets_of(y_train, (reading or Reading()).targets)
    sizes = (len(x_train), len(x_test), x_train.shape[1:])
    if kind == "tokens":
        made = read_several(path, reading)
        return *sizes, made.classes, kind, made.y_train.shape[1:]
    classes = y_train[:1].size if kind == "numbers" else classes_of(path, y_train)
    return *sizes, classes, kind, ()


def _opened(path: Path) -> Arrays:
    """Samples and targets to learn from and to test on."""
    made = _numpy(path) if path.suffix.lower() == ".npy" else _pair(path)
    for name, x, y in (("train", *made[:2]), ("test", *made[2:])):
        if len(x) != len(y) or not len(x):
            raise ScenarioError(
                f"{path}: {len(x)} samples to {name} on have {len(y)} targets: make them equal"
            )
    return made


def _numpy(path: Path) -> Arrays:
    if path.name != "x_train.npy":
        raise ScenarioError(
            f"dataset = {str(path)!r}: name the file x_train.npy, beside which lie y_train.npy, "
            "x_test.npy and y_test.npy"
        )
    arrays = []
    for name in ("x_train", "y_train", "x_test", "y_test"):
        file = path.with_name(f"{name}.npy")
        try:
            # Mapped: a plan needs no more than the sizes of samples.
            arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise ScenarioError(f"dataset file {file} does not exist: write it") from None
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:160]
            raise ScenarioError(f"{file} cannot be read ({reason}): use numpy.save") from error
    x_train, y_train, x_test, y_test = arrays
    return x_train, np.array(y_train), x_test, np.array(y_test)


def _pair(path: Path) -> Arrays:
    if "train" not in path.name:
        ending = path.suffix
        raise ScenarioError(
            f"dataset = {str(path)!r}: name the file with the training samples, "
            f"NAME-train{ending}, beside which lies NAME-test{ending}"
        )
    return *_columns(path), *_columns(path.with_name(path.name.replace("train", "test")))


def _columns(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """The columns x and y of an Arrow or Parquet file."""
    arrow = require("pyarrow", f"reading {path}")
    try:
        if path.suffix.lower() == ".arrow":
            table = arrow.ipc.open_file(arrow.memory_map(str(path))).read_all()
        else:
            parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
            table = parquet.read_table(str(path), columns=["x", "y"])
        x, y = table.column("x").combine_chunks(), table.column("y")
    except FileNotFoundError:
        raise ScenarioError(f"dataset file {path} does not exist: write it") from None
    except (OSError, KeyError, arrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not a file with columns x (lists of one length) and y ({reason}): write it "
            "with pyarrow"
        ) from error
    lists = hasattr(y.type, "value_type")
    return _samples(path, x), np.array(y.to_pylist()) if lists else np.asarray(y.to_numpy())


def _samples(path: Path, column: Any) -> NDArray[Any]:
    """Lists of one length, [n, k]."""
    compute = require("pyarrow.compute", f"reading {path}", "pyarrow")
    values = column.flatten()
    if column.null_count or values.null_count:
        raise ScenarioError(f"{path}: column x has missing values: fill them in")
    lengths = np.asarray(compute.list_value_length(column).to_numpy(zero_copy_only=False))
    odd = np.flatnonzero(lengths != lengths[:1])
    if odd.size:
        raise ScenarioError(
            f"{path}: the list x of row {odd[0] + 1} has {lengths[odd[0]]} numbers, and those "
            f"before it {lengths[0]}: make them equally long"
        )
    numbers = np.asarray(values.to_numpy(zero_copy_only=False))
    if numbers.dtype.kind not in "uif":
        raise ScenarioError(f"{path}: column x holds lists of {values.type}: use numbers")
    return numbers.reshape(len(lengths), -1)


def own_data(dataset: str, reading: Reading, cache_dir: str | Path | None = None) -> Dataset:
    """Read data of one's own, as `joulemesh.data.load` says."""
    if is_table(dataset) and not is_listed(dataset):
        return from_table(open_table(dataset), reading)
    check_only_tables(dataset, reading)
    if dataset.startswith(FOLDER):
        return read_folder(dataset, reading)
    if dataset.startswith(HUB):
        check_nobody_holds(dataset, reading)
        return replace(read_npz(hub_file(dataset, cache_dir), reading), name=dataset)
    read = read_several if in_several_files(dataset) else read_npz
    return read(dataset, reading)


def own_spec(dataset: str, reading: Reading) -> DataSpec:
    """Sizes of data of one's own, as `joulemesh.data.spec` says."""
    if is_table(dataset) and not is_listed(dataset):
        stamps = tuple(_stamp(path) for path in (dataset, reading.test) if path is not None)
        return _table_spec(dataset, reading, stamps)
    check_only_tables(dataset, reading)
    if dataset.startswith(FOLDER):
        return _folder_spec(dataset, reading, stamp_of(dataset))
    path = hub_file(dataset) if dataset.startswith(HUB) else dataset
    read = read_several_sizes if in_several_files(str(path)) else read_npz_sizes
    train, test, shape, classes, kind, positions = read(path, reading)
    return DataSpec(dataset, train, test, shape, classes, None, kind, positions)


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
