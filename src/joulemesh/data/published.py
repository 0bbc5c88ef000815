"""Published data sets: find their files or fetch them, verify, decode once, keep the arrays."""

from __future__ import annotations

__all__ = ["given_folders", "published"]

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.catalog import spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.download import fetch
from joulemesh.data.files import cifar_images, idx_array
from joulemesh.data.locate import Located, locate
from joulemesh.data.sources import SOURCES, Source
from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import open_arrays
from joulemesh.files.cache import find, keep, user_cache

_FORMAT = "v3"  # of the decoded arrays in the cache
_PARTS = ("x_train", "y_train", "x_test", "y_test")

Arrays = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]


def published(
    name: str,
    data_dir: str | Path | None,
    cache_dir: str | Path | None,
    download: bool,
    progress: bool,
) -> Dataset:
    """Load a published data set, as `joulemesh.data.load` says."""
    source = SOURCES[name]
    cache = user_cache() if cache_dir is None else Path(cache_dir)
    arrays = _arrays(source, data_dir, cache, download, progress)
    mean, std = (np.array(moment, np.float32) for moment in (source.mean, source.std))
    return Dataset(name, *arrays, spec(name).classes, mean, std)


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
