"""The schedule's mixing: means and matrices, of all devices of all seeds at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import DTypeLike
from scipy import sparse as scipy_sparse

from joulemesh.models.core import Params
from joulemesh.training.arrays import ROUND, Array

# A matrix [N, N], WeighedMixing, SparseMixing, Steps, or () for "mean": as the program's key says.
Mixed: TypeAlias = Any


class WeighedMixing(NamedTuple):
    """A mixing matrix, and whether the exact mean takes its place."""

    matrix: Mixed  # [N, N] or SparseMixing
    exact: Array  # bool


class SparseMixing(NamedTuple):
    """A mixing matrix as equal-length lists of neighbours, padded with the device itself."""

    index: Array  # int32 [N, k]
    weight: Array  # [N, k]
    rounds: Array  # int32 scalar: how often the matrix is applied


class Steps(NamedTuple):
    """An exchange whose messages are rounded: see `joulemesh.training.schedule`."""

    begin: Array  # int32 [N]: the row of each device
    target: Array  # int32 [C, I]
    first: Array  # int32 [C, I]
    second: Array  # int32 [C, I]
    sign: Array  # [C, I]
    factor: Array  # [C, I]
    divisor: Array  # [C, I]
    rounds: Array  # bool [C, I]
    output: Array  # int32 [C, rows]: the register that each row takes in the end
    owed: Array  # int32 [C, N]: the register of what each device owes; [C, 0] if nobody does


class MixingInputs(NamedTuple):
    """What the schedule's mixing may see beside the parameters."""

    active: Array  # bool [N]
    weights: Array  # [N, S], of the mean
    mixing: Mixed


@dataclass(frozen=True)
class Mixing:
    """An exchange of the schedule's own mixing, of all seeds at once."""

    # (params [N, S, ...], inputs, memory) -> params, memory
    apply: Callable[[Params, MixingInputs, Any], tuple[Params, Any]]
    init: Callable[[Params], Any] = lambda params: ()  # params [N, S, ...] -> memory, [S, ...]


def _stateless(apply: Callable[[Params, MixingInputs], Params]) -> Mixing:
    return Mixing(lambda params, context, memory: (apply(params, context), memory))


def _linear(mix: Callable[[jax.Array, MixingInputs], jax.Array]) -> Mixing:
    """Mixing that treats each leaf alike, as [N, S, numbers]."""

    def apply(params: Params, context: MixingInputs) -> Params:
        def one(leaf: jax.Array) -> jax.Array:
            wide = leaf.reshape(*leaf.shape[:2], -1)
            wide = wide.astype(jnp.promote_types(leaf.dtype, jnp.float32))
            return mix(wide, context).astype(leaf.dtype).reshape(leaf.shape)

        return jax.tree.map(one, params)

    return _stateless(apply)


def _mean(leaf: jax.Array, context: MixingInputs) -> jax.Array:
    share = jnp.where(context.active[:, None], context.weights, 0)
    share = (share / jnp.sum(share, axis=0)).astype(leaf.dtype)
    # A sum over devices, not a product: it is in the same order for any number of seeds.
    centre = jnp.sum(share[..., None] * leaf, axis=0)
    return jnp.broadcast_to(centre, leaf.shape)


def _dense(leaf: jax.Array, context: MixingInputs) -> jax.Array:
    matrix = context.mixing
    heard = jnp.where(context.active[None, :], matrix, 0)
    lost = jnp.sum(matrix, axis=1) - jnp.sum(heard, axis=1)
    # Weight assigned to departed neighbours is moved to the diagonal, so that rows still sum to 1.
    matrix = (heard + jnp.diag(lost)).astype(leaf.dtype)
    flat = leaf.reshape(len(leaf), -1)
    return jnp.matmul(matrix, flat, precision=lax.Precision.HIGHEST).reshape(leaf.shape)


def _weighed(leaf: jax.Array, context: MixingInputs) -> jax.Array:
    matrix, exact = context.mixing
    mixed = _dense(leaf, context._replace(mixing=matrix))
    return jnp.where(exact, _mean(leaf, context), mixed)


