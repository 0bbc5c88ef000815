"""Put together what the programs report of a chunk: a trace, or the refusal of a diverged run."""

from __future__ import annotations

__all__ = ["Reports", "columns_of", "first_bad"]

from functools import reduce
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulemesh.metrics import Reported
from joulemesh.models.curves import own_curves
from joulemesh.training.arrays import Array
from joulemesh.training.jax.evaluation import Evaluation
from joulemesh.training.jax.types import NEVER, ChunkReport


class Reports(NamedTuple):
    """What the programs of one chunk report."""

    chunks: list[ChunkReport]
    evaluations: list[Evaluation]
    finite: Array  # bool [S]: whether all parameters are finite at the end


def first_bad(reports: Reports, stop: int) -> tuple[int, int] | None:
    """The first iteration (from 1) that diverged, and which seed; None if there is none."""
    bad = np.min([report.bad for report in reports.chunks], axis=0)
    bad = np.minimum(bad, np.where(reports.finite, NEVER, stop))
    if bad.min() == NEVER:
        return None
    seed = int(bad.argmin())
    return int(bad[seed]), seed


def columns_of(
    reports: Reports, iterations: int, measured: Reported, dtype: DTypeLike
) -> dict[str, Any]:
    """The columns of a `Trace`, [evaluations, S] each, and what was sent, [iterations, S, ...]."""
    empty = np.zeros((0, len(reports.finite)), dtype)

    def column(*values: Any) -> NDArray[Any]:
        return np.concatenate([empty, *(one[None] for one in values)])

    columns: dict[str, Any] = {
        name: column(*(getattr(one, name) for one in reports.evaluations))
        for name in Evaluation._fields
        if name != "own"
    }
    columns["own"] = {
        curve.name: column(*(one.own[curve.name] for one in reports.evaluations))
        for curve in own_curves(*measured)
    }
    each = (report.sent for report in reports.chunks)
    sent = jax.tree.map(lambda *parts: reduce(np.add, parts), *each)
    return columns | {"sent": jax.tree.map(lambda values: values[:iterations], sent)}
