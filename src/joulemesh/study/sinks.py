"""What a run does with every chunk: keeps it, tells it, shows how far it has come."""

from __future__ import annotations

__all__ = ["Kept", "Shown", "Stages", "Timed", "Told"]

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.metrics import score_metric
from joulemesh.study.accounts import Pricing
from joulemesh.study.folder import RunFolder
from joulemesh.study.request import Progress
from joulemesh.study.result import Chunk, Metrics, cumulative, metrics
from joulemesh.training import hosts
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.driver import Sink, TrainedChunk
from joulemesh.training.trace import Trace

# Chunks shorter than this share a checkpoint.
SAVE_EVERY_S = 0.25


class Timed:
    """Remembers how far each chunk came and how long it took.

    Args:
        steps: int64 [seeds, devices]: SGD steps in one round of each device.
    """

    def __init__(self, steps: NDArray[np.int64]) -> None:
        self._steps = steps
        self.chunks: list[Chunk] = []

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Remember one chunk."""
        rounds = chunk.learner.schedule.rounds[chunk.start : chunk.completed]
        steps = rounds.sum(axis=0, dtype=np.int64) * self._steps
        self.chunks.append(Chunk(chunk.completed, int(steps.sum()), chunk.wall_s))


class Told:
    """Tells every evaluation, as a row of ``metrics.csv``.

    Args:
        pricing: what joules and seconds come from.
        listener: called with each row.
    """

    def __init__(self, pricing: Pricing, listener: Callable[[Metrics], None]) -> None:
        self._pricing, self._listener = pricing, listener

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Tell the evaluations of one chunk."""
        self.tell(chunk.trace, chunk.learner.seeds)

    def tell(self, trace: Trace, seeds: tuple[int, ...]) -> None:
        """Tell the evaluations of a trace."""
        for row in metrics(self._pricing.account, trace, seeds):
            self._listener(row)


class Kept:
    """Keeps checkpoint, metrics and timings in the run's folder; evaluations are told once kept.

    Of several processes all save a checkpoint together, and the leader writes.

    Args:
        folder: of the run; only the leader looks at it.
        pricing: what joules and seconds come from.
        timed: has the chunks of this process.
        setup_s: wall seconds before training.
        told: who hears of evaluations that are kept, if anybody does.
    """

    def __init__(
        self,
        folder: RunFolder,
        pricing: Pricing,
        timed: Timed,
        setup_s: float,
        told: Told | None = None,
    ) -> None:
        self._folder, self._pricing = folder, pricing
        self._checkpoints = Checkpoints(folder.checkpoint)
        self._timed, self._setup_s, self._told = timed, setup_s, told
        self._pending: list[Trace] = []
        self._kept_chunks, self._saved_at = 0, 0.0

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Keep a chunk, now or with one that follows within a quarter of a second."""
        self._pending.append(chunk.trace)
        # The leader's clock counts.
        late = time.perf_counter() - self._saved_at >= SAVE_EVERY_S
        (due,) = hosts.any_of(hosts.leads() and late)
        if not (due or chunk.last):
            return
        self._checkpoints.save(chunk.learner, chunk.state, self._pricing.beside())
        new, seeds = Trace.join(self._pending), chunk.learner.seeds
        hosts.on_leader(partial(self._commit, new, seeds, chunk.completed))
        self._saved_at = time.perf_counter()
        if self._told is not None:
            for trace in self._pending:
                self._told.tell(trace, seeds)
        self._pending.clear()

    def _commit(self, new: Trace, seeds: tuple[int, ...], completed: int) -> str:
        self._folder.add_metrics(self._pricing.account, new, seeds)
        chunks, first = self._timed.chunks, self._kept_chunks == 0
        self._folder.add_timings(self._setup_s if first else 0.0, chunks[self._kept_chunks :])
        self._folder.keep(completed)
        self._kept_chunks = len(chunks)
        return ""


class Shown:
    """Tells how far a run has come.

    Args:
        pricing: what joules come from: at most, if they depend on the training.
        listener: called after every chunk.
        first: iterations completed before this process.
        accuracy: or another score, when it was last measured before this process; NaN if it never
            was.
    """

    def __init__(
        self,
        pricing: Pricing,
        listener: Callable[[Progress], None],
        first: int,
        accuracy: float = math.nan,
    ) -> None:
        self._pricing, self._listener = pricing, listener
        self._first, self._accuracy, self._trained_s = first, accuracy, 0.0

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Tell of one chunk."""
        done, total = chunk.completed, chunk.iterations
        if len(chunk.trace.iteration):
            self._accuracy = float(chunk.trace.test_score[-1].mean())
        self._trained_s += chunk.wall_s
        energy_j = float(cumulative(self._pricing.reserve, np.array([done]))[0][0])
        pace = self._trained_s / max(done - self._first, 1)
        label = score_metric(chunk.trace.score).label
        left_s = pace * (total - done)
        self._listener(Progress(done, total, self._accuracy, energy_j, left_s, score=label))


class Stages:
    """Says, once the first chunk is compiled, whether the engine trains or evaluates.

    Args:
        listener: called with what is begun.
    """

    def __init__(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """A chunk is over, and the next begins."""
        if chunk.stopping and not chunk.finished:
            return
        chunk.learner.on_stage = self._listener
        self._listener("training")


def _sinks_are_sinks(*sinks: Timed | Told | Kept | Shown | Stages) -> tuple[Sink, ...]:
    """Checked by mypy."""
    return sinks
