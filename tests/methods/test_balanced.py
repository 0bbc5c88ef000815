from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.aggregation.gossip import metropolis_weights
from joulemesh.methods import Setting, build
from joulemesh.methods.balanced import CooperativeBound, choose_pair
from joulemesh.methods.choco import Compressor, choco, compress, compressor, largest
from joulemesh.scenario import Scenario
from joulemesh.training.exchange import Context
from joulemesh.training.jax.mixing import SparseMixing
from tests.methods.contexts import seen

Train = Callable[..., Any]


@pytest.fixture(scope="module")
def short(small: Scenario) -> Scenario:
    return small.override({"plan.iterations": 3, "network.topology": "complete"})


def test_one_and_one_is_d_psgd(small: Scenario) -> None:
    ours, theirs = build("balanced:tau1=1,tau2=1", small), build("d-psgd", small)
    np.testing.assert_array_equal(ours.schedule.rounds, theirs.schedule.rounds)
    np.testing.assert_array_equal(ours.schedule.matrices(0, 1), theirs.schedule.matrices(0, 1))
    np.testing.assert_array_equal(ours.ledger().exchange_j, theirs.ledger().exchange_j)
    weights = metropolis_weights(Setting(small).world.graph.edges, 6).toarray()
    np.testing.assert_allclose(ours.schedule.matrices(0, 1)[0], weights)


@pytest.mark.slow
def test_with_the_mean_it_is_fixed_rounds_on_a_tree(short: Scenario, train: Train) -> None:
    # On a complete graph the Metropolis matrix is J = 11ᵀ/N.
    mixed = build("balanced:tau1=2,tau2=1", short)
    np.testing.assert_allclose(mixed.schedule.matrices(0, 1), np.full((1, 6, 6), 1 / 6))
    exact = build("fixed:2", short)
    assert exact.schedule.mixing == "mean"
    ours, _ = train(mixed, precision="float64")
    theirs, _ = train(exact, precision="float64")
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_without_mixing_it_is_local_sgd(short: Scenario, train: Train) -> None:
    alone = build("balanced:tau1=2,tau2=0", short)
    assert not alone.ledger().exchange_j.any()
    assert not alone.ledger().bits.any()
    params, _ = train(alone, precision="float64")
    # Device 2 learns the same when everybody else stands still.
    rounds = np.where(np.arange(6) == 2, alone.schedule.rounds, 0).astype(np.int32)
    object.__setattr__(alone.schedule, "rounds", rounds)
    single, _ = train(alone, precision="float64")
    np.testing.assert_array_equal(single[0, 2], params[0, 2])
    np.testing.assert_array_equal(single[0, 0], single[0, 1])
    assert np.abs(params[0, 0] - params[0, 1]).max() > 1e-3


def test_more_mixing_is_a_power(small: Scenario) -> None:
    once, thrice = (build(f"balanced:tau1=1,tau2={k}", small) for k in (1, 3))
    w = once.schedule.matrices(0, 1)[0]
    np.testing.assert_allclose(thrice.schedule.matrices(0, 1)[0], w @ w @ w)
    np.testing.assert_allclose(thrice.ledger().exchange_j, 3 * once.ledger().exchange_j)


# The balance -------------------------------------------------------------------------------------

CONSTANTS = {
    "bounds.smoothness": 2.0,
    "bounds.gradient_variance": 3.0,
    "bounds.initial_gap": 1.5,
}


def test_defaults_without_constants(small: Scenario) -> None:
    made = build("balanced", small)
    assert made.schedule.rounds[0, 0] == Setting(small).rounds
    per_mixing = build("d-psgd", small).ledger().exchange_j
    np.testing.assert_allclose(made.ledger().exchange_j, 4 * per_mixing)
    assert any("[bounds] has no numbers" in note for note in made.notes)
    half = build("balanced:tau1=2", small)
    assert any("tau1 = 2 and tau2 = 4, not balanced" in note for note in half.notes)
    assert not any("balanced" in note for note in build("balanced:tau1=2,tau2=4", small).notes)


def test_no_mixing_stays_no_mixing(small: Scenario) -> None:
    made = build("balanced:tau2=0", small.override(CONSTANTS))
    assert not made.schedule.exchanged.any()
    assert made.schedule.rounds[0, 0] == Setting(small).rounds


