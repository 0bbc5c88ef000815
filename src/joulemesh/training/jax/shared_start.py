"""Local training from a shared start: where all devices have just taken the exact mean.

Then no device's parameters need to be stored. Devices are trained a block at a time, each from the
same start, and their updates are added up: the memory holds one parameter vector and one block of
devices, however many devices there are. On an accelerator the input layer of a block need not be
written out either (`factored_input`)."""

from __future__ import annotations

__all__ = [
    "RowWork",
    "UpdateSum",
    "added",
    "consensus_from",
    "seeds_of",
    "square",
    "train_factored",
    "train_shared",
    "wide",
]

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training.arrays import Array
from joulemesh.training.jax.local_sgd import (
    Carry,
    LocalSettings,
    LocalWork,
    Rows,
    draw,
    gather,
    make_optimizer,
    sgd_step,
    steps_of,
    weighted_loss,
)
from joulemesh.training.jax.strategy import Strategy


class RowWork(NamedTuple):
    """Rows and what they do in one iteration."""

    rows: Rows  # [R]
    steps: Array  # int32 [R]
    shares: Array  # [R, K]: weight of the row in each of K sums


class UpdateSum(NamedTuple):
    """The rows' updates, added up."""

    weighted: Params  # [K, S, ...]: Σ share · (w − start)
    squared: Array  # [S]: Σ share · ||w − start||², with the last of the K shares
    diverged: Array  # int32 [S]: rows whose loss is not finite


def consensus_from(sums: UpdateSum, centres: Params) -> jax.Array:
    """sqrt(mean_i ||w_i - w̄||²) / ||w̄||, as ``evaluation.scores.consensus_error``."""
    update, centre = (
        jax.tree.map(lambda leaf: leaf[-1], tree) for tree in (sums.weighted, centres)
    )
    apart = jnp.maximum(sums.squared - square(update, 1), 0)
    size = square(centre, 1)
    return jnp.sqrt(apart / jnp.maximum(size, np.finfo(size.dtype).tiny))


def added(row_work: RowWork, update: Params, squared: jax.Array, loss: jax.Array) -> UpdateSum:
    """Sums over the slots of [P, S, ...]."""
    total = jax.tree.map(lambda own: jnp.sum(wide(row_work.shares, own) * own, axis=1), update)
    diverged = jnp.sum(~jnp.isfinite(loss), axis=0, dtype=jnp.int32)
    return UpdateSum(total, jnp.sum(row_work.shares[..., -1] * squared, axis=0), diverged)


def seeds_of(start: Params) -> int:
    """S, of parameters stacked [S, ...]."""
    return len(jax.tree.leaves(start)[0])


def square(tree: Params, axes: int) -> jax.Array:
    """Sum of squares over all but the first axes of all leaves."""
    parts = [
        jnp.sum(jnp.square(leaf), axis=tuple(range(axes, leaf.ndim)))
        for leaf in jax.tree.leaves(tree)
    ]
    return sum(parts[1:], start=parts[0])


def wide(share: jax.Array, leaf: jax.Array) -> jax.Array:
    """Shares [..., K] as [K, ..., 1, 1], to be multiplied with [..., a, b]."""
    first = jnp.moveaxis(share, -1, 0).astype(leaf.dtype)
    return first.reshape(first.shape + (1,) * (leaf.ndim - share.ndim + 1))


class _Batches(NamedTuple):
    """All samples that a block of rows [P, S] sees in an iteration; m = span · batch."""

    x: Array  # [P, S, m, d]
    y: Array  # [P, S, span, batch]
    weight: Array  # [P, S, span, batch]
    output: Array  # x W, [P, S, m, h]
    gram: Array  # x xᵀ, [P, S, m, m]


class _Layer(NamedTuple):
    """The input layer of a block of rows: after some steps its weights are kept·W + Xᵀ D."""

    steps: Array  # D, [P, S, m, h]
    kept: Array  # [P, S]; below 1 if a regulariser shrinks the weights


class _Trained(NamedTuple):
    """A block of rows after local training."""

    others: Params  # [P, S, ...]: the layers after the first
    layer: _Layer
    loss: Array  # [P, S], of the latest step


