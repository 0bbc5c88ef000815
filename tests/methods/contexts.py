"""What an exchange of JAX sees, made by hand: `jax.jit` takes it as an argument here."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from joulemesh.models.core import Model
from joulemesh.training.batches import Data
from joulemesh.training.exchange import Context
from joulemesh.training.jax.evaluation import losses_of
from joulemesh.training.jax.mixing import MixingInputs, mixed

_FUNCTIONS = ["mix", "losses"]
_ARRAYS = [name for name in Context.__dataclass_fields__ if name not in _FUNCTIONS]
jax.tree_util.register_dataclass(Context, _ARRAYS, _FUNCTIONS)


def seen(
    t: int,
    devices: int,
    *,
    mixing: Any = None,
    model: Model | None = None,
    held: tuple[Data, Any, Any, Any] | None = None,
    size: Any = None,
    arrived: Any = (),
) -> Context:
    """What devices see in an iteration, all of which are active.

    Args:
        t: the iteration, from 0.
        devices: N.
        mixing: a matrix, or neighbours.
        model: whose losses may be asked for.
        held: samples, and their order, start and size by device.
        size: where there are no samples.
        arrived: messages.
    """
    active, weights = jnp.ones(devices, bool), jnp.ones(devices)
    data, order, start, size = held or (None, None, None, size)
    functions: dict[str, Any] = {}
    if mixing is not None:
        functions["mix"] = partial(mixed, inputs=MixingInputs(active, weights, mixing))
    if model is not None and held is not None:
        functions["losses"] = partial(losses_of, model, held)
    return Context(jnp.uint32(t), active, weights, data, order, start, size, arrived, **functions)
