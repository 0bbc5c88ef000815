"""The best plan for given budgets. In: a Scenario and a space of plans. Out: a Tuning: every
candidate's price, how far it came in successive halving, and the winner on fresh seeds.
May not know: how results are drawn or kept in folders (``views``, ``runs``, ``cli``).
"""

from __future__ import annotations

__all__ = ["Halving", "Objective", "Score", "Space", "Trial", "Tuner", "Tuning"]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulemesh.tuning.halving import Halving, Trial, Tuner
    from joulemesh.tuning.objective import Objective, Score
    from joulemesh.tuning.result import Tuning
    from joulemesh.tuning.space import Space

# JAX is loaded when something is trained.
_HOME = {
    "Halving": "halving",
    "Objective": "objective",
    "Score": "objective",
    "Space": "space",
    "Trial": "halving",
    "Tuner": "halving",
    "Tuning": "result",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
