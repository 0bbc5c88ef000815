"""Mixing with compressed messages (CHOCO-G), the communication stage of C-DFL.

Koloskova, Stich, Jaggi: "Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication", ICML 2019, arXiv:1902.00340. Every device has a public copy y_i that
all its neighbours know; τ2 times

    q_i ← Q(x_i − y_i);   send q_i to all neighbours;   y_i ← y_i + q_i
    x_i ← x_i + γ Σ_j C_ij (y_j − y_i)

Copies start from the common initial parameters, so that nothing need be sent for them. With
Q = identity and γ = 1 this is x ← C x.

A neighbour that misses a message has another copy than the rest, and what it missed would never
come again. Where packets are lost, every link has copies of its own: y_ij is what j holds of i, and
what i knows from the acknowledgements that j holds; τ2 times

    q_ij ← Q(x_i − y_ij);   send q_ij to j;   y_ij ← y_ij + q_ij where it arrives
    x_i ← x_i + γ Σ_j C_ij (y_ji − y_ij)

What was lost stays in the difference x_i − y_ij and is sent again. The two ends of a link move by
opposite amounts, so that the mean of all devices is kept, whatever is lost. As long as nothing is,
all y_ij of a device are its y_i. A message that arrives with probability p is one more compression,
which passes p of the squared norm: γ is p times that of Q, unless given otherwise.
"""

from __future__ import annotations

__all__ = ["Links", "choco", "compress", "largest", "linked_choco"]

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from joulemesh.methods.base import FloatArray, IntArray
from joulemesh.methods.compression import BUCKET, Compressor
from joulemesh.methods.sampling import hashed, key_words, permuted
from joulemesh.methods.stacked import flatten, mixed
from joulemesh.models.core import Params
from joulemesh.training import draws
from joulemesh.training.jax.exchange import ROUND, Context, Exchange

_U = np.uint32


def choco(
    squeeze: Compressor,
    size: int,
    mixings: int,
    gamma: float,
    *,
    away: bool = False,
    wire: str = "",
) -> Exchange:
    """The exchange; its state is the public copies, [N, P].

    Args:
        squeeze: Q.
        size: number of parameters.
        mixings: τ2.
        gamma: γ.
        away: whether devices may be away: they send nothing then, and their copies stay.
        wire: the type to which the numbers of a message are rounded; empty if they are not.

    Returns:
        The exchange; the schedule's ``mixing`` is C.
    """
    sent = rounded_to_wire(squeeze, wire)

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
            public = y + sent(compress(squeeze, x - y, each))
            y = jnp.where(context.active[:, None], public, y) if away else public
            return x + gamma * (mixed(y, context) - y), y

        flat, copies = lax.fori_loop(0, mixings, mix, (flat, copies))
        return back(flat), copies, ()

    return Exchange(init, apply, rounds=True)


def rounded_to_wire(squeeze: Compressor, wire: str) -> Callable[[jax.Array], jax.Array]:
    """What receivers get of a compressed message; QSGD's has bits of its own.

    What rounding takes away stays in the difference of parameters and copy, and is sent again.
    """
    return ROUND[wire] if wire and squeeze.kind != "qsgd" else lambda message: message


class Links(NamedTuple):
    """The 2E directed links of M = 2E messages, and who hears which of them."""

    sender: IntArray  # [M]
    heard: IntArray  # [N, widest]: links to each device; any of them pads
    said: IntArray  # [N, widest]: the same links the other way
    weight: FloatArray  # [N, widest]: C of the link; 0 pads

    @classmethod
    def of(cls, sender: IntArray, receiver: IntArray, weights: FloatArray) -> Links:
        """The links of messages, each of which has one the other way.

        Args:
            sender: int [M].
            receiver: int [M].
            weights: float64 [M], C of each.

        >>> links = Links.of(np.array([0, 1]), np.array([1, 0]), np.full(2, 0.5))
        >>> links.heard.tolist(), links.said.tolist(), links.weight.tolist()
        ([[1], [0]], [[0], [1]], [[0.5], [0.5]])
        """
        order = np.lexsort((sender, receiver))  # by receiver, then by sender
        back = np.empty_like(order)
        back[order] = np.lexsort((receiver, sender))
        degree = np.bincount(receiver)
        slot = np.arange(len(order)) - np.repeat(np.cumsum(degree) - degree, degree)
        heard = np.zeros((len(degree), int(degree.max())), np.int64)
        weight = np.zeros(heard.shape)
        heard[receiver[order], slot] = order
        weight[receiver[order], slot] = weights[order]
        return cls(sender, heard, back[heard], weight)


def linked_choco(
    squeeze: Compressor, mixings: int, gamma: float, links: Links, wire: str = ""
) -> Exchange:
    """The exchange where messages are lost; its state is the copies of all links, [M, P].

    Args:
        squeeze: Q.
        mixings: τ2.
        gamma: γ.
        links: with their weights.
        wire: the type to which the numbers of a message are rounded; empty if they are not.

    Returns:
        The exchange; the schedule's ``arrived`` is bool [τ2, M].
    """
    short = rounded_to_wire(squeeze, wire)

    def init(params: Params) -> jax.Array:
        return flatten(params)[0][links.sender]

    def apply(
        params: Params, copies: jax.Array, key: jax.Array, context: Context
    ) -> tuple[Params, jax.Array, tuple[()]]:
        flat, back = flatten(params)
        words, arrived = key_words(key), jnp.asarray(context.arrived)
        weight = jnp.asarray(links.weight, flat.dtype)
        heard, said = jnp.asarray(links.heard), jnp.asarray(links.said)

        def mix(number: jax.Array, carry: tuple[jax.Array, jax.Array]) -> Any:
            x, y = carry
            each = draws.fold(draws.fold(words, number.astype(jnp.uint32)), _numbers(len(x)))
            own = (each[0][links.sender], each[1][links.sender])  # a device draws once for all
            sent = short(compress(squeeze, x[links.sender] - y, own))
            y = jnp.where(arrived[number][:, None], y + sent, y)

            def hear(k: jax.Array, total: jax.Array) -> jax.Array:
                return total + weight[:, k, None] * (y[heard[:, k]] - y[said[:, k]])

            pull = lax.fori_loop(0, heard.shape[1], hear, jnp.zeros_like(x))
            return x + gamma * pull, y

        flat, copies = lax.fori_loop(0, mixings, mix, (flat, copies))
        return back(flat), copies, ()

    return Exchange(init, apply, rounds=True)


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
    buckets = -(-size // BUCKET)
    cut = jnp.pad(x, ((0, 0), (0, buckets * BUCKET - size))).reshape(len(x), buckets, BUCKET)
    norm = jnp.repeat(jnp.linalg.norm(cut, axis=2), BUCKET, axis=1)[:, :size]
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
