from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.data import Dataset, Partition
from joulemesh.methods import Setting, build
from joulemesh.methods.pens import Pens, Sent, Tally
from joulemesh.methods.sampling import neighbours_of
from joulemesh.models.core import build as build_model
from joulemesh.models.core import loss
from joulemesh.scenario import Scenario
from joulemesh.training import Engine, Options
from joulemesh.training.batches import Data
from tests.ideal import ideal
from tests.methods.contexts import seen

N, R1 = 8, 8


@pytest.fixture(scope="module")
def clusters(digits: Dataset) -> tuple[Dataset, Partition]:
    """Even devices hold digits upright, odd ones upside down; 30 each."""
    x = digits.x_train.copy()
    owner = np.arange(240) % N
    x[owner % 2 == 1] = x[owner % 2 == 1][:, ::-1, ::-1]
    turned = Dataset(
        "turned", x, digits.y_train, digits.x_test, digits.y_test, 10, digits.mean, digits.std
    )
    return turned, Partition(np.argsort(owner, kind="stable"), np.arange(N + 1) * 30)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return ideal(
        devices={"count": N, "cycles_per_sample": (1e5, 3e5)},
        network={"topology": "complete"},
        budget={"energy_j": 20.0, "deadline_s": 0.2},
        plan={"iterations": 14},
        training={"model": "logistic", "l2": 0.01, "hidden": ()},
    )


@pytest.fixture(scope="module")
def run(clusters: tuple[Dataset, Partition], scenario: Scenario) -> tuple[Any, Tally, Sent]:
    """The contender, its tally after a run, and what was sent."""
    made = build(f"pens:sampled=5,top=1,phase1={R1},tau=10,eval_samples=20", scenario)
    dataset, held = clusters
    engine = Engine(
        build_model("logistic", dataset.shape, 10, (), 0.01),
        dataset,
        [held],
        made.schedule,
        Options(batch_size=16, eval_every=14, chunk_iterations=14),
        own_exchange=made.exchange,
    )
    ((state, trace),) = engine.train()
    return made, jax.tree.map(lambda leaf: np.asarray(leaf)[0], state.exchange), trace.sent


@pytest.mark.slow
def test_finds_the_planted_clusters(run: tuple[Any, Tally, Sent], scenario: Scenario) -> None:
    _, _, sent = run
    table = neighbours_of(Setting(scenario).world.graph).table
    asked = np.asarray(sent.asked)[R1:, 0]
    # Of 5 neighbours out of 7 one at least is of the own cluster, and m = 1 should find it.
    for t in range(len(asked)):
        for i in range(N):
            partners = table[i, asked[t, i][asked[t, i] >= 0]]
            assert len(partners) >= 1
            assert (partners % 2 == i % 2).all()


def test_counts_of_phase_1(run: tuple[Any, Tally, Sent]) -> None:
    _, tally, sent = run
    assert (tally.sampled.sum(axis=1) == 5 * R1).all()
    assert (tally.best.sum(axis=1) == R1).all()
    assert (tally.best <= tally.sampled).all()
    asked = np.asarray(sent.asked)[:, 0]
    assert (asked[:R1] >= 0).all()
    for i in range(N):
        looked_at = np.bincount(asked[:R1, i].ravel(), minlength=N - 1)
        np.testing.assert_array_equal(looked_at, tally.sampled[i])
        assert all(len(set(row)) == 5 for row in asked[:R1, i].tolist())
    np.testing.assert_array_equal(np.asarray(sent.evaluated)[:R1, 0], np.full((R1, N), 5 * 20))
    assert not np.asarray(sent.evaluated)[R1:].any()


def test_priced_by_what_it_did(run: tuple[Any, Tally, Sent], scenario: Scenario) -> None:
    made, _, sent = run
    setting, ledger = Setting(scenario), made.ledger(sent)
    world = setting.world
    costs, neighbours = world.costs(world.channel.gain(0)), neighbours_of(world.graph)
    devices, bits = world.devices, 650 * 32.0
    for t in (0, R1 - 1, R1, 13):
        spent, count = np.zeros(N), 0
        for i in range(N):
            for place in np.asarray(sent.asked)[t, 0, i]:
                if place >= 0:
                    j, link = neighbours.table[i, place], neighbours.link[i, place]
                    per_bit = costs.forward_j if j < i else costs.backward_j
                    spent[j] += bits * per_bit[link]
                    count += 1
        np.testing.assert_allclose(ledger.exchange_j[t], spent)
        assert ledger.bits[t] == count * bits
        passes = 5 * 20 / 3 if t < R1 else 0.0
        rounds = 10 + passes / devices.round_samples
        np.testing.assert_allclose(ledger.compute_j[t], rounds * devices.round_energy_j)
    # The reserve is what it costs in phase 1, and at least that in phase 2.
    np.testing.assert_allclose(ledger.exchange_j[:R1], made.reserve.exchange_j[:R1])
    np.testing.assert_allclose(ledger.compute_j, made.reserve.compute_j)
    np.testing.assert_allclose(ledger.seconds[:R1], made.reserve.seconds[:R1])
    assert (ledger.exchange_j <= made.reserve.exchange_j * (1 + 1e-12)).all()
    assert (ledger.seconds <= made.reserve.seconds * (1 + 1e-12)).all()
    assert made.ledger() is made.reserve


