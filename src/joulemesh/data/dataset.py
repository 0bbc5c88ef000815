"""Training and test arrays, checked once so that nothing downstream has to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import LOSSES

BINS = 10  # quantiles of a number that partitions take for classes


@dataclass(frozen=True, eq=False)
class Holders:
    """Who holds each training sample, as the user's data say.

    Attributes:
        column: the column (or array) that says so.
        names: of the holders, in the order in which they appear.
        of: int32 [n], the holder of each training sample, as a place in ``names``.
    """

    column: str
    names: tuple[str, ...]
    of: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and targets to learn from and to test on.

    Attributes:
        name: ``digits``, ``mnist``, ..., or the path of the user's file.
        x_train: uint8 or float32 or int32 [n, ...]; images are [n, height, width, channels], and
            int32 are tokens, [n, positions].
        y_train: int32 or float32 [n, ...]: classes 0..classes-1, int32 [n]; numbers that are to be
            predicted, float32 [n, k]; or tokens, int32 [n, positions], of which negative ones do
            not count.
        x_test: uint8 or float32 or int32 [m, ...]; samples are as those of ``x_train``.
        y_test: int32 or float32 [m, ...], as ``y_train``.
        classes: number of classes; of tokens, how many there are; of numbers, k.
        mean: in the units of x; a number, or float32 of one figure per channel (the last axis).
        std: as ``mean``; a model sees ``(x - mean) / std``.
        class_names: of the classes, in their order; none where classes are numbers.
        feature_names: of the columns of a table; none otherwise.
        holders: who holds each training sample, where the data say so.
        notes: what a user should know about the data, a sentence each.

    >>> x = np.array([[0.0], [2.0]], np.float32)
    >>> y = np.array([0, 1], np.int32)
    >>> toy = Dataset("toy", x, y, x, y, 2, mean=1.0, std=0.5)
    >>> toy.shape, toy.normalise(toy.x_test).ravel()
    ((1,), array([-2.,  2.], dtype=float32))
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: int
    mean: float | NDArray[np.float32] = 0.0
    std: float | NDArray[np.float32] = 1.0
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    holders: Holders | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 2 and self.targets != "numbers":
            raise ScenarioError(
                f"{self.name}: {self.classes} class: classification needs 2 or more"
            )
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            _check_lengths(self.name, part, x, y)
            _check_values(self.name, part, x, self.classes)
            _check_targets(self.name, part, y, self)
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise ScenarioError(
                f"{self.name}: training samples have shape {self.shape} but test samples "
                f"{self.x_test.shape[1:]}: make them equal"
            )
        if self.class_names and len(self.class_names) != self.classes:
            raise ScenarioError(
                f"{self.name}: {len(self.class_names)} class names for {self.classes} classes: "
                "name all or none"
            )
        if self.holders is not None and self.holders.of.shape != self.y_train.shape[:1]:
            raise ScenarioError(
                f"{self.name}: {self.holders.column} names the holders of "
                f"{len(self.holders.of)} samples, but there are {len(self.y_train)}: name all"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    @property
    def targets(self) -> Literal["classes", "numbers", "tokens"]:
        """What is to be predicted of a sample."""
        if self.y_train.dtype == np.float32:
            return "numbers"
        return "classes" if self.y_train.ndim == 1 else "tokens"

    @property
    def outputs(self) -> tuple[int, ...]:
        """Shape of what a model gives for one sample."""
        positions = self.y_train.shape[1:] if self.targets == "tokens" else ()
        return (*positions, self.classes)

    @property
    def seen(self) -> Literal["float32", "int32"]:
        """How a model sees samples: scaled, or as the tokens that they are."""
        return "int32" if self.x_train.dtype == np.int32 else "float32"

    def strata(self) -> NDArray[np.int32]:
        """int32 [n]: the groups of training samples that partitions and reports tell apart.

        Classes; of numbers the quantiles (`BINS`) of the first; tokens are all of one group.

        >>> x, y = np.ones((4, 1), np.float32), np.array([[3.0], [1.0], [2.0], [9.0]], np.float32)
        >>> Dataset("toy", x, y, x, y, 1).strata().tolist()
        [5, 0, 2, 7]
        """
        if self.targets == "classes":
            return self.y_train
        if self.targets == "tokens":
            return np.zeros(len(self.y_train), np.int32)
        rank = np.argsort(np.argsort(self.y_train[:, 0], kind="stable"), kind="stable")
        return (rank * BINS // len(rank)).astype(np.int32)

    def strata_names(self) -> tuple[str, ...]:
        """What the groups are called: none where classes are numbers."""
        if self.targets == "classes":
            return self.class_names
        if self.targets == "tokens":
            return ("sequences",)
        groups, first = self.strata(), self.y_train[:, 0]
        spans = [first[groups == k] for k in range(int(groups.max()) + 1)]
        return tuple(f"{v.min():.3g} to {v.max():.3g}" if len(v) else "none" for v in spans)

    def normalise(self, x: Any) -> Any:
        """What a model sees of ``x`` (NumPy or JAX array): float32 ``(x - mean) / std``."""
        return (x.astype(np.float32) - self.mean) / self.std


def _check_lengths(name: str, part: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    if x.ndim < 2 or y.ndim not in (1, 2) or (y.ndim == 1 and y.dtype == np.float32):
        raise ScenarioError(
            f"{name}: x_{part} has shape {x.shape} and y_{part} {y.shape}: use [samples, ...] and "
            f"[samples] (classes) or [samples, k] (numbers, tokens)"
        )
    if len(x) != len(y):
        raise ScenarioError(
            f"{name}: x_{part} holds {len(x)} samples but y_{part} {len(y)} labels: make them equal"
        )
    if x.size == 0:
        raise ScenarioError(f"{name}: x_{part} is empty (shape {x.shape}): give it samples")


def _check_values(name: str, part: str, x: NDArray[Any], tokens: int) -> None:
    if x.dtype == np.uint8:
        return
    if x.dtype == np.int32:
        _check_labels(name, f"x_{part}", x, tokens)
        return
    if x.dtype != np.float32:
        raise ScenarioError(
            f"{name}: x_{part} is {x.dtype}: use uint8 or float32, int32 for tokens"
        )
    # A portion at a time: isfinite over the whole array would copy a quarter of it again.
    portion = max(1, 2**24 // max(1, x[0].size))
    for start in range(0, len(x), portion):
        bad = ~np.isfinite(x[start : start + portion].reshape(-1, x[0].size)).all(axis=1)
        if bad.any():
            first = start + int(bad.argmax())
            raise ScenarioError(
                f"{name}: x_{part}[{first}] holds NaN or infinity (as float32): "
                f"remove or replace such samples"
            )


def _check_targets(name: str, part: str, y: NDArray[Any], data: Dataset) -> None:
    kind = data.targets
    if kind == "numbers":
        if y.dtype != np.float32 or y.shape[1:] != (data.classes,):
            raise ScenarioError(
                f"{name}: y_{part} is {y.dtype} of shape {y.shape}: use float32 "
                f"[samples, {data.classes}]"
            )
        bad = ~np.isfinite(y).all(axis=1)
        if bad.any():
            raise ScenarioError(
                f"{name}: y_{part}[{int(bad.argmax())}] holds NaN or infinity (as float32): remove "
                "or replace such samples"
            )
        return
    if y.dtype != np.int32:
        raise ScenarioError(f"{name}: y_{part} is {y.dtype}: use int32 classes")
    if y.shape[1:] != data.y_train.shape[1:]:
        raise ScenarioError(
            f"{name}: y_{part} has shape {y.shape} and y_train {data.y_train.shape}: make samples "
            "equally long, and fill up with -1, which does not count"
        )
    _check_labels(name, f"y_{part}", y if kind == "classes" else np.maximum(y, 0), data.classes)


def _check_labels(name: str, array: str, y: NDArray[Any], classes: int) -> None:
    outside = (y < 0) | (y >= classes)
    if outside.any():
        first = np.unravel_index(int(outside.argmax()), y.shape)
        raise ScenarioError(
            f"{name}: {array}[{', '.join(map(str, first))}] = {y[first]} is outside the classes "
            f"0..{classes - 1}: correct the label"
        )


Kind: TypeAlias = Literal["classes", "numbers", "tokens", "any"]

_WORDS = {
    "classes": "classes",
    "numbers": "numbers to be predicted",
    "tokens": "sequences of tokens",
}
_MOST_TOKENS = 2**24
_FAR = 30.0  # deviations between the mean of targets and 0 that cost float32 its digits


def targets_of(y: NDArray[Any], wanted: Kind) -> Literal["classes", "numbers", "tokens"]:
    """What targets are: as wanted, or as their type says."""
    if wanted != "any":
        return wanted
    if y.dtype.kind == "f":
        return "numbers"
    return "tokens" if y.ndim == 2 and y.dtype.kind in "iu" else "classes"


def _loss_for(targets: str) -> str:
    """The first loss that takes such targets, to be named in a refusal."""
    return next(name for name in LOSSES.built_in if LOSSES[name].targets == targets)


def check_kind(path: str | Path, y: NDArray[Any], wanted: str) -> None:
    """Refuse labels that can only be targets of another kind, with the loss that takes them."""
    found = targets_of(y, "any")
    if wanted == "classes" and found != "classes":
        shown = f"{y.dtype} of shape {y.shape}"
        raise ScenarioError(
            f"{path}: y_train or y_test is {shown}, which are no classes: for {_WORDS[found]} set "
            f'training.loss = "{_loss_for(found)}", or use whole numbers or texts of shape '
            "[samples]"
        )


def check_loss(name: str, found: str, loss: str, wanted: Kind) -> None:
    """Refuse a loss that is for other targets than the data hold."""
    if wanted not in ("any", found):
        raise ScenarioError(
            f"training.loss = {loss!r} is for {wanted}, and {name} holds {_WORDS[found]}: set "
            f'training.loss = "{_loss_for(found)}", or name other data',
            field="training.loss",
        )


def numbers_of(
    name: str, y_train: ArrayLike, y_test: ArrayLike, *, normalize: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Numbers to be predicted, float32 [n, k], and what a user should know about them."""
    both = [_rows(name, f"y_{part}", np.asarray(y)) for part, y in
            (("train", y_train), ("test", y_test))]  # fmt: skip
    if both[0].shape[1:] != both[1].shape[1:]:
        raise ScenarioError(
            f"{name}: y_train has {both[0].shape[1]} numbers of each sample and y_test "
            f"{both[1].shape[1]}: make them equal"
        )
    mean, std = both[0].mean(axis=0), both[0].std(axis=0)
    notes: tuple[str, ...] = ()
    if normalize:
        both = [(y - mean) / np.where(std > 0, std, 1) for y in both]
        shown = ", ".join(f"{one:.4g}" for one in std[:4])
        notes = (
            f"targets are standardised: an error of 1 is one standard deviation of the training "
            f"targets, {shown}{' and so on' if len(std) > 4 else ''} in their own units",
        )
    elif bool((np.abs(mean) > _FAR * std).any() or (std > _FAR).any()):
        worst = int(np.abs(mean / np.where(std > 0, std, 1)).argmax())
        notes = (
            f"targets are not scaled (mean {mean[worst]:.4g}, deviation {std[worst]:.4g}), and "
            "little is learned at usual learning rates: set training.normalize = true",
        )
    with np.errstate(over="ignore"):  # an overflow becomes infinity, which Dataset refuses
        train, test = (y.astype(np.float32) for y in both)
    return train, test, notes


