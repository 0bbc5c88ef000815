"""Training and test arrays, checked once so that nothing downstream has to."""

from __future__ import annotations

__all__ = ["BINS", "Dataset", "Holders"]

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError

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
    def on_disk(self) -> bool:
        """Do samples stay on disk, to be read by index?"""
        return not isinstance(self.x_train, np.ndarray)

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
    if x.dtype == np.uint8 or not isinstance(x, np.ndarray):  # on disk: checked as they are read
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
