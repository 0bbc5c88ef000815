"""How devices and seeds lie on processors, and how local training is executed: which parameters are
stored per device, and how many devices and steps run per compiled call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.models.core import REMEMBERED, Model, Params
from joulemesh.training.schedule import Options, Schedule


@dataclass(frozen=True, eq=False)
class Layout:
    """Slots 0..padded-1 hold devices; row slot·S + s is that device under seed s.

    Devices come before seeds, so that the rows of a seed are cut at the same devices however
    many seeds there are, and a mean over devices adds in the same order.
    """

    devices: int  # number of devices N
    seeds: int  # number of seeds S
    order: NDArray[np.int64]  # int64 [padded], the device at each slot; N at slots that pad

    @classmethod
    def deal(cls, work: NDArray[Any], seeds: int, shards: int, *, shuffle: bool = True) -> Layout:
        """Deal devices to processors so that all have about the same work."""
        devices = len(work)
        each = -(-devices // shards)
        order = np.full(each * shards, devices)
        if shards == 1 or not shuffle or np.all(work == work[0]):
            order[:devices] = np.arange(devices)
            return cls(devices, seeds, order)
        ranked = order.copy()
        ranked[:devices] = np.argsort(-work, kind="stable")
        # Back and forth: each processor gets one of every `shards` devices, ends evened out.
        dealt = ranked.reshape(each, shards)
        dealt[1::2] = dealt[1::2, ::-1]
        return cls(devices, seeds, dealt.T.ravel())

    @property
    def slots(self) -> int:
        return len(self.order)

    @property
    def filled(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.order < self.devices)

    def slots_of(self, devices: NDArray[np.int64]) -> NDArray[np.int32]:
        """The slot of each device that an array [..., N] names, in the order of slots."""
        slot = np.arange(self.slots)  # padding keeps to itself
        own = np.empty(self.devices, np.int64)
        own[self.order[self.filled]] = self.filled
        named = np.broadcast_to(slot, (*devices.shape[:-1], self.slots)).copy()
        named[..., self.filled] = own[devices[..., self.order[self.filled]]]
        return named.astype(np.int32)

    def spread(self, values: NDArray[Any], fill: float, axis: int = -1) -> NDArray[Any]:
        """Put an axis of N devices in the order of slots, with ``fill`` at padding."""
        values = np.moveaxis(np.asarray(values), axis, -1)
        pad = np.full((*values.shape[:-1], 1), fill, values.dtype)
        return np.moveaxis(np.concatenate([values, pad], axis=-1)[..., self.order], -1, axis)

    def rows(self, values: NDArray[Any], fill: float) -> NDArray[Any]:
        """Put [S, N] values in the order of rows."""
        return self.spread(values, fill).T.ravel()

    def matrices(self, mixing: NDArray[Any]) -> NDArray[Any]:
        """Put the devices of [..., N, N] mixing matrices in the order of slots."""
        mixed = self.spread(self.spread(mixing, 0.0), 0.0, axis=-2)
        pads = np.flatnonzero(self.order == self.devices)
        mixed[..., pads, pads] = 1.0
        return mixed

    def sparse(self, mixing: sparse.csr_array[Any, Any]) -> sparse.csr_array[Any, Any]:
        """Put the devices of a sparse mixing matrix in the order of slots."""
        missing = self.slots - self.devices
        whole = sparse.block_diag([mixing, sparse.eye_array(missing)]) if missing else mixing
        order = self.order.copy()
        order[order == self.devices] += np.arange(missing)
        return sparse.csr_array(sparse.csr_array(whole)[order][:, order])

    def rows_of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put [S, N, ...] in the order of rows; padding repeats the last device."""
        slots = values[:, np.minimum(self.order, self.devices - 1)]
        return np.swapaxes(slots, 0, 1).reshape(-1, *values.shape[2:])

    def devices_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Take [rows, ...] back to [S, N, ...]."""
        slot = np.empty(self.devices, np.int64)
        slot[self.order[self.filled]] = self.filled
        stacked = rows.reshape(self.slots, self.seeds, *rows.shape[1:])[slot]
        return np.swapaxes(stacked, 0, 1)


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
    if needed > room:
        each = f"{devices} devices" + (f" under {seeds} seeds" if seeds > 1 else "")
        raise ScenarioError(
            f"to keep the parameters of {each} takes {needed / _GIB:.1f} GiB, and there are "
            f"{room / _GIB:.1f} GiB: use fewer devices or a smaller model, or plain SGD with an "
            'exact mean (plan.aggregation = "tree"), which keeps one set of parameters'
        )
