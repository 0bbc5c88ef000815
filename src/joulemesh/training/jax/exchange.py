"""Exchanges: how the devices' parameters change when they meet, in the style of Optax.

An exchange is a pair of pure functions on the devices of one seed; the engine maps it over seeds
and keeps the parameters of departed devices, and of iterations without exchange, as they were.
"""

from __future__ import annotations

__all__ = [
    "Context",
    "Exchange",
    "SparseMixing",
    "Steps",
    "dense",
    "entering",
    "half",
    "in_steps",
    "mean",
    "neighbour_lists",
    "sparse",
]

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import DTypeLike
from scipy import sparse as scipy_sparse

from joulemesh.errors import ScenarioError
from joulemesh.models.core import Params
from joulemesh.own_code import place_of, require_call
from joulemesh.training.jax.loss import Array, Data

ExchangeState: TypeAlias = Any  # a pytree; () for exchanges without memory
Sent: TypeAlias = Any  # a pytree of what the exchange reports; () where the plan knows it all


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
    """An exchange whose messages are rounded: see `joulemesh.training.messages`."""

    begin: Array  # int32 [N]: the row of each device
    target: Array  # int32 [C, I]
    first: Array  # int32 [C, I]
    second: Array  # int32 [C, I]
    sign: Array  # [C, I]
    factor: Array  # [C, I]
    divisor: Array  # [C, I]
    rounds: Array  # bool [C, I]
    output: Array  # int32 [C, rows]: the register that each row takes in the end


class Context(NamedTuple):
    """What an exchange may see beside the parameters, for one seed."""

    iteration: Array  # uint32 scalar, from 0
    active: Array  # bool [N]
    weights: Array  # [N], of the mean
    mixing: Mixed
    data: Data  # training samples
    order: Array  # int32; device i's samples are order[start_i : start_i + size_i]
    start: Array  # int32 [N]
    size: Array  # uint32 [N]
    arrived: Array = ()  # bool: which messages of a method's own exchange arrive; () for all


@dataclass(frozen=True)
class Exchange:
    """A pair of pure functions.

    Attributes:
        init: params stacked [N, ...] -> state.
        apply: (params [N, ...], state, key, context) -> (params, state, sent).
        all_seeds: ``apply`` takes all seeds at once: params [N, S, ...], weights [N, S], no key.
        correction: state -> what local training subtracts from the parameters [N, ...] in the
            course of an iteration, in equal parts, one after each step; None for nothing.
        rounds: does ``apply`` itself round what it sends, where messages are rounded? Otherwise
            parameters are rounded when they enter it (`entering`), as if all were sent.

    >>> swap = Exchange(lambda params: (), lambda params, state, key, context: (
    ...     jax.tree.map(lambda leaf: leaf[::-1], params), state, ()))
    >>> swap.apply(jnp.array([1.0, 2.0]), (), None, None)[0].tolist()
    [2.0, 1.0]
    """

    init: Callable[[Params], ExchangeState]
    apply: Callable[[Params, ExchangeState, jax.Array, Context], tuple[Params, ExchangeState, Sent]]
    all_seeds: bool = False
    correction: Callable[[ExchangeState], Params] | None = None
    rounds: bool = False

    def __post_init__(self) -> None:
        require_call(self.init, "params", "the exchange's init")
        if self.correction is not None:
            require_call(self.correction, "state", "the exchange's correction")
        require_call(self.apply, "params, state, key, context", "the exchange's apply")

    def applied(
        self, params: Params, state: ExchangeState, key: jax.Array, context: Context
    ) -> tuple[Params, ExchangeState, Sent]:
        """What ``apply`` gives, refused unless parameters and state keep their form."""
        made: Any = self.apply(params, state, key, context)
        if not isinstance(made, tuple) or len(made) != 3:
            gives = f"{len(made)} values" if isinstance(made, tuple) else type(made).__name__
            raise ScenarioError(
                f"the exchange's apply ({place_of(self.apply)}) gives {gives}: "
                "return (params, state, sent)"
            )
        for what, old, new in (("params", params, made[0]), ("state", state, made[1])):
            _require_form(old, new, f"the exchange's apply ({place_of(self.apply)}) gives {what}")
        return made


