"""The user's own data: an ``.npz`` file with x_train, y_train, x_test and y_test."""

from __future__ import annotations

__all__ = ["from_arrays", "read_npz", "read_npz_sizes"]

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from joulemesh.data.dataset import Dataset
from joulemesh.errors import ScenarioError

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_MANY_CLASSES = 1000  # labels may be sparse among these; beyond, each class needs a sample


def read_npz(path: str | Path) -> Dataset:
    """Load and check an ``.npz`` file; nothing in it is unpickled.

    Args:
        path: of the file. x is [n, ...] of any real type; y holds whole numbers from 0. The
            number of classes is the largest training label plus one.

    Returns:
        The Dataset. uint8 stays so and is normalised by its mean and standard deviation (per
        channel where samples are [height, width, channels]); other types become float32 and are
        used as they are.
    """
    with _opened(path) as file:
        arrays = [file[name] for name in _ARRAYS]
    return from_arrays(*arrays, name=str(path))


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    *,
    name: str = "data",
) -> Dataset:
    """The user's own arrays as a Dataset, checked and scaled as an ``.npz`` file's are.

    >>> from_arrays([[0.0], [1.0]], [0, 1], [[0.5]], [1]).classes
    2
    """
    path = name
    x_train, x_test = (
        _samples(path, part, np.asarray(x))
        for part, x in (("x_train", x_train), ("x_test", x_test))
    )
    y_train, y_test = (
        _labels(path, part, np.asarray(y)) for part, y in (("y_train", y_train), ("y_test", y_test))
    )
    if x_train.dtype != x_test.dtype:
        raise ScenarioError(
            f"{path}: x_train is {x_train.dtype} and x_test {x_test.dtype}, which would be scaled "
            f"differently: store both with one type"
        )
    classes = _classes(path, y_train)
    mean: float | NDArray[np.float32] = 0.0
    std: float | NDArray[np.float32] = 1.0
    if x_train.dtype == np.uint8 and x_train.size:
        mean, std = _moments(x_train)
    return Dataset(str(path), x_train, y_train, x_test, y_test, classes, mean, std)


def read_npz_sizes(path: str | Path) -> tuple[int, int, tuple[int, ...], int]:
    """Read an ``.npz`` file's sizes from its headers; only the training labels are loaded.

    Args:
        path: of the file.

    Returns:
        Training samples, test samples, shape of a sample, classes.
    """
    with _opened(path) as file:
        y_train = _labels(path, "y_train", file["y_train"])
    with _explained(path), zipfile.ZipFile(path) as archive:
        train, test = (_header_shape(archive, name) for name in ("x_train.npy", "x_test.npy"))
    if len(train) < 2 or len(test) < 2:
        raise ScenarioError(
            f"{path}: x_train has shape {train} and x_test {test}: use [samples, ...]"
        )
    return train[0], test[0], train[1:], _classes(path, y_train)


def _header_shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    with archive.open(name) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape: tuple[int, ...] = read(stream)[0]
    return shape


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
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ScenarioError(
            f"{path} is not a readable .npz file ({reason}): write it again with "
            f"numpy.savez_compressed, without Python objects"
        ) from error


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    with _explained(path), open(path, "rb") as stream:
        loaded = np.load(stream, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ScenarioError(f"{path} holds one array, not an .npz of {', '.join(_ARRAYS)}")
        with loaded as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            if missing:
                raise ScenarioError(
                    f"{path} lacks {', '.join(missing)} (it holds {', '.join(file.files)}): "
                    f"save {', '.join(_ARRAYS)}"
                )
            yield file


def _samples(path: str | Path, name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "biuf":
        raise ScenarioError(f"{path}: {name} is {x.dtype}: use numbers")
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which Dataset refuses
        return x.astype(np.float32, copy=False)


def _labels(path: str | Path, name: str, y: NDArray[Any]) -> NDArray[np.int32]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not len(y):
        raise ScenarioError(
            f"{path}: {name} is {y.dtype} of shape {y.shape}: use whole numbers of shape [samples]"
        )
    limit = np.iinfo(np.int32).max
    if int(y.min()) < 0 or int(y.max()) > limit:
        worst = int(y.argmin() if int(y.min()) < 0 else y.argmax())
        raise ScenarioError(
            f"{path}: {name}[{worst}] = {y[worst]} is not a class: number classes from 0"
        )
    return y.astype(np.int32)


def _classes(path: str | Path, y_train: NDArray[np.int32]) -> int:
    classes = int(y_train.max()) + 1
    if classes > max(_MANY_CLASSES, len(y_train)):
        raise ScenarioError(
            f"{path}: y_train[{int(y_train.argmax())}] = {classes - 1} makes {classes} classes of "
            f"{len(y_train)} samples: number classes from 0 without gaps"
        )
    return classes


def _moments(x: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation from a histogram of the 256 values: exact, and no float copy."""
    channels = x.shape[-1] if x.ndim == 4 else 1
    planes = x.reshape(-1, channels)
    values = np.arange(256.0)
    means, stds = [], []
    for channel in range(channels):
        share = np.bincount(planes[:, channel], minlength=256) / len(planes)
        mean = float(share @ values)
        means.append(mean)
        stds.append(float(np.sqrt(share @ (values - mean) ** 2)) or 1.0)  # constant channel
    return np.array(means, np.float32), np.array(stds, np.float32)
