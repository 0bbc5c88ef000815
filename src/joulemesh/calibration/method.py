"""How a device is measured: rest and training in shuffled blocks, after a warm-up."""

from __future__ import annotations

__all__ = ["Bench", "Method"]

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from joulemesh.errors import ScenarioError

_FEWEST = 3


def _silent(words: str, share: float) -> None:
    del words, share


@dataclass(frozen=True)
class Method:
    """How much is measured.

    Attributes:
        samples: blocks of training, each beside a block of rest; at least 3.
        block_s: seconds of one block.
        warm_up_s: seconds of training before the first block.
        settle_s: seconds between two blocks that count for neither.
        rounds: local rounds in one call of the learner; None for as many as take a quarter second.
        rest: measure rest, and joules; otherwise seconds only.
        seed: of the order of the blocks.

    >>> Method(samples=2)
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: --samples 2 is too few for an interval: use 3 or more
    """

    samples: int = 8
    block_s: float = 10.0
    warm_up_s: float = 5.0
    settle_s: float = 1.0
    rounds: int | None = None
    rest: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < _FEWEST:
            raise ScenarioError(
                f"--samples {self.samples} is too few for an interval: use {_FEWEST} or more"
            )
        if not (math.isfinite(self.block_s) and self.block_s > 0):
            raise ScenarioError(f"--block {self.block_s:g} s is no length: use more than 0 s")
        if self.rounds is not None and self.rounds < 1:
            raise ScenarioError(f"--rounds {self.rounds} trains nothing: use 1 or more")

    @classmethod
    def quick(cls, samples: int = 8, block_s: float = 1.0, rounds: int | None = None) -> Method:
        """Seconds only, in short blocks."""
        return cls(samples, block_s, warm_up_s=1.0, settle_s=0.0, rounds=rounds, rest=False)

    @property
    def least_s(self) -> float:
        """Seconds that measuring takes, at least."""
        blocks = self.samples * (2 if self.rest else 1)
        return self.warm_up_s + blocks * (self.block_s + self.settle_s)


@dataclass(frozen=True)
class Bench:
    """Where it is measured; tests put another clock in the place of the machine's.

    Attributes:
        clock: seconds of a clock that nobody sets.
        sleep: lets seconds pass.
        root: the folder in which ``/sys`` and ``/proc`` are.
        progress: told what is being done, and which share of all is over.
    """

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    root: Path = Path("/")
    progress: Callable[[str, float], None] = _silent
