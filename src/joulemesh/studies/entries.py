"""The runs of one method, put side by side."""

from __future__ import annotations

__all__ = ["entry_of"]

from collections.abc import Mapping, Sequence

import numpy as np

from joulemesh.metrics.curves import column_names
from joulemesh.metrics.losses import Reported
from joulemesh.results.entry import Entry, FloatArray
from joulemesh.studies.record import Record


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