def train_factored(
    span: int, settings: LocalSettings, work: LocalWork, row_work: RowWork, start: Params
) -> UpdateSum:
    """Train a block of rows [P, S] at once."""
    assert settings.model.split is not None
    name, _ = settings.model.split
    product = partial(jnp.einsum, preferred_element_type=row_work.shares.dtype)
    batches = _batches(span, settings, work, row_work, start[name], product)
    others = {key: leaf for key, leaf in start.items() if key != name}
    trained = _train(span, settings, work, row_work, others, batches, product)
    update = jax.tree.map(jnp.subtract, trained.others, others)
    layer, shrunk = trained.layer, trained.layer.kept - 1
    squared = jnp.zeros(row_work.steps.shape, row_work.shares.dtype)
    if row_work.shares.shape[2] > 1:
        ours = product("psmn,psnh->psmh", batches.gram, layer.steps.astype(settings.compute))
        squared = jnp.sum(
            layer.steps * (ours + 2 * shrunk[..., None, None] * batches.output), axis=(2, 3)
        )
        squared += jnp.square(shrunk) * square(start[name], 1) + square(update, 2)
    sums = added(row_work, update, squared, trained.loss)
    share = jnp.moveaxis(row_work.shares, -1, 0)
    weighted = (share[..., None, None] * layer.steps).astype(settings.compute)
    first = product("psmd,kpsmh->ksdh", batches.x, weighted)
    first += jnp.sum(share * shrunk, axis=1)[..., None, None] * start[name]
    return sums._replace(weighted={**sums.weighted, name: first.astype(start[name].dtype)})


def _batches(
    span: int,
    settings: LocalSettings,
    work: LocalWork,
    row_work: RowWork,
    weights: jax.Array,
    product: Callable[..., jax.Array],
) -> _Batches:
    """Draw all batches of the iteration, with the products that every step needs."""
    drawn = jax.vmap(partial(draw, settings), in_axes=(None, None, 0))
    drawn_by_all = jax.vmap(jax.vmap(drawn, in_axes=(0, None, None)), in_axes=(0, None, None))
    index, weight = drawn_by_all(row_work.rows, work.order, jnp.arange(span))
    x, y = gather(work.data, index)
    x = x.reshape(*row_work.steps.shape, span * settings.batch, -1).astype(settings.compute)
    output = product("psmd,sdh->psmh", x, weights.astype(settings.compute))
    gram = product("psmd,psnd->psmn", x, x).astype(settings.compute)
    return _Batches(x, y, weight, output, gram)


def _train(
    span: int,
    settings: LocalSettings,
    work: LocalWork,
    row_work: RowWork,
    others: Params,
    batches: _Batches,
    product: Callable[..., jax.Array],
) -> _Trained:
    """Run the steps; layers after the first have their own copies for each row."""
    model = settings.model
    assert model.split is not None
    head = Model(model.name, model.init, model.split[1], model.l2, loss=model.loss)

    def loss(
        params: Params, z: jax.Array, y: jax.Array, weight: jax.Array, scale: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        value, _ = weighted_loss(head, params, z, y, weight, settings.compute)
        return scale * value, value

    slopes = jax.vmap(jax.vmap(jax.grad(loss, argnums=(0, 1), has_aux=True)))

    def step(number: jax.Array, carry: _Trained) -> _Trained:
        own, layer, latest = carry
        at = number * settings.batch
        going = number < row_work.steps
        here = lax.dynamic_slice_in_dim(batches.output, at, settings.batch, 2)
        seen = lax.dynamic_slice_in_dim(batches.gram, at, settings.batch, 2)
        z = layer.kept[..., None, None] * here
        z += product("psbm,psmh->psbh", seen, layer.steps.astype(settings.compute))
        scale = jnp.where(going, -row_work.rows.rate, 0)
        weight = batches.weight[:, :, number].astype(z.dtype)
        (update, at_output), value = slopes(own, z, batches.y[:, :, number], weight, scale)
        steps, kept = layer
        if model.l2:
            shrunk = 1 + scale * model.l2
            steps, kept = shrunk[..., None, None] * steps, shrunk * kept
        steps = lax.dynamic_update_slice_in_dim(steps, at_output, at, 2)
        own = jax.tree.map(jnp.add, own, update)
        return _Trained(own, _Layer(steps, kept), jnp.where(going, value, latest))

    copies = (len(batches.x),)
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*copies, *leaf.shape)), others)
    zeros = jnp.zeros(row_work.steps.shape, row_work.shares.dtype)
    layer = _Layer(jnp.zeros_like(batches.output), zeros + 1)
    trained: _Trained = lax.fori_loop(0, span, step, _Trained(own, layer, zeros))
    return trained


def train_shared(
    settings: LocalSettings,
    strategy: Strategy,
    sharded: bool,
    work: LocalWork,
    shares: jax.Array,
    start: Params,
) -> UpdateSum:
    """Run one iteration's local rounds of this processor's rows, and add up with the others."""
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
