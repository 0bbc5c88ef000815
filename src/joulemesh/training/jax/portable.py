"""The engine's state as named arrays in the order of devices, [seeds, devices, ...].

One device stands for all where all hold the same. The arrays serve any number of processors and
processes; of several processes the leader gets and gives them.
"""

from __future__ import annotations

__all__ = ["load", "save", "shapes"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.jax.types import State
from joulemesh.training.tensors import Arrays, Shapes

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine

_BY_DEVICE = ("params", "optimizer")  # parts of a state that each device has


def _kept(engine: Engine) -> int:
    """Devices in a checkpoint."""
    return 1 if engine.alike else engine.schedule.devices


def _named(tree: Any) -> list[tuple[str, bool, Any]]:
    """Name of every leaf, by its path, and whether each device has its own; in order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), path[0].name in _BY_DEVICE, leaf) for path, leaf in leaves]


def shapes(engine: Engine) -> Shapes:
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
        if hosts.leads():
            arrays[name] = engine.held.devices_of(found)[:, : _kept(engine)] if own else found
    return arrays


def load(engine: Engine, arrays: Mapping[str, Any]) -> State:
    """The state that the leader's arrays are of, on the processors of all.

    Raises:
        ValueError: on the leader, an array is missing or has another shape.
    """
    known = shapes(engine)
    for name, (shape, _) in known.items() if hosts.leads() else ():
        if name not in arrays or np.shape(arrays[name]) != shape:
            raise ValueError("its arrays are not those of this run")
    by_rows, everywhere = engine.shardings

    # One array after another: no process need hold all of them at once but the leader.
    def put(name: str, own: bool) -> Any:
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