def _sparse(leaf: jax.Array, context: MixingInputs) -> jax.Array:
    index, weight, rounds = context.mixing
    me = jnp.arange(len(index), dtype=index.dtype)[:, None]
    index = jnp.where(context.active[index], index, me)
    weight = weight.astype(leaf.dtype)

    def hear(values: jax.Array, k: jax.Array, total: jax.Array) -> jax.Array:
        heard: jax.Array = weight[:, k, None, None] * values[index[:, k]]
        return total + heard

    def once(_: jax.Array, values: jax.Array) -> jax.Array:
        silent = jnp.zeros_like(values)
        heard: jax.Array = lax.fori_loop(0, index.shape[1], partial(hear, values), silent)
        return heard

    mixed: jax.Array = lax.fori_loop(0, rounds, once, leaf)
    return mixed


mean = _linear(_mean)
"""Every active device takes the weighted mean of the active devices."""

dense = _linear(_dense)
"""new = W @ old, with W the context's [N, N] matrix of this iteration."""

weighed = _linear(_weighed)
"""As `dense`, but where the matrix stands for the exact mean, the weighted mean in its place."""

sparse = _linear(_sparse)
"""new = W^K @ old, with W given by its neighbours: N·k numbers instead of N·N."""


@lru_cache(maxsize=32)
def in_steps(registers: int, wire: str) -> Mixing:
    """The exchange of `Steps`, which takes so many registers."""

    def apply(params: Params, context: MixingInputs) -> Params:
        vector, back = _as_vectors(params)
        return back(_operated(vector, context.mixing, registers, wire)[0])

    return _stateless(apply)


class Owing(NamedTuple):
    """What quantised averages remember."""

    agreed: Array  # [S, P]: the last average
    owed: Array  # [S, N, P]: what each device owes to the sum of all


@lru_cache(maxsize=32)
def quantised(registers: int, wire: str, devices: int, *, weighed: bool) -> Mixing:
    """The exchange of `Steps` on what has changed since the last average.

    Args:
        registers: that it takes.
        wire: the type in which numbers travel.
        devices: N; the rows beyond them are padding.
        weighed: is it the mean by the context's weights?
    """

    def init(params: Params) -> Owing:
        vector = _as_vectors(params)[0][:devices]
        return Owing(vector[0], jnp.zeros_like(jnp.moveaxis(vector, 0, 1)))

    def apply(params: Params, context: MixingInputs, memory: Owing) -> tuple[Params, Owing]:
        vector, back = _as_vectors(params)
        active, owed = context.active[:devices, None], jnp.moveaxis(memory.owed, 1, 0)
        change = vector[:devices] - memory.agreed
        if weighed:
            share = jnp.where(active, context.weights[:devices], 0)
            share = share * jnp.sum(active) / jnp.sum(share, axis=0)
            change = change * share[..., None].astype(change.dtype)
        idle = jnp.zeros((len(vector) - devices, *change.shape[1:]), change.dtype)
        start = jnp.concatenate([change + owed, idle])
        mean, still = _operated(start, context.mixing, registers, wire)
        agreed = memory.agreed + mean[jnp.argmax(context.active)]
        owed = jnp.where(active[..., None], still, owed)
        after = jnp.broadcast_to(agreed, vector.shape)
        return back(after), Owing(agreed, jnp.moveaxis(owed, 0, 1))

    return Mixing(apply, init)


def averages_given(params: Params, moved: jax.Array, memory: Owing) -> Params:
    """Parameters [rows, S, ...], with the last average in the place of those of some rows."""
    vector, back = _as_vectors(params)
    return back(jnp.where(moved[:, None, None], memory.agreed, vector))


def _operated(
    vector: jax.Array, steps: Steps, registers: int, wire: str
) -> tuple[jax.Array, jax.Array]:
    """What the devices [rows, S, P] end with, and what each of them owes [N, S, P]."""
    rounded = ROUND[wire]
    rows, seeds, size = vector.shape
    parts = len(steps.target)
    index, position = _cut(size, parts)
    nothing = jnp.zeros((rows, seeds, 1), vector.dtype)
    cut = jnp.concatenate([vector, nothing], axis=2)[:, :, index]  # [rows, S, C, longest]

    def one(_: None, part: tuple[jax.Array, Steps]) -> tuple[None, tuple[jax.Array, jax.Array]]:
        values, todo = part
        own = values[steps.begin]
        spare = jnp.zeros((registers - len(own), *own.shape[1:]), own.dtype)

        def operate(k: jax.Array, held: jax.Array) -> jax.Array:
            sign, factor, divisor = (
                column[k].astype(held.dtype) for column in (todo.sign, todo.factor, todo.divisor)
            )
            # One operation each time round: XLA cannot contract a product and a later sum.
            made = (held[todo.first[k]] + sign * held[todo.second[k]]) * factor / divisor
            made = jnp.where(todo.rounds[k], rounded(made), made)
            return held.at[todo.target[k]].set(made)

        held = lax.fori_loop(0, len(todo.target), operate, jnp.concatenate([own, spare]))
        return None, (held[todo.output], held[todo.owed])

    each = steps._replace(begin=jnp.zeros(parts, jnp.int32))  # the same for all parts
    ended = lax.scan(one, None, (jnp.moveaxis(cut, 2, 0), each))[1]  # [C, rows, S, longest] each

    def whole(part: jax.Array) -> jax.Array:
        together = jnp.moveaxis(part, 0, 2).reshape(part.shape[1], seeds, index.size)
        return together[:, :, position]

    return whole(ended[0]), whole(ended[1])


