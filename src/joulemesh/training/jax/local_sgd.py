"""Local training: every row (a device under one seed) runs its own number of SGD steps."""

from __future__ import annotations

__all__ = [
    "Carry",
    "LocalSettings",
    "LocalWork",
    "Rows",
    "draw",
    "gather",
    "logits_of",
    "make_optimizer",
    "sgd_step",
    "steps_of",
    "train_rows",
    "weighted_loss",
]

import difflib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from joulemesh.base.errors import ScenarioError
from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.arrays import Array
from joulemesh.training.batches import Data


def gather(data: Data, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take samples by index, normalised, with their targets."""
    x = data.x[index]
    if data.x.dtype != np.int32:
        x = x.astype(data.scale.dtype) * data.scale + data.shift
    return x, data.y[index]


def logits_of(model: Model, params: Params, x: jax.Array, compute: DTypeLike) -> jax.Array:
    """The outputs (logits [B, classes], say) of normalised samples, in float32 or wider."""
    low = jax.tree.map(lambda leaf: leaf.astype(compute), params)
    logits = model.apply(low, x if x.dtype == np.int32 else x.astype(compute))
    wide: jax.Array = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    return wide


def weighted_loss(
    model: Model, params: Params, x: jax.Array, y: jax.Array, weight: jax.Array, compute: DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Σ_b weight_b · loss_b + (l2/2)·||params||², with the outputs.

    With weights 1/B this is ``models.loss``; weights also mask the end of a pass.
    """
    logits = logits_of(model, params, x, compute)
    value = jnp.sum(weight * model.loss.values(logits, y))
    if model.l2:
        squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(params)]
        value += 0.5 * model.l2 * sum(squares[1:], start=squares[0])
    return value, logits


class Rows(NamedTuple):
    """What tells rows apart. A row's samples are ``order[start : start + size]``."""

    start: Array  # int32 [R]
    size: Array  # uint32 [R], D_i
    device: Array  # uint32 [R]
    key: draws.Key  # of (seed, BATCH): two uint32 [R]
    rate: Array  # learning rate [R]


class LocalSettings(NamedTuple):
    """What all rows share and the compiler knows."""

    model: Model
    optimizer: str
    batch: int
    local_round: str
    compute: DTypeLike
    loop: bool  # one row after another, each its own steps; otherwise all together, masked


class LocalWork(NamedTuple):
    """What rows train on in one iteration, and how much; traced, so it needs no recompilation."""

    data: Data  # training samples
    order: Array  # int32, the rows' sample indices, concatenated
    rows: Rows  # [R]
    iteration: Array  # uint32 scalar, from 0
    rounds: Array  # int32 [R], τ


class Carry(NamedTuple):
    """What a row takes from step to step."""

    params: Params
    optimizer: optax.OptState
    loss: Array  # of the latest step; not finite from the first such step on
    pull: Params = ()  # subtracted from the parameters at every step; () for nothing


Step: TypeAlias = Callable[[Rows, jax.Array, jax.Array, Carry], Carry]