def _require_form(old: Params, new: Params, gives: str) -> None:
    """Refuse a tree of another structure, or with leaves of other shapes or types."""
    before, after = (str(jax.tree.structure(tree)) for tree in (old, new))
    if before != after:
        raise ScenarioError(f"{gives} as {after:.120}, not {before:.120}: keep the structure")
    for (path, was), now in zip(jax.tree.leaves_with_path(old), jax.tree.leaves(new), strict=True):
        forms = [jax.typeof(leaf).str_short() for leaf in (was, now)]
        if forms[0] != forms[1]:
            leaf = jax.tree_util.keystr(path)
            raise ScenarioError(
                f"{gives}{leaf} as {forms[1]}, not {forms[0]}: keep shapes and types"
            )


def _linear(mix: Callable[[jax.Array, Context], jax.Array]) -> Exchange:
    """An exchange without memory that treats each leaf alike, as [N, S, numbers]."""

    def apply(
        params: Params, state: ExchangeState, key: jax.Array, context: Context
    ) -> tuple[Params, ExchangeState, Sent]:
        del key

        def one(leaf: jax.Array) -> jax.Array:
            wide = leaf.reshape(*leaf.shape[:2], -1)
            wide = wide.astype(jnp.promote_types(leaf.dtype, jnp.float32))
            return mix(wide, context).astype(leaf.dtype).reshape(leaf.shape)

        return jax.tree.map(one, params), state, ()

    return Exchange(lambda params: (), apply, all_seeds=True)


def _mean(leaf: jax.Array, context: Context) -> jax.Array:
    share = jnp.where(context.active[:, None], context.weights, 0)
    share = (share / jnp.sum(share, axis=0)).astype(leaf.dtype)
    # A sum over devices, not a product: it is in the same order for any number of seeds.
    centre = jnp.sum(share[..., None] * leaf, axis=0)
    return jnp.broadcast_to(centre, leaf.shape)


def _dense(leaf: jax.Array, context: Context) -> jax.Array:
    matrix = context.mixing
    heard = jnp.where(context.active[None, :], matrix, 0)
    lost = jnp.sum(matrix, axis=1) - jnp.sum(heard, axis=1)
    # Weight assigned to departed neighbours is moved to the diagonal, so that rows still sum to 1.
    matrix = (heard + jnp.diag(lost)).astype(leaf.dtype)
    flat = leaf.reshape(len(leaf), -1)
    return jnp.matmul(matrix, flat, precision=lax.Precision.HIGHEST).reshape(leaf.shape)


def _weighed(leaf: jax.Array, context: Context) -> jax.Array:
    matrix, exact = context.mixing
    mixed = _dense(leaf, context._replace(mixing=matrix))
    return jnp.where(exact, _mean(leaf, context), mixed)


def _sparse(leaf: jax.Array, context: Context) -> jax.Array:
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


def half(values: jax.Array) -> jax.Array:
    """Round to IEEE half precision, to nearest and ties to even, in the type of the values.

    A conversion there and back is not enough: XLA may leave both out.

    >>> half(jnp.array([0.1, 1e-6, 1e5])).tolist()
    [0.0999755859375, 1.0132789611816406e-06, inf]
    """
    normal = lax.reduce_precision(values, exponent_bits=5, mantissa_bits=10)
    # `reduce_precision` makes zeros of subnormal numbers, which are multiples of 2⁻²⁴.
    return jnp.where(jnp.abs(values) < 2.0**-14, jnp.round(values * 2.0**24) * 2.0**-24, normal)


ROUND = {"float16": half}
"""How values are rounded, by the name of the type in which they travel."""


@lru_cache(maxsize=32)  # equal exchanges share their compiled programs
def entering(own: Exchange, wire: str) -> Exchange:
    """A method's own exchange whose parameters are rounded when they enter it.

    Args:
        own: all that it sends are parameters as they enter it.
        wire: the type to which they are rounded.
    """

    def apply(
        params: Params, state: ExchangeState, key: jax.Array, context: Context
    ) -> tuple[Params, ExchangeState, Sent]:
        return own.apply(jax.tree.map(ROUND[wire], params), state, key, context)

    return replace(own, apply=apply, rounds=True)


