"""Targets that are not classes: numbers to be predicted, and sequences of tokens."""

from __future__ import annotations

__all__ = ["Kind", "check_kind", "check_loss", "numbers_of", "targets_of", "tokens_of"]

from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.data.dataset import Dataset, Holders
from joulemesh.errors import ScenarioError
from joulemesh.registries import LOSSES

Kind: TypeAlias = Literal["classes", "numbers", "tokens", "any"]

_WORDS = {
    "classes": "classes",
    "numbers": "numbers to be predicted",
    "tokens": "sequences of tokens",
}
_MOST_TOKENS = 2**24
_FAR = 30.0  # deviations between the mean of targets and 0 that cost float32 its digits


def targets_of(y: NDArray[Any], wanted: Kind) -> Literal["classes", "numbers", "tokens"]:
    """What targets are: as wanted, or as their type says.

    >>> targets_of(np.zeros(3), "any"), targets_of(np.zeros((3, 5), int), "any")
    ('numbers', 'tokens')
    """
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
    """Refuse a loss that is for other targets than the data hold.

    Args:
        name: of the data.
        found: what they hold.
        loss: its name.
        wanted: what it takes.

    >>> check_loss("diabetes", "numbers", "cross-entropy", "classes")
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: training.loss = 'cross-entropy' is for classes, and diabetes ...
    """
    if wanted not in ("any", found):
        raise ScenarioError(
            f"training.loss = {loss!r} is for {wanted}, and {name} holds {_WORDS[found]}: set "
            f'training.loss = "{_loss_for(found)}", or name other data'
        )


def numbers_of(
    name: str, y_train: ArrayLike, y_test: ArrayLike, *, normalize: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[str, ...]]:
    """Numbers to be predicted, float32 [n, k], and what a user should know about them.

    Args:
        name: of the data.
        y_train: [n] or [n, k].
        y_test: as ``y_train``.
        normalize: whether to standardise them by the training targets' mean and deviation.

    >>> numbers_of("toy", [1, 3], [2], normalize=True)[:2]
    (array([[-1.],
           [ 1.]], dtype=float32), array([[0.]], dtype=float32))
    """
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
    """Sequences of tokens as a Dataset.

    Args:
        arrays: x_train, y_train, x_test, y_test: whole numbers of shape [samples, positions].
        name: of the data.
        holders: who holds which training sample, where that is known.

    >>> tokens_of(([[0, 1]], [[1, -1]], [[1, 0]], [[0, 2]]), "toy", None).outputs
    (2, 3)
    """
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
