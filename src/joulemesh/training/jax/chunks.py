"""Cut a schedule into chunks, and chunks into segments of a length that the compiler knows."""

from __future__ import annotations

__all__ = ["chunk_schedule", "longest_steps", "part"]

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulemesh.training import draws
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.mixing import Steps
from joulemesh.training.jax.types import ChunkSchedule, Segments
from joulemesh.training.messages import FIELDS, RoundedExchanges
from joulemesh.training.options import Options
from joulemesh.training.schedule import Members, Schedule


def longest_steps(
    schedule: Schedule, options: Options, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Steps of the device with most steps in each iteration, [n]."""
    per_round = draws.steps_per_round(sizes, options.batch_size, options.local_round).max(axis=0)
    return np.array([(rounds * per_round).max() for rounds in schedule.rounds], np.int64)


def chunk_schedule(
    schedule: Schedule,
    layout: Layout,
    longest: NDArray[np.int64],
    start: int,
    stop: int,
    *,
    chunk: int,
    stride: int,
    dtype: DTypeLike,
) -> tuple[ChunkSchedule, Segments, NDArray[np.int64]]:
    """The schedule of iterations start..stop-1, padded to the length of a chunk."""

    def padded(values: NDArray[Any]) -> NDArray[Any]:
        return np.pad(values, [(0, chunk - len(values))] + [(0, 0)] * (values.ndim - 1))

    mixing: NDArray[Any] | Steps | tuple[()] = ()
    if schedule.kind == "dense":
        mixing = layout.matrices(schedule.matrices(start, stop)).astype(dtype)
        mixing = mixing if schedule.static else padded(mixing)
    if isinstance(schedule.mixing, RoundedExchanges):
        steps = _steps(schedule.mixing, layout, start, start + 1 if schedule.static else stop)
        mixing = steps if schedule.static else Steps(*map(padded, steps))
    made = ChunkSchedule(
        rounds=padded(_rounds(schedule, layout, start, stop)),
        active=padded(layout.spread(schedule.active[start:stop], False)),
        exchanged=padded(schedule.exchanged[start:stop]),
        mixing=mixing,
        exact=padded(schedule.exact[start:stop]) if schedule.exact.any() else (),
        source=padded(layout.slots_of(schedule.begins_with(start, stop))) if schedule.gifts else (),
        arrived=() if schedule.arrived is None else padded(schedule.arrivals(start, stop)),
    )
    return made, *_segments(longest[start:stop], stride)


def _steps(exchanges: RoundedExchanges, layout: Layout, start: int, stop: int) -> Steps:
    """The steps of rounded exchanges of iterations start..stop-1, each with a leading axis."""
    each = [exchanges.at(t) for t in range(start, stop)]
    begin = np.empty(layout.devices, np.int32)
    begin[layout.order[layout.filled]] = layout.filled
    columns = {name: np.stack([getattr(one, name) for one in each]) for name in FIELDS}
    columns["output"] = layout.spread(columns["output"], 0)
    return Steps(begin=np.broadcast_to(begin, (len(each), len(begin))), **columns)


def _rounds(schedule: Schedule, layout: Layout, start: int, stop: int) -> NDArray[np.int32]:
    """Rounds [C, slots] of iterations start..stop-1; [C, slots, S] where members differ."""
    if isinstance(schedule, Members):
        return layout.spread(schedule.each[start:stop].astype(np.int32), 0, axis=1)
    return layout.spread(schedule.rounds[start:stop].astype(np.int32), 0)


def _segments(longest: NDArray[np.int64], stride: int) -> tuple[Segments, NDArray[np.int64]]:
    """The segments of iterations of so many steps, and which of them ends each iteration."""
    count = np.maximum(1, -(-longest // stride)) if stride else np.ones_like(longest)
    ends = np.cumsum(count) - 1
    iteration = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(iteration)) - (ends - count + 1)[iteration]
    last = np.zeros(len(iteration), bool)
    last[ends] = True
    return Segments(iteration.astype(np.int32), (nth * stride).astype(np.int32), last), ends


def part(segments: Segments, first: int, stop: int | None = None) -> Segments:
    """Segments first..stop-1, or the single segment ``first``."""
    which = first if stop is None else slice(first, stop)
    return Segments(*(values[which] for values in segments))
