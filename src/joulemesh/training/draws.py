"""Which samples are drawn: pure functions of (seed, purpose, iteration, device, step, lane).

Keys are pairs of uint32 words, folded exactly as ``jax.random.fold_in`` folds Threefry keys, but
written with plain operators. XLA then fuses a whole draw into the gather that uses it (its own
Threefry is a loop on the CPU and a separate kernel on a GPU), and the same lines draw for NumPy.
No draw depends on where a device stands in an array, so blocks, chunks and hosts cannot change it.

References:
    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011 (Threefry-2x32-20).
    Hoang, Morris, Rogaway, "An Enciphering Scheme Based on a Card Shuffle", CRYPTO 2012
    (swap-or-not: a permutation of 0..D-1, for any D, that needs no sorting).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Words: TypeAlias = Any  # uint32 array of NumPy or JAX
Key: TypeAlias = tuple[Words, Words]

# Purposes: constants folded in after the seed, so that no two uses of a seed share draws.
INIT, BATCH, EXCHANGE = 0x696E6974, 0x62617463, 0x65786368

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_SHUFFLE_ROUNDS = 24
_U = np.uint32


def _threefry(key: Key, first: Words, second: Words) -> Key:
    """Encipher the two words of a counter; any shapes that broadcast."""
    k0, k1 = key
    words = (k0, k1, k0 ^ k1 ^ _U(0x1BD11BDA))
    x, y = first + k0, second + k1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << _U(rotation)) | (y >> _U(32 - rotation))) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + _U(group + 1)
    return x, y


def fold(key: Key, data: Words) -> Key:
    """Fold an integer (or an array of them, below 2**32) into a key, as ``jax.random.fold_in``.

    Args:
        key: two uint32 arrays.
        data: uint32 array that broadcasts with the key.

    Returns:
        The new key, of the broadcast shape.

    >>> import jax
    >>> ours = fold(seed_key(3), np.array([5], np.uint32))
    >>> theirs = jax.random.key_data(jax.random.fold_in(jax.random.key(3), 5))
    >>> [int(word[0]) for word in ours] == theirs.tolist()
    True
    """
    return _threefry(key, _U(0), data)


def seed_key(seed: int, *purposes: int) -> Key:
    """Make the key of a seed, with purposes folded in."""
    key: Key = (np.array([seed >> 32], _U), np.array([seed & 0xFFFFFFFF], _U))
    for purpose in purposes:
        key = fold(key, np.array([purpose], _U))
    return key


def below(bits: Words, bound: Words) -> Words:
    """Scale uniform 32-bit words to 0..bound-1: the high word of the 64-bit product.

    Args:
        bits: uint32.
        bound: uint32, broadcasts with ``bits``.

    Returns:
        uint32; no value is more likely than another by more than bound/2**32.

    >>> below(np.array([0, 2**31, 2**32 - 1], np.uint32), np.array([10], np.uint32))
    array([0, 5, 9], dtype=uint32)
    """
    low, half = _U(0xFFFF), _U(16)
    a1, a0 = bits >> half, bits & low
    b1, b0 = bound >> half, bound & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    return a1 * b1 + (middle >> half) + (((middle & low) + a0 * b1) >> half)


def shuffle(key: Key, positions: Words, size: Words) -> Words:
    """Send each position to its place in the key's permutation of 0..size-1 (swap-or-not).

    Each round draws a pivot and swaps the pair {x, pivot-x mod size} or not, by a bit that both
    of the pair compute alike: a bijection whatever the key, and a uniform-looking one after
    enough rounds (24: more than the bits of a position in any data set in use).
    """
    for number in range(_SHUFFLE_ROUNDS):
        # A hash of the key and the round: it is as even as Threefry here, and much shorter.
        pivot = below(_mix(key[0] + _U(number)), size)
        salt = _mix(key[1] ^ _U(number + 1))
        partner = pivot - positions
        partner = partner + size * (positions > pivot).astype(np.uint32)
        larger = positions ^ ((positions ^ partner) * (partner > positions).astype(np.uint32))
        swap = _mix(larger ^ salt) >> _U(31)
        positions = positions ^ ((positions ^ partner) * swap)
    return positions


def _mix(word: Words) -> Words:
    """Make every bit depend on every bit (the finaliser of MurmurHash3)."""
    word = (word ^ (word >> _U(16))) * _U(0x85EBCA6B)
    word = (word ^ (word >> _U(13))) * _U(0xC2B2AE35)
    return word ^ (word >> _U(16))


def steps_per_round(sizes: Words, batch: int, local_round: str) -> Words:
    """SGD steps in one round: 1 in mode "step", batches in one pass in mode "epoch"."""
    return (sizes + batch - 1) // batch if local_round == "epoch" else sizes * 0 + 1


def step_positions(key: Key, step: Words, lanes: Words, size: Words) -> Words:
    """Draw a batch uniformly, with replacement, from a device's own samples.

    With replacement: it costs one word per sample whatever D_i is, is unbiased (Assumption 3)
    and serves devices with fewer samples than a batch.
    """
    return below(fold(fold(key, step), lanes)[0], size)


def epoch_positions(key: Key, step: Words, lanes: Words, size: Words) -> tuple[Words, Words]:
    """Take the next batch of a pass over a device's samples, in a fresh order for each round."""
    batch = _U(lanes.shape[-1])
    passes = (size + (batch - _U(1))) // batch
    at = (step % passes) * batch + lanes
    valid = at < size
    # Beyond the end: the last sample's place, so that the index is in range; its weight is 0.
    at = at * valid.astype(np.uint32) + (size - _U(1)) * (~valid).astype(np.uint32)
    return shuffle(fold(key, step // passes), at, size), valid
