"""How far a run has come."""

from __future__ import annotations

__all__ = ["Progress"]

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run has come, after a chunk.

    Attributes:
        completed: iterations done.
        iterations: iterations in all.
        accuracy: latest test accuracy of the mean model, or another score, mean over seeds; NaN
            before the first. At the end that of the result, on all test samples.
        energy_j: joules spent so far.
        seconds_left: estimated wall time to the end.
        world: number of the world, from 0.
        score: what ``accuracy`` is, in words.
    """

    completed: int
    iterations: int
    accuracy: float
    energy_j: float
    seconds_left: float
    world: int = 0
    score: str = "accuracy"
