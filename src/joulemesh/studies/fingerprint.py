"""Digests of all that decides a run's numbers: code, data, model, and what a method will do."""

from __future__ import annotations

__all__ = [
    "code_digest",
    "contender_digest",
    "data_digest",
    "model_digest",
    "run_key",
    "world_digest",
]

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import sparse

import joulemesh
from joulemesh.data import Dataset
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.planning.workload import explicit_sizes

_HOME = Path(joulemesh.__file__).parent
# A change in how results are drawn or kept does not change them.
_ROOMS = ("scenario", "data", "models", "world", "aggregation", "planning", "training", "methods")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]+")


def _digest(parts: Iterable[bytes]) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(len(part).to_bytes(8, "little") + part)
    return made.hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the package's own code that computes, and of its version and JAX's."""
    files = [p for room in _ROOMS for p in (_HOME / room).rglob("*.py")]
    code = [path.relative_to(_HOME).as_posix().encode() + path.read_bytes() for path in files]
    said = (joulemesh.__version__, jax.__version__, jax.default_backend(), jax.local_device_count())
    return _digest([repr(said).encode(), *sorted(code)])


def _arrays(*arrays: Any) -> list[bytes]:
    return [
        part
        for array in map(np.ascontiguousarray, arrays)
        for part in (repr((array.shape, array.dtype.str)).encode(), array.tobytes())
    ]


def data_digest(data: Dataset) -> str:
    """A digest of a data set's samples; its name and place do not matter.

    >>> from joulemesh.data import load
    >>> data_digest(load("digits")) == data_digest(load("digits"))
    True
    """
    arrays = (data.x_train, data.y_train, data.x_test, data.y_test, data.mean, data.std)
    return _digest([*_arrays(*arrays), str(data.classes).encode()])


def model_digest(model: Model, shape: tuple[int, ...]) -> str:
    """A digest of what a model computes: its functions as JAX traces them, constants included.

    >>> from joulemesh.models import build
    >>> wide, narrow = (build("mlp", (8, 8, 1), 10, (width,)) for width in (32, 16))
    >>> model_digest(wide, (8, 8, 1)) == model_digest(narrow, (8, 8, 1))
    False
    """
    key = jax.random.key(0)
    batch = jax.ShapeDtypeStruct((2, *shape), np.float32)  # type: ignore[no-untyped-call]
    params = jax.eval_shape(model.init, key)
    traced = [jax.make_jaxpr(model.init)(key), jax.make_jaxpr(model.apply)(params, batch)]
    text = [_ADDRESS.sub("", str(program)).encode() for program in traced]
    constants = [part for program in traced for part in _arrays(*program.consts)]
    return _digest([*text, *constants, repr((model.name, model.l2, model.batch_axis)).encode()])


def world_digest(setting: Setting) -> str:
    """A digest of devices and links: files that the scenario names may change under their name."""
    world, sizes = setting.world, explicit_sizes(setting.scenario)
    costs, devices = setting.forecast, world.devices
    held = np.zeros(0) if sizes is None else sizes
    return _digest(
        _arrays(
            world.graph.edges,
            world.graph.positions_m,
            costs.forward_j,
            costs.backward_j,
            devices.round_energy_j,
            devices.round_latency_s,
            setting.work.round_samples,
            held,
        )
    )


def contender_digest(contender: Contender) -> str | None:
    """A digest of what a method will do: its schedule, its price, and its own exchange's code.

    Returns:
        None if the code of its exchange lies in no file that could be looked at (a notebook, for
        instance): such runs cannot be kept.
    """
    schedule, price = contender.schedule, contender.reserve
    parts = _arrays(schedule.rounds, schedule.active, schedule.exchanged, price.energy_j)
    parts += _arrays(price.latency_s, price.bits, contender.battery_j)
    if schedule.weights is not None:
        parts += _arrays(schedule.weights)
    own: list[Callable[..., Any]] = [contender.settle] if contender.settle is not None else []
    mixing: Any = schedule.mixing
    if callable(mixing):
        own.append(mixing)
    elif sparse.issparse(mixing):
        lists: Any = mixing
        parts += _arrays(lists.data, lists.indices, lists.indptr)
    else:
        parts += _arrays(mixing)
    if contender.exchange is not None:
        own += [contender.exchange.init, contender.exchange.apply]
    for function in own:
        place = _file_of(function)
        if place is None:
            return None
        if _HOME not in place.parents:  # the package's own code has its digest already
            parts.append(place.read_bytes())
    return _digest([*parts, str(schedule.mixing_rounds).encode()])


def _file_of(function: Callable[..., Any]) -> Path | None:
    """The file that a function was defined in."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    place = Path(code.co_filename) if code is not None else None
    return place.resolve() if place is not None and place.is_file() else None


def run_key(setting: Setting, contender: Contender, *, seed: int, learned: str) -> str | None:
    """The name under which a run is kept.

    Args:
        setting: the terms of the comparison.
        contender: the method, made ready.
        seed: the repetition's.
        learned: digest of data, model and world.

    Returns:
        64 hexadecimal digits, or None for a run that cannot be kept.
    """
    done = contender_digest(contender)
    if done is None:
        return None
    # Where the data lie does not matter: the samples themselves are in ``learned``.
    asked = setting.scenario.model_dump(mode="json", exclude={"training": {"data_dir", "dataset"}})
    said = [contender.name, setting.equal, seed, learned, done, code_digest()]
    return _digest([json.dumps([asked, *said], sort_keys=True).encode()])
