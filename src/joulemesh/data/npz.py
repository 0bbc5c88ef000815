"""The user's own data in an ``.npz`` file with x_train, y_train, x_test and y_test."""

from __future__ import annotations

__all__ = ["read_npz", "read_npz_sizes", "write_npz"]

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from joulemesh.data.arrays import classes_of, from_arrays, reordered
from joulemesh.data.dataset import Dataset
from joulemesh.data.reading import Reading
from joulemesh.data.targets import targets_of
from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import ArrayFile, open_arrays
from joulemesh.files.bounded import open_bounded
from joulemesh.files.limits import DATA

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("class_names", "x_mean", "x_std")


def read_npz(path: str | Path, reading: Reading | None = None) -> Dataset:
    """Load and check an ``.npz`` file; nothing in it is unpickled.

    Args:
        path: of the file. x is [n, ...] of any real type; y holds whole numbers from 0, or texts;
            numbers to be predicted, or tokens, if ``reading`` says so. The number of classes is
            the largest training label plus one, or the number of texts.
            Optional arrays are class_names, in the order of the classes, and x_mean and x_std: a
            model then sees ``(x - x_mean) / x_std``.
        reading: whether to standardise, and which array says who holds a sample: ``device_train``
            for the holder ``device``; an array ``device_names`` gives the holders' order, which is
            that of their appearance otherwise.

    Returns:
        The Dataset. uint8 stays so and is normalised by its mean and standard deviation (per
        channel where samples are [height, width, channels]); other types become float32 and are
        used as they are, unless they are to be standardised.
    """
    reading = reading or Reading()
    held_by, names = {}, None
    with _opened(path) as file:
        arrays = [file[name] for name in _ARRAYS]
        if reading.holder is not None:
            name = f"{reading.holder}_train"
            if name not in file:
                raise ScenarioError(
                    f"{path} has no array {name!r:.60} that says who holds a sample, only "
                    f"{_listed(file)}: save it, or use another training.partition"
                )
            held_by[reading.holder] = file[name]
            order = f"{reading.holder}_names"
            names = file.get(order)
        more = {name: file[name] for name in _OPTIONAL if name in file}
    made = from_arrays(
        *arrays, name=str(path), normalize=reading.normalize, held_by=held_by,
        targets=reading.targets,
    )  # fmt: skip
    if made.holders is not None and names is not None:
        made = replace(made, holders=reordered(str(path), made.holders, names))
    return _completed(made, more, reading.normalize)


def _completed(made: Dataset, more: Mapping[str, NDArray[Any]], normalize: bool) -> Dataset:
    """The same data with the names and the scaling that the file gives."""
    if "class_names" in more and made.targets != "numbers":
        names = tuple(str(name) for name in more["class_names"].ravel())
        made = replace(made, class_names=names, classes=len(names))
    if "x_mean" not in more and "x_std" not in more:
        return made
    try:
        mean, std = (more[name] + np.float32(0) for name in ("x_mean", "x_std"))
        fits = np.broadcast_shapes(mean.shape, std.shape, made.shape) == made.shape
        fits &= bool((std > 0).all() and np.isfinite(mean).all() and np.isfinite(std).all())
    except (KeyError, ValueError, TypeError):
        fits = False
    if not fits or normalize:
        raise ScenarioError(
            f"{made.name}: x_mean and x_std must both be numbers that fit samples of shape "
            f"{made.shape}, x_std above 0, and without training.normalize: correct or drop them"
        )
    scale = [float(a) if a.ndim == 0 else a.astype(np.float32) for a in (mean, std)]
    scaled = bool(np.any(mean != 0) or np.any(std != 1))
    return replace(made, mean=scale[0], std=scale[1], notes=() if scaled else made.notes)


