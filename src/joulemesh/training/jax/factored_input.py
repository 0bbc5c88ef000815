"""Local training from a shared start with a factored input layer, on an accelerator.

The input layer's weights are not written out for each device. After k steps from W they are
W + Xᵀ D, where X are the k batches seen so far and D the steps that the layer's output took: for
new samples x they give x W + (x Xᵀ) D. The first product is one for all devices, the second is with
k batches instead of all weights, and the sum over devices is one product again. Weights of
784 × 200 numbers for each device, read twice and written once in every step, become 32 rows.
"""

from __future__ import annotations

__all__ = ["train_factored"]

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from joulemesh.models.core import Model, Params
from joulemesh.training.jax.local_sgd import LocalSettings, LocalWork, draw
from joulemesh.training.jax.loss import Array, gather, weighted_loss
from joulemesh.training.jax.updates import RowWork, UpdateSum, added, square


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
    """Train a block of rows [P, S] at once.

    Args:
        span: steps of the longest row, at most.
        settings: what the compiler knows; its model has an input layer (``Model.split``).
        work: of the iteration.
        row_work: rows [P, S].
        start: stacked [S, ...].

    Returns:
        The rows' updates, added up.
    """
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
