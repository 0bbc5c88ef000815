"""Local training from a shared start: where all devices have just taken the exact mean.

Then nobody's parameters need be kept. Devices are trained some at a time, each from the same
start, and what they moved is added up: one parameter vector and one block of devices, however many
there are.

On an accelerator the input layer is not even written out. After k steps from W its weights are
W + Xᵀ D, where X are the k batches seen so far and D the steps that its output took: for new
samples x they give x W + (x Xᵀ) D. The first product is one for all devices, the second is with
k batches instead of all weights, and the sum over devices is one product again. Weights of
784 × 200 numbers for each device, read twice and written once in every step, become 32 rows.
"""

from __future__ import annotations

__all__ = ["Crew", "Moved", "spread", "train_shared"]

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training.local import Carry, Recipe, Rows, draw, sgd_step, steps_of
from joulemesh.training.objective import Array, Data, gather, weighted_loss
from joulemesh.training.options import make_optimizer


class Crew(NamedTuple):
    """Rows and what they do in one iteration."""

    rows: Rows  # [R]
    steps: Array  # int32 [R]
    shares: Array  # [R, K]: weight of the row in each of K sums


class Moved(NamedTuple):
    """What rows did, added up."""

    by: Params  # [K, S, ...]: Σ share · (w − start)
    squared: Array  # [S]: Σ share · ||w − start||², with the last of the K shares
    lost: Array  # int32 [S]: rows whose loss is not finite


def train_shared(
    recipe: Recipe,
    block: int,
    span: int,
    sharded: bool,
    rate: jax.Array,
    data: Data,
    order: jax.Array,
    rows: Rows,
    iteration: jax.Array,
    rounds: jax.Array,
    shares: jax.Array,
    start: Params,
) -> Moved:
    """Run one iteration's local rounds of this processor's rows, and add up with the others.

    Args:
        recipe: what the compiler knows.
        block: places that are trained side by side.
        span: steps of the longest row, at most, with the input layer factored; 0 without.
        sharded: whether there are other processors.
        rate: learning rate.
        data: training samples.
        order: int32, the rows' sample indices, concatenated.
        rows: [R].
        iteration: uint32 scalar, from 0.
        rounds: int32 [R], τ.
        shares: [R, K].
        start: stacked [S, ...]; row p·S + s starts from the s-th.

    Returns:
        The sums over all rows of all processors.
    """
    rows, steps = steps_of(recipe, rows, iteration, rounds)
    crew = Crew(rows, steps, shares)
    if recipe.loop:
        moved = _one_by_one(recipe, rate, data, order, crew, start)
    else:
        train = partial(_factored, span) if span else _side_by_side
        moved = _in_blocks(partial(train, recipe, rate, data, order), block, crew, start)
    if sharded:
        moved = lax.psum(moved, "rows")  # type: ignore[no-untyped-call]
    return moved


def spread(moved: Moved, centres: Params) -> jax.Array:
    """sqrt(mean_i ||w_i - w̄||²) / ||w̄||, as ``evaluate.consensus_error``.

    Args:
        moved: of K = 2 sums, the last with the shares of a plain mean.
        centres: start + moved.by, [2, S, ...].

    Returns:
        [S].
    """
    by, centre = (jax.tree.map(lambda leaf: leaf[-1], tree) for tree in (moved.by, centres))
    apart = jnp.maximum(moved.squared - _square(by, 1), 0)
    size = _square(centre, 1)
    return jnp.sqrt(apart / jnp.maximum(size, np.finfo(size.dtype).tiny))


def _nothing(start: Params, shares: jax.Array) -> Moved:
    """No movement."""
    kinds = shares.shape[1]
    by = jax.tree.map(lambda leaf: jnp.zeros((kinds, *leaf.shape), leaf.dtype), start)
    seeds = _seeds(start)
    return Moved(by, jnp.zeros(seeds, shares.dtype), jnp.zeros(seeds, jnp.int32))


def _seeds(start: Params) -> int:
    return len(jax.tree.leaves(start)[0])


def _square(tree: Params, axes: int) -> jax.Array:
    """Sum of squares over all but the first axes of all leaves."""
    parts = [
        jnp.sum(jnp.square(leaf), axis=tuple(range(axes, leaf.ndim)))
        for leaf in jax.tree.leaves(tree)
    ]
    return sum(parts[1:], start=parts[0])