def _rows(name: str, array: str, y: NDArray[Any]) -> NDArray[np.float64]:
    if y.dtype.kind not in "biuf" or y.ndim not in (1, 2) or not y.size:
        raise ScenarioError(
            f"{name}: {array} is {y.dtype} of shape {y.shape}: use numbers of shape [samples] or "
            "[samples, k]"
        )
    return y.reshape(len(y), -1).astype(np.float64)


def tokens_of(
    arrays: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], name: str, holders: Holders | None
) -> Dataset:
    names = ("x_train", "y_train", "x_test", "y_test")
    whole = [np.asarray(given) for given in arrays]
    for array, given in zip(names, whole, strict=True):
        if given.dtype.kind not in "iu" or given.ndim != 2 or not given.size:
            raise ScenarioError(
                f"{name}: {array} is {given.dtype} of shape {given.shape}: use whole numbers of "
                "shape [samples, positions]"
            )
        if int(given.max()) >= _MOST_TOKENS:
            raise ScenarioError(
                f"{name}: {array} holds the token {int(given.max())}: number tokens from 0, at "
                f"most {_MOST_TOKENS}"
            )
    x_train, y_train, x_test, y_test = (given.astype(np.int32) for given in whole)
    tokens = 1 + max(int(given.max()) for given in (x_train, y_train, x_test, y_test))
    return Dataset(
        name, x_train, y_train, x_test, y_test, max(tokens, 2), holders=holders
    )  # fmt: skip