def draw(
    settings: LocalSettings, row: Rows, order: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The batch of one row's step: indices into the training set, and weights."""
    lanes = jnp.arange(settings.batch, dtype=jnp.uint32)
    key = (row.key[0][None], row.key[1][None])
    size, step = row.size[None], step.astype(jnp.uint32)[None]
    if settings.local_round == "epoch":
        position, valid = draws.epoch_positions(key, step, lanes, size)
        weight = valid / jnp.sum(valid)
    else:
        position = draws.step_positions(key, step, lanes, size)
        weight = jnp.full(settings.batch, 1 / settings.batch)
    return order[row.start + position.astype(jnp.int32)], weight


def sgd_step(
    settings: LocalSettings,
    work: LocalWork,
    row: Rows,
    number: jax.Array,
    going: jax.Array,
    carry: Carry,
) -> Carry:
    """One SGD step of one row; a row that has done all its steps stays as it is."""
    rate, data = row.rate, work.data
    index, weight = draw(settings, row, work.order, number)
    x, y = gather(data, index)
    weight = weight.astype(data.scale.dtype)

    def loss(params: Params, scale: Array) -> tuple[jax.Array, jax.Array]:
        value, _ = weighted_loss(settings.model, params, x, y, weight, settings.compute)
        return scale * value, value

    slope = jax.grad(loss, has_aux=True)
    if settings.optimizer == "sgd" and not settings.loop:
        # The step is the gradient of -η·loss: nothing but an addition is left to do for each
        # parameter, which XLA for GPUs adds to the product that makes the gradient. (For CPUs it
        # does not, and then a lone addition takes longer than one fused with -η.)
        updates, value = slope(carry.params, jnp.where(going, -rate, 0))
        moments = carry.optimizer
    else:
        gradient, value = slope(carry.params, jnp.ones((), rate.dtype))
        optimizer = make_optimizer(settings.optimizer, rate)
        updates, moments = optimizer.update(gradient, carry.optimizer, carry.params)
        updates = jax.tree.map(lambda new: jnp.where(going, new, 0), updates)
        moments = jax.tree.map(partial(jnp.where, going), moments, carry.optimizer)
    latest = jnp.where(going, value, carry.loss)
    params = optax.apply_updates(carry.params, updates)
    if jax.tree.leaves(carry.pull):
        pulled = jax.tree.map(lambda pull: jnp.where(going, pull, 0), carry.pull)
        params = jax.tree.map(jnp.subtract, params, pulled)
    return Carry(params, moments, latest, carry.pull)


def steps_of(settings: LocalSettings, work: LocalWork) -> tuple[Rows, jax.Array]:
    """The rows with their keys of the iteration, and each row's number of steps, int32 [R]."""
    rows = work.rows
    per_round = draws.steps_per_round(rows.size, settings.batch, settings.local_round)
    key = draws.fold(draws.fold(rows.key, work.iteration), rows.device)
    return rows._replace(key=key), work.rounds * per_round.astype(jnp.int32)


def train_rows(
    settings: LocalSettings,
    work: LocalWork,
    first: jax.Array,
    carry: Carry,
    *,
    stride: int,
    block: int,
) -> Carry:
    """Run every row's local rounds of one iteration, or some of their steps."""
    rows, steps = steps_of(settings, work)
    step = partial(sgd_step, settings, work)
    if settings.loop:
        return _one_by_one(step, rows, steps, carry)
    # A loop of known length never asks the accelerator whether to go on (`strategy.stride_of`).
    count = stride or jnp.max(steps) - first
    if block < len(steps):
        return _in_blocks(step, block, rows, steps, first, count, carry)
    return _together(step, rows, steps, first, count, carry)


def _one_by_one(step: Step, rows: Rows, steps: jax.Array, carry: Carry) -> Carry:
    def train(number: jax.Array, carry: Carry) -> Carry:
        row = jax.tree.map(lambda leaf: leaf[number], rows)
        mine = jax.tree.map(lambda leaf: leaf[number], carry)
        going = jnp.array(True)
        mine = lax.fori_loop(0, steps[number], lambda k, mine: step(row, k, going, mine), mine)
        trained: Carry = jax.tree.map(lambda leaf, new: leaf.at[number].set(new), carry, mine)
        return trained

    final: Carry = lax.fori_loop(0, len(steps), train, carry)
    return final


def _in_blocks(
    step: Step,
    most: int,
    rows: Rows,
    steps: jax.Array,
    first: jax.Array,
    count: jax.Array | int,
    carry: Carry,
) -> Carry:
    """Some rows together, then others: what a step computes may not fit for all of them."""
    blocks = -(-len(steps) // most)
    block = -(-len(steps) // blocks)
    last = len(steps) - block

    def train(number: jax.Array, carry: Carry) -> Carry:
        at = jnp.minimum(number * block, last)
        mine, due, own = jax.tree.map(
            lambda leaf: lax.dynamic_slice_in_dim(leaf, at, block), (rows, steps, carry)
        )
        # The last block reaches back into the one before, whose rows are done.
        due = jnp.where(at + jnp.arange(block) >= number * block, due, 0)
        own = _together(step, mine, due, first, count, own)
        trained: Carry = jax.tree.map(
            lambda leaf, new: lax.dynamic_update_slice_in_dim(leaf, new, at, 0), carry, own
        )
        return trained

    final: Carry = lax.fori_loop(0, blocks, train, carry)
    return final


def _together(
    step: Step, rows: Rows, steps: jax.Array, first: jax.Array, count: jax.Array | int, carry: Carry
) -> Carry:
    def train(number: jax.Array, carry: Carry) -> Carry:
        at = first + number
        trained: Carry = jax.vmap(step, in_axes=(0, None, 0, 0))(rows, at, at < steps, carry)
        return trained

    final: Carry = lax.fori_loop(0, count, train, carry)
    return final


def make_optimizer(name: str, learning_rate: ArrayLike) -> optax.GradientTransformation:
    """Make an optimiser of optax by name."""
    maker = getattr(optax, name, None)
    if not callable(maker):
        near = difflib.get_close_matches(name, dir(optax), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use 'sgd' or 'adam'"
        raise ScenarioError(f"training.optimizer = {name!r} is not in optax: {hint}")
    try:
        optimizer = maker(learning_rate)
        toy = jnp.zeros(2)
        jax.eval_shape(lambda p: optimizer.update(p, optimizer.init(p), p), toy)
    except Exception as error:  # an optimiser may refuse in any way
        raise ScenarioError(
            f"training.optimizer = {name!r} does not work from a learning rate and gradients "
            "alone: use 'sgd' or 'adam'"
        ) from error
    return optimizer
