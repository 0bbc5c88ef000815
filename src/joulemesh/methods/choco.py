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

top-k and random-k keep k = ⌊fraction · d⌋ numbers (at least one): the largest, whose coordinates
must be told, or those that a shared seed names. QSGD (Alistarh et al., NeurIPS 2017,
arXiv:1610.02132) sends, for each bucket of 512 numbers, a norm and, for each number, a sign and one
of ``levels`` + 1 levels. With one norm for all d numbers its error would grow with √d.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from joulemesh.methods.base import FloatArray, IntArray
from joulemesh.methods.sampling import hashed, permuted
from joulemesh.training import draws
from joulemesh.training.arrays import (
    ROUND,
    Array,
    Tree,
    flatten,
    is_jax,
    like,
    namespace,
    pad,
    place,
    put,
    repeat,
)
from joulemesh.training.exchange import Context, Exchange, key_words

_NORM_BITS = 32
BUCKET = 512
"""Numbers that share a norm in QSGD, as in its authors' experiments."""
_STEPS = {"identity": 1.0, "topk": 2.0, "qsgd": 1.4, "randk": 0.7}  # γ/δ


@dataclass(frozen=True)
class Compressor:
    """A way to send less.

    Attributes:
        kind: ``"identity"``, ``"topk"``, ``"randk"`` or ``"qsgd"``.
        amount: the fraction kept, or the number of levels.
    """

    kind: Literal["identity", "topk", "randk", "qsgd"]
    amount: float = 1.0

    def __str__(self) -> str:
        """As a user writes it."""
        return self.kind if self.kind == "identity" else f"{self.kind}:{self.amount:g}"

    def kept(self, size: int) -> int:
        """Numbers sent of ``size``."""
        if self.kind in ("topk", "randk"):
            return max(1, math.floor(self.amount * size))
        return size

    def bits(self, size: int, bits_per_parameter: int) -> float:
        if self.kind == "qsgd":
            norms = math.ceil(size / BUCKET) * _NORM_BITS
            return float(size * (1 + math.ceil(math.log2(self.amount + 1))) + norms)
        index = math.ceil(math.log2(size)) if self.kind == "topk" else 0
        return float(self.kept(size) * (bits_per_parameter + index))

    def shrink(self, size: int) -> float:
        """Factor that makes QSGD a contraction: 1 + min(d/s², √d/s), d of a bucket; otherwise 1."""
        if self.kind != "qsgd":
            return 1.0
        together = min(size, BUCKET)
        return 1.0 + min(together / self.amount**2, math.sqrt(together) / self.amount)

    def passes(self, size: int) -> float:
        """δ: the share of a message's squared norm that surely passes."""
        return self.kept(size) / size / self.shrink(size)

    def step(self, size: int) -> float:
        """CHOCO's γ unless given: δ times 2 (top-k), 1.4 (QSGD) or 0.7 (random-k); at most 1.

        The bounds of its authors grow with δ² and with the square of the graph's spectral gap; such
        steps are far too small. What converges fastest is in proportion to δ and hardly depends on
        the graph or on the number of parameters (``python -m benchmarks.consensus``): devices come
        together at least half as fast with this default as with the best of nine steps, on rings,
        grids, geometric and complete graphs of 9 and 25 devices.
        """
        return min(1.0, _STEPS[self.kind] * self.passes(size))


def compressor(text: str) -> Compressor:
    """Read ``identity``, ``topk:0.1``, ``randk:0.1`` or ``qsgd:8``; ValueError for all else."""
    kind, _, amount = text.partition(":")
    if kind == "identity" and not amount:
        return Compressor("identity")
    if kind in ("topk", "randk") and 0 < float(amount) <= 1:
        return Compressor("topk" if kind == "topk" else "randk", float(amount))
    if kind == "qsgd" and int(amount) >= 1:
        return Compressor("qsgd", float(int(amount)))
    raise ValueError(text)


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
    """The exchange; its state is the public copies, [N, P]."""
    sent = rounded_to_wire(squeeze, wire)

    def init(params: Tree) -> Array:
        return flatten(params)[0]

    def apply(
        params: Tree, copies: Array, key: Any, context: Context
    ) -> tuple[Tree, Array, tuple[()]]:
        flat, back = flatten(params)
        xp, words, here = namespace(flat), key_words(key), place(context.active, flat)

        def mix(number: Any, carry: tuple[Array, Array]) -> Any:
            x, y = carry
            each = draws.fold(draws.fold(words, number.astype(_U)), _numbers(len(x)))
            public = y + sent(compress(squeeze, x - y, each))
            y = xp.where(here[:, None], public, y) if away else public
            return x + gamma * (context.mix(y) - y), y

        flat, copies = repeat(mixings, mix, (flat, copies))
        return back(flat), copies, ()

    return Exchange(init, apply, rounds=True)


