"""How rows are trained: what is kept of each, and in which portions."""

from __future__ import annotations

__all__ = [
    "Start",
    "Way",
    "always_alike",
    "check_memory",
    "choose",
    "stride_of",
    "working_bytes",
]

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.models.core import REMEMBERED, Model, Params
from joulemesh.training import platform
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

Start: TypeAlias = Literal["auto", "own", "shared", "factored"]

# Cost of a mean, in steps, and the number of devices at which a product with a matrix costs one;
# measured on an H200 with the MLP of 159,010 parameters. Steps on images cost so many times more.
_MEAN_STEPS, _DENSE_STEP, _IMAGE_STEP = 0.4, 10, 50
# Samples of a device that a factored input layer may hold: beyond, they are as large as weights.
_FACTORED_SAMPLES = 512
# Share of the iterations' longest that they must reach on average: a factored layer pays for all.
_EVEN = 0.6
# Rows from which on it pays: with fewer, an accelerator waits for the many small operations.
_MANY_ROWS = 20
# Bytes of samples (factored) or of parameters that one block may hold on an accelerator.
_BLOCK_BYTES = 2**29
# Share of an accelerator's memory that all devices' parameters may take, and all that one step
# writes: of that, a tenth or less is there at once.
_STACKED_SHARE, _WORKING_SHARE = 0.25, 1.0
# Bytes of a number that is computed.
_COMPUTED = {"float64": 8, "float32": 4, "bfloat16": 2}
# Times the least cost that a stride may have.
_LITTLE_MORE = 1.05
_GIB = 2**30


@dataclass(frozen=True)
class Way:
    """What the compiler must know of it.

    Attributes:
        stride: steps in a block of known length; 0 for all of an iteration.
        shared: every iteration starts from the mean: one parameter vector is kept for each seed.
        block: places trained side by side, at most; 0 for one after another.
        span: steps of an iteration, where the input layer is factored (`shared`).
    """

    stride: int = 0
    shared: bool = False
    block: int = 0
    span: int = 0