@pytest.mark.parametrize("equal", ["iterations", "batteries", "time"])
def test_the_balance_is_the_best_of_the_grid(small: Scenario, equal: str) -> None:
    scenario = small.override({**CONSTANTS, "training.learning_rate": 0.02})
    setting = Setting(scenario, equal)
    best = choose_pair(setting)[:2]
    zeta = 1 / 3 + 2 / 3 * np.cos(np.pi / 3)  # Metropolis on a ring of 6
    terms = CooperativeBound(
        contraction=zeta, devices=6, learning_rate=0.02, smoothness=2.0, variance=3.0, gap=1.5
    )

    def value(tau1: int, tau2: int) -> float:
        # K is what such a contender would run; batteries bind whatever is equal.
        ledger = build(f"balanced:tau1={tau1},tau2={tau2}", scenario, equal="energy").ledger()
        k = float(ledger.iterations)
        if equal == "time":
            k = min(k, setting.clock_s // ledger.seconds[0])
        if equal == "iterations":
            k = min(k, 24)
        return float(terms.of(tau1, tau2, k))

    near = [(best[0] + a, best[1] + b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    pairs = {(1, 1), (1, 9), (8, 1), (20, 3), *((a, b) for a, b in near if a > 0 and b > 0)}
    assert min(pairs, key=lambda pair: value(*pair)) == best
    made = build("balanced", setting)
    assert made.schedule.rounds[0, 0] == best[0]
    assert choose_pair(setting, tau1=5)[0] == 5
    assert choose_pair(setting, tau2=7)[1] == 7


# CHOCO -------------------------------------------------------------------------------------------


def context(mixing: Any) -> Context:
    return seen(0, len(mixing[0]), mixing=mixing)


def test_identity_is_plain_mixing(small: Scenario) -> None:
    weights = metropolis_weights(Setting(small).world.graph.edges, 6).toarray()
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, copies = (jnp.asarray(rng.normal(size=(6, 9))) for _ in range(2))
        own = choco(Compressor("identity"), 9, 3, 1.0)
        # Whatever the public copies were: all of the difference is sent.
        mixed, _, _ = own.apply(x, copies, jax.random.key(0), context(jnp.asarray(weights)))
        np.testing.assert_allclose(mixed, np.linalg.matrix_power(weights, 3) @ x, rtol=1e-12)
        index = jnp.asarray([[(i - 1) % 6, i, (i + 1) % 6] for i in range(6)])
        lists = SparseMixing(index, jnp.full((6, 3), 1 / 3), jnp.int32(1))
        again, _, _ = own.apply(x, copies, jax.random.key(0), context(lists))
        np.testing.assert_allclose(again, mixed, rtol=1e-12)


@pytest.mark.slow
def test_identity_in_the_engine(short: Scenario, train: Train) -> None:
    ring = short.override({"network.topology": "ring"})
    squeezed, _ = train(
        build("balanced:tau1=2,tau2=2,compress=identity", ring), precision="float64"
    )
    plain, _ = train(build("balanced:tau1=2,tau2=2", ring), precision="float64")
    np.testing.assert_allclose(squeezed, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["topk:0.2", "randk:0.2", "qsgd:4"])
def test_compressed_mixing_keeps_the_mean_and_agrees_in_time(small: Scenario, name: str) -> None:
    weights = jnp.asarray(metropolis_weights(Setting(small).world.graph.edges, 6).toarray())
    squeeze = compressor(name)
    own = choco(squeeze, 50, 4, squeeze.step(50))
    start = jnp.asarray(np.random.default_rng(0).normal(size=(6, 50)), jnp.float32)
    apply = jax.jit(lambda x, y, key: own.apply(x, y, key, context(weights))[:2])
    x, copies = start, jnp.zeros_like(start)
    for t in range(120):
        x, copies = apply(x, copies, jax.random.key(t))
    np.testing.assert_allclose(x.mean(axis=0), start.mean(axis=0), atol=1e-5)
    assert np.linalg.norm(x - x.mean(axis=0)) < 0.1 * np.linalg.norm(start - start.mean(axis=0))


def test_public_copies_follow_by_hand() -> None:
    # Two devices, J, top-1 of 2, γ = ½: q_0 = (0, 4), q_1 = (2, 0) from copies at 0, so
    # y = [[0, 4], [2, 0]], J y = (1, 2), and x + ½(J y − y) = [[1.5, 3], [1.5, 2]].
    own = choco(Compressor("topk", 0.5), 2, 1, 0.5)
    x = jnp.array([[1.0, 4.0], [2.0, 1.0]])
    at = context(jnp.full((2, 2), 0.5))
    mixed, copies, _ = own.apply(x, jnp.zeros((2, 2)), jax.random.key(0), at)
    np.testing.assert_allclose(mixed, [[1.5, 3.0], [1.5, 2.0]])
    np.testing.assert_allclose(copies, [[0.0, 4.0], [2.0, 0.0]])


mark = jax.jit(largest, static_argnums=1)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 1e-30, 3e8]), min_size=4, max_size=4),
       st.integers(1, 4))  # fmt: skip
def test_largest_takes_exactly_so_many(values: list[float], count: int) -> None:
    marked = np.asarray(mark(jnp.asarray([values], jnp.float32), count))[0]
    expected = sorted(range(4), key=lambda i: (-np.float32(values[i]), i))[:count]
    assert sorted(np.flatnonzero(marked).tolist()) == sorted(expected)


def test_compressors() -> None:
    keys = (jnp.arange(400, dtype=jnp.uint32), jnp.zeros(400, jnp.uint32))
    row = np.random.default_rng(0).normal(size=40).astype(np.float32)
    x = jnp.asarray(np.tile(row, (400, 1)))
    squeezed = jax.jit(compress, static_argnums=0)
    kept = np.asarray(squeezed(Compressor("randk", 0.25), x, keys))
    assert ((kept != 0).sum(axis=1) == 10).all()
    assert np.isin(kept, [*row.tolist(), 0.0]).all()
    shares = (kept != 0).mean(axis=0)
    assert np.abs(shares - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 400)
    quantiser = Compressor("qsgd", 4)
    drawn = np.asarray(squeezed(quantiser, x, keys)) * quantiser.shrink(40)
    step = np.linalg.norm(row) / 4
    np.testing.assert_allclose(drawn / step, np.rint(drawn / step), atol=1e-4)
    assert np.abs(drawn.mean(axis=0) - row).max() < 5 * step / np.sqrt(400)  # unbiased
    zero = compress(quantiser, jnp.zeros((1, 3)), (keys[0][:1], keys[1][:1]))
    np.testing.assert_array_equal(zero, np.zeros((1, 3)))
    assert Compressor("topk", 1e-9).kept(10) == 1
