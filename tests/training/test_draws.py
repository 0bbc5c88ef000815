from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.training import draws

WORD = st.integers(0, 2**32 - 1)


def u32(*values: int) -> NDArray[np.uint32]:
    return np.array(values, np.uint32)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), WORD)
def test_fold_is_jax_random_fold_in(seed: int, data: int) -> None:
    ours = draws.fold(draws.seed_key(seed), u32(data))
    key = jax.random.wrap_key_data(jnp.array([0, seed], jnp.uint32))
    assert [int(word[0]) for word in ours] == jax.random.key_data(
        jax.random.fold_in(key, jnp.uint32(data))
    ).tolist()


@given(WORD, st.integers(1, 2**32 - 1))
def test_below_is_the_high_word_of_the_product(bits: int, bound: int) -> None:
    assert int(draws.below(u32(bits), u32(bound))[0]) == bits * bound >> 32


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 300))
def test_shuffle_is_a_permutation(seed: int, size: int) -> None:
    placed = draws.shuffle(draws.seed_key(seed), np.arange(size, dtype=np.uint32), u32(size))
    assert sorted(placed.tolist()) == list(range(size))


def test_shuffles_of_four_are_equally_likely() -> None:
    keys = draws.fold(draws.seed_key(1, draws.BATCH), np.arange(24_000, dtype=np.uint32)[:, None])
    placed = draws.shuffle(keys, np.arange(4, dtype=np.uint32), u32(4))
    _, counts = np.unique(placed, axis=0, return_counts=True)
    assert len(counts) == 24
    # 23 degrees of freedom: a fair shuffle exceeds 49.7 once in a thousand seeds.
    assert ((counts - 1000) ** 2 / 1000).sum() < 49.7


def test_where_two_samples_go_is_independent() -> None:
    keys = draws.fold(draws.seed_key(2, draws.BATCH), np.arange(38_000, dtype=np.uint32)[:, None])
    placed = draws.shuffle(keys, np.arange(20, dtype=np.uint32), u32(20)).astype(int)
    pairs = np.bincount(placed[:, 3] * 20 + placed[:, 17], minlength=400).reshape(20, 20)
    assert not pairs.diagonal().any()
    observed = pairs[~np.eye(20, dtype=bool)]
    assert ((observed - 100) ** 2 / 100).sum() < 471  # 379 degrees of freedom, 1 in 1000


@pytest.mark.parametrize("size", [1, 5, 8, 21])
def test_an_epoch_visits_every_sample_once_and_rounds_differ(size: int) -> None:
    key, lanes = draws.seed_key(0, draws.BATCH, 3, 7), np.arange(4, dtype=np.uint32)
    steps = int(draws.steps_per_round(np.array(size), 4, "epoch"))
    assert steps == -(-size // 4)
    orders = []
    for round_ in range(2):
        visited = []
        for step in range(round_ * steps, (round_ + 1) * steps):
            position, valid = draws.epoch_positions(key, u32(step), lanes, u32(size))
            assert position.max() < size
            visited += position[valid].tolist()
        assert sorted(visited) == list(range(size))
        orders.append(visited)
    assert size < 8 or orders[0] != orders[1]


def test_batches_are_uniform_over_the_devices_samples() -> None:
    key, lanes = draws.seed_key(5, draws.BATCH, 0, 0), np.arange(50, dtype=np.uint32)
    steps = np.arange(400, dtype=np.uint32)[:, None]
    position = draws.step_positions(key, steps, lanes, u32(10))
    counts = np.bincount(position.ravel(), minlength=10)
    assert len(counts) == 10
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.9  # 9 degrees of freedom, 1 in 1000


def test_numpy_and_jax_draw_alike() -> None:
    key, lanes = draws.seed_key(9, draws.BATCH, 1, 2), np.arange(6, dtype=np.uint32)
    on_jax = tuple(jnp.asarray(word) for word in key)
    for draw in (draws.step_positions, draws.epoch_positions):
        plain = draw(key, u32(3), lanes, u32(17))
        traced = jax.jit(draw)(on_jax, jnp.array([3], jnp.uint32), jnp.asarray(lanes), u32(17))
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(traced), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    devices = np.arange(10, dtype=np.uint32)[:, None]
    base, lanes = draws.seed_key(0, draws.BATCH, 4), np.arange(3, dtype=np.uint32)
    together = draws.step_positions(draws.fold(base, devices), u32(1), lanes, u32(99))
    alone = draws.step_positions(draws.fold(base, devices[6]), u32(1), lanes, u32(99))
    np.testing.assert_array_equal(together[6], alone)


def test_purposes_and_seeds_do_not_share_draws() -> None:
    keys = [draws.seed_key(s, p) for s in (0, 1, 2**32) for p in (draws.INIT, draws.BATCH)]
    assert len({tuple(int(word[0]) for word in key) for key in keys}) == 6
