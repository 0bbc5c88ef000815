"""In: a model's name and the shape of a sample, or the user's own functions. Out: parameter counts
(arithmetic, no JAX); pure functions init and apply, and their loss; JAX is loaded for these only.
May not know: devices, radio, energy, plans (``world``, ``aggregation``, ``planning``).
"""

from __future__ import annotations

__all__ = [
    "Model",
    "ModelKind",
    "build",
    "coerce",
    "curvature",
    "from_file",
    "from_flax",
    "from_functions",
    "from_torch",
    "loss",
    "parameter_count",
]

import importlib
from typing import TYPE_CHECKING, Any

from joulemesh.models.kinds import ModelKind, parameter_count

if TYPE_CHECKING:
    from joulemesh.models.core import (
        Model,
        build,
        coerce,
        from_file,
        from_flax,
        from_functions,
        loss,
    )
    from joulemesh.models.networks import curvature
    from joulemesh.models.torch_model import from_torch


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"curvature": "networks", "from_torch": "torch_model"}.get(name, "core")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
