"""Seconds of an iteration of the whole fleet: as planned, and as its journals say."""

from __future__ import annotations

__all__ = ["iteration_seconds", "mean_iteration_s"]

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.costs import Costs
from joulemesh.deploy.record.history import History


def iteration_seconds(histories: Sequence[History]) -> tuple[float, ...]:
    """Seconds from one iteration's end to the next one's, on the device that was last.

    Args:
        histories: of all devices; those without a journal are left out.
    """
    ends: dict[int, list[float]] = {}
    told = [one for one in histories if len(one.iterations)]
    for one in told:
        for t, at in zip(one.iterations.tolist(), one.column("at").tolist(), strict=True):
            ends.setdefault(t, []).append(at)
    whole: dict[int, float] = {t: max(at) for t, at in ends.items() if len(at) == len(told)}
    ordered: NDArray[np.float64] = np.array([whole[t] for t in sorted(whole)])
    follows = np.diff(sorted(whole)) == 1
    return tuple(np.diff(ordered)[follows].tolist())


def mean_iteration_s(histories: Sequence[History], before: Costs) -> tuple[float, float]:
    """Mean seconds of an iteration after the first: planned, and measured; NaN if not known.

    Measured is from one iteration's end to the next one's, saving included; the first, in which
    devices wait for each other's start, has none.

    Args:
        histories: of all devices.
        before: the planned costs.
    """
    measured = iteration_seconds(histories)
    rows = before.seconds[1:]
    known = rows[np.isfinite(rows).any(axis=1)]
    planned = float(np.nanmax(known, axis=1).mean()) if len(known) else float("nan")
    return planned, float(np.mean(measured)) if measured else float("nan")
