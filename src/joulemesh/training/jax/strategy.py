"""Choose how local training is executed: which parameters are stored per device, and how many
devices and steps run per compiled call.
"""

from __future__ import annotations

__all__ = ["Job", "Strategy", "check_memory", "choose_strategy", "stride_of", "working_bytes"]

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.models.core import REMEMBERED, Model, Params
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

# Cost of a mean, in steps, and the number of devices at which a product with a matrix costs one;
# measured on an H200 with the MLP of 159,010 parameters. Steps on images cost so many times more.
_MEAN_STEPS, _DENSE_STEP, _IMAGE_STEP = 0.4, 10, 50
# Samples of a device that a factored input layer may hold: beyond, they are as large as weights.
_FACTORED_SAMPLES = 512
# Share of the longest iteration that iterations must reach on average: a factored layer pays for
# the longest in all of them.
_EVEN = 0.6
# Bytes of a number that is computed.
_COMPUTED = {"float64": 8, "float32": 4, "bfloat16": 2}
# Times the least cost that a stride may have.
_LITTLE_MORE = 1.05
_GIB = 2**30


@dataclass(frozen=True)
class Strategy:
    """The chosen strategy; part of the compilation key."""

    stride: int = 0  # steps in a segment of known length; 0 for all steps of an iteration
    # every iteration starts from the mean: one parameter vector is stored for each seed
    shared: bool = False
    block: int = 0  # slots trained side by side, at most; 0 for one after another
    span: int = 0  # steps of an iteration, where the input layer is factored (`factored_input`)


@dataclass(frozen=True, eq=False)
class Job:
    """What is trained, as far as the strategy depends on it."""

    model: Model  # what is trained
    options: Options  # settings
    schedule: Schedule  # rounds, presence, mixing
    longest: NDArray[np.int64]  # int64 [n], steps of each iteration
    shape: tuple[int, ...]  # of a sample
    seeds: int  # S
    own_exchange: bool = False  # whether a method has its own exchange

    @property
    def alike(self) -> bool:
        """Whether all devices hold the same after every iteration: plain SGD, exact mean of all."""
        return (
            not self.own_exchange
            and self.schedule.kind == "mean"
            and self.options.optimizer == "sgd"
            and bool(self.schedule.active.all() and self.schedule.exchanged.all())
        )

    @property
    def stacked_bytes(self) -> int:
        """Bytes of all devices' parameters."""
        each = 8 if self.options.precision == "float64" else 4
        return each * self.model.parameters * self.schedule.devices * self.seeds


def choose_strategy(job: Job, machine: Machine) -> Strategy:
    """Choose the strategy that is quickest, or the only one that fits."""
    start = _start(job, machine)
    schedule, seeds, span = job.schedule, job.seeds, int(job.longest.max())
    if start == "factored":
        numbers = span * job.options.batch_size * math.prod(job.shape)
        return Strategy(span, True, _slots(numbers, job, machine), span)
    if machine.loop:
        return Strategy(shared=start == "shared")
    computed = _COMPUTED[job.options.precision]
    working = working_bytes(job.model, job.shape, job.options.batch_size) * computed // 4
    room = int(machine.working_share * machine.memory_bytes)
    fitting = int(np.clip(room // (working * seeds), 1, schedule.devices))
    if start == "shared":
        return Strategy(0, True, min(fitting, _slots(job.model.parameters, job, machine)))
    if job.own_exchange:
        return Strategy(block=fitting)
    dear = schedule.devices / _DENSE_STEP if schedule.kind != "mean" else 0.0
    steps = _MEAN_STEPS + dear * schedule.mixing_rounds
    images = job.model.batch_axis == "map"
    return Strategy(stride_of(job.longest, steps / _IMAGE_STEP if images else steps), block=fitting)


def _start(job: Job, machine: Machine) -> str:
    """Which parameters iterations start from: ``"own"``, ``"shared"`` or ``"factored"``."""
    start, alike, span = machine.start, job.alike, int(job.longest.max())
    samples = span * job.options.batch_size
    factored = alike and job.model.split is not None and samples > 0
    if start != "auto":
        if not {"own": True, "shared": alike, "factored": factored}[start]:
            raise ScenarioError(
                f'start = "{start}" needs plain SGD, an exact mean of all devices in every '
                'iteration and, if factored, an input layer: use start = "own"'
            )
        return start
    even = samples <= _FACTORED_SAMPLES and job.longest.mean() >= _EVEN * span
    many = job.schedule.devices * job.seeds >= machine.many_rows
    if factored and even and many and not machine.loop:
        return "factored"
    crowded = job.stacked_bytes > machine.stacked_share * machine.memory_bytes
    return "shared" if alike and (machine.loop or crowded) else "own"


def _slots(numbers: int, job: Job, machine: Machine) -> int:
    """Slots in a block, if each row holds so many numbers."""
    most = machine.block_bytes // (4 * numbers * job.seeds)
    return int(np.clip(most, 1, job.schedule.devices))


@lru_cache(maxsize=REMEMBERED)
def working_bytes(model: Model, shape: tuple[int, ...], batch: int) -> int:
    """Bytes of all that a step of one row computes, in float32: more than it holds at once."""

    def slope(params: Params, x: jax.Array) -> Params:
        return jax.grad(lambda params: jnp.sum(model.apply(params, x)))(params)

    params = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((batch, *shape), np.dtype(model.seen))
    return _written(jax.make_jaxpr(slope)(params, x).jaxpr)


def _written(program: Any) -> int:
    """Bytes that the operations of a program and of those within it write."""
    total = 0
    for operation in program.eqns:
        inner = jaxprs_in_params(operation.params)
        sizes = (math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in operation.outvars)
        total += sum(map(_written, inner)) or sum(sizes)
    return total


def stride_of(longest: NDArray[np.int64], exchange_steps: float) -> int:
    """Steps in a segment of known length, so that a run costs least.

    A segment that is longer than the rest of its iteration computes steps that are discarded;
    one that is shorter computes exchanges that are discarded.
    """
    candidates = np.unique(np.r_[1, longest, 1 : min(65, longest.max() + 1)])
    candidates = candidates[candidates > 0]
    segments = np.maximum(1, -(-longest[:, None] // candidates)).sum(axis=0)
    cost = segments * (candidates + exchange_steps)
    return int(candidates[np.argmax(cost <= _LITTLE_MORE * cost.min())])


def check_memory(needed: int, room: int, devices: int, seeds: int) -> None:
    """Refuse parameters that do not fit."""
    if needed > room:
        each = f"{devices} devices" + (f" under {seeds} seeds" if seeds > 1 else "")
        raise ScenarioError(
            f"to keep the parameters of {each} takes {needed / _GIB:.1f} GiB, and there are "
            f"{room / _GIB:.1f} GiB: use fewer devices or a smaller model, or plain SGD with an "
            'exact mean (plan.aggregation = "tree"), which keeps one set of parameters'
        )
