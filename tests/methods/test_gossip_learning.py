from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.methods import build
from joulemesh.methods.gossip_learning import GossipLearning
from joulemesh.methods.sampling import neighbours_of
from joulemesh.scenario import Scenario
from joulemesh.training.exchange import Context, key_words
from joulemesh.world.topology import Graph
from tests.methods.contexts import seen


def complete(devices: int) -> Graph:
    pairs = np.stack(np.triu_indices(devices, 1), axis=1)
    return Graph(devices, pairs, np.zeros((devices, 2)))


def make(devices: int, size: int, **changes: Any) -> GossipLearning:
    return GossipLearning(neighbours_of(complete(devices)), 0, size, 2, 16, "step", **changes)


def context(t: int, sizes: list[int]) -> Context:
    return seen(t, len(sizes), size=jnp.asarray(sizes, jnp.uint32))


def test_whole_models_of_equal_age_average_exactly() -> None:
    # On the complete graph of 2 each receives the other's whole model, as old as its own: both
    # hold the pair's average, in one exchange, exactly.
    method = make(2, 3, fraction=1.0)
    own = method.exchange()
    params = jnp.array([[1.0, 2.0, 4.0], [3.0, 6.0, 0.0]])
    mixed, age, sent = own.apply(params, own.init(params), jax.random.key(0), context(0, [9, 9]))
    np.testing.assert_array_equal(mixed, [[2.0, 4.0, 2.0], [2.0, 4.0, 2.0]])
    assert (age.tolist(), sent) == ([[2], [2]], ())
    np.testing.assert_array_equal(method.bits(np.zeros(1, np.uint32)), [3 * 32 + 32.0] * 2)


@pytest.mark.slow
def test_whole_models_of_equal_age_on_a_larger_graph() -> None:
    # With one message each and equal ages, a device that hears from k others in turn takes half
    # of the last, a quarter of the one before, ... and 2^-k of itself.
    method = make(5, 2, fraction=1.0)
    own = method.exchange()
    params = jnp.asarray(np.eye(5)[:, :2] * 8, jnp.float32)
    mixed, _, _ = own.apply(params, own.init(params), jax.random.key(0), context(3, [9] * 5))
    to = method.partners(np.array([3], np.uint32))
    for k in range(5):
        expected = np.asarray(params[k])
        for i in np.flatnonzero(to == k):
            expected = (expected + np.asarray(params[i])) / 2
        np.testing.assert_array_equal(mixed[k], expected)
    assert np.bincount(to).max() > 1  # somebody does hear from several


def slow(method: GossipLearning, params: Any, ages: Any, key: Any, at: Context) -> Any:
    """The pseudo-code, device by device and coordinate by coordinate."""
    t = np.array([int(at.iteration)], np.uint32)
    to, chosen = method.partners(t), np.asarray(method._coordinates(key_words(key), at.iteration))
    part = method.part(t) if method.parts else np.zeros(len(params), int)
    steps = -(-np.asarray(at.size, int) // method.batch) if method.local_round == "epoch" else 1
    ages = ages + method.tau * (np.ones(len(params), int) * steps)[:, None]
    sent = [
        (dict(zip(c.tolist(), w[np.minimum(c, method.size - 1)], strict=True)), a[p])
        for c, w, a, p in zip(chosen, params, ages, part, strict=True)
    ]
    params, ages = params.copy(), ages.copy()
    for i, (values, age) in enumerate(sent):
        if not isinstance(at.arrived, tuple) and not at.arrived[i]:
            continue
        k, p = to[i], part[i]
        share = age / (ages[k, p] + age)
        for j, value in values.items():
            if j < method.size:
                params[k, j] += share * (value - params[k, j])
        ages[k, p] = max(ages[k, p], age)
    return params, ages


@pytest.mark.parametrize("form", [{"fraction": 0.37}, {"parts": 3}])
def test_equals_the_pseudo_code(form: dict[str, Any]) -> None:
    method = make(5, 13, **form)
    object.__setattr__(method, "local_round", "epoch")
    own, rng = method.exchange(), np.random.default_rng(0)
    with jax.enable_x64(True):
        params = jnp.asarray(rng.normal(size=(5, 13)))
        state, expected = own.init(params), np.array(params)
        ages = np.zeros(state.shape, int)
        apply = jax.jit(own.apply)
        for t in range(6):
            key, at = jax.random.key(t), context(t, [10, 20, 40, 80, 160])
            expected, ages = slow(method, expected, ages, key, at)
            params, state, _ = apply(params, state, key, at)
            np.testing.assert_allclose(params, expected, rtol=1e-12)
            np.testing.assert_array_equal(state, ages)
    assert len(np.unique(ages)) > 1


def test_partners_are_neighbours_drawn_alike() -> None:
    ring = Graph(4, np.array([[0, 1], [0, 3], [1, 2], [2, 3]]), np.zeros((4, 2)))
    method = GossipLearning(neighbours_of(ring), 1, 10, 1, 16, "step")
    drawn = np.stack([method.partners(np.array([t], np.uint32)) for t in range(400)])
    inside = jax.jit(method.partners)(jnp.uint32(17))
    np.testing.assert_array_equal(inside, drawn[17])
    for i in range(4):
        first, second = (i - 1) % 4, (i + 1) % 4
        count = np.bincount(drawn[:, i], minlength=4)
        assert count[first] + count[second] == 400
        assert abs(count[first] - 200) < 40  # four standard deviations


def test_fraction_is_met_on_average() -> None:
    method = make(4, 13, fraction=0.25)  # 3.25 coordinates
    counts = np.stack([method.count(np.array([t], np.uint32)) for t in range(400)])
    assert set(np.unique(counts)) == {3, 4}
    assert abs(counts.mean() - 3.25) < 4 * np.sqrt(0.25 * 0.75 / counts.size)
    sent = method._coordinates(key_words(jax.random.key(0)), jnp.uint32(5))
    np.testing.assert_array_equal((np.asarray(sent) < 13).sum(axis=1), counts[5])


@pytest.mark.slow
def test_every_part_is_sent_once_a_lap() -> None:
    method = make(3, 13, parts=4)
    laps = np.stack([method.part(np.array([t], np.uint32)) for t in range(40)]).reshape(10, 4, 3)
    np.testing.assert_array_equal(np.sort(laps, axis=1), np.tile(np.arange(4)[:, None], (10, 1, 3)))
    assert len(np.unique(laps[:, :, 0], axis=0)) > 1  # shuffled anew
    assert (laps[:, :, 0] != laps[:, :, 1]).any()  # and by every device for itself
    sent = np.asarray(method._coordinates(key_words(jax.random.key(0)), jnp.uint32(0)))
    for i in range(3):
        own = sent[i][sent[i] < 13]
        np.testing.assert_array_equal(own, np.arange(laps[0, 0, i], 13, 4))


def test_indices_cost_bits_unless_they_are_shared(small: Scenario) -> None:
    def bits(form: str) -> Any:
        return build(f"gossip-learning:{form},tau=1", small).ledger().bits[0]

    assert bits("s=0.1") == 6 * (65 * (32 + 10) + 32)
    assert bits("s=0.1,indices=shared") == 6 * (65 * 32 + 32)
    assert bits("s=1") == 6 * (650 * 32 + 32)
    assert bits("form=partitioned,parts=5") == 6 * (130 * 32 + 32)