_MANY_CLASSES = 1000  # more pass only with two samples of each, otherwise they are not classes
_LONGEST_NAME = 200

Ints = NDArray[np.int32]


def canonical(values: Sequence[str]) -> list[str]:
    """Labels or names without spaces around them; whole numbers, if all are, without a point."""
    clean = [" ".join(value.split()) for value in values]
    numbers = [_number(value) for value in clean]
    whole = [str(int(n)) for n in numbers if n is not None and n.is_integer()]
    return whole if len(whole) == len(clean) else clean


def in_order(values: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Number names in the order in which they first appear."""
    names = canonical(values)
    index_of = {name: k for k, name in enumerate(dict.fromkeys(names))}
    return np.array([index_of[name] for name in names], np.int32), tuple(index_of)


def number_classes(values: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Number labels in sorted order: whole numbers by size, texts by their characters."""
    names = canonical(values)
    longest = max(names, key=len, default="")
    if len(longest) > _LONGEST_NAME:
        raise ScenarioError(
            f"a label of {len(longest):,} characters ({longest[:20]!r}...) names no class: "
            "take another column for the labels"
        )
    numbers = [number for number in map(_number, names) if number is not None]
    fraction = next((number for number in numbers if not number.is_integer()), None)
    if len(numbers) == len(names) and fraction is not None:
        raise ScenarioError(
            f"labels are numbers with fractions ({fraction:g} and others, {len(names):,} different "
            "ones): classes must be whole numbers or text; to predict numbers, set "
            'training.loss = "mse"'
        )
    order = sorted(set(names), key=int if len(numbers) == len(names) else None)
    index_of = {name: k for k, name in enumerate(order)}
    plain = order == [str(k) for k in range(len(order))]
    classes = np.array([index_of[name] for name in names], np.int32)
    return classes, () if plain else tuple(order)


def has_fractions(values: Sequence[str]) -> bool:
    """Are labels numbers, and not all of them whole?"""
    numbers = [_number(value) for value in canonical(values)]
    known = [number for number in numbers if number is not None]
    return len(known) == len(numbers) and not all(number.is_integer() for number in known)


def _number(text: str) -> float | None:
    if "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def check_classes(where: str, classes: int, samples: int) -> None:
    """Refuse labels that can hardly be classes, such as a column that numbers the rows."""
    if classes > max(_MANY_CLASSES, samples // 2):
        raise ScenarioError(
            f"{where}: {classes:,} different labels among {samples:,} samples are too many to be "
            "classes: take another column for the labels"
        )


def text_labels(y_train: NDArray[Any], y_test: NDArray[Any]) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Arrays of texts as classes: training labels, test labels, names."""
    known, codes = np.unique(y_train.astype(str), return_inverse=True)
    seen, test_codes = np.unique(y_test.astype(str), return_inverse=True)
    classes, names = number_classes(known.tolist())
    test = classes_in(canonical(seen.tolist()), canonical(known.tolist()), classes)
    if (test < 0).any():
        first = int((test[test_codes] < 0).argmax())
        raise ScenarioError(
            f"y_test[{first}] = {str(y_test[first])!r:.60} is not a label of the training samples: "
            "correct it, or move some of its samples to them"
        )
    return classes[codes], test[test_codes], names


def classes_in(values: Sequence[str], known: Sequence[str], classes: Ints) -> Ints:
    """The classes of values, given those of the known ones; -1 for a stranger."""
    of = dict(zip(known, classes.tolist(), strict=True))
    return np.array([of.get(value, -1) for value in values], np.int32)


Floats = NDArray[np.float64]

_LARGE = 10.0  # root mean square from which gradients at usual learning rates overshoot
_SMALL = 0.01  # greatest magnitude below which they hardly move
_AT_ONCE = 1 << 20  # values looked at together
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Moments:
    """Figures of each feature over the training samples; float64 [features] each."""

    mean: Floats
    std: Floats
    low: Floats
    high: Floats

    @property
    def divisor(self) -> Floats:
        """The standard deviation; 1 for a constant feature, which becomes 0."""
        return np.where(self.std > 0, self.std, 1.0)

    def standardise(self, rows: NDArray[Any]) -> Floats:
        """Rows less the mean, divided by the deviation, within what float32 holds.

        A test value may lie any number of deviations from a feature that hardly varies.
        """
        with np.errstate(over="ignore"):
            scaled = (rows - self.mean) / self.divisor
        return np.clip(scaled, -_LARGEST, _LARGEST)


def moments(portions: Iterable[NDArray[Any]]) -> Moments:
    """Mean, deviation and range of columns that come in portions of rows.

    Portions are merged pairwise (Chan, Golub, LeVeque 1979): no cancellation, and one pass.
    """
    count, mean, square = 0, np.zeros(0), np.zeros(0)
    low, high = np.zeros(0), np.zeros(0)
    for portion in portions:
        rows = np.asarray(portion, np.float64)
        own, own_mean = len(rows), rows.mean(axis=0)
        own_square = ((rows - own_mean) ** 2).sum(axis=0)
        if count == 0:
            mean, square = own_mean, own_square
            low, high = rows.min(axis=0), rows.max(axis=0)
        else:
            apart = own_mean - mean
            square = square + own_square + apart**2 * (count * own / (count + own))
            mean = mean + apart * (own / (count + own))
            low, high = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))
        count += own
    # Rounding leaves a constant column a deviation of 1e-17 of it; its range says it is one.
    std = np.where(high > low, np.sqrt(square / max(count, 1)), 0.0)
    return Moments(mean, std, low, high)


def in_portions(x: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Samples as rows of features, some at a time.

    Images keep their channels apart, tables their columns; of other shapes all values are one
    feature.
    """
    features = x.shape[-1] if x.ndim in (2, 4) else 1
    rows = max(1, _AT_ONCE // max(1, x[0].size))
    for start in range(0, len(x), rows):
        yield x[start : start + rows].reshape(-1, features)


def standardised(x: NDArray[Any], found: Moments) -> NDArray[np.float32]:
    """Samples less the mean, divided by the deviation, as float32; computed in float64."""
    made = np.empty(x.shape, np.float32)
    for portion, target in zip(in_portions(x), in_portions(made), strict=True):
        target[...] = found.standardise(portion)  # a view: the array is contiguous
    return made


def feature_notes(found: Moments, names: Sequence[str] = ()) -> tuple[str, ...]:
    """What a user should know about features that are used as they are."""
    notes = []
    constant = np.flatnonzero(found.std == 0)
    if len(constant) > 0 and len(found.std) > 1:
        which = _listed(constant, names)
        notes.append(f"constant in all training samples, so nothing is learned from it: {which}")
    rms = np.sqrt(found.mean**2 + found.std**2)
    greatest = np.maximum(np.abs(found.low), np.abs(found.high))
    far = np.flatnonzero((found.std > 0) & ((rms > _LARGE) | (greatest < _SMALL)))
    if len(far):
        worst = far[np.abs(np.log(rms[far])).argmax()]
        shown = _name(int(worst), names, len(found.std))
        more = f"; {len(far) - 1} more are as far from 1" if len(far) > 1 else ""
        notes.append(
            f"features are not scaled ({shown} runs from {found.low[worst]:.3g} to "
            f"{found.high[worst]:.3g}{more}), and little is learned at usual learning rates: "
            "set training.normalize = true"
        )
    return tuple(notes)


def _name(feature: int, names: Sequence[str], count: int) -> str:
    if len(names):
        return repr(names[feature])
    return f"feature {feature}" if count > 1 else "x_train"


def _listed(features: NDArray[np.int64], names: Sequence[str]) -> str:
    shown = [_name(int(k), names, 2) for k in features[:5]]
    more = f" and {len(features) - 5} more" if len(features) > 5 else ""
    return ", ".join(shown) + more


def dataset_words(name: str) -> str:
    """A data set; of a file, its name alone."""
    return name if name.startswith("hf:") else PurePath(name).name
