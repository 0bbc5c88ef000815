"""The user's own arrays, and data sets of the Hugging Face hub, as data sets: checked, scaled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import (
    ArrayFile,
    find,
    keep,
    open_arrays,
    sha256_of,
    shape_in,
    user_cache,
    write_whole,
)
from joulemesh.base.optional import require
from joulemesh.data.dataset import (
    Dataset,
    Holders,
    Kind,
    canonical,
    check_classes,
    check_kind,
    feature_notes,
    in_order,
    in_portions,
    moments,
    number_classes,
    numbers_of,
    standardised,
    targets_of,
    text_labels,
    tokens_of,
)
from joulemesh.data.reading import (
    HUB,
    Reading,
)

_MANY_CLASSES = 1000  # labels may be sparse among these; beyond, each class needs a sample


def from_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike,
    y_test: ArrayLike,
    *,
    name: str = "data",
    normalize: bool = False,
    held_by: Mapping[str, ArrayLike] | None = None,
    targets: Kind = "classes",
) -> Dataset:
    """The user's own arrays as a Dataset, checked and scaled as an ``.npz`` file's are.

    Args:
        x_train: training samples, [n, ...]; tokens, whole numbers from 0, where these are to be
            predicted.
        y_train: their labels: whole numbers from 0, or texts; numbers, [n] or [n, k]; or tokens,
            [n, positions], where negative ones do not count.
        x_test: test samples.
        y_test: their labels, numbers or tokens.
        name: of the data, for messages.
        normalize: whether to standardise x by the mean and deviation of the training samples.
        held_by: one array under its name that says which device holds each training sample.
        targets: what is to be predicted: ``"classes"``, ``"numbers"``, ``"tokens"``, or ``"any"``
            of them, as the type of ``y_train`` says. Numbers are standardised, too, if samples are.

    >>> from_arrays([[0.0], [1.0]], [0, 1], [[0.5]], [1]).classes
    2
    >>> from_arrays([[0.0], [1.0]], ["no", "yes"], [[0.5]], ["no"]).class_names
    ('no', 'yes')
    >>> from_arrays([[0.0], [1.0]], [2.5, 3.0], [[0.5]], [2.0], targets="numbers").outputs
    (1,)
    """
    kind = targets_of(np.asarray(y_train), targets)
    if kind == "tokens":
        return tokens_of((x_train, y_train, x_test, y_test), name, _holders(name, held_by or {}))
    x_train, x_test = (
        _numbers(name, part, np.asarray(x))
        for part, x in (("x_train", x_train), ("x_test", x_test))
    )
    if (x_train.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise ScenarioError(
            f"{name}: x_train is {x_train.dtype} and x_test {x_test.dtype}, which would be scaled "
            f"differently: store both with one type"
        )
    train: NDArray[Any]
    test: NDArray[Any]
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if kind == "numbers":
        train, test, notes = numbers_of(name, y_train, y_test, normalize=normalize)
        classes = train.shape[1]
    else:
        train, test, names = _both_labels(name, np.asarray(y_train), np.asarray(y_test))
        classes = len(names) or _classes(name, train)
    mean: float | NDArray[np.float32] = 0.0
    std: float | NDArray[np.float32] = 1.0
    if x_train.dtype == np.uint8 and x_train.size:
        mean, std = _moments(x_train)
    elif x_train.ndim > 1 and x_train.size:
        found = moments(in_portions(x_train))
        if normalize and x_train.shape[1:] == x_test.shape[1:]:
            x_train, x_test = standardised(x_train, found), standardised(x_test, found)
        elif not normalize and np.isfinite(found.mean).all():
            notes += feature_notes(found)
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


def classes_of(path: str | Path, y_train: NDArray[Any]) -> int:
    """The number of classes, from the training labels."""
    check_kind(path, y_train, "classes")
    if _is_text(y_train):
        return int(number_classes(np.unique(y_train.astype(str)).tolist())[0].max()) + 1
    return _classes(path, _labels(path, "y_train", y_train))


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
    codes_in_order, names = in_order(values[appearance].tolist())
    rank = np.empty(len(values), np.int64)
    rank[appearance] = np.arange(len(values))
    return Holders(column, names, codes_in_order[rank[codes]])


def reordered(path: str, holders: Holders, order: NDArray[Any]) -> Holders:
    """The same holders in an order of their own; some may hold no training sample."""
    names = tuple(canonical([str(name) for name in order.ravel()]))
    absent = next((name for name in holders.names if name not in names), None)
    if absent is not None or len(set(names)) != len(names):
        raise ScenarioError(
            f"{path}: {holders.column}_names must name each holder once ({absent!r:.60} is in "
            f"{holders.column}_train): correct it, or leave it out"
        )
    new_index = np.array([names.index(name) for name in holders.names], np.int32)
    return Holders(holders.column, names, new_index[holders.of])


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
    check_kind(path, y, "classes")
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


_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
_OPTIONAL = ("class_names", "x_mean", "x_std")


def read_npz(path: str | Path, reading: Reading | None = None) -> Dataset:
    """Load and check an ``.npz`` file; nothing in it is unpickled."""
    reading = reading or Reading()
    held_by, names = {}, None
    with open_npz(path) as file:
        _check_named(path, file)
        arrays = [file[name] for name in _ARRAYS]
        if reading.holder is not None:
            name = f"{reading.holder}_train"
            if name not in file:
                raise ScenarioError(
                    f"{path} has no array {name!r:.60} that says who holds a sample, only "
                    f"{listed(file)}: save it, or use another training.partition"
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
    """Write a data set so that `read_npz` gives the same again."""
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
    """Read an ``.npz`` file's sizes from its headers; only the training labels are loaded."""
    wanted = (reading or Reading()).targets
    with open_npz(path) as file:
        _check_named(path, file)
        y_train = file["y_train"]
        named = len(file["class_names"].ravel()) if "class_names" in file else 0
        train, test = shape_in(file, "x_train"), shape_in(file, "x_test")
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
def open_npz(path: str | Path) -> Iterator[ArrayFile]:
    """An ``.npz`` file, of which nothing is unpickled; what is wrong with it in one line."""
    try:
        with open_arrays(Path(path)) as file:
            yield file
    except ScenarioError:
        raise
    except FileNotFoundError:
        raise ScenarioError(f"dataset file {path} does not exist: correct its path") from None
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check the file") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} is not a readable .npz file ({reason}): write it again with "
            "numpy.savez_compressed, texts as str, not as Python objects"
        ) from None


