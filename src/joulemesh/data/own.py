"""The user's own data, in whatever format their name says: their sizes, or all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.cache import find, keep, user_cache
from joulemesh.base.checksums import sha256_of
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, sweep, write_whole
from joulemesh.base.optional import require
from joulemesh.data.arrays import classes_of, read_npz, read_npz_sizes, targets_from
from joulemesh.data.catalog import DataSpec
from joulemesh.data.dataset import Dataset, targets_of
from joulemesh.data.federated import read_folder, stamp_of
from joulemesh.data.hub import hub_file
from joulemesh.data.reading import (
    FOLDER,
    HUB,
    Reading,
    check_nobody_holds,
    check_only_tables,
    is_table,
)
from joulemesh.data.table import from_table, open_table

_ROWS = 1 << 12  # that are unpacked at a time
_NARROWED = {"double": "float", "int64": "int32"}


def is_listed(path: str | Path) -> bool:
    """Is this a Parquet file whose column x holds lists, a sample in each?"""
    if not str(path).lower().endswith(".parquet") or not Path(path).is_file():
        return False
    with suppress(Exception):  # whatever is wrong with it, reading it as a table will say
        parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
        schema = parquet.read_schema(str(path))
        return "x" in schema.names and hasattr(schema.field("x").type, "value_type")
    return False


def unpacked(path: Path) -> tuple[NDArray[Any], Any]:
    """Samples [n, k], mapped, and the column y, as Arrow has it."""
    parquet = require("pyarrow.parquet", f"reading {path}", "pyarrow")
    arrow = require("pyarrow", f"reading {path}")
    try:
        with parquet.ParquetFile(str(path)) as file:
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
            rows = _rows_unpacked(path, batch.column(0), first)
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


def _rows_unpacked(path: Path, column: Any, first: int) -> NDArray[Any]:
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


_KINDS = (np.uint8, np.float32, np.int32)
_PORTION = 2**22  # bytes that are looked at together
_SAMPLED = 4096  # samples that stand for all in a digest
_ENDINGS = (".npy", ".arrow")


def is_on_disk(dataset: str) -> bool:
    """Is this the path of samples that stay on disk?"""
    return dataset.lower().endswith(_ENDINGS) or is_listed(dataset)


class OnDisk:
    """Samples on disk, read by index; like a NumPy array as far as learning needs it.

    Attributes:
        shape: of all samples.
        dtype: of their numbers.
    """

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self._parts = list(parts)
        self._ends = np.cumsum([len(part) for part in self._parts])
        self.shape = (int(self._ends[-1]), *self._parts[0].shape[1:])
        self.dtype: np.dtype[Any] = self._parts[0].dtype

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return int(np.prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of all samples."""
        return self.size * self.dtype.itemsize

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.nbytes // max(len(self), 1)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Samples by index (an array of whole numbers, or a slice), read into memory."""
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        asked = np.asarray(index)
        flat = asked.reshape(-1)
        made = np.empty((len(flat), *self.shape[1:]), self.dtype)
        part = np.searchsorted(self._ends, flat, side="right")
        for k, (array, end) in enumerate(zip(self._parts, self._ends, strict=True)):
            mine = np.flatnonzero(part == k)
            if len(mine):
                mine = mine[np.argsort(flat[mine], kind="stable")]  # in the order of the file
                made[mine] = _rows_disk(array, flat[mine] - (end - len(array)))
        return made.reshape(*asked.shape, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All samples, in memory."""
        return np.asarray(self[:], dtype)

    def fingerprint(self) -> NDArray[np.uint8]:
        """A digest of the shape and of samples that are spread evenly: reading all takes long."""
        some = np.unique(np.linspace(0, len(self) - 1, min(len(self), _SAMPLED)).astype(np.int64))
        made = hashlib.sha256(repr((self.shape, self.dtype.str)).encode())
        made.update(np.ascontiguousarray(self[some]).data)
        return np.frombuffer(made.digest(), np.uint8)

    def portions(self) -> Any:
        """The samples, some at a time."""
        step = max(1, _PORTION // max(self.sample_bytes, 1))
        for first in range(0, len(self), step):
            yield self[first : first + step]


def _rows_disk(array: NDArray[Any], index: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Rows of a mapped array, by ascending index.

    They are read, not looked up in the mapping: there the pages around each row would count as
    this process's memory, many times what is read.
    """
    file = getattr(array, "filename", None)
    if file is None or not array.flags.c_contiguous:
        return np.asarray(array[index])
    made = np.empty((len(index), *array.shape[1:]), array.dtype)
    each, base = made[:1].nbytes, int(array.offset)  # type: ignore[attr-defined]
    breaks = np.flatnonzero(np.diff(index) != 1) + 1
    with open(file, "rb", buffering=0) as opened:
        for first, stop in zip([0, *breaks], [*breaks, len(index)], strict=True):
            target = made[first:stop].reshape(-1).view(np.uint8).data
            at, done = base + int(index[first]) * each, 0
            while done < len(target):
                opened.seek(at + done)
                got = opened.readinto(target[done:])
                if not got:
                    raise ScenarioError(f"{file} ends early: write it again")
                done += got
    return made


def read_disk(path: str | Path, reading: Reading | None = None) -> Dataset:
    """Open samples on disk as a data set; targets are read into memory, samples are not."""
    reading = reading or Reading()
    if reading.normalize:
        raise ScenarioError(
            f"training.normalize would copy all samples of {path}, which stay on disk: standardise "
            "them when you write them, and leave it out",
            field="training.normalize",
        )
    if reading.holder is not None:
        raise ScenarioError(
            f"training.partition = 'column:{reading.holder}' is for tables and .npz files, and "
            f"{path} stays on disk: use another partition",
            field="training.partition",
        )
    x_train, y_train, x_test, y_test = _opened(Path(path))
    kind = targets_of(y_train, reading.targets)
    found = targets_from(str(path), y_train, y_test, kind)
    train, test, classes, names = found
    if kind == "tokens":
        classes = max(classes, *(1 + _largest(x) for x in (x_train, x_test)))
    mean: Any = 0.0
    std: Any = 1.0
    if x_train.dtype == np.uint8:
        mean, std = _moments(x_train)
    samples = (cast(Any, x_train), train, cast(Any, x_test), test)
    return Dataset(str(path), *samples, classes, mean, std, class_names=names)


def read_disk_sizes(
    path: str | Path, reading: Reading | None = None
) -> tuple[int, int, tuple[int, ...], int, str, tuple[int, ...]]:
    """Sizes for the planner, as `npz.read_npz_sizes` gives them."""
    x_train, y_train, x_test, _ = _opened(Path(path))
    kind = targets_of(y_train, (reading or Reading()).targets)
    sizes = (len(x_train), len(x_test), x_train.shape[1:])
    if kind == "tokens":
        made = read_disk(path, reading)
        return *sizes, made.classes, kind, made.y_train.shape[1:]
    classes = y_train[:1].size if kind == "numbers" else classes_of(path, y_train)
    return *sizes, classes, kind, ()


def _largest(x: OnDisk) -> int:
    return max(int(portion.max()) for portion in x.portions())


def _moments(x: OnDisk) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of bytes, as of an array in memory, in one pass."""
    channels = x.shape[-1] if x.ndim == 4 else 1
    counts, values = np.zeros((channels, 256), np.int64), np.arange(256.0)
    for portion in x.portions():
        planes = portion.reshape(-1, channels)
        for k in range(channels):
            counts[k] += np.bincount(planes[:, k], minlength=256)
    share = counts / counts.sum(axis=1, keepdims=True)
    means = [float(one @ values) for one in share]
    stds = [
        float(np.sqrt(one @ (values - m) ** 2)) or 1.0 for one, m in zip(share, means, strict=True)
    ]
    return np.array(means, np.float32), np.array(stds, np.float32)


def _opened(path: Path) -> tuple[OnDisk, NDArray[Any], OnDisk, NDArray[Any]]:
    """Samples and targets to learn from and to test on."""
    made = _numpy(path) if path.suffix.lower() == ".npy" else _pair(path)
    for name, x, y in (("train", *made[:2]), ("test", *made[2:])):
        if x.dtype.type not in _KINDS:
            raise ScenarioError(
                f"{path}: samples to {name} on are {x.dtype}, which would have to be copied: write "
                "them as uint8, float32 or int32 (tokens)"
            )
        if len(x) != len(y) or not len(x):
            raise ScenarioError(
                f"{path}: {len(x)} samples to {name} on have {len(y)} targets: make them equal"
            )
    return made


def _numpy(path: Path) -> tuple[OnDisk, NDArray[Any], OnDisk, NDArray[Any]]:
    if path.name != "x_train.npy":
        raise ScenarioError(
            f"dataset = {str(path)!r}: name the file x_train.npy, beside which lie y_train.npy, "
            "x_test.npy and y_test.npy"
        )
    arrays = []
    for name in ("x_train", "y_train", "x_test", "y_test"):
        file = path.with_name(f"{name}.npy")
        try:
            arrays.append(np.load(file, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise ScenarioError(f"dataset file {file} does not exist: write it") from None
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:160]
            raise ScenarioError(
                f"{file} cannot be mapped ({reason}): write it with numpy.save"
            ) from error
    x_train, y_train, x_test, y_test = arrays
    return OnDisk([x_train]), np.array(y_train), OnDisk([x_test]), np.array(y_test)


def _pair(path: Path) -> tuple[OnDisk, NDArray[Any], OnDisk, NDArray[Any]]:
    """Two Arrow or Parquet files."""
    if "train" not in path.name:
        ending = path.suffix
        raise ScenarioError(
            f"dataset = {str(path)!r}: name the file with the training samples, "
            f"NAME-train{ending}, beside which lies NAME-test{ending}"
        )
    test = path.with_name(path.name.replace("train", "test"))
    read = _columns if path.suffix.lower() == ".arrow" else _lists
    return *read(path), *read(test)


def _lists(path: Path) -> tuple[OnDisk, NDArray[Any]]:
    """The columns x, unpacked and mapped, and y of a Parquet file."""
    x, y = unpacked(path)
    return OnDisk([x]), _targets(y)


def _columns(path: Path) -> tuple[OnDisk, NDArray[Any]]:
    """The columns x, mapped, and y of an Arrow file."""
    arrow = require("pyarrow", f"reading {path}")
    try:
        table = arrow.ipc.open_file(arrow.memory_map(str(path))).read_all()
        x, y = table.column("x"), table.column("y")
        parts = [_fixed(path, chunk) for chunk in x.chunks if len(chunk)]
    except FileNotFoundError:
        raise ScenarioError(f"dataset file {path} does not exist: write it") from None
    except (OSError, KeyError, arrow.ArrowInvalid) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not an Arrow file with columns x and y ({reason}): write it with "
            "pyarrow.ipc.new_file"
        ) from error
    return OnDisk(parts), _targets(y)


def _targets(y: Any) -> NDArray[Any]:
    """A column of targets, or of lists of them."""
    lists = hasattr(y.type, "value_type")
    return np.asarray(np.array(y.to_pylist()) if lists else y.to_numpy())


def _fixed(path: Path, chunk: Any) -> NDArray[Any]:
    """A view of a chunk of lists of one fixed size."""
    size = getattr(chunk.type, "list_size", 0)
    if not size or chunk.null_count:
        raise ScenarioError(
            f"{path}: column x is {chunk.type}: use lists of a fixed size, without nulls"
        )
    flat = chunk.flatten().to_numpy(zero_copy_only=True)
    return cast("NDArray[Any]", flat.reshape(-1, size))


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
