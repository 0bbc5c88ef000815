"""Load a data set by name: find its files or fetch them, verify, decode once, keep the arrays."""

from __future__ import annotations

__all__ = ["given_folders", "load"]

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.catalog import check_name, spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.disk import is_on_disk, read_disk
from joulemesh.data.download import fetch
from joulemesh.data.examples import diabetes, verses
from joulemesh.data.federated.folder import read_folder
from joulemesh.data.files import cifar_images, idx_array
from joulemesh.data.hub import PREFIX, hub_file
from joulemesh.data.locate import Located, locate
from joulemesh.data.npz import read_npz
from joulemesh.data.reading import COLUMN, FOLDER, Reading, check_only_tables, is_own, is_table
from joulemesh.data.sources import SOURCES, Source
from joulemesh.data.table import from_table, open_table
from joulemesh.data.targets import check_loss
from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import open_arrays
from joulemesh.files.cache import find, keep, user_cache

_DIGITS_FILE = Path(__file__).with_name("digits.csv.gz")
_DIGITS_ORDER = 1797  # seed of the one fixed shuffle of digits
_FORMAT = "v3"  # of the decoded arrays in the cache
_PARTS = ("x_train", "y_train", "x_test", "y_test")

Arrays = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]


def load(
    dataset: str,
    *,
    data_dir: str | Path | None = None,
    cache_dir: str | Path | None = None,
    download: bool = True,
    progress: bool = True,
    reading: Reading | None = None,
) -> Dataset:
    """Load a data set.

    The published files are looked for in ``data_dir``, then in the folder that the environment
    variable JOULEMESH_DATA names, then in the cache; then they are downloaded into the cache.

    Args:
        dataset: ``digits``, ``diabetes`` or ``verses`` (embedded), ``mnist``, ``fashion-mnist``,
            ``cifar-10``, the path of
            an ``.npz`` file with x_train, y_train, x_test and y_test, of a table with a column of
            labels (``.csv``, ``.tsv``, also packed as ``.gz`` or ``.xz``, or ``.parquet``), of
            samples that stay on disk (`joulemesh.data.disk`),
            ``folder:PATH`` for one shard per device (`joulemesh.data.federated`), or
            ``hf:OWNER/NAME`` for a data set of the Hugging Face hub (see `joulemesh.data.hub`).
        data_dir: folder that holds ``mnist/`` and the like, or the original files themselves.
        cache_dir: where downloads and decoded arrays are kept; the user's cache folder if None.
        download: whether files may be fetched.
        progress: whether to draw a bar while they are.
        reading: what is said about columns, splits and scaling of the user's own data.

    Returns:
        The Dataset, checked.

    Raises:
        ScenarioError: unknown name; a file missing, truncated or corrupt; bad values.

    >>> load("digits").x_train.shape
    (1437, 8, 8, 1)
    """
    check_name(dataset)
    reading = reading or Reading()
    if is_table(dataset) and not is_on_disk(dataset):
        return from_table(open_table(dataset), reading)
    check_only_tables(dataset, reading)
    if is_own(dataset):
        return read_disk(dataset, reading) if is_on_disk(dataset) else read_npz(dataset, reading)
    if dataset.startswith(FOLDER):
        return read_folder(dataset, reading)
    if reading.holder is not None:
        raise ScenarioError(
            f'training.partition = "{COLUMN}{reading.holder}" is for data of your own that say who '
            f"holds a sample, and {dataset!r} does not: use another partition"
        )
    embedded = {"digits": _digits, "diabetes": diabetes, "verses": verses}
    if dataset in embedded:
        made = embedded[dataset]()
        check_loss(dataset, made.targets, reading.loss, reading.targets)
        return made
    if dataset.startswith(PREFIX):
        return replace(read_npz(hub_file(dataset, cache_dir), reading), name=dataset)
    source = SOURCES[dataset]
    arrays = _arrays(
        source, data_dir, user_cache() if cache_dir is None else Path(cache_dir), download, progress
    )
    mean, std = (np.array(moment, np.float32) for moment in (source.mean, source.std))
    return Dataset(dataset, *arrays, spec(dataset).classes, mean, std)


def _digits() -> Dataset:
    table = _digits_table()
    table = table[np.random.default_rng(_DIGITS_ORDER).permutation(len(table))]
    x = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    y = table[:, -1].astype(np.int32)
    train = spec("digits").train
    mean, std = 0.3052, 0.3761  # of the training pixels
    return Dataset("digits", x[:train], y[:train], x[train:], y[train:], 10, mean, std)