def write_npz(dataset: Dataset, file: IO[bytes]) -> None:
    """Write a data set so that `read_npz` gives the same again.

    >>> import io
    >>> made, file = from_arrays([[0.0], [9.0]], ["a", "b"], [[1.0]], ["a"]), io.BytesIO()
    >>> write_npz(made, file)
    >>> sorted(np.load(io.BytesIO(file.getvalue())).files)
    ['class_names', 'x_mean', 'x_std', 'x_test', 'x_train', 'y_test', 'y_train']
    """
    arrays: dict[str, Any] = {name: getattr(dataset, name) for name in _ARRAYS}
    arrays |= {"x_mean": dataset.mean, "x_std": dataset.std}
    if dataset.class_names:
        arrays["class_names"] = np.array(dataset.class_names)
    elif dataset.targets != "numbers" and dataset.classes != _largest(dataset) + 1:
        arrays["class_names"] = np.arange(dataset.classes).astype(str)
    if dataset.holders is not None:
        names = np.array(dataset.holders.names)
        arrays[f"{dataset.holders.column}_train"] = names[dataset.holders.of]
        arrays[f"{dataset.holders.column}_names"] = names
    np.savez(file, allow_pickle=False, **arrays)


def _largest(dataset: Dataset) -> int:
    """The largest number of a class that there is a sample of."""
    arrays = [dataset.y_train]
    if dataset.targets == "tokens":
        arrays += [dataset.y_test, dataset.x_train, dataset.x_test]
    return max(int(array.max()) for array in arrays)


def read_npz_sizes(
    path: str | Path, reading: Reading | None = None
) -> tuple[int, int, tuple[int, ...], int, str, tuple[int, ...]]:
    """Read an ``.npz`` file's sizes from its headers; only the training labels are loaded.

    Args:
        path: of the file.
        reading: says what is to be predicted. Where tokens are, the file is read as a whole.

    Returns:
        Training samples, test samples, shape of a sample, classes, what is to be predicted, and
        the shape of it.
    """
    wanted = (reading or Reading()).targets
    with _opened(path) as file:
        y_train = file["y_train"]
        named = len(file["class_names"].ravel()) if "class_names" in file else 0
        train, test = file.shape("x_train"), file.shape("x_test")
    kind = targets_of(y_train, wanted)
    if kind == "tokens":
        made = read_npz(path, reading)
        return len(made.x_train), len(made.x_test), made.shape, made.classes, kind, made.shape
    classes = y_train[:1].size if kind == "numbers" else classes_of(path, y_train)
    if len(train) < 2 or len(test) < 2:
        raise ScenarioError(
            f"{path}: x_train has shape {train} and x_test {test}: use [samples, ...]"
        )
    return train[0], test[0], train[1:], named or classes, kind, ()


@contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Turn what can go wrong inside an .npz into one line."""
    try:
        yield
    except ScenarioError:
        raise
    except FileNotFoundError as error:
        raise ScenarioError(f"dataset file {path} does not exist: correct its path") from error
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check the file") from error
    except ValueError as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not a readable .npz file ({reason}): write it again with "
            f"numpy.savez_compressed, without Python objects"
        ) from error


@contextmanager
def _opened(path: str | Path) -> Iterator[ArrayFile]:
    with _explained(path):
        if _is_one_array(Path(path)):
            raise ScenarioError(f"{path} holds one array, not an .npz of {', '.join(_ARRAYS)}")
    with _explained(path), open_arrays(Path(path), DATA.now, packed=True) as file:
        missing = [name for name in _ARRAYS if name not in file]
        if missing:
            raise ScenarioError(
                f"{path} lacks {', '.join(missing)} (it holds {_listed(file)}): "
                f"save {', '.join(_ARRAYS)}"
            )
        yield file


def _is_one_array(path: Path) -> bool:
    with open_bounded(path, sys.maxsize) as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


def _listed(file: ArrayFile) -> str:
    names = file.names[:20]
    more = f" and {len(file.names) - 20} more" if len(file.names) > 20 else ""
    return ", ".join(f"{name:.60}" for name in names) + more