def _check_named(path: str | Path, file: ArrayFile) -> None:
    missing = [name for name in _ARRAYS if name not in file]
    if missing:
        raise ScenarioError(
            f"{path} lacks {', '.join(missing)} (it holds {listed(file)}): save "
            f"{', '.join(_ARRAYS)}"
        )


def listed(file: ArrayFile) -> str:
    """The names of a file's arrays, the first twenty of them."""
    more = f" and {len(file.files) - 20} more" if len(file.files) > 20 else ""
    return ", ".join(f"{name:.60}" for name in file.files[:20]) + more


_OPTIONS = ("config", "image", "label", "revision", "test", "train")
_IMAGES = ("image", "img", "pixel_values", "x", "features")
_LABELS = ("label", "labels", "fine_label", "digit", "y", "target", "class")
_TESTS = ("test", "validation", "valid", "val")
_FORMAT = "v1"


@dataclass(frozen=True)
class _Wanted:
    """What ``hf:NAME?image=img&label=label`` says."""

    text: str
    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> _Wanted:
        name, _, query = text.removeprefix(HUB).partition("?")
        if not name or name.startswith(("/", ".")) or ":" in name:
            raise ScenarioError(
                f"dataset = {text!r} names no data set of the hub; write hf:OWNER/NAME"
            )
        try:
            pairs = parse_qsl(query, strict_parsing=True) if query else []
        except ValueError:
            raise ScenarioError(
                f"dataset = {text!r}: write options as hf:{name}?image=img&label=label"
            ) from None
        unknown = [key for key, _ in pairs if key not in _OPTIONS]
        if unknown:
            raise ScenarioError(
                f"dataset = {text!r}: the option {unknown[0]!r} is unknown; "
                f"known options: {', '.join(_OPTIONS)}"
            )
        return cls(text, name, dict(pairs))


def hub_file(text: str, cache: str | Path | None = None) -> Path:
    """The ``.npz`` file of a data set of the hub; made when it is first asked for."""
    wanted = _Wanted.parse(text)
    key = hashlib.sha256(repr((wanted.name, sorted(wanted.options.items()))).encode()).hexdigest()
    safe = "".join(letter if letter.isalnum() else "-" for letter in wanted.name)[:60]
    path = (
        (user_cache() if cache is None else Path(cache))
        / "hub"
        / f"{safe}-{key[:12]}-{_FORMAT}.npz"
    )
    mark = path.with_suffix(".sha256")
    if find(mark) == _digest(path):
        return path
    arrays = _fetch(wanted)
    from_arrays(
        *arrays.values(), name=text
    )  # checked before it is kept: what is wrong is said by name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(
            f"cannot keep {text} in {path.parent}: {error.strerror}; make the folder writable"
        ) from None

    write_whole(path, lambda draft: np.savez_compressed(draft, allow_pickle=False, **arrays))
    keep(mark, _digest(path))
    return path