def _as_vectors(params: Params) -> tuple[jax.Array, Callable[[jax.Array], Params]]:
    """Parameters [N, S, ...] as [N, S, P], in the order of the leaves, and the way back."""
    leaves, tree = jax.tree.flatten(params)
    wide = [leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves]
    vector = jnp.concatenate(wide, axis=2)  # promoted, as each device's vector is on the air
    bounds = np.cumsum([leaf.shape[2] for leaf in wide])[:-1].tolist()

    def back(after: jax.Array) -> Params:
        parts = jnp.split(after, bounds, axis=2)
        new = [
            part.astype(leaf.dtype).reshape(leaf.shape)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, new)

    return vector.astype(jnp.promote_types(vector.dtype, jnp.float32)), back


def _in_parts(params: Params, context: MixingInputs) -> Params:
    vector, back = _as_vectors(params)
    devices, seeds, size = vector.shape
    parts = len(context.mixing)
    index, position = _cut(size, parts)
    nothing = jnp.zeros((devices, seeds, 1), vector.dtype)
    cut = jnp.concatenate([vector, nothing], axis=2)[:, :, index]  # [N, S, C, longest part]
    matrix = context.mixing.astype(vector.dtype)
    mixed = jnp.einsum("cij,jscl->iscl", matrix, cut, precision=lax.Precision.HIGHEST)
    after = mixed.reshape(devices, seeds, -1)[:, :, position]
    return back(after)


def _cut(size: int, parts: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where the entries of each part are in a vector [C, longest], and where each entry is there.

    Parts are those of ``numpy.array_split``; shorter ones are filled up with the place ``size``.
    """
    each = np.array_split(np.arange(size), parts)
    longest = max(map(len, each))
    index = np.full((parts, longest), size)
    for number, part in enumerate(each):
        index[number, : len(part)] = part
    return index, np.flatnonzero(index.ravel() < size)


in_parts = _stateless(_in_parts)
"""As `dense`, but each part of the parameters, as one vector, has a matrix of its own."""


def _sparse_or_mean(params: Params, context: MixingInputs) -> Params:
    lists, exact = context.mixing

    def averaged(params: Params) -> Params:
        return mean.apply(params, context, ())[0]

    def mixed(params: Params) -> Params:
        return sparse.apply(params, context._replace(mixing=lists), ())[0]

    found: Params = lax.cond(exact, averaged, mixed, params)
    return found


sparse_or_mean = _stateless(_sparse_or_mean)
"""As `sparse`, but in iterations that are exact, the weighted mean in its place."""


def mixed(values: jax.Array, inputs: MixingInputs) -> jax.Array:
    """W times the devices' values [N, P], once."""
    how = dense
    if isinstance(inputs.mixing, SparseMixing):
        how = sparse
        # The engine's lists may have more rows than devices: the rest only pads.
        index, weight, rounds = inputs.mixing
        count = len(values)
        once = SparseMixing(index[:count], weight[:count], jnp.ones_like(rounds))
        inputs = inputs._replace(mixing=once)
    made: jax.Array = how.apply(values[:, None], inputs, ())[0][:, 0]
    return made


def neighbour_lists(
    matrix: scipy_sparse.csr_array[Any, Any], rounds: int, dtype: DTypeLike
) -> SparseMixing:
    """Turn a CSR matrix into padded lists of neighbours."""
    counts = np.diff(matrix.indptr)
    widest = int(counts.max())
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], counts)
    index = np.repeat(np.arange(len(counts), dtype=np.int32)[:, None], widest, axis=1)
    weight = np.zeros((len(counts), widest), dtype)
    index[row, column], weight[row, column] = matrix.indices, matrix.data
    return SparseMixing(jnp.asarray(index), jnp.asarray(weight), jnp.int32(rounds))
