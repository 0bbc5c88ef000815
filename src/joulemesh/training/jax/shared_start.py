"""Local training from a shared start: where all devices have just taken the exact mean.

Then no device's parameters need to be stored. Devices are trained a block at a time, each from the
same start, and their updates are added up: the memory holds one parameter vector and one block of
devices, however many devices there are. On an accelerator the input layer of a block need not be
written out either (`factored_input`).
"""

from __future__ import annotations

__all__ = ["train_shared"]

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from joulemesh.models.core import Params
from joulemesh.training.jax.factored_input import train_factored
from joulemesh.training.jax.local_sgd import Carry, LocalSettings, LocalWork, sgd_step, steps_of
from joulemesh.training.jax.strategy import Strategy
from joulemesh.training.jax.updates import RowWork, UpdateSum, added, seeds_of, square, wide
from joulemesh.training.options import make_optimizer


def train_shared(
    settings: LocalSettings,
    strategy: Strategy,
    sharded: bool,
    work: LocalWork,
    shares: jax.Array,
    start: Params,
) -> UpdateSum:
    """Run one iteration's local rounds of this processor's rows, and add up with the others.

    Args:
        settings: what the compiler knows.
        strategy: how many slots are trained side by side, and whether the input layer is factored.
        sharded: whether there are other processors.
        work: of the iteration.
        shares: [R, K], weight of each row in each of K sums.
        start: stacked [S, ...]; row p·S + s starts from the s-th.

    Returns:
        The sums over all rows of all processors.
    """
    rows, steps = steps_of(settings, work)
    row_work = RowWork(rows, steps, shares)
    if settings.loop:
        sums = _one_by_one(settings, work, row_work, start)
    else:
        train = partial(train_factored, strategy.span) if strategy.span else _side_by_side
        sums = _in_blocks(partial(train, settings, work), strategy.block, row_work, start)
    if sharded:
        sums = lax.psum(sums, "rows")
    return sums


def _nothing(start: Params, shares: jax.Array) -> UpdateSum:
    """No update."""
    kinds = shares.shape[1]
    weighted = jax.tree.map(lambda leaf: jnp.zeros((kinds, *leaf.shape), leaf.dtype), start)
    seeds = seeds_of(start)
    return UpdateSum(weighted, jnp.zeros(seeds, shares.dtype), jnp.zeros(seeds, jnp.int32))


def _one_by_one(
    settings: LocalSettings, work: LocalWork, row_work: RowWork, start: Params
) -> UpdateSum:
    """One row after another: its parameters stay in the cache."""
    seeds = seeds_of(start)
    optimizer = make_optimizer(settings.optimizer, 0.0)

    def train(number: jax.Array, sums: UpdateSum) -> UpdateSum:
        seed = number % seeds
        row, steps, share = jax.tree.map(lambda leaf: leaf[number], row_work)
        first = jax.tree.map(lambda leaf: leaf[seed], start)
        carry = Carry(first, optimizer.init(first), jnp.zeros((), share.dtype))
        step = partial(sgd_step, settings, work, row)
        carry = lax.fori_loop(0, steps, lambda k, c: step(k, jnp.array(True), c), carry)
        update = jax.tree.map(jnp.subtract, carry.params, first)
        squared = sums.squared
        if len(share) > 1:
            squared = squared.at[seed].add(share[-1] * square(update, 0))
        weighted = jax.tree.map(
            lambda total, own: total.at[:, seed].add(wide(share, own) * own), sums.weighted, update
        )
        diverged = sums.diverged.at[seed].add(~jnp.isfinite(carry.loss))
        return UpdateSum(weighted, squared, diverged)

    nothing = _nothing(start, row_work.shares)
    final: UpdateSum = lax.fori_loop(0, len(row_work.steps), train, nothing)
    return final


def _in_blocks(
    train: Callable[[RowWork, Params], UpdateSum], block: int, row_work: RowWork, start: Params
) -> UpdateSum:
    """Cut rows into equal blocks, padded with rows that do nothing, and add up their updates."""
    seeds = seeds_of(start)
    count = len(row_work.steps) // seeds
    blocks = -(-count // block)
    each = -(-count // blocks)
    missing = (blocks * each - count) * seeds

    def cut(leaf: jax.Array, mode: str) -> jax.Array:
        padded = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), mode=mode)
        return padded.reshape(blocks, each, seeds, *leaf.shape[1:])

    rows = jax.tree.map(partial(cut, mode="edge"), row_work.rows)
    cuts = RowWork(rows, cut(row_work.steps, "constant"), cut(row_work.shares, "constant"))

    def add(sums: UpdateSum, part: RowWork) -> tuple[UpdateSum, None]:
        return jax.tree.map(jnp.add, sums, train(part, start)), None

    sums: UpdateSum = lax.scan(add, _nothing(start, row_work.shares), cuts)[0]
    return sums


def _side_by_side(
    settings: LocalSettings, work: LocalWork, row_work: RowWork, start: Params
) -> UpdateSum:
    """A block of rows [P, S] at once, each with its own parameters."""
    slots = len(row_work.steps)
    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), start)
    optimizer = make_optimizer(settings.optimizer, 0.0)
    moments = jax.vmap(jax.vmap(optimizer.init))(first)
    carry = Carry(first, moments, jnp.zeros(row_work.steps.shape, row_work.shares.dtype))
    one = partial(sgd_step, settings, work)
    step = jax.vmap(jax.vmap(one, in_axes=(0, None, 0, 0)), in_axes=(0, None, 0, 0))

    def train(number: jax.Array, carry: Carry) -> Carry:
        stepped: Carry = step(row_work.rows, number, number < row_work.steps, carry)
        return stepped

    carry = lax.fori_loop(0, jnp.max(row_work.steps), train, carry)
    update = jax.tree.map(jnp.subtract, carry.params, first)
    watched = row_work.shares.shape[2] > 1
    squared = square(update, 2) if watched else jnp.zeros_like(carry.loss)
    return added(row_work, update, squared, carry.loss)
