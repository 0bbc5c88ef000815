"""What studies do with the chunks of a training, and with all of them in the end."""

from __future__ import annotations

__all__ = ["Accuracy", "records_of"]

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from joulemesh.methods import Contender
from joulemesh.metrics.curves import column_names
from joulemesh.studies.record import FloatArray, Record
from joulemesh.training.driver import TrainedChunk
from joulemesh.training.trace import Trace


class Accuracy:
    """A sink that tells how far training has come, with the latest accuracy or other score.

    Args:
        listener: called with the iterations completed, and the score of the mean model (mean over
            seeds) when it was last measured; NaN before.
    """

    def __init__(self, listener: Callable[[int, float], None]) -> None:
        self._listener, self._latest = listener, math.nan

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Tell of one chunk."""
        if len(chunk.trace.iteration):
            self._latest = float(chunk.trace.test_score[-1].mean())
        self._listener(chunk.completed, self._latest)


def records_of(contender: Contender, trace: Trace, *, samples: bool = True) -> list[Record]:
    """One record for each seed; its last evaluation, on all test samples, is the final one.

    Args:
        contender: the method that was trained, which prices it.
        trace: of the whole training.
        samples: keep on how many samples each evaluation was made.
    """
    columns = (*column_names((), trace.score), *trace.own)
    curves = np.stack([np.asarray(trace.curve(name), np.float64) for name in columns])
    at, records = trace.iteration - 1, []
    rests_on = np.stack([trace.test_samples, trace.device_samples], axis=-1)
    for seed in range(curves.shape[2]):
        ledger = contender.ledger(trace.sent, seed)
        totals = [ledger.compute_j, ledger.exchange_j, ledger.server_j, ledger.bits]
        _, _, heard, idle = ledger.columns_j
        totals += [heard, idle] if heard.any() or idle.any() else []
        records.append(
            Record(
                trace.iteration,
                curves[:, :, seed].T,
                curves[:, -1, seed],
                _so_far(ledger.energy_j.sum(axis=1))[at],
                _so_far(ledger.latency_s)[at],
                ledger.spent_j,
                np.array([float(column.sum()) for column in totals]),
                samples=rests_on[:, seed] if samples else np.zeros((0, 2), np.int64),
            )
        )
    return records


def _so_far(each: FloatArray) -> FloatArray:
    return np.cumsum(each, dtype=np.float64)
