"""Training and test arrays, checked once so that nothing downstream has to."""

from __future__ import annotations

__all__ = ["Dataset", "Holders"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError


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
    """A classification data set.

    Attributes:
        name: ``digits``, ``mnist``, ..., or the path of the user's file.
        x_train: uint8 or float32 [n, ...]; images are [n, height, width, channels].
        y_train: int32 [n], classes 0..classes-1.
        x_test: uint8 or float32 [m, ...]; samples are as those of ``x_train``.
        y_test: int32 [m], classes as in ``y_train``.
        classes: number of classes.
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
    y_train: NDArray[np.int32]
    x_test: NDArray[Any]
    y_test: NDArray[np.int32]
    classes: int
    mean: float | NDArray[np.float32] = 0.0
    std: float | NDArray[np.float32] = 1.0
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    holders: Holders | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ScenarioError(
                f"{self.name}: {self.classes} class: classification needs 2 or more"
            )
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            _check_lengths(self.name, part, x, y)
            _check_values(self.name, part, x)
            _check_labels(self.name, part, y, self.classes)
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
        if self.holders is not None and self.holders.of.shape != self.y_train.shape:
            raise ScenarioError(
                f"{self.name}: {self.holders.column} names the holders of "
                f"{len(self.holders.of)} samples, but there are {len(self.y_train)}: name all"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x_train.shape[1:]

    def normalise(self, x: Any) -> Any:
        """What a model sees of ``x`` (NumPy or JAX array): float32 ``(x - mean) / std``."""
        return (x.astype(np.float32) - self.mean) / self.std


def _check_lengths(name: str, part: str, x: NDArray[Any], y: NDArray[Any]) -> None:
    if x.ndim < 2 or y.ndim != 1:
        raise ScenarioError(
            f"{name}: x_{part} has shape {x.shape} and y_{part} {y.shape}: "
            f"use [samples, ...] and [samples]"
        )
    if len(x) != len(y):
        raise ScenarioError(
            f"{name}: x_{part} holds {len(x)} samples but y_{part} {len(y)} labels: make them equal"
        )
    if x.size == 0:
        raise ScenarioError(f"{name}: x_{part} is empty (shape {x.shape}): give it samples")


def _check_values(name: str, part: str, x: NDArray[Any]) -> None:
    if x.dtype == np.uint8:
        return
    if x.dtype != np.float32:
        raise ScenarioError(f"{name}: x_{part} is {x.dtype}: use uint8 or float32")
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


def _check_labels(name: str, part: str, y: NDArray[Any], classes: int) -> None:
    if y.dtype != np.int32:
        raise ScenarioError(f"{name}: y_{part} is {y.dtype}: use int32 classes")
    outside = (y < 0) | (y >= classes)
    if outside.any():
        first = int(outside.argmax())
        raise ScenarioError(
            f"{name}: y_{part}[{first}] = {y[first]} is outside the classes 0..{classes - 1}: "
            f"correct the label"
        )
