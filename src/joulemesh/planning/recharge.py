"""What an iteration harvests, and how much of it the batteries have room for."""

from __future__ import annotations

__all__ = ["Recharged", "recharged"]

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.world.traces import Traces

FloatArray = NDArray[np.float64]


class Recharged(NamedTuple):
    """The batteries after an iteration, float64 [N] each.

    Attributes:
        held_j: what they hold.
        stored_j: what they have gained.
        spilled_j: what they had no room for.
    """

    held_j: FloatArray
    stored_j: FloatArray
    spilled_j: FloatArray


def recharged(
    traces: Traces,
    held_j: FloatArray,
    iteration: int,
    elapsed_s: float,
    length_s: float,
) -> Recharged | None:
    """Add what an iteration harvests; None where nobody ever harvests anything.

    Args:
        traces: who harvests how much, and what batteries hold at most.
        held_j: float64 [N]: what they hold after the iteration has been paid for.
        iteration: from 0.
        elapsed_s: seconds until it began.
        length_s: seconds that it took.

    >>> sunny = Traces(steady_w=np.array([2.0]), capacity_j=np.array([5.0]))
    >>> after = recharged(sunny, np.array([4.0]), 0, 0.0, 3.0)
    >>> float(after.held_j[0]), float(after.spilled_j[0])
    (5.0, 5.0)
    """
    gathered_j = traces.harvested_j(iteration, elapsed_s, length_s)
    if gathered_j is None:
        return None
    stored_j = gathered_j
    if traces.capacity_j is not None:
        stored_j = np.clip(traces.capacity_j - held_j, 0.0, gathered_j)
    return Recharged(held_j + stored_j, stored_j, gathered_j - stored_j)
