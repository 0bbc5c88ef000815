"""Who is chosen, and which coordinates: chance as pure functions of (seed, purpose, iteration...).

Partners are drawn from the scenario's seed, as the planner draws its gossip: they are known before
training, so they can be priced, and they are the same for every repetition. Plain operators serve
NumPy (the price, and the exchange with PyTorch) and JAX alike.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.methods.base import FloatArray, IntArray
from joulemesh.training import draws
from joulemesh.training.arrays import namespace, until
from joulemesh.world.topology import Graph

# Purposes: constants folded in after the seed, so that no two uses of a seed share draws.
GOSSIP, GOSSIP_PARTS = 0x676C6561, 0x676C7074
PENS_FIRST, PENS_SECOND = 0x70656E31, 0x70656E32

_U = np.uint32
_STAGES = 8  # of the Feistel network


class Neighbours(NamedTuple):
    """Every device's neighbours, in ascending order, padded with the device itself."""

    table: IntArray  # [N, widest]
    degree: IntArray  # [N]
    link: IntArray  # [N, widest]: row of the link in the graph's edge list; −1 pads
    edges: IntArray  # [E, 2], the graph's

    def route(self, sender: IntArray, receiver: IntArray, bits: FloatArray, uses: float) -> Route:
        """The messages of one step, each from a device to one of its neighbours."""
        wide = len(self.degree)
        key = np.minimum(sender, receiver) * wide + np.maximum(sender, receiver)
        link = np.searchsorted(self.edges[:, 0] * wide + self.edges[:, 1], key)
        used, edge = np.unique(link, return_inverse=True)
        return (
            Route.build(
                "unicast",
                edges=self.edges[used],
                edge=edge,
                forward=sender < receiver,
                step=0,
                bits=bits,
                repeats=1,
                uses=uses,
            )
            .on_links(used)
            .for_all()
        )

    def all_but(self, sender: IntArray, receiver: IntArray) -> NDArray[np.bool_]:
        """bool [N, widest]: every device's places, except those of senders to receivers."""
        left = np.ones(self.table.shape, np.bool_)
        left[receiver, np.argmax(self.table[receiver] == sender[:, None], axis=1)] = False
        return left


def neighbours_of(graph: Graph) -> Neighbours:
    n, count = graph.devices, len(graph.edges)
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    degree = np.bincount(ends[:, 0], minlength=n)
    own, other = ends[order].T
    slot = np.arange(2 * count) - np.repeat(np.cumsum(degree) - degree, degree)
    table = np.repeat(np.arange(n)[:, None], int(degree.max()), axis=1)
    link = np.full_like(table, -1)
    table[own, slot], link[own, slot] = other, order % count
    return Neighbours(table, degree, link, graph.edges)


def world_key(seed: int, purpose: int) -> draws.Key:
    """The key of a scenario's seed, for one purpose: two uint32 arrays of shape [1]."""
    return draws.seed_key(seed % 2**64, purpose)


def scores(key: draws.Key, t: Any, devices: Any, width: int | IntArray) -> Any:
    """Random words for each device and place: the smallest k of a row are k places at random."""
    each = draws.fold(draws.fold(key, t), devices)
    slots = np.arange(width) if isinstance(width, int) else width
    return draws.fold((each[0][:, None], each[1][:, None]), slots.astype(np.uint32))[0] >> _U(1)


def hashed(word: Any) -> Any:
    """Make every bit depend on every bit (the finaliser of MurmurHash3)."""
    word = (word ^ (word >> _U(16))) * _U(0x85EBCA6B)
    word = (word ^ (word >> _U(13))) * _U(0xC2B2AE35)
    return word ^ (word >> _U(16))


def permuted(key: draws.Key, positions: Any, size: int) -> Any:
    """Send positions 0..k−1 to k different numbers of 0..size−1: the key's permutation.

    A Feistel network on a square grid that barely holds ``size`` numbers; what falls outside
    walks on until it is inside (Black, Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
    The work is in proportion to k; sorting random scores would be far slower on a CPU.
    """
    side, xp = _U(math.isqrt(size - 1) + 1), namespace(key[0])
    numbers = np.arange(_STAGES, dtype=np.uint32)
    subkeys = draws.fold((key[0][..., None], key[1][..., None]), numbers)[0]

    def cipher(x: Any) -> Any:
        left, right = x // side, x % side
        for number in range(_STAGES):
            turn = draws.below(hashed(hashed(right + subkeys[..., number])), side)
            left, right = right, (left + turn) % side
        return left * side + right

    def walk(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        x, outside = carry
        x = xp.where(outside, cipher(x), x)
        return x, x >= size

    shape = np.broadcast_shapes(positions.shape, key[0].shape)
    start = (xp.broadcast_to(positions, shape), xp.ones(shape, dtype=bool))  # all take one step
    return until(lambda carry: ~xp.any(carry[1]), walk, start)[0].astype(np.int32)
