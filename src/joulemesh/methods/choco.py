"""Mixing with compressed messages (CHOCO-G), the communication stage of C-DFL.

Koloskova, Stich, Jaggi: "Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication", ICML 2019, arXiv:1902.00340. Every device has a public copy y_i that
all its neighbours know; τ2 times

    q_i ← Q(x_i − y_i);   send q_i to all neighbours;   y_i ← y_i + q_i
    x_i ← x_i + γ Σ_j C_ij (y_j − y_i)

Copies start from the common initial parameters, so that nothing need be sent for them. With
Q = identity and γ = 1 this is x ← C x.
"""

from __future__ import annotations

__all__ = ["choco", "compress", "largest"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.methods.compression import Compressor
from joulemesh.methods.sampling import hashed, key_words, permuted
from joulemesh.methods.stacked import flatten, mixed
from joulemesh.models.core import Params
from joulemesh.training import draws
from joulemesh.training.jax.exchange import Context, Exchange

_U = np.uint32


def choco(
    squeeze: Compressor, size: int, mixings: int, gamma: float, *, away: bool = False
) -> Exchange:
    """The exchange; its state is the public copies, [N, P].

    Args:
        squeeze: Q.
        size: number of parameters.
        mixings: τ2.
        gamma: γ.
        away: whether devices may be away: they send nothing then, and their copies stay.

    Returns:
        The exchange; the schedule's ``mixing`` is C.
    """

    def init(params: Params) -> jax.Array:
        return flatten(params)[0]

    def apply(
        params: Params, copies: jax.Array, key: jax.Array, context: Context
    ) -> tuple[Params, jax.Array, tuple[()]]:
        flat, back = flatten(params)
        words = key_words(key)

        def mix(number: jax.Array, carry: tuple[jax.Array, jax.Array]) -> Any:
            x, y = carry
            each = draws.fold(draws.fold(words, number.astype(jnp.uint32)), _numbers(len(x)))
            public = y + compress(squeeze, x - y, each)
            y = jnp.where(context.active[:, None], public, y) if away else public
            return x + gamma * (mixed(y, context) - y), y

        flat, copies = lax.fori_loop(0, mixings, mix, (flat, copies))
        return back(flat), copies, ()

    return Exchange(init, apply)


def _numbers(count: int) -> Any:
    return np.arange(count, dtype=np.uint32)


def compress(squeeze: Compressor, x: jax.Array, keys: draws.Key) -> jax.Array:
    """Q of every row: what the receivers make of the message.

    Args:
        squeeze: which Q.
        x: [N, P].
        keys: two uint32 [N].

    Returns:
        [N, P].

    >>> x = jnp.array([[3.0, -4.0, 0.0, 1.0]])
    >>> compress(Compressor("topk", 0.5), x, (jnp.zeros(1, jnp.uint32),) * 2).tolist()
    [[3.0, -4.0, 0.0, 0.0]]
    """
    size = x.shape[1]
    if squeeze.kind == "identity":
        return x
    if squeeze.kind == "topk":
        return jnp.where(largest(jnp.abs(x), squeeze.kept(size)), x, 0)
    wide = (keys[0][:, None], keys[1][:, None])
    if squeeze.kind == "randk":
        chosen = permuted(wide, jnp.arange(squeeze.kept(size), dtype=jnp.uint32), size)
        rows = jnp.arange(len(x))[:, None]
        return jnp.zeros_like(x).at[rows, chosen].set(x[rows, chosen], unique_indices=True)
    word = hashed(hashed(jnp.arange(size, dtype=jnp.uint32) + wide[0]) ^ wide[1])
    uniform = (word >> _U(8)).astype(x.dtype) * 2.0**-24
    norm = jnp.linalg.norm(x, axis=1, keepdims=True)
    level = jnp.floor(squeeze.amount * jnp.abs(x) / jnp.where(norm > 0, norm, 1) + uniform)
    quantised: jax.Array = jnp.sign(x) * norm * level / (squeeze.amount * squeeze.shrink(size))
    return quantised


def largest(values: jax.Array, count: int) -> jax.Array:
    """Mark exactly ``count`` of the largest numbers of every row, the first among equals.

    Bisection on the bits of non-negative numbers, which are ordered as the numbers are: no
    sorting, which is slow on a CPU.

    Args:
        values: [N, P], not negative.
        count: from 1 to P.

    Returns:
        bool [N, P].

    >>> largest(jnp.array([[1.0, 3.0, 1.0, 2.0]]), 3).tolist()
    [[True, True, False, True]]
    """
    wide = jnp.uint64 if values.dtype == jnp.float64 else jnp.uint32
    bits = lax.bitcast_convert_type(values, wide)
    digits = np.iinfo(wide).bits - 1  # the sign is 0

    def raise_(number: jax.Array, floor: jax.Array) -> jax.Array:
        one = jnp.ones_like(floor)
        trial = floor | (one << (digits - 1 - number).astype(wide))
        enough = jnp.sum(bits >= trial, axis=1, keepdims=True) >= count
        return jnp.where(enough, trial, floor)

    # The largest floor that at least ``count`` numbers reach: the count-th largest number.
    floor = lax.fori_loop(0, digits, raise_, jnp.zeros((len(values), 1), wide))
    above, tied = bits > floor, bits == floor
    room = count - jnp.sum(above, axis=1, keepdims=True)
    marked: jax.Array = above | (tied & (jnp.cumsum(tied, axis=1) <= room))
    return marked
