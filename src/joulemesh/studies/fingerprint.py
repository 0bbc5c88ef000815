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

import json
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import sparse

import joulemesh
from joulemesh.data import Dataset
from joulemesh.data.chosen import device_names
from joulemesh.files.bounded import read_bounded
from joulemesh.files.limits import SOURCE
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.own_code import files_run
from joulemesh.planning.workload import explicit_sizes
from joulemesh.training.digests import array_parts, data_digest, digest
from joulemesh.training.jax import identity
from joulemesh.training.software import packages

_HOME = Path(joulemesh.__file__).parent
# A change in how results are drawn or summed up does not change them.
_ROOMS = (
    "fading",
    "scenario",
    "data",
    "metrics",
    "models",
    "world",
    "aggregation",
    "planning",
    "training",
    "setup",
    "methods",
)
# Of other rooms: how much runs at once; of this room: when a run is evaluated, what is kept of it.
_OWN = (
    "machine.py",
    "studies/contest.py",
    "studies/grid.py",
    "studies/record.py",
    "studies/sinks.py",
)
_PLACES = {"data_dir", "dataset", "test_dataset"}


def model_digest(model: Model | TorchModel, dataset: Dataset) -> str:
    """A digest of what a model computes, what it minimises, and where it begins."""
    if not isinstance(model, TorchModel):
        return identity.model_digest(model, dataset.shape, identity.two_targets(dataset))
    from joulemesh.training.torch.identity import torch_model_digest

    return torch_model_digest(model) + version("torch")


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the package's own code that computes, and of all versions that matter."""
    files = [p for room in _ROOMS for p in (_HOME / room).rglob("*.py")]
    files += [_HOME / name for name in _OWN]
    code = [path.relative_to(_HOME).as_posix().encode() + path.read_bytes() for path in files]
    said = (joulemesh.__version__, packages("jax"), jax.default_backend(), jax.local_device_count())
    return digest([repr(said).encode(), *sorted(code)])


def world_digest(setting: Setting) -> str:
    """A digest of devices and links: files that the scenario names may change under their name."""
    world, sizes = setting.world, explicit_sizes(setting.scenario)
    costs, devices = setting.forecast, world.devices
    held = np.zeros(0) if sizes is None else sizes
    traced = () if world.channel.fades is None else world.channel.fades.data
    names = np.array(device_names(setting.scenario), str)  # rows may be dealt by them
    return digest(
        array_parts(
            world.graph.edges,
            world.graph.positions_m,
            costs.forward_j,
            costs.backward_j,
            devices.round_energy_j,
            devices.round_latency_s,
            setting.work.round_samples,
            held,
            *traced,
            *world.traces.data,
            names,
        )
    )


def contender_digest(contender: Contender) -> str | None:
    """A digest of what a method will do: its schedule, its price, and its own exchange's code.

    Returns:
        None if the code of its exchange lies in no file that could be looked at (a notebook, for
        instance): such runs cannot be kept.
    """
    schedule, price = contender.schedule, contender.reserve
    parts = array_parts(schedule.rounds, schedule.active, schedule.exchanged, price.energy_j)
    parts += array_parts(price.latency_s, price.bits, contender.battery_j)
    if schedule.exact.any():
        parts += array_parts(schedule.exact)
    if schedule.arrived is not None or schedule.wire:
        parts.append(schedule.digest().encode())
    own: list[Callable[..., Any]] = [contender.settle] if contender.settle is not None else []
    mixing: Any = schedule.mixing
    if callable(mixing):
        own.append(mixing)
    elif sparse.issparse(mixing):
        lists: Any = mixing
        parts += array_parts(lists.data, lists.indices, lists.indptr)
    elif schedule.kind != "messages":  # whose digest is there already
        parts += array_parts(mixing)
    if contender.exchange is not None:
        own += [contender.exchange.init, contender.exchange.apply]
        own += [contender.exchange.correction] if contender.exchange.correction else []
    for function in own:
        place = _file_of(function)
        if place is None:
            return None
        if _HOME not in place.parents:  # the package's own code has its digest already
            parts += [read_bounded(path, SOURCE.now) for path in _with_neighbours(place)]
    return digest([*parts, str(schedule.mixing_rounds).encode()])


def _file_of(function: Callable[..., Any]) -> Path | None:
    """The file that a function was defined in."""
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    place = Path(code.co_filename) if code is not None else None
    return place.resolve() if place is not None and place.is_file() else None


def _with_neighbours(place: Path) -> list[Path]:
    """A user's file, and the loaded modules that lie in its folder or below: it may import them."""
    files = {
        Path(name).resolve()
        for module in list(sys.modules.values())
        if (name := getattr(module, "__file__", None)) and str(name).endswith(".py")
    }
    below = {path for path in files if place.parent in path.parents and path.is_file()}
    return [place, *sorted(path for path in below if not {place, _HOME} & {path, *path.parents})]


def run_key(
    setting: Setting,
    contender: Contender,
    *,
    seed: int,
    learned: str,
    rate: float | None = None,
    trial: bool = False,
) -> str | None:
    """The name under which a run is kept.

    Args:
        setting: the terms of the comparison.
        contender: the method, made ready.
        seed: the repetition's.
        learned: digest of data, model and world.
        rate: the learning rate; the scenario's unless given.
        trial: whether only the end was evaluated, to choose a learning rate.

    Returns:
        64 hexadecimal digits, or None for a run that cannot be kept.
    """
    done = contender_digest(contender)
    if done is None:
        return None
    # Where the data lie does not matter: the samples themselves are in ``learned``.
    asked = setting.scenario.model_dump(mode="json", exclude={"training": _PLACES})
    own = [digest([path.read_bytes()]) for path in files_run()]  # schemes, models, … of the user's
    said = [contender.name, setting.equal, seed, learned, done, code_digest(), own]
    if trial or rate not in (None, setting.scenario.training.learning_rate):
        said.append({"rate": rate, "trial": trial})
    return digest([json.dumps([asked, *said], sort_keys=True).encode()])