def test_equals_the_pseudo_code(clusters: tuple[Dataset, Partition], scenario: Scenario) -> None:
    """Both phases on random parameters, against loops over devices."""
    graph = Setting(scenario.override({"network.topology": "grid"})).world.graph
    pens = Pens(neighbours_of(graph), 0, sampled=2, top=1, partners=2, phase1=3, evaluated=9)
    dataset, held = clusters
    model = build_model("logistic", dataset.shape, 10, (), 0.01)
    bare = build_model("logistic", dataset.shape, 10, (), 0.0)
    own = pens.exchange()
    apply = jax.jit(own.apply)
    rng = np.random.default_rng(0)
    flat = {"w": rng.normal(size=(N, 64, 10)) * 0.1, "b": rng.normal(size=(N, 10))}
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), flat)
    state, best, sampled = own.init(params), np.zeros((N, N), int), np.zeros((N, N), int)
    data = Data(jnp.asarray(dataset.x_train), jnp.asarray(dataset.y_train), *scale(dataset))
    sizes = np.array([30, 5, 30, 9, 30, 30, 30, 30])  # fewer than 9 in one place
    for t in range(5):
        order, start = (jnp.asarray(one, jnp.int32) for one in (held.order, held.offsets[:-1]))
        own_data = (data, order, start, jnp.asarray(sizes, jnp.uint32))
        at = seen(t, N, model=model, held=own_data)
        before = jax.tree.map(np.asarray, params)
        params, state, sent = apply(params, state, jax.random.key(0), at)
        for i in range(N):
            places = [p for p in np.asarray(sent.asked)[i].tolist() if p >= 0]
            peers = [int(pens.neighbours.table[i, p]) for p in places]
            if t < 3:
                mine = held.order[held.offsets[i] : held.offsets[i] + min(9, sizes[i])]
                x = dataset.normalise(dataset.x_train[mine])
                y = jnp.asarray(dataset.y_train[mine])
                losses = {
                    j: float(loss(bare, jax.tree.map(lambda leaf, j=j: leaf[j], before), x, y))
                    for j in peers
                }
                peers_kept = [min(losses, key=losses.__getitem__)]
                best[i, peers_kept] += 1
                sampled[i, peers] += 1
                assert len(peers) == 2
                assert sent.evaluated[i] == 2 * min(9, sizes[i])
            else:
                around = pens.neighbours.table[i, : pens.neighbours.degree[i]]
                good = [j for j in around if best[i, j] * 2 > sampled[i, j]] or list(around)
                assert set(peers) <= set(good)
                assert len(peers) == min(2, len(good))
                peers_kept = peers
            for name, leaf in before.items():
                expected = np.mean([leaf[j] for j in (i, *peers_kept)], axis=0)
                np.testing.assert_allclose(params[name][i], expected, rtol=1e-5, atol=1e-6)
    for i in range(N):
        around = pens.neighbours.table[i, : pens.neighbours.degree[i]]
        np.testing.assert_array_equal(state.best[i, : len(around)], best[i, around])
        np.testing.assert_array_equal(state.sampled[i, : len(around)], sampled[i, around])


def scale(dataset: Dataset) -> tuple[Any, Any]:
    mean, std = np.float32(dataset.mean), np.float32(dataset.std)
    return jnp.asarray(1 / std), jnp.asarray(-mean / std)


def test_says_where_nothing_can_be_selected(scenario: Scenario) -> None:
    ring = scenario.override({"network.topology": "ring"})
    keeps_all = build("pens:sampled=2,top=2,tau=2", ring)
    assert any("degenerate" in note and "8 of 8" in note for note in keeps_all.notes)
    # The defaults do select, on a ring as on a complete graph.
    for topology in ("ring", "grid", "complete"):
        made = build("pens", scenario.override({"network.topology": topology}))
        assert not any("degenerate" in note for note in made.notes)
    endless = build("pens:phase1=14", scenario)
    assert any("phase 1 takes all 14" in note for note in endless.notes)


def test_energy_is_reserved_for_every_neighbour(scenario: Scenario) -> None:
    made = build("pens:sampled=2,top=1,phase1=2,tau=2", scenario, equal="energy")
    everybody = build("d-psgd", scenario).ledger().exchange_j[0]
    np.testing.assert_allclose(
        made.reserve.exchange_j[2:], np.tile(everybody, (made.reserve.iterations - 2, 1))
    )
    assert (made.leftover_j() >= 0).all()


def test_models_are_tried_on_as_many_samples_as_a_device_holds_of_the_data_given(
    scenario: Scenario, digits: Dataset
) -> None:
    devices = scenario.devices.count
    held = -(-len(digits.y_train) // devices)
    of_digits = Setting(scenario).train_samples // devices
    assert held < of_digits
    one = {data is None: build("pens", scenario, data=data).ledger() for data in (None, digits)}
    explicit = build(f"pens:eval_samples={held}", scenario).ledger()
    np.testing.assert_array_equal(one[False].compute_j, explicit.compute_j)
    assert (one[True].compute_j[0] > one[False].compute_j[0]).all()
