"""A method's training under way, kept beside the cache of runs so that it can be taken up."""

from __future__ import annotations

__all__ = ["Unfinished"]

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from joulemesh.errors import ScenarioError
from joulemesh.training.driver import TrainedChunk
from joulemesh.training.jax.checkpoint import BESIDE, Checkpoints
from joulemesh.training.learner import Arrays, Learner, State
from joulemesh.training.trace import Trace

S = TypeVar("S", bound=State)

# A checkpoint is written after this long, and takes at most a twentieth of the time.
SAVE_EVERY_S = 2.0
_SHARE = 20
_REMEDY = "make room, or choose another --cache"


class Unfinished:
    """The newest checkpoint of one training and its evaluations so far.

    A sink. The end of a training is not kept here: its runs are.

    Args:
        folder: for this training alone, named by all that decides its numbers; None to keep
            nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._checkpoints = None if folder is None else Checkpoints(folder, _REMEDY)
        self._before: Arrays = {}
        self._traces: list[Trace] = []
        self._saved_at, self._every_s = time.perf_counter(), SAVE_EVERY_S

    def restore(self, learner: Learner[S]) -> S | None:
        """The state to go on from; None if there is none that can be used."""
        if self._checkpoints is None:
            return None
        for iteration in reversed(self._checkpoints.saved()):
            with suppress(ScenarioError):  # damaged, or removed by a process that was faster
                state, beside = self._checkpoints.restore(learner, iteration)
                self._before = {name.removeprefix(BESIDE): a for name, a in beside.items()}
                return state
        return None

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Keep a chunk if it is time, or if none is to follow for now."""
        self._traces.append(chunk.trace)
        due = time.perf_counter() - self._saved_at >= self._every_s
        if chunk.finished or not (due or chunk.stopping):
            return
        begun = time.perf_counter()
        self._save(chunk)
        self._saved_at = time.perf_counter()
        self._every_s = max(SAVE_EVERY_S, _SHARE * (self._saved_at - begun))

    def _save(self, chunk: TrainedChunk[Any]) -> None:
        if self._checkpoints is None or self._folder is None:
            return
        arrays = self.trace().to_arrays()
        beside = {f"{BESIDE}{name}": array for name, array in arrays.items()}
        try:
            self._checkpoints.save(chunk.learner, chunk.state, beside)
        except ScenarioError:
            if self._folder.exists():
                raise
            # A process that was faster with the same training has removed it meanwhile.
            self._checkpoints.save(chunk.learner, chunk.state, beside)
        with suppress(OSError):
            self._checkpoints.drop(keep=(chunk.completed,))

    def trace(self) -> Trace:
        """All evaluations, those before it was taken up included."""
        if not self._before:
            return Trace.join(self._traces)
        before = Trace.from_arrays(self._before, like=self._traces[0])
        return Trace.join([before, *self._traces])

    def remove(self) -> None:
        """Forget it: the runs are kept."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