def _one_by_one(
    recipe: Recipe, rate: jax.Array, data: Data, order: jax.Array, crew: Crew, start: Params
) -> Moved:
    """One row after another: its parameters stay in the cache."""
    seeds = _seeds(start)
    optimizer = make_optimizer(recipe.optimizer, 0.0)

    def train(number: jax.Array, moved: Moved) -> Moved:
        seed = number % seeds
        row, steps, share = jax.tree.map(lambda leaf: leaf[number], crew)
        first = jax.tree.map(lambda leaf: leaf[seed], start)
        carry = Carry(first, optimizer.init(first), jnp.zeros((), share.dtype))
        step = partial(sgd_step, recipe, rate, data, order, row)
        carry = lax.fori_loop(0, steps, lambda k, c: step(k, jnp.array(True), c), carry)
        by = jax.tree.map(jnp.subtract, carry.params, first)
        squared = moved.squared
        if len(share) > 1:
            squared = squared.at[seed].add(share[-1] * _square(by, 0))
        total = jax.tree.map(
            lambda total, own: total.at[:, seed].add(_wide(share, own) * own), moved.by, by
        )
        lost = moved.lost.at[seed].add(~jnp.isfinite(carry.loss))
        return Moved(total, squared, lost)

    final: Moved = lax.fori_loop(0, len(crew.steps), train, _nothing(start, crew.shares))
    return final


def _wide(share: jax.Array, leaf: jax.Array) -> jax.Array:
    """Shares [..., K] as [K, ..., 1, 1], to be multiplied with [..., a, b]."""
    first = jnp.moveaxis(share, -1, 0).astype(leaf.dtype)
    return first.reshape(first.shape + (1,) * (leaf.ndim - share.ndim + 1))


def _in_blocks(train: Any, block: int, crew: Crew, start: Params) -> Moved:
    """Cut rows into equal blocks, padded with rows that do nothing, and add up what they move."""
    seeds = _seeds(start)
    count = len(crew.steps) // seeds
    blocks = -(-count // block)
    each = -(-count // blocks)
    missing = (blocks * each - count) * seeds

    def cut(leaf: jax.Array, mode: str) -> jax.Array:
        padded = jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), mode=mode)
        return padded.reshape(blocks, each, seeds, *leaf.shape[1:])

    rows = jax.tree.map(partial(cut, mode="edge"), crew.rows)
    cuts = Crew(rows, cut(crew.steps, "constant"), cut(crew.shares, "constant"))

    def add(moved: Moved, part: Crew) -> tuple[Moved, None]:
        return jax.tree.map(jnp.add, moved, train(part, start)), None

    moved: Moved = lax.scan(add, _nothing(start, crew.shares), cuts)[0]
    return moved


def _side_by_side(
    recipe: Recipe, rate: jax.Array, data: Data, order: jax.Array, crew: Crew, start: Params
) -> Moved:
    """A block of rows [P, S] at once, each with its own parameters."""
    places = len(crew.steps)
    first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (places, *leaf.shape)), start)
    optimizer = make_optimizer(recipe.optimizer, 0.0)
    moments = jax.vmap(jax.vmap(optimizer.init))(first)
    carry = Carry(first, moments, jnp.zeros(crew.steps.shape, crew.shares.dtype))
    one = partial(sgd_step, recipe, rate, data, order)
    step = jax.vmap(jax.vmap(one, in_axes=(0, None, 0, 0)), in_axes=(0, None, 0, 0))

    def train(number: jax.Array, carry: Carry) -> Carry:
        stepped: Carry = step(crew.rows, number, number < crew.steps, carry)
        return stepped

    carry = lax.fori_loop(0, jnp.max(crew.steps), train, carry)
    by = jax.tree.map(jnp.subtract, carry.params, first)
    squared = _square(by, 2) if crew.shares.shape[2] > 1 else jnp.zeros_like(carry.loss)
    return _added(crew, by, squared, carry.loss)


def _added(crew: Crew, by: Params, squared: jax.Array, loss: jax.Array) -> Moved:
    """Sums over places of [P, S, ...]."""
    total = jax.tree.map(lambda own: jnp.sum(_wide(crew.shares, own) * own, axis=1), by)
    lost = jnp.sum(~jnp.isfinite(loss), axis=0, dtype=jnp.int32)
    return Moved(total, jnp.sum(crew.shares[..., -1] * squared, axis=0), lost)


