"""This machine as JAX sees it: processors to spread devices over, compiler options, precision."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from joulemesh.base import machine
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine

# Partition specs: split along the first axis, along the second axis, or replicated.
Spec: TypeAlias = Any
"""A partition spec; in a tree of specs, one stands for all arrays below it."""
Placement: TypeAlias = jax.Device | NamedSharding
Tree = TypeVar("Tree")

ROWS: Spec = P("rows")
BATCHES: Spec = P(None, "rows")
WHOLE: Spec = P()

# Programs that take so long to compile are kept for the next run.
_KEPT_S = 0.1
# More cores than this rarely help N devices, and each holds its own copy of the data.
_MOST_CPU_SHARDS = 8


def configure(*, cpu_shards: int | None = None, cache_dir: str | Path | None = None) -> int:
    """Prepare JAX; call it first, before anything is computed.

    On a CPU each core trains its own share of the devices (JAX must be told so before it
    starts): about 1.5 times faster on two cores than letting XLA split single operations. Has no
    effect on a JAX that has started.
    """
    if cache_dir is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache_dir))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _KEPT_S)
    said = os.environ.get("JAX_NUM_CPU_DEVICES", "")
    wanted = cpu_shards or (int(said) if said.isdigit() else 0)
    wanted = wanted or min(machine.cpus(), _MOST_CPU_SHARDS)
    with suppress(RuntimeError):  # JAX has started: it keeps the processors that it has
        jax.config.update("jax_num_cpu_devices", wanted)
    return jax.local_device_count()


def this_machine() -> Machine:
    """The machine at hand; JAX starts, if it has not."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return Machine(
        processors=tuple(jax.devices()),
        processes=jax.process_count(),
        loop=loops_over_rows(),
        memory_bytes=int(stats.get("bytes_limit", machine.memory_bytes())),
    )


def row_mesh(on: Machine, devices: int) -> Mesh:
    """The processors that share the rows of some devices, as a mesh with one axis, "rows".

    Every process contributes the same number of processors, so that each holds the same number of
    rows.
    """
    if devices < on.processes:
        raise ScenarioError(
            f"{devices} devices cannot be shared by {on.processes} processes: "
            f"start at most {devices} processes"
        )
    own: list[list[jax.Device]] = [[] for _ in range(on.processes)]
    for device in on.processors:
        own[device.process_index].append(device)
    each = min(devices // on.processes, *map(len, own))
    return Mesh(np.array([device for some in own for device in some[:each]]), ("rows",))


def sharding(mesh: Mesh, spec: Spec) -> Placement:
    """Where an array of a partition spec lies on a mesh; a mesh of one processor needs no spec."""
    if mesh.size == 1:
        alone: jax.Device = mesh.devices.item()
        return alone
    return NamedSharding(mesh, spec)


def loops_over_rows() -> bool:
    """Whether devices are trained one after another (CPU) or all at once (accelerator).

    One after another, each runs exactly its own rounds and its parameters stay in the cache.
    """
    return jax.default_backend() == "cpu"


@lru_cache(maxsize=8)
def compiler_options(deterministic: bool = False, images: bool = False) -> dict[str, bool | str]:
    """XLA options for training on this backend, those that this version of XLA knows."""
    wanted: dict[str, bool | str]
    if jax.default_backend() == "cpu":
        # YNNPACK splits even small operations over all threads, of which there are as many as
        # there are shards already: the MLP is 1.6 times faster without it. Only the CNN's long
        # sums (gradients of biases) gain, 1.4 times in all.
        # A maximum that swallows NaN would hide a divergence behind ReLU.
        wanted = {
            "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE" if images else "",
            "xla_cpu_enable_fast_min_max": False,
        }
    elif jax.default_backend() == "gpu":
        wanted = {"xla_gpu_deterministic_ops": True} if deterministic else {}
    else:
        wanted = {}
    return {name: value for name, value in wanted.items() if _known(name, value)}


def _known(name: str, value: bool | str) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={name: value}).lower(0.0).compile()
    except Exception:  # XLA's error type is private and changes
        return False
    return True


def precision_scope(precision: str) -> AbstractContextManager[object]:
    """A scope in which JAX computes in 64 bits, if the precision asks for it."""
    if precision != "float64":
        return nullcontext()
    scope: AbstractContextManager[object] = jax.enable_x64(True)
    return scope