def rounded_to_wire(squeeze: Compressor, wire: str) -> Callable[[Array], Array]:
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
        """The links of messages, each of which has one the other way."""
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
    """The exchange where messages are lost; its state is the copies of all links, [M, P]."""
    short = rounded_to_wire(squeeze, wire)

    def init(params: Tree) -> Array:
        flat = flatten(params)[0]
        return flat[place(links.sender, flat)]

    def apply(
        params: Tree, copies: Array, key: Any, context: Context
    ) -> tuple[Tree, Array, tuple[()]]:
        flat, back = flatten(params)
        xp, words, arrived = namespace(flat), key_words(key), place(context.arrived, flat)
        weight, sender = like(links.weight, flat), place(links.sender, flat)
        heard, said = place(links.heard, flat), place(links.said, flat)

        def mix(number: Any, carry: tuple[Array, Array]) -> Any:
            x, y = carry
            each = draws.fold(draws.fold(words, number.astype(_U)), _numbers(len(x)))
            own = (each[0][links.sender], each[1][links.sender])  # a device draws once for all
            sent = short(compress(squeeze, x[sender] - y, own))
            y = xp.where(arrived[number][:, None], y + sent, y)

            def hear(k: Any, total: Array) -> Array:
                return total + weight[:, k, None] * (y[heard[:, k]] - y[said[:, k]])

            pull = repeat(heard.shape[1], hear, xp.zeros_like(x))
            return x + gamma * pull, y

        flat, copies = repeat(mixings, mix, (flat, copies))
        return back(flat), copies, ()

    return Exchange(init, apply, rounds=True)


def _numbers(count: int) -> Any:
    return np.arange(count, dtype=_U)


def compress(squeeze: Compressor, x: Array, keys: draws.Key) -> Array:
    """Q of every row: what the receivers make of the message."""
    size, xp = x.shape[1], namespace(x)
    if squeeze.kind == "identity":
        return x
    if squeeze.kind == "topk":
        return xp.where(largest(xp.abs(x), squeeze.kept(size)), x, 0)
    wide = (keys[0][:, None], keys[1][:, None])
    if squeeze.kind == "randk":
        chosen = place(permuted(wide, np.arange(squeeze.kept(size), dtype=_U), size), x)
        rows = place(np.arange(len(x)), x)[:, None]
        return put(xp.zeros_like(x), (rows, chosen), x[rows, chosen], unique=True)
    word = hashed(hashed(np.arange(size, dtype=_U) + wide[0]) ^ wide[1])
    uniform = like(word >> _U(8), x) * 2.0**-24
    buckets = -(-size // BUCKET)
    cut = pad(x, (0, buckets * BUCKET - size)).reshape(len(x), buckets, BUCKET)
    each = xp.linalg.vector_norm(cut, axis=2)[:, :, None]
    norm = xp.broadcast_to(each, cut.shape).reshape(len(x), -1)[:, :size]
    level = xp.floor(squeeze.amount * xp.abs(x) / xp.where(norm > 0, norm, 1) + uniform)
    return xp.sign(x) * norm * level / (squeeze.amount * squeeze.shrink(size))


def largest(values: Array, count: int) -> Array:
    """Mark exactly ``count`` of the largest numbers of every row, the first among equals."""
    xp = namespace(values)
    if is_jax(values):
        values, floor = _bisected(values, count)
    else:
        floor = xp.sort(values, axis=1)[:, values.shape[1] - count, None]
    above, tied = values > floor, values == floor
    room = count - xp.sum(above, axis=1, keepdims=True)
    return above | (tied & (xp.cumulative_sum(xp.astype(tied, xp.int32), axis=1) <= room))


def _bisected(values: Array, count: int) -> tuple[Array, Array]:
    """The bits of non-negative numbers [N, P], and [N, 1] those of the count-th largest.

    They are ordered as the numbers are, so that bisection finds it: no sorting, which XLA is slow
    at on a CPU.
    """
    jax = sys.modules["jax"]
    jnp, lax = jax.numpy, jax.lax
    wide = jnp.uint64 if values.dtype == jnp.float64 else jnp.uint32
    bits = lax.bitcast_convert_type(values, wide)
    digits = np.iinfo(wide).bits - 1  # the sign is 0

    def raise_(number: Array, floor: Array) -> Array:
        one = jnp.ones_like(floor)
        trial = floor | (one << (digits - 1 - number).astype(wide))
        enough = jnp.sum(bits >= trial, axis=1, keepdims=True) >= count
        return jnp.where(enough, trial, floor)

    # The largest floor that at least ``count`` numbers reach: the count-th largest number.
    return bits, lax.fori_loop(0, digits, raise_, jnp.zeros((len(values), 1), wide))