def _digest(path: Path) -> bytes:
    """SHA-256 of a kept file; empty if it cannot be read."""
    with suppress(OSError):
        return sha256_of(path).encode()
    return b""


def _fetch(wanted: _Wanted) -> dict[str, NDArray[Any]]:
    library = require("datasets", f"dataset = {wanted.text!r}")
    more = {k: v for k, v in wanted.options.items() if k == "revision"}
    try:
        splits = library.load_dataset(wanted.name, wanted.options.get("config"), **more)
    except (OSError, ValueError, RuntimeError) as error:  # also the library's own, and the hub's
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"dataset = {wanted.text!r} cannot be loaded ({type(error).__name__}: {reason}); "
            "check the name, the config and the network"
        ) from None
    if not isinstance(splits, Mapping):
        raise ScenarioError(f"dataset = {wanted.text!r} has no splits; name another")
    arrays: dict[str, NDArray[Any]] = {}
    for part, guesses in (("train", ("train",)), ("test", _TESTS)):
        split = splits[_pick(wanted, part, list(splits), guesses, "split")]
        columns = list(split.column_names)
        image = _pick(wanted, "image", columns, _IMAGES, "column")
        label = _pick(wanted, "label", columns, _LABELS, "column")
        arrays[f"x_{part}"] = _hub_samples(wanted, f"{part}.{image}", split[image])
        arrays[f"y_{part}"] = _hub_labels(wanted, f"{part}.{label}", split[label])
    return arrays


def columns_of(
    split: Any, where: str, label: str | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples and labels of a split of the package ``datasets``, by the usual names of columns."""
    columns = list(split.column_names)
    found = []
    for kind, guesses in (("image", _IMAGES), ("label", (label,) if label else _LABELS)):
        name = next((guess for guess in guesses if guess in columns), None)
        if name is None:
            raise ScenarioError(
                f"{where} has no column called {' or '.join(map(str, guesses))}, only "
                f"{', '.join(columns)}: rename one with rename_column(NAME, {kind!r})"
            )
        found.append(name)
    wanted = _Wanted(where, where, {})
    image, named = found
    return _hub_samples(wanted, image, split[image]), _hub_labels(wanted, named, split[named])


def _pick(
    wanted: _Wanted, option: str, known: list[str], guesses: tuple[str, ...], kind: str
) -> str:
    """The split or column that is asked for, or the first usual one."""
    asked = wanted.options.get(option)
    found = next((name for name in ((asked,) if asked else guesses) if name in known), None)
    if found is None:
        what = f"no {kind} {asked!r}" if asked else f"no {option} {kind} of a usual name"
        raise ScenarioError(
            f"dataset = {wanted.text!r} has {what}, only {', '.join(known)}; "
            f"write {HUB}{wanted.name}?{option}=NAME"
        )
    return found


def _hub_samples(wanted: _Wanted, where: str, values: Any) -> NDArray[Any]:
    """Images as uint8 [n, height, width, channels], other samples as they are."""
    made: list[NDArray[Any]] = []
    for value in values:
        if hasattr(value, "convert"):  # a picture
            mode = "L" if value.mode in ("1", "L") else "RGB"
            pixels = np.asarray(value.convert(mode), np.uint8)
            made.append(pixels[..., None] if mode == "L" else pixels)
        else:
            made.append(np.asarray(value))
    shapes = sorted({one.shape for one in made})
    if len(shapes) != 1 or not made or made[0].dtype.kind not in "biuf":
        seen = f"{made[0].dtype}" if len(shapes) == 1 else f"the shapes {shapes[:3]}"
        raise ScenarioError(
            f"dataset = {wanted.text!r}: {where} holds {seen if made else 'nothing'}; samples must "
            "be pictures or numbers of one shape: resize them and save an .npz instead"
        )
    return np.stack(made)


def _hub_labels(wanted: _Wanted, where: str, values: Any) -> NDArray[Any]:
    labels = np.asarray(list(values))
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ScenarioError(
            f"dataset = {wanted.text!r}: {where} holds {labels.dtype} of shape {labels.shape}; "
            "labels must be whole numbers: choose another column with ?label=NAME"
        )
    return labels.astype(np.int64)
