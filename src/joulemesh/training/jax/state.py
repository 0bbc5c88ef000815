"""The engine's state: how it begins, and as named arrays in the order of devices.

Arrays are [seeds, devices, ...]; one device stands for all where all hold the same. They serve any
number of processors and processes; of several processes the leader gets and gives them.
"""

from __future__ import annotations

__all__ = [
    "first_state",
    "initial_params",
    "kept_params",
    "load",
    "save",
    "saved_shapes",
    "state_shapes",
]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from joulemesh.models.core import Model, Params
from joulemesh.training import draws, hosts
from joulemesh.training.arrays import Array
from joulemesh.training.jax.platform import (
    ROWS,
    WHOLE,
    Placement,
    precision_scope,
    sharding,
)
from joulemesh.training.jax.types import State
from joulemesh.training.tensors import Arrays, Shapes

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine
    from joulemesh.training.learner import Learner

_BY_DEVICE = ("params", "optimizer")  # parts of a state that each device has


def initial_params(model: Model, seed: int, dtype: np.dtype[Any]) -> Params:
    """The initial parameters of a seed, the same for all devices, as NumPy arrays."""
    words = np.stack(draws.seed_key(seed, draws.INIT), axis=-1)[0]
    params = jax.jit(model.init)(jax.random.wrap_key_data(jnp.asarray(words)))
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), params)


def state_shapes(engine: Engine, dtype: np.dtype[Any]) -> State:
    """Shapes and types of a state."""
    rows = engine.held.slots * len(engine.seeds)
    params = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), dtype),
        jax.eval_shape(engine.model.init, jax.random.key(0)),
    )
    moments, memory = jax.eval_shape(engine.programs.memories, params)
    return State(params, moments, memory, jax.ShapeDtypeStruct((), np.dtype(np.int32)))


def first_state(engine: Engine, drawn: Sequence[Params]) -> State:
    """The state before the first iteration."""

    def stack(*leaves: NDArray[Any]) -> NDArray[Any]:
        return np.tile(np.stack(leaves), (engine.held.slots,) + (1,) * leaves[0].ndim)

    rows, whole = _shardings(engine)
    params = hosts.put(jax.tree.map(stack, *drawn), rows)
    moments, memory = engine.programs.memories(params)
    return State(
        params,
        hosts.put(moments, rows),
        hosts.put(memory, whole),
        hosts.put(np.int32(0), whole),
    )


def _shardings(engine: Engine) -> tuple[Placement, Placement]:
    """Shardings of per-row arrays and of replicated arrays."""
    mesh, rows = engine.key.mesh, WHOLE if engine.key.strategy.shared else ROWS
    return sharding(mesh, rows), sharding(mesh, WHOLE)


def kept_params(engine: Engine, state: State) -> Params:
    """Parameters as NumPy arrays [seeds, devices, ...], one device where all hold the same."""

    def whole(leaf: jax.Array) -> NDArray[Any]:
        found = hosts.fetch(leaf, everywhere=True)
        assert found is not None
        return engine.held.devices_of(found)

    return jax.tree.map(whole, state.params)


def _kept(engine: Engine) -> int:
    """Devices in a checkpoint."""
    return 1 if engine.alike else engine.schedule.devices


def _named(tree: State) -> list[tuple[str, bool, Array]]:
    """Name of every leaf, by its path, and whether each device has its own; in order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), path[0].name in _BY_DEVICE, leaf) for path, leaf in leaves]


def saved_shapes(engine: Engine) -> Shapes:
    """Names, shapes and types of the arrays of a state."""
    ahead = (len(engine.seeds), _kept(engine))
    return {
        name: ((*ahead, *leaf.shape[1:]) if own else leaf.shape, np.dtype(leaf.dtype))
        for name, own, leaf in _named(engine.shapes())
    }


def save(engine: Engine, state: State) -> Arrays:
    """The state as arrays; nothing except on the leader."""
    arrays: Arrays = {}
    for name, own, leaf in _named(state):
        found = hosts.fetch(leaf)
        if found is not None and hosts.leads():
            arrays[name] = engine.held.devices_of(found)[:, : _kept(engine)] if own else found
    return arrays


def load(engine: Engine, arrays: Mapping[str, NDArray[Any]]) -> State:
    """The state that the leader's arrays are of, on the processors of all."""
    known = saved_shapes(engine)
    for name, (shape, _) in known.items() if hosts.leads() else ():
        if name not in arrays or np.shape(arrays[name]) != shape:
            raise ValueError("its arrays are not those of this run")
    by_rows, everywhere = _shardings(engine)

    # One array after another: no process need hold all of them at once but the leader.
    def put(name: str, own: bool) -> Array:
        shape, dtype = known[name]
        values = hosts.from_leader(arrays.get(name), shape, dtype)
        if not own:
            return hosts.put(values, everywhere)
        held = np.broadcast_to(values, (len(values), engine.held.devices, *values.shape[2:]))
        return hosts.put(engine.held.rows_of(held), by_rows)

    state = engine.shapes()
    with precision_scope(engine.options.precision):
        placed = [put(name, own) for name, own, _ in _named(state)]
        found: State = jax.tree.unflatten(jax.tree.structure(state), placed)
    return found


def _learns(engine: Engine) -> Learner[State]:
    """Checked by mypy: an engine is a learner."""
    return engine
