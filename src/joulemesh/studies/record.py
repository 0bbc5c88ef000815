"""One method at one seed: all that a comparison keeps of a run."""

from __future__ import annotations

__all__ = ["Record", "from_bytes", "to_bytes"]

import io
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.files.arrays import open_arrays
from joulemesh.metrics.curves import CURVES, column_names

FloatArray = NDArray[np.float64]

_EMPTY: FloatArray = np.zeros(0)
_FEWEST = len(column_names((), "loss"))


@dataclass(frozen=True, eq=False)
class Record:
    """What one run reached and cost.

    Attributes:
        iteration: int64 [E], iterations done at each evaluation.
        curves: float64 [E, C], of each evaluation the `column_names` of what the scenario reports.
        final: float64 [C], the same at the end, on all test samples.
        energy_j: float64 [E], joules of all devices so far.
        time_s: float64 [E], seconds of the modelled clock so far.
        spent_j: float64 [N], joules that each battery paid.
        totals: float64 [4] or [6]: joules of training, joules of the radio, joules of a server,
            bits; where they cost anything, what of the radio's was for receiving, and at rest.
        diverged: the iteration in which parameters ceased to be finite; 0 if they never did. A
            diverged run has nothing else.
        samples: int64 [E, 2], or [0, 2] where it is not kept: on how many test samples each
            evaluation was made, and on how many of these devices were compared with the mean model.
    """

    iteration: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    curves: FloatArray = field(default_factory=lambda: np.zeros((0, len(CURVES))))
    final: FloatArray = field(default_factory=lambda: np.full(len(CURVES), np.nan))
    energy_j: FloatArray = field(default_factory=lambda: _EMPTY)
    time_s: FloatArray = field(default_factory=lambda: _EMPTY)
    spent_j: FloatArray = field(default_factory=lambda: _EMPTY)
    totals: FloatArray = field(default_factory=lambda: np.full(4, np.nan))
    diverged: int = 0
    samples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together: a damaged file must not pass for a run."""
        count = len(self.iteration)
        good = (
            self.iteration.shape == self.energy_j.shape == self.time_s.shape == (count,)
            and self.final.ndim == 1
            and len(self.final) >= _FEWEST
            and self.curves.shape == (count, len(self.final))
            and self.spent_j.ndim == 1
            and self.totals.shape in ((4,), (6,))
            and self.samples.shape in ((0, 2), (count, 2))
            and (count > 0) == (self.diverged == 0)
        )
        if not good:
            raise ValueError("the arrays of a run do not fit together")


def to_bytes(record: Record) -> bytes:
    """A record as an .npz file.

    >>> from_bytes(to_bytes(Record(diverged=7))).diverged
    7
    """
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(record, f.name)) for f in fields(record)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(content: bytes) -> Record:
    """Read what `to_bytes` wrote.

    Raises:
        ValueError: it is not such a file, or it is damaged.
    """
    try:
        with open_arrays(content, len(content)) as file:
            arrays: dict[str, Any] = {name: file[name] for name in (f.name for f in fields(Record))}
        return Record(**{**arrays, "diverged": int(arrays["diverged"])})
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"not a kept run: {error}") from None
