"""In: a scenario, and methods, seeds, worlds or values to run it with. Out: runs, kept by content
and in folders that survive Ctrl-C and kill: a result, a comparison, a sweep, a tuning, an export.
May not know: arguments of the command line (``cli``), its servers (``studio``).
"""

from __future__ import annotations

__all__ = [
    "DEFAULT_METHODS",
    "Halving",
    "Objective",
    "Score",
    "Space",
    "Trial",
    "Tuned",
    "Tuner",
]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulemesh.study.compare import DEFAULT_METHODS
    from joulemesh.study.search import Halving, Objective, Score, Space, Trial, Tuner
    from joulemesh.study.tuning import Tuned

# JAX is loaded when something is trained; a finished study needs NumPy and SciPy only.
_HOME = {
    "DEFAULT_METHODS": "compare",
    "Halving": "search",
    "Objective": "search",
    "Score": "search",
    "Space": "search",
    "Trial": "search",
    "Tuner": "search",
    "Tuned": "tuning",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