class _Layer(NamedTuple):
    """The input layer of a block of rows: after some steps its weights are kept·W + Xᵀ D."""

    steps: Array  # D, [P, S, m, h]
    kept: Array  # [P, S]; below 1 if a regulariser shrinks the weights


def _factored(
    span: int,
    recipe: Recipe,
    rate: jax.Array,
    data: Data,
    order: jax.Array,
    crew: Crew,
    start: Params,
) -> Moved:
    """A block of rows [P, S] at once, the input layer factored; others have their own copies."""
    assert recipe.model.split is not None
    name, rest = recipe.model.split
    head = Model(recipe.model.name, recipe.model.init, rest, recipe.model.l2)
    product = partial(jnp.einsum, preferred_element_type=crew.shares.dtype)
    drawn = jax.vmap(partial(draw, recipe), in_axes=(None, None, 0))
    places = jax.vmap(jax.vmap(drawn, in_axes=(0, None, None)), in_axes=(0, None, None))
    index, weight = places(crew.rows, order, jnp.arange(span))  # [P, S, span, batch]
    x, y = gather(data, index)
    size = span * recipe.batch
    x = x.reshape(*crew.steps.shape, size, -1).astype(recipe.compute)
    whole = start[name].astype(recipe.compute)
    output = product("psmd,sdh->psmh", x, whole)
    gram = product("psmd,psnd->psmn", x, x).astype(recipe.compute)
    others = {key: leaf for key, leaf in start.items() if key != name}
    own = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(x), *leaf.shape)), others)

    def loss(
        params: Params, z: jax.Array, y: jax.Array, weight: jax.Array, scale: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        value, _ = weighted_loss(head, params, z, y, weight, recipe.compute)
        return scale * value, value

    slopes = jax.vmap(jax.vmap(jax.grad(loss, argnums=(0, 1), has_aux=True)))

    def step(number: jax.Array, carry: tuple[Params, _Layer, jax.Array]) -> Any:
        own, layer, latest = carry
        at = number * recipe.batch
        going = number < crew.steps
        here = lax.dynamic_slice_in_dim(output, at, recipe.batch, 2)
        seen = lax.dynamic_slice_in_dim(gram, at, recipe.batch, 2)
        z = layer.kept[..., None, None] * here
        z += product("psbm,psmh->psbh", seen, layer.steps.astype(recipe.compute))
        scale = jnp.where(going, -rate, 0)
        (by, at_output), value = slopes(
            own, z, y[:, :, number], weight[:, :, number].astype(z.dtype), scale
        )
        steps, kept = layer
        if recipe.model.l2:
            shrunk = 1 + scale * recipe.model.l2
            steps, kept = shrunk[..., None, None] * steps, shrunk * kept
        steps = lax.dynamic_update_slice_in_dim(steps, at_output, at, 2)
        own = jax.tree.map(jnp.add, own, by)
        return own, _Layer(steps, kept), jnp.where(going, value, latest)

    zeros = jnp.zeros(crew.steps.shape, crew.shares.dtype)
    layer = _Layer(jnp.zeros_like(output), zeros + 1)
    own, layer, latest = lax.fori_loop(0, span, step, (own, layer, zeros))
    by = jax.tree.map(jnp.subtract, own, others)
    lessened = layer.kept - 1
    squared = zeros
    if crew.shares.shape[2] > 1:
        ours = product("psmn,psnh->psmh", gram, layer.steps.astype(recipe.compute))
        squared = jnp.sum(
            layer.steps * (ours + 2 * lessened[..., None, None] * output), axis=(2, 3)
        )
        squared += jnp.square(lessened) * _square(start[name], 1) + _square(by, 2)
    moved = _added(crew, by, squared, latest)
    share = jnp.moveaxis(crew.shares, -1, 0)
    weighted = (share[..., None, None] * layer.steps).astype(recipe.compute)
    first = product("psmd,kpsmh->ksdh", x, weighted)
    first += jnp.sum(share * lessened, axis=1)[..., None, None] * start[name]
    return moved._replace(by={**moved.by, name: first.astype(start[name].dtype)})
