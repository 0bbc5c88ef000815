"""Small data sets that come with the package: of classes, numbers and sequences of tokens."""

from __future__ import annotations

__all__ = ["EMBEDDED", "LETTERS", "diabetes", "digits", "verses"]

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.catalog import spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.scaling import moments
from joulemesh.data.targets import numbers_of

_DIGITS_FILE = Path(__file__).with_name("digits.csv.gz")
_DIGITS_ORDER = 1797  # seed of the one fixed shuffle of digits
_ORDER = 442  # seed of the one fixed shuffle of diabetes
_TRAIN = 354
_VERSES, _TESTED, _LENGTH, _SEED = 2000, 500, 32, 28
LETTERS = "abcdefghijklmnopqrstuvwxyz ."
"""The tokens of ``verses``, in their order."""

_NOUNS = "river mountain city garden letter winter sailor engine mirror forest window harvest"
_VERBS = "follows remembers carries answers watches forgets crosses measures"
_ADJECTIVES = "quiet old narrow bright distant patient hollow green"


def digits() -> Dataset:
    """1,797 images of handwritten digits, 8 by 8 pixels.

    >>> digits().x_train.shape
    (1437, 8, 8, 1)
    """
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


def diabetes() -> Dataset:
    """442 patients: ten measurements each, and how far a disease had progressed a year later.

    Targets are standardised by the training targets.

    Reference:
        Efron, Hastie, Johnstone, Tibshirani, "Least Angle Regression", Annals of Statistics 32(2),
        2004; the file is that of scikit-learn.

    >>> diabetes().x_train.shape, diabetes().targets
    ((354, 10), 'numbers')
    """
    file = Path(__file__).parent / "embedded" / "diabetes.csv"
    names = file.read_text("utf-8").split("\n", 1)[0].split(",")
    table = np.loadtxt(file, delimiter=",", skiprows=1)
    table = table[np.random.default_rng(_ORDER).permutation(len(table))]
    x, y = table[:, :-1].astype(np.float32), table[:, -1]
    train, test, notes = numbers_of("diabetes", y[:_TRAIN], y[_TRAIN:], normalize=True)
    found = moments([x[:_TRAIN]])
    mean, std = found.mean.astype(np.float32), found.divisor.astype(np.float32)
    return Dataset(
        "diabetes", x[:_TRAIN], train, x[_TRAIN:], test, 1, mean, std,
        feature_names=tuple(names[:-1]), notes=notes,
    )  # fmt: skip


def verses() -> Dataset:
    """Sequences of 32 letters of sentences that a small grammar makes; each next one is the target.

    >>> data = verses()
    >>> "".join(LETTERS[token] for token in data.x_train[0])
    'the patient window measures the '
    >>> bool((data.x_train[0, 1:] == data.y_train[0, :-1]).all())
    True
    """
    draw = np.random.default_rng(_SEED)
    nouns, verbs, adjectives = (words.split() for words in (_NOUNS, _VERBS, _ADJECTIVES))
    wanted = (_VERSES + _TESTED) * (_LENGTH + 1)
    sentences: list[str] = []
    size = 0
    while size < wanted:
        first, second, which, said, other = (
            words[draw.integers(len(words))]
            for words in (adjectives, nouns, adjectives, verbs, nouns)
        )
        sentences.append(f"the {first} {second} {said} the {which} {other}. ")
        size += len(sentences[-1])
    text = "".join(sentences)[:wanted]
    number = {letter: token for token, letter in enumerate(LETTERS)}
    tokens = np.array([number[letter] for letter in text], np.int32).reshape(-1, _LENGTH + 1)
    x, y = np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
    return Dataset(
        "verses", x[:_VERSES], y[:_VERSES], x[_VERSES:], y[_VERSES:], len(LETTERS),
        class_names=tuple(LETTERS),
    )  # fmt: skip


EMBEDDED: dict[str, Callable[[], Dataset]] = {
    "digits": digits,
    "diabetes": diabetes,
    "verses": verses,
}
"""Those data sets by their names."""
