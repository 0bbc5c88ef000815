"""In: a scenario's model, data, partitions (one per seed) and a plan's Schedule of rounds, mixing.
Out: a Trace (loss, accuracy, consensus error, what was sent), parameters, checkpoints.
May not know: contenders, results, folders, views (``methods``, ``study``, ``views``).
"""

from __future__ import annotations

__all__ = [
    "Checkpoints",
    "DeviceTrainer",
    "DivergedError",
    "Engine",
    "Exchange",
    "Learner",
    "Options",
    "Schedule",
    "State",
    "Trace",
    "configure",
    "run_reference",
    "train",
]

from importlib import import_module
from typing import TYPE_CHECKING, Any

from joulemesh.training.schedule import Schedule

if TYPE_CHECKING:
    from joulemesh.training.checkpoint import Checkpoints
    from joulemesh.training.exchange import Exchange
    from joulemesh.training.jax.device import DeviceTrainer
    from joulemesh.training.jax.engine import Engine
    from joulemesh.training.jax.inputs import State
    from joulemesh.training.jax.platform import configure
    from joulemesh.training.learner import DivergedError, Learner, train
    from joulemesh.training.reference import run_reference
    from joulemesh.training.schedule import Options
    from joulemesh.training.trace import Trace

# JAX is loaded when one of these is first asked for: a Schedule needs NumPy only.
_HOME = {
    "Checkpoints": "checkpoint",
    "DeviceTrainer": "jax.device",
    "DivergedError": "learner",
    "Engine": "jax.engine",
    "Exchange": "exchange",
    "Learner": "learner",
    "Options": "schedule",
    "State": "jax.inputs",
    "Trace": "trace",
    "configure": "jax.platform",
    "run_reference": "reference",
    "train": "learner",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