def _digits_table() -> NDArray[np.float64]:
    """64 pixels and the label of each digit, from the package's own file.

    It is the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
    1998, UCI Machine Learning Repository, doi:10.24432/C50P49, CC BY 4.0), byte for byte as
    scikit-learn ships it: without a package of 50 MB for 57 kB of data.
    """
    return np.loadtxt(_DIGITS_FILE, delimiter=",")


def _arrays(
    source: Source, data_dir: str | Path | None, cache: Path, download: bool, progress: bool
) -> Arrays:
    looked = []
    for given, folder in given_folders(data_dir):
        if not folder.is_dir():
            raise ScenarioError(f"{given} = {folder} is not a folder: correct or remove it")
        looked.append(str(folder))
        located = locate(source, folder)
        if located is not None:
            return _decoded(located, cache)
    try:
        located = locate(source, cache)
        if located is not None:
            return _decoded(located, cache)
    except ScenarioError:
        if not download:
            raise  # else what is incomplete or corrupt in the cache is fetched anew
    if not download:
        raise ScenarioError(
            f"{source.name}: {source.downloads[0].name} was not found in "
            f"{', '.join([*looked, str(cache)])}: allow the download, or get it from "
            f"{source.downloads[0].urls[0]} and name its folder by training.data_dir "
            f"(--data-dir) or JOULEMESH_DATA"
        )
    fetch(source, cache, progress=progress)
    located = locate(source, cache)
    if located is None:
        raise ScenarioError(f"{source.name}: nothing in {cache} after downloading: try again")
    return _decoded(located, cache)


def given_folders(data_dir: str | Path | None) -> Iterator[tuple[str, Path]]:
    """Folders that the user names, each with what names it."""
    if data_dir is not None:
        yield "data_dir", Path(data_dir).expanduser()
    if os.environ.get("JOULEMESH_DATA"):
        yield "JOULEMESH_DATA", Path(os.environ["JOULEMESH_DATA"]).expanduser()


def _decoded(located: Located, cache: Path) -> Arrays:
    """The arrays from the cache if these very files were verified before, else from the files.

    All verified files decode to the same arrays, so that one copy serves every folder; a stamp
    per set of files (path, size, time of change) says which were verified. What is read from the
    cache is verified by its digest.
    """
    folder = cache / "decoded" / f"{located.source.name}-{_FORMAT}"
    stamp = folder / f"verified-{_fingerprint(located.paths)}"
    with suppress(OSError, ValueError, EOFError):
        if stamp.exists():
            return _cached_arrays(located.source, folder)
    arrays = _decode(located)
    with suppress(OSError, ScenarioError):  # a cache that is read-only or full only costs time
        for part, array in zip(_PARTS, list[NDArray[Any]](arrays), strict=True):
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{part: array})
            keep(folder / part, buffer.getvalue())
        stamp.touch()
    return arrays


def _fingerprint(paths: tuple[Path, ...]) -> str:
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _cached_arrays(source: Source, folder: Path) -> Arrays:
    sizes = spec(source.name)
    arrays: list[NDArray[Any]] = []
    for part in _PARTS:
        content = find(folder / part)
        if content is None:
            raise ValueError(f"{part} is not what was kept")
        count = sizes.train if part.endswith("train") else sizes.test
        shape, dtype = ((count, *sizes.shape), np.uint8) if part[0] == "x" else ((count,), np.int32)
        with open_arrays(content, len(content)) as file:
            array = file[part]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"{part} is not what this version wrote")
        arrays.append(array)
    return arrays[0], arrays[1], arrays[2], arrays[3]


def _decode(located: Located) -> Arrays:
    if located.source.name == "cifar-10":
        batches = [cifar_images(where, raw) for where, raw in located.contents()]
        pairs = [
            (np.concatenate([x for x, _ in part]), np.concatenate([y for _, y in part]))
            for part in (batches[:-1], batches[-1:])
        ]
    else:
        four = [idx_array(where, raw) for where, raw in located.contents()]
        pairs = [(four[0][..., None], four[1]), (four[2][..., None], four[3])]
    (x_train, y_train), (x_test, y_test) = pairs
    return (
        np.ascontiguousarray(x_train),
        y_train.astype(np.int32),
        np.ascontiguousarray(x_test),
        y_test.astype(np.int32),
    )
