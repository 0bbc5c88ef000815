"""How many rounds an iteration may have: planning gives them, and training counts them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.base.errors import ScenarioError

MOST_PER_ITERATION = 2**31 - 1
"""Rounds of one device in one iteration: training counts them in 32 bits."""


def require_countable(rounds: ArrayLike, remedy: str) -> None:
    """Refuse more rounds in an iteration than training can count."""
    most = int(np.max(rounds, initial=0))
    if most > MOST_PER_ITERATION:
        raise ScenarioError(
            f"{most:,} rounds in an iteration are more than the {MOST_PER_ITERATION:,} that can be "
            f"trained; {remedy}"
        )
