from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.methods.sampling import (
    GOSSIP,
    PENS_FIRST,
    neighbours_of,
    permuted,
    scores,
    world_key,
)
from joulemesh.training import draws
from joulemesh.training.exchange import key_words
from joulemesh.world.topology import Graph


@pytest.mark.parametrize("size", [1, 2, 3, 10, 97, 4810])
def test_permuted_is_a_permutation(size: int) -> None:
    words = jnp.asarray(np.random.default_rng(size).integers(2**32, size=(2, 9, 1)), jnp.uint32)
    every = jnp.arange(size, dtype=jnp.uint32)
    drawn = np.asarray(jax.jit(lambda a, b: permuted((a, b), every, size))(*words))
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(size), (9, 1)))
    assert size < 10 or len(np.unique(drawn, axis=0)) == 9


def test_permuted_reaches_every_pair_alike() -> None:
    # All 20 ordered pairs of 0..4 in the first two places; 3.3 standard deviations of slack.
    tries = 20_000
    keys = draws.fold((np.zeros(1, np.uint32), np.ones(1, np.uint32)), np.arange(tries, dtype="u4"))
    wide = (jnp.asarray(keys[0])[:, None], jnp.asarray(keys[1])[:, None])
    drawn = np.asarray(permuted(wide, jnp.arange(2, dtype=jnp.uint32), 5))
    counts = np.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25)
    assert (counts[[0, 6, 12, 18, 24]] == 0).all()
    others = np.delete(counts, [0, 6, 12, 18, 24])
    assert np.abs(others - tries / 20).max() < 3.3 * np.sqrt(tries / 20)


def test_neighbours_and_routes_of_a_star() -> None:
    star = Graph(4, np.array([[0, 2], [1, 2], [2, 3]]), np.zeros((4, 2)))
    found = neighbours_of(star)
    assert found.degree.tolist() == [1, 1, 3, 1]
    assert found.table.tolist() == [[2, 0, 0], [2, 1, 1], [0, 1, 3], [2, 3, 3]]
    assert found.link.tolist() == [[0, -1, -1], [1, -1, -1], [0, 1, 2], [2, -1, -1]]
    bits = np.array([8.0, 9.0, 10.0])
    route = found.route(np.array([3, 2, 0]), np.array([2, 3, 2]), bits, 0.5)
    assert list(route.messages()) == [(0, 3, 2, 8.0), (0, 2, 3, 9.0), (0, 0, 2, 10.0)]
    assert (route.link_index.tolist(), route.uses) == ([0, 2], 0.5)


def test_scores_are_the_same_for_both_libraries() -> None:
    devices = np.arange(5, dtype=np.uint32)
    key = world_key(3, GOSSIP)
    ours = scores(key, np.array([7], np.uint32), devices, 6)
    theirs = jax.jit(lambda t: scores(key, t, devices, 6))(jnp.uint32(7))
    np.testing.assert_array_equal(ours, np.asarray(theirs))
    assert ours.max() < 2**31
    other = scores(world_key(3, PENS_FIRST), np.array([7], np.uint32), devices, 6)
    assert (ours != other).any()


@pytest.mark.parametrize("seed", [0, 2**40])
def test_keys_of_jax_are_folded_alike(seed: int) -> None:
    ours = draws.fold(key_words(jax.random.key(seed % 2**32)), jnp.uint32(9))
    theirs = jax.random.key_data(jax.random.fold_in(jax.random.key(seed % 2**32), 9))
    assert [int(word[0]) for word in ours] == theirs.tolist()
