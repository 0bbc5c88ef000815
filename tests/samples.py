"""How many cases of a slow test run: a sample of them, or all with ``JOULEMESH_SAMPLES=all``."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

Case = TypeVar("Case")

ALL = os.environ.get("JOULEMESH_SAMPLES", "") == "all"


def sample(cases: Iterable[Case], few: int) -> list[Case]:
    """The cases in their order: the same few everywhere, or all of them on demand."""
    every = list(cases)
    if ALL or len(every) <= few:
        return every
    chosen = random.Random(len(every)).sample(range(len(every)), few)
    return [every[k] for k in sorted(chosen)]
