"""In: a scenario and the names of methods. Out: a Comparison of all methods at every seed; single
runs are kept by content and never made twice.
May not know: how results are drawn or printed (``views``), how parameters travel (``aggregation``).
"""

from __future__ import annotations

__all__ = ["DEFAULT_METHODS", "Progress", "compare_methods"]

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulemesh.studies.compare import DEFAULT_METHODS, Progress, compare_methods

# JAX is loaded when something is trained; a finished study needs NumPy and SciPy only.
_HOME = {
    "DEFAULT_METHODS": "compare",
    "Progress": "compare",
    "compare_methods": "compare",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