def choose(
    start: Start,
    model: Model,
    options: Options,
    schedule: Schedule,
    longest: NDArray[np.int64],
    shape: tuple[int, ...],
    seeds: int,
    own_exchange: bool,
) -> Way:
    """Choose the way that is quickest, or the only one that fits.

    Args:
        start: ``"own"`` keeps each device's parameters; ``"shared"`` and ``"factored"`` do not,
            and need plain SGD with an exact mean of all devices in every iteration; ``"auto"``
            decides.
        model: what is trained.
        options: settings.
        schedule: rounds, presence, mixing.
        longest: steps of each iteration, [n].
        shape: of a sample.
        seeds: S.
        own_exchange: whether a method exchanges in its own way.

    Returns:
        The way.

    Raises:
        ScenarioError: a shared start is asked for and cannot be had.
    """
    loop, span = platform.loops_over_rows(), int(longest.max())
    alike = always_alike(options, schedule, own_exchange)
    samples = span * options.batch_size
    factored = alike and model.split is not None and samples > 0
    if start != "auto" and not {"own": True, "shared": alike, "factored": factored}[start]:
        raise ScenarioError(
            f'start = "{start}" needs plain SGD, an exact mean of all devices in every iteration '
            f'and, if factored, an input layer: use start = "own"'
        )
    if start == "auto":
        even = samples <= _FACTORED_SAMPLES and longest.mean() >= _EVEN * span
        many = schedule.devices * seeds >= _MANY_ROWS
        start = "factored" if factored and even and many and not loop else "own"
        if start == "own" and alike and (loop or _crowded(model, options, schedule, seeds)):
            start = "shared"
    if start == "factored":
        return Way(span, True, _places(samples * math.prod(shape), seeds, schedule), span)
    if loop:
        return Way(shared=start == "shared")
    computed = _COMPUTED[options.precision]
    working = working_bytes(model, shape, options.batch_size) * computed // 4
    room = int(_WORKING_SHARE * platform.memory_bytes())
    fitting = int(np.clip(room // (working * seeds), 1, schedule.devices))
    if start == "shared":
        return Way(0, True, min(fitting, _places(model.parameters, seeds, schedule)))
    if own_exchange:
        return Way(block=fitting)
    dear = schedule.devices / _DENSE_STEP if schedule.kind != "mean" else 0.0
    steps = _MEAN_STEPS + dear * schedule.mixing_rounds
    stride = stride_of(longest, steps / _IMAGE_STEP if model.batch_axis == "map" else steps)
    return Way(stride, block=fitting)


def always_alike(options: Options, schedule: Schedule, own_exchange: bool) -> bool:
    """Whether all devices hold the same after every iteration: plain SGD, exact mean of all.

    >>> always_alike(Options(), Schedule(np.ones((1, 2), int)), False)
    True
    """
    return (
        not own_exchange
        and schedule.kind == "mean"
        and options.optimizer == "sgd"
        and bool(schedule.active.all() and schedule.exchanged.all())
    )


def _places(numbers: int, seeds: int, schedule: Schedule) -> int:
    """Places in a block, if each row holds so many numbers."""
    return int(np.clip(_BLOCK_BYTES // (4 * numbers * seeds), 1, schedule.devices))


@lru_cache(maxsize=REMEMBERED)
def working_bytes(model: Model, shape: tuple[int, ...], batch: int) -> int:
    """Bytes of all that a step of one row computes, in float32: more than it holds at once.

    >>> from joulemesh.models import build
    >>> working_bytes(build("cnn", (32, 32, 3), 10), (32, 32, 3), 32) >> 20
    208
    """

    def slope(params: Params, x: jax.Array) -> Params:
        return jax.grad(lambda params: jnp.sum(model.apply(params, x)))(params)

    params = jax.eval_shape(model.init, jax.random.key(0))
    struct: Any = jax.ShapeDtypeStruct
    x = struct((batch, *shape), np.dtype(np.float32))
    return _written(jax.make_jaxpr(slope)(params, x).jaxpr)


def _written(program: Any) -> int:
    """Bytes that the operations of a program and of those within it write."""
    total = 0
    for operation in program.eqns:
        inner = jaxprs_in_params(operation.params)
        sizes = (math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in operation.outvars)
        total += sum(map(_written, inner)) or sum(sizes)
    return total


def _item(options: Options) -> int:
    return 8 if options.precision == "float64" else 4


def _crowded(model: Model, options: Options, schedule: Schedule, seeds: int) -> bool:
    """Whether all devices' parameters would take much of the accelerator's memory."""
    stacked = _item(options) * model.parameters * schedule.devices * seeds
    return stacked > _STACKED_SHARE * platform.memory_bytes()


def stride_of(longest: NDArray[np.int64], exchange_steps: float) -> int:
    """Steps in a block of known length, so that a run costs least.

    A block that is longer than what is left of an iteration computes steps that count for
    nothing; one that is shorter computes exchanges that count for nothing.

    Args:
        longest: steps of each iteration, [n].
        exchange_steps: cost of an exchange, in steps.

    Returns:
        The stride; the smallest of those that cost little more than the best, so that schedules
        whose exchanges are cheap share one program.

    >>> stride_of(np.array([5, 5, 5]), 0.3), stride_of(np.array([1, 2, 3, 4]), 0.1)
    (5, 1)
    """
    candidates = np.unique(np.r_[longest, 1 : min(65, longest.max() + 1)])
    candidates = candidates[candidates > 0]
    blocks = np.maximum(1, -(-longest[:, None] // candidates)).sum(axis=0)
    cost = blocks * (candidates + exchange_steps)
    return int(candidates[np.argmax(cost <= _LITTLE_MORE * cost.min())])


def check_memory(needed: int, devices: int, seeds: int) -> None:
    """Refuse what does not fit.

    Args:
        needed: bytes.
        devices: N.
        seeds: S.

    Raises:
        ScenarioError: it is more than there is.
    """
    room = platform.memory_bytes()
    if needed > room:
        each = f"{devices} devices" + (f" under {seeds} seeds" if seeds > 1 else "")
        raise ScenarioError(
            f"to keep the parameters of {each} takes {needed / _GIB:.1f} GiB, and there are "
            f"{room / _GIB:.1f} GiB: use fewer devices or a smaller model, or plain SGD with an "
            'exact mean (plan.aggregation = "tree"), which keeps one set of parameters'
        )
