"""Local training: every row (a device under one seed) runs its own number of SGD steps."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

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
from joulemesh.training.jax.layout import Strategy


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
        sums = _added_one_by_one(settings, work, row_work, start)
    else:
        train = partial(train_factored, strategy.span) if strategy.span else _side_by_side
        sums = _added_in_blocks(partial(train, settings, work), strategy.block, row_work, start)
    if sharded:
        sums = lax.psum(sums, "rows")
    return sums


def _nothing(start: Params, shares: jax.Array) -> UpdateSum:
    kinds = shares.shape[1]
    weighted = jax.tree.map(lambda leaf: jnp.zeros((kinds, *leaf.shape), leaf.dtype), start)
    seeds = seeds_of(start)
    return UpdateSum(weighted, jnp.zeros(seeds, shares.dtype), jnp.zeros(seeds, jnp.int32))


def _added_one_by_one(
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


def _added_in_blocks(
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


def initial_params(model: Model, seed: int, dtype: np.dtype[Any]) -> Params:
    """The initial parameters of a seed, the same for all devices, as NumPy arrays."""
    words = np.stack(draws.seed_key(seed, draws.INIT), axis=-1)[0]
    params = jax.jit(model.init)(jax.random.wrap_key_data(jnp.asarray(words)))
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), params)
