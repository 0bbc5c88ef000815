"""The scale of features: standardised where asked for, and said where it would hamper learning."""

from __future__ import annotations

__all__ = ["Moments", "feature_notes", "in_portions", "moments", "standardised"]

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

        >>> moments([np.array([[0.0], [1e-110]])]).standardise(np.array([[1.0]])).tolist()
        [[3.4028234663852886e+38]]
        """
        with np.errstate(over="ignore"):
            scaled = (rows - self.mean) / self.divisor
        return np.clip(scaled, -_LARGEST, _LARGEST)


def moments(portions: Iterable[NDArray[Any]]) -> Moments:
    """Mean, deviation and range of columns that come in portions of rows.

    Portions are merged pairwise (Chan, Golub, LeVeque 1979): no cancellation, and one pass.

    >>> found = moments([np.array([[1.0, 5.0], [3.0, 5.0]])])
    >>> found.mean.tolist(), found.std.tolist(), found.divisor.tolist()
    ([2.0, 5.0], [1.0, 0.0], [1.0, 1.0])
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
    """Samples less the mean, divided by the deviation, as float32; computed in float64.

    >>> x = np.array([[1e9], [1e9 + 2]])
    >>> standardised(x, moments(in_portions(x))).ravel().tolist()
    [-1.0, 1.0]
    """
    made = np.empty(x.shape, np.float32)
    for portion, target in zip(in_portions(x), in_portions(made), strict=True):
        target[...] = found.standardise(portion)  # a view: the array is contiguous
    return made


def feature_notes(found: Moments, names: Sequence[str] = ()) -> tuple[str, ...]:
    """What a user should know about features that are used as they are.

    Args:
        found: of the training samples.
        names: of the features, if they have any.

    Returns:
        A line each on constant features, and on those far from a magnitude of 1.

    >>> wide = moments([np.array([[0.0, 20000.0], [1.0, 90000.0]])])
    >>> feature_notes(wide, ["age", "income"])
    ("features are not scaled ('income' runs from 2e+04 to 9e+04), and little is learned at usual
      learning rates: set training.normalize = true",)
    """
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
