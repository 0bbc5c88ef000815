"""The calls of compiled programs that make up one chunk."""

from __future__ import annotations

__all__ = ["queue_chunk"]

from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.training import hosts
from joulemesh.training.evaluation import evaluated
from joulemesh.training.jax.chunks import chunk_schedule, part
from joulemesh.training.jax.evaluation import Evaluation
from joulemesh.training.jax.platform import WHOLE, sharding
from joulemesh.training.jax.reports import Reports
from joulemesh.training.jax.types import ChunkReport, ChunkSchedule, Segments, State

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine


def queue_chunk(
    engine: Engine,
    state: State,
    start: int,
) -> tuple[State, Reports, NDArray[np.int64]]:
    """Call the programs of a chunk; on an accelerator nothing here waits for their results."""
    key, schedule, programs = engine.key, engine.schedule, engine.programs
    stop = min(start + key.chunk, schedule.iterations)
    chunk, segments, ends = chunk_schedule(
        schedule,
        engine.layout,
        engine.longest,
        start,
        stop,
        chunk=key.chunk,
        stride=key.strategy.stride,
        dtype=engine.dtype,
    )
    chunk = hosts.put(chunk, sharding(key.mesh, WHOLE))
    measured = np.flatnonzero(evaluated(engine.options, schedule, start, stop))
    reports: list[ChunkReport] = []
    evaluations: list[Evaluation] = []
    at = 0
    for number, end in zip(measured, ends[measured], strict=True):
        state = _run(engine, state, chunk, part(segments, at, end), reports)
        state, report, drift = programs.watched(state, engine.inputs, chunk, part(segments, end))
        reports.append(report)
        engine.on_stage("evaluating")
        found = engine.evaluator.evaluate(programs.evaluate, state.params, start + int(number))
        evaluations.append(found._replace(drift=drift))
        at = int(end) + 1
        engine.on_stage("training")
    rest = part(segments, at, len(segments.step))
    state = _run(engine, state, chunk, rest, reports)
    finite = programs.finite(state.params)
    return state, Reports(reports, evaluations, finite), start + measured


def _run(
    engine: Engine,
    state: State,
    chunk: ChunkSchedule,
    segments: Segments,
    reports: list[ChunkReport],
) -> State:
    """Run segments; in calls of known length where there is a stride."""
    first, stop, together = 0, len(segments.step), engine.machine.segments_per_call
    inputs, programs = engine.inputs, engine.programs
    while first < stop:
        if not engine.key.strategy.stride and not engine.brief:
            padding = (0, engine.key.chunk - stop)
            some = jax.tree.map(partial(np.pad, pad_width=padding), segments)
            state, report = programs.advance(state, inputs, chunk, some, stop)
            first = stop
        elif engine.key.strategy.stride and stop - first >= together:
            some = part(segments, first, first + together)
            state, report = programs.advance(state, inputs, chunk, some)
            first += together
        else:  # one more program for a few segments would take longer to compile
            state, report, _ = programs.watched(state, inputs, chunk, part(segments, first))
            first += 1
        reports.append(report)
    return state
