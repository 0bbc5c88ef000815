"""One method at one seed: all that a comparison keeps of a run."""

from __future__ import annotations

__all__ = ["Cache", "Record", "default_folder", "entry_of", "from_bytes", "to_bytes"]

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.arrays import open_arrays
from joulemesh.base.cache import find, keep, require_usable, user_cache
from joulemesh.metrics import Reported
from joulemesh.models.curves import CURVES, column_names
from joulemesh.study.entry import Entry

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
        with open_arrays(content) as file:
            arrays: dict[str, Any] = {name: file[name] for name in (f.name for f in fields(Record))}
        return Record(**{**arrays, "diverged": int(arrays["diverged"])})
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"not a kept run: {error}") from None


def default_folder() -> Path:
    """Where runs are kept unless told otherwise: in the user's cache folder.

    >>> default_folder().parts[-2:]
    ('joulemesh', 'compare')
    """
    return user_cache() / "compare"


class Cache:
    """A folder of runs, one small file each, whole or not at all.

    Args:
        folder: where; made when first needed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(folder)
    ...     cache.keep("ab12", Record(diverged=3))
    ...     cache.find("ab12").diverged, cache.find("ffff")
    (3, None)
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    @property
    def unfinished(self) -> Path:
        """Where trainings under way are kept, each in a folder of its own."""
        return self.folder / "unfinished"

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.run"

    def find(self, key: str | None) -> Record | None:
        """The run under a key; None if there is none, or if its file is damaged."""
        if key is None:
            return None
        content = find(self._place(key))
        with suppress(ValueError):
            return None if content is None else from_bytes(content)
        return None

    def keep(self, key: str | None, record: Record) -> None:
        """Keep a run; without a key it is not kept."""
        if key is not None:
            keep(self._place(key), to_bytes(record))

    def require_usable(self) -> None:
        """Refuse a folder that runs could not be kept in, before they are computed."""
        require_usable(self.folder, "choose another --cache")


def entry_of(
    name: str,
    records: Mapping[int, Record],
    battery_j: FloatArray,
    notes: Sequence[str] = (),
    measured: Reported | None = None,
) -> Entry:
    """Put one method's runs side by side.

    Args:
        name: of the method.
        records: by seed, in order.
        battery_j: [N].
        notes: what a reader should know.
        measured: the score, and what the scenario reports besides it and the loss.
    """
    measured = measured or Reported()
    ran = [record for record in records.values() if not record.diverged]
    iteration = ran[0].iteration if ran else np.zeros(0, np.int64)
    length, devices, names = len(iteration), len(battery_j), column_names(*measured)

    def side_by_side(part: str, *shape: int) -> FloatArray:
        missing = np.full(shape, np.nan)
        columns = [missing if r.diverged else getattr(r, part) for r in records.values()]
        return np.stack(columns, axis=0)

    curves = side_by_side("curves", length, len(names))
    final = side_by_side("final", len(names))
    spent_j = side_by_side("spent_j", devices)
    return Entry(
        name,
        iteration,
        {curve: curves[:, :, k].T for k, curve in enumerate(names)},
        {curve: final[:, k] for k, curve in enumerate(names)},
        side_by_side("energy_j", length).T,
        side_by_side("time_s", length).T,
        spent_j,
        battery_j - spent_j,
        side_by_side("totals", len(ran[0].totals) if ran else 4),
        tuple(notes),
        diverged={seed: r.diverged for seed, r in records.items() if r.diverged},
        samples=ran[0].samples if ran else np.zeros((0, 2), np.int64),
        score=measured.score,
    )
