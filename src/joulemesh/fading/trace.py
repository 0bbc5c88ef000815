"""Gains replayed from a file, as they were measured or simulated elsewhere."""

from __future__ import annotations

__all__ = ["Trace", "read_trace"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.fading.model import FadingModel, Links
from joulemesh.registries import CHANNELS
from joulemesh.tables import number_column, read_links, read_table

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_GAIN, _RELATIVE = "gain", "relative_gain"
_MOST = 2**53  # beyond this, float64 skips integers


@dataclass(frozen=True, eq=False)
class Trace:
    """Gains of t = 1..T, one t for each coherence block, and those measured before the start.

    A planner may look at no more than it has seen: the forecast is a quantile of the past and of
    the blocks seen, taken anew whenever their number has doubled, and the mean gain as long as
    there is neither.

    Attributes:
        path: of the file, for messages.
        gains: float64 [T, E] or [T, E, 2].
        past: float64 [P, E] or [P, E, 2]: of t ≤ 0.
        mean_gain: float64 [E]: of path loss and shadowing.
        end: what follows t = T: ``"refuse"``, ``"hold"`` or ``"repeat"``.

    >>> gains = np.array([[1.0], [2.0], [3.0]])
    >>> trace = Trace("trace.csv", gains, gains[:0], np.array([9.0]), "repeat")
    >>> [float(trace.gain(block)[0]) for block in range(4)]
    [1.0, 2.0, 3.0, 1.0]
    >>> [float(trace.forecast(0.5, seen)[0]) for seen in range(4)]
    [9.0, 1.0, 1.0, 1.0]
    """

    path: str
    gains: FloatArray
    past: FloatArray
    mean_gain: FloatArray
    end: str

    def gain(self, block: int) -> FloatArray:
        """The gains of t = block + 1.

        Raises:
            ScenarioError: the trace has ended, and the scenario does not say what follows.
        """
        last = len(self.gains)
        if block >= last and self.end == "refuse":
            raise ScenarioError(
                f"{self.path} ends at t = {last}, and t = {block + 1} is wanted; lower "
                'plan.iterations, add rows, or set network.trace_end to "hold" or "repeat"'
            )
        row = block % last if self.end == "repeat" else min(block, last - 1)
        return np.asarray(self.gains[row])

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The quantile of link energy over what is known: no gain lies between two measured."""
        known = np.concatenate([self.past, self.gains[: self.edition(seen)]])
        if not len(known):
            return self.mean_gain
        return np.asarray(np.quantile(known, 1.0 - quantile, axis=0, method="inverted_cdf"))

    def edition(self, seen: int) -> int:
        """How many blocks the forecast rests on: the largest power of two that has been seen."""
        return min(1 << (seen.bit_length() - 1), len(self.gains)) if seen else 0

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """All gains."""
        return self.gains, self.past


def read_trace(path: str, links: Links, end: str = "refuse") -> Trace:
    """Read a CSV file with the columns t, i, j and ``gain`` or ``relative_gain``.

    Args:
        path: of the file. A row holds for both directions of a link unless the other has a row of
            the same t too. Rows of pairs that are not linked are ignored.
        links: whose gains are wanted.
        end: what follows the last t.

    Raises:
        ScenarioError: a gain is missing, not positive or given twice; the message has the row.
    """
    columns = read_table(path)
    ends = read_links(columns, path, links.devices)
    time, value = _times(columns, path), _values(columns, path)
    key = ends.min(axis=1) * links.devices + ends.max(axis=1)
    wanted = links.edges[:, 0] * links.devices + links.edges[:, 1]
    link = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
    used = wanted[link] == key
    way = (ends[:, 0] > ends[:, 1]).astype(np.int64)
    gains, times = _table(path, links.edges, time[used], link[used], way[used], value[used])
    if _RELATIVE in columns:
        gains = gains * links.mean_gain[None, :, None]
    if (gains[..., 0] == gains[..., 1]).all():
        gains = gains[..., 0]
    return Trace(path, gains[times >= 1], gains[times < 1], links.mean_gain, end)


def _times(columns: dict[str, list[str]], path: str) -> IntArray:
    time = number_column(columns, "t", path)
    bad = (time != np.floor(time)) | (np.abs(time) > _MOST)
    if bad.any():
        row = int(np.argmax(bad))
        raise ScenarioError(
            f"{path}, row {row + 2}: t = {time[row]:g} must be a whole number; the first coherence "
            "block is t = 1, and t of 0 or less lies before the start"
        )
    return time.astype(np.int64)


def _values(columns: dict[str, list[str]], path: str) -> FloatArray:
    given = [name for name in (_GAIN, _RELATIVE) if name in columns]
    if len(given) != 1:
        raise ScenarioError(
            f"{path} has {'both' if given else 'neither'} of the columns {_GAIN!r} (a power gain) "
            f"and {_RELATIVE!r} (times the gain without fading); give one of them"
        )
    value = number_column(columns, given[0], path)
    if not (value > 0).all():
        row = int(np.argmin(value > 0))
        raise ScenarioError(
            f"{path}, row {row + 2}: {given[0]} {value[row]:g} must be greater than 0"
        )
    return value


def _table(
    path: str, edges: IntArray, time: IntArray, link: IntArray, way: IntArray, value: FloatArray
) -> tuple[FloatArray, IntArray]:
    """float64 [times, E, 2] and the times, ascending: before the start, then 1, 2, …, T."""
    time = np.minimum(time, len(time) + 1)  # more than there are rows leaves a gap all the same
    last = int(time.max(initial=1))
    before = np.unique(time[time < 1])
    row_of = np.where(time < 1, np.searchsorted(before, time), len(before) + time - 1)
    # Which gains there are is found out before room is made for those that there should be.
    present = np.unique(row_of * len(edges) + link)
    absent = np.flatnonzero(present != np.arange(len(present)))
    if len(absent) or len(present) < (len(before) + last) * len(edges):
        row, k = divmod(int(absent[0]) if len(absent) else len(present), len(edges))
        t = int(before[row]) if row < len(before) else row - len(before) + 1
        i, j = edges[k]
        raise ScenarioError(
            f"{path} has no gain for the link {i}-{j} at t = {t}; add the row {t},{i},{j},GAIN"
        )
    gains = np.full((len(before) + last, len(edges), 2), np.nan)
    gains[row_of, link, way] = value
    again = gains[row_of, link, way] != value
    if again.any():
        row = int(np.argmax(again))
        i, j = edges[link[row]][:: -1 if way[row] else 1]
        raise ScenarioError(
            f"{path} has two gains from {i} to {j} at t = {time[row]} ({value[row]:g} and "
            f"{gains[row_of[row], link[row], way[row]]:g}); keep one row"
        )
    gains = np.where(np.isnan(gains), gains[..., ::-1], gains)
    return gains, np.concatenate([before, np.arange(1, last + 1)])


for _model in (
    FadingModel(
        "trace",
        "gains from a CSV file: t, i, j, and gain or relative_gain",
        lambda links, given, path: read_trace(path, links, given["trace_end"]),
        parameters=("trace_end",),
        argument="FILE.csv",
    ),
):
    CHANNELS.register(_model)