@lru_cache(maxsize=32)
def in_steps(registers: int, wire: str) -> Exchange:
    """The exchange of `Steps`, which takes so many registers.

    Args:
        registers: their number.
        wire: the type to which messages are rounded.
    """
    rounded = ROUND[wire]

    def apply(
        params: Params, state: ExchangeState, key: jax.Array, context: Context
    ) -> tuple[Params, ExchangeState, Sent]:
        del key
        steps: Steps = context.mixing
        vector, back = _as_vectors(params)
        rows, seeds, size = vector.shape
        parts = len(steps.target)
        index, position = _cut(size, parts)
        nothing = jnp.zeros((rows, seeds, 1), vector.dtype)
        cut = jnp.concatenate([vector, nothing], axis=2)[:, :, index]  # [rows, S, C, longest]

        def one(_: None, part: tuple[jax.Array, Steps]) -> tuple[None, jax.Array]:
            values, todo = part
            own = values[steps.begin]
            spare = jnp.zeros((registers - len(own), *own.shape[1:]), own.dtype)

            def operate(k: jax.Array, held: jax.Array) -> jax.Array:
                sign, factor, divisor = (
                    column[k].astype(held.dtype)
                    for column in (todo.sign, todo.factor, todo.divisor)
                )
                # One operation each time round: XLA cannot contract a product and a later sum.
                made = (held[todo.first[k]] + sign * held[todo.second[k]]) * factor / divisor
                made = jnp.where(todo.rounds[k], rounded(made), made)
                return held.at[todo.target[k]].set(made)

            held = lax.fori_loop(0, len(todo.target), operate, jnp.concatenate([own, spare]))
            return None, held[todo.output]

        each = steps._replace(begin=jnp.zeros(parts, jnp.int32))  # the same for all parts
        mixed = lax.scan(one, None, (jnp.moveaxis(cut, 2, 0), each))[1]  # [C, rows, S, longest]
        after = jnp.moveaxis(mixed, 0, 2).reshape(rows, seeds, -1)[:, :, position]
        return back(after), state, ()

    return Exchange(lambda params: (), apply, all_seeds=True)


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


def _in_parts(
    params: Params, state: ExchangeState, key: jax.Array, context: Context
) -> tuple[Params, ExchangeState, Sent]:
    del key
    vector, back = _as_vectors(params)
    devices, seeds, size = vector.shape
    parts = len(context.mixing)
    index, position = _cut(size, parts)
    nothing = jnp.zeros((devices, seeds, 1), vector.dtype)
    cut = jnp.concatenate([vector, nothing], axis=2)[:, :, index]  # [N, S, C, longest part]
    matrix = context.mixing.astype(vector.dtype)
    mixed = jnp.einsum("cij,jscl->iscl", matrix, cut, precision=lax.Precision.HIGHEST)
    after = mixed.reshape(devices, seeds, -1)[:, :, position]
    return back(after), state, ()


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


in_parts = Exchange(lambda params: (), _in_parts, all_seeds=True)
"""As `dense`, but each part of the parameters, as one vector, has a matrix of its own."""


def _sparse_or_mean(
    params: Params, state: ExchangeState, key: jax.Array, context: Context
) -> tuple[Params, ExchangeState, Sent]:
    lists, exact = context.mixing

    def averaged(params: Params) -> Params:
        return mean.apply(params, state, key, context)[0]

    def mixed(params: Params) -> Params:
        return sparse.apply(params, state, key, context._replace(mixing=lists))[0]

    return lax.cond(exact, averaged, mixed, params), state, ()


sparse_or_mean = Exchange(lambda params: (), _sparse_or_mean, all_seeds=True)
"""As `sparse`, but in iterations that are exact, the weighted mean in its place."""


def neighbour_lists(
    matrix: scipy_sparse.csr_array[Any, Any], rounds: int, dtype: DTypeLike
) -> SparseMixing:
    """Turn a CSR matrix into padded lists of neighbours.

    Args:
        matrix: row-stochastic [N, N].
        rounds: how often it is applied in one exchange.
        dtype: of the weights.

    Returns:
        The SparseMixing; padding repeats the device itself with weight 0.

    >>> lists = neighbour_lists(scipy_sparse.csr_array(np.eye(2)), 3, np.float32)
    >>> lists.index.tolist(), lists.weight.tolist()
    ([[0], [1]], [[1.0], [1.0]])
    """
    counts = np.diff(matrix.indptr)
    widest = int(counts.max())
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(row)) - np.repeat(matrix.indptr[:-1], counts)
    index = np.repeat(np.arange(len(counts), dtype=np.int32)[:, None], widest, axis=1)
    weight = np.zeros((len(counts), widest), dtype)
    index[row, column], weight[row, column] = matrix.indices, matrix.data
    return SparseMixing(jnp.asarray(index), jnp.asarray(weight), jnp.int32(rounds))
