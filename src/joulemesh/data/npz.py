"""The user's own data: arrays, or an ``.npz`` file with x_train, y_train, x_test and y_test."""

from __future__ import annotations

__all__ = ["from_arrays", "read_npz", "read_npz_sizes"]

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.labels import check_classes, in_order, number_classes, text_labels
from joulemesh.data.reading import Reading
from joulemesh.data.scaling import feature_notes, in_blocks, moments, standardised
from joulemesh.errors import ScenarioError

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_MANY_CLASSES = 1000  # labels may be sparse among these; beyond, each class needs a sample


def read_npz(path: str | Path, reading: Reading | None = None) -> Dataset:
    """Load and check an ``.npz`` file; nothing in it is unpickled.

    Args:
        path: of the file. x is [n, ...] of any real type; y holds whole numbers from 0, or texts.
            The number of classes is the largest training label plus one, or the number of texts.
        reading: whether to standardise, and which array says who holds a sample: ``device_train``
            for the holder ``device``.

    Returns:
        The Dataset. uint8 stays so and is normalised by its mean and standard deviation (per
        channel where samples are [height, width, channels]); other types become float32 and are
        used as they are, unless they are to be standardised.
    """
    reading = reading or Reading()
    held_by = {}
    with _opened(path) as file:
        arrays = [file[name] for name in _ARRAYS]
        if reading.holder is not None:
            name = f"{reading.holder}_train"
            if name not in file.files:
                raise ScenarioError(
                    f"{path} has no array {name!r:.60} that says who holds a sample, only "
                    f"{', '.join(file.files)}: save it, or use another training.partition"
                )
            held_by[reading.holder] = file[name]
    return from_arrays(*arrays, name=str(path), normalize=reading.normalize, held_by=held_by)


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    *,
    name: str = "data",
    normalize: bool = False,
    held_by: Mapping[str, ArrayLike] | None = None,
) -> Dataset:
    """The user's own arrays as a Dataset, checked and scaled as an ``.npz`` file's are.

    Args:
        x_train: training samples, [n, ...].
        y_train: their labels: whole numbers from 0, or texts.
        x_test: test samples.
        y_test: their labels.
        name: of the data, for messages.
        normalize: whether to standardise x by the mean and deviation of the training samples.
        held_by: one array under its name that says which device holds each training sample.

    >>> from_arrays([[0.0], [1.0]], [0, 1], [[0.5]], [1]).classes
    2
    >>> from_arrays([[0.0], [1.0]], ["no", "yes"], [[0.5]], ["no"]).class_names
    ('no', 'yes')
    """
    x_train, x_test = (
        _numbers(name, part, np.asarray(x))
        for part, x in (("x_train", x_train), ("x_test", x_test))
    )
    if (x_train.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise ScenarioError(
            f"{name}: x_train is {x_train.dtype} and x_test {x_test.dtype}, which would be scaled "
            f"differently: store both with one type"
        )
    train, test, names = _both_labels(name, np.asarray(y_train), np.asarray(y_test))
    classes = len(names) or _classes(name, train)
    mean: float | NDArray[np.float32] = 0.0
    std: float | NDArray[np.float32] = 1.0
    notes: tuple[str, ...] = ()
    if x_train.dtype == np.uint8 and x_train.size:
        mean, std = _moments(x_train)
    elif x_train.ndim > 1 and x_train.size:
        found = moments(in_blocks(x_train))
        if normalize and x_train.shape[1:] == x_test.shape[1:]:
            x_train, x_test = standardised(x_train, found), standardised(x_test, found)
        elif not normalize and np.isfinite(found.mean).all():
            notes = feature_notes(found)
    return Dataset(
        name,
        _narrowed(x_train),
        train,
        _narrowed(x_test),
        test,
        classes,
        mean,
        std,
        class_names=names,
        holders=_holders(name, held_by or {}),
        notes=notes,
    )


def read_npz_sizes(path: str | Path) -> tuple[int, int, tuple[int, ...], int]:
    """Read an ``.npz`` file's sizes from its headers; only the training labels are loaded.

    Args:
        path: of the file.

    Returns:
        Training samples, test samples, shape of a sample, classes.
    """
    with _opened(path) as file:
        y_train = file["y_train"]
    if _is_text(y_train):
        names = number_classes(np.unique(y_train.astype(str)).tolist())
        classes = int(names[0].max()) + 1
    else:
        classes = _classes(path, _labels(path, "y_train", y_train))
    with _explained(path), zipfile.ZipFile(path) as archive:
        train, test = (_header_shape(archive, name) for name in ("x_train.npy", "x_test.npy"))
    if len(train) < 2 or len(test) < 2:
        raise ScenarioError(
            f"{path}: x_train has shape {train} and x_test {test}: use [samples, ...]"
        )
    return train[0], test[0], train[1:], classes


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


def _numbers(path: str, name: str, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "biuf":
        raise ScenarioError(f"{path}: {name} is {x.dtype}: use numbers")
    return x


def _narrowed(x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which Dataset refuses
        return x.astype(np.float32, copy=False)


def _holders(path: str, held_by: Mapping[str, ArrayLike]) -> Holders | None:
    if not held_by:
        return None
    [(column, given)] = held_by.items()
    held = np.asarray(given)
    if held.ndim != 1 or held.dtype.kind not in "iuUSO":
        raise ScenarioError(
            f"{path}: {column}_train is {held.dtype} of shape {held.shape}: use whole numbers or "
            "texts of shape [samples]"
        )
    values, first, codes = np.unique(held.astype(str), return_index=True, return_inverse=True)
    appearance = np.argsort(first)
    places, names = in_order(values[appearance].tolist())
    rank = np.empty(len(values), np.int64)
    rank[appearance] = np.arange(len(values))
    return Holders(column, names, places[rank[codes]])


def _is_text(y: NDArray[Any]) -> bool:
    """Labels that are texts, or true and false."""
    if y.dtype.kind == "O":  # of the user's own in memory: nothing is unpickled
        return all(isinstance(value, str) for value in y.ravel().tolist())
    return y.dtype.kind in "USb"


def _both_labels(
    path: str, y_train: NDArray[Any], y_test: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[np.int32], tuple[str, ...]]:
    """Classes of the training and the test samples, and names where labels are texts."""
    if not (_is_text(y_train) and _is_text(y_test) and y_train.ndim == y_test.ndim == 1):
        return _labels(path, "y_train", y_train), _labels(path, "y_test", y_test), ()
    if not len(y_train) or not len(y_test):
        raise ScenarioError(f"{path}: y_train or y_test is empty: give it labels")
    try:
        train, test, names = text_labels(y_train, y_test)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None
    check_classes(path, int(train.max()) + 1, len(train))
    return train, test, names


def _labels(path: str | Path, name: str, y: NDArray[Any]) -> NDArray[np.int32]:
    if y.dtype.kind not in "iu" or y.ndim != 1 or not len(y):
        raise ScenarioError(
            f"{path}: {name} is {y.dtype} of shape {y.shape}: use whole numbers or texts of shape "
            f"[samples]"
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
