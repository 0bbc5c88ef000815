"""Local training: every row (a device under one seed) runs its own number of SGD steps."""

from __future__ import annotations

__all__ = ["Rows", "train_rows"]

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.objective import Data, gather, weighted_loss


class Rows(NamedTuple):
    """What tells rows apart. A row's samples are ``order[start : start + size]``."""

    start: jax.Array  # int32 [R]
    size: jax.Array  # uint32 [R], D_i
    device: jax.Array  # uint32 [R]
    key: draws.Key  # of (seed, BATCH): two uint32 [R]


class Recipe(NamedTuple):
    """What all rows share and the compiler knows."""

    model: Model
    batch: int
    local_round: str
    compute: Any


def _draw(recipe: Recipe, row: Rows, order: jax.Array, step: jax.Array) -> tuple[Any, jax.Array]:
    """The batch of one row's step: indices into the training set, and weights."""
    lanes = jnp.arange(recipe.batch, dtype=jnp.uint32)
    key = (row.key[0][None], row.key[1][None])
    size, step = row.size[None], step.astype(jnp.uint32)[None]
    if recipe.local_round == "epoch":
        position, valid = draws.epoch_positions(key, step, lanes, size)
        weight = valid / jnp.sum(valid)
    else:
        position = draws.step_positions(key, step, lanes, size)
        weight = jnp.full(recipe.batch, 1 / recipe.batch)
    return order[row.start + position.astype(jnp.int32)], weight


def _step(
    recipe: Recipe,
    optimizer: optax.GradientTransformation,
    data: Data,
    order: jax.Array,
    row: Rows,
    step: jax.Array,
    carry: tuple[Params, Any],
) -> tuple[Params, Any]:
    """One SGD step of one row."""
    params, state = carry
    index, weight = _draw(recipe, row, order, step)
    x, y = gather(data, index)

    def loss(params: Params) -> jax.Array:
        return weighted_loss(
            recipe.model, params, x, y, weight.astype(data.scale.dtype), recipe.compute
        )[0]

    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


def train_rows(
    recipe: Recipe,
    optimizer: optax.GradientTransformation,
    data: Data,
    order: jax.Array,
    rows: Rows,
    iteration: jax.Array,
    rounds: jax.Array,
    carry: tuple[Params, Any],
    *,
    loop: bool,
) -> tuple[Params, Any]:
    """Run every row's local rounds of one iteration.

    Args:
        recipe: what the compiler knows.
        optimizer: of optax; its state is stacked like the parameters.
        data: training samples.
        order: int32, the rows' sample indices, concatenated.
        rows: [R].
        iteration: uint32 scalar, from 0.
        rounds: int32 [R], τ.
        carry: parameters and optimiser state, stacked [R, ...].
        loop: one row after another, each its own steps; otherwise all rows together, masked, as
            many steps as the longest needs.

    Returns:
        The new carry.
    """
    per_round = draws.steps_per_round(rows.size, recipe.batch, recipe.local_round)
    steps = rounds * per_round.astype(jnp.int32)
    rows = rows._replace(key=draws.fold(draws.fold(rows.key, iteration), rows.device))
    step = partial(_step, recipe, optimizer, data, order)
    if loop:
        return _one_by_one(step, rows, steps, carry)
    return _together(step, rows, steps, carry)


def _one_by_one(step: Any, rows: Rows, steps: jax.Array, carry: Any) -> Any:
    def train(number: jax.Array, carry: Any) -> Any:
        row = jax.tree.map(lambda leaf: leaf[number], rows)
        mine = jax.tree.map(lambda leaf: leaf[number], carry)
        mine = lax.fori_loop(0, steps[number], partial(step, row), mine)
        return jax.tree.map(lambda leaf, new: leaf.at[number].set(new), carry, mine)

    return lax.fori_loop(0, len(steps), train, carry)


def _together(step: Any, rows: Rows, steps: jax.Array, carry: Any) -> Any:
    def train(number: jax.Array, carry: Any) -> Any:
        trained = jax.vmap(step, in_axes=(0, None, 0))(rows, number, carry)
        going = number < steps

        def keep(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(going.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)

        return jax.tree.map(keep, trained, carry)

    return lax.fori_loop(0, jnp.max(steps), train, carry)
