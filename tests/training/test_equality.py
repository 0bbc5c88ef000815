"""The engine equals the slow reference, whatever the model, the mixing and the partition."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import sparse

from joulemesh.aggregation.spectrum import metropolis_weights
from joulemesh.data import from_arrays, partition
from joulemesh.models import build
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.engine import Engine
from joulemesh.training.options import Options
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Schedule

DEVICES = 5
RING = np.array([[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]])


def _data(shape, count=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count + 20, *shape)).astype(np.float32)
    y = np.arange(count + 20) % 3
    return from_arrays(x[:count], y[:count], x[count:], y[count:])


def _rounds(iterations, devices=DEVICES):
    return np.random.default_rng(1).integers(1, 5, (iterations, devices))


MIXINGS = {
    "mean": {"mixing": "mean"},
    "weighted": {"mixing": "mean", "weights": np.array([1.0, 2.0, 3.0, 4.0, 5.0])},
    "dense": {"mixing": metropolis_weights(RING, DEVICES).toarray()[None]},
    "changing": {"mixing": lambda t: np.roll(np.eye(DEVICES), t + 1, axis=1)},
    "sparse": {"mixing": sparse.csr_array(metropolis_weights(RING, DEVICES)), "mixing_rounds": 3},
}


def _assert_equal(engine, atol, iterations=None):
    slow = run_reference(engine, iterations)
    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for number, devices in enumerate(slow):
        for device, params in enumerate(devices):
            mine = jax.tree.map(lambda leaf, s=number, d=device: leaf[s, d], fast)
            for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("local_round", ["step", "epoch"])
def test_every_mixing_in_float64(mixing, local_round):
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind="quantity", alpha=1.0)
    options = Options(
        batch_size=8, precision="float64", local_round=local_round, chunk_iterations=2
    )
    engine = Engine(
        build("mlp", data.shape, 3, (6,)),
        data,
        [held],
        Schedule(_rounds(3), **MIXINGS[mixing]),
        options,
    )
    _assert_equal(engine, 1e-10)


@pytest.mark.parametrize("model", ["logistic", "mlp", "cnn"])
def test_every_model_in_float64_and_float32(model):
    data = _data((22, 22, 1) if model == "cnn" else (4,), 30)
    held = partition(data.y_train, 2, kind="dirichlet", alpha=0.5)
    learner = build(model, data.shape, 3, (6,), l2=0.01)
    options = Options(batch_size=4, precision="float64", chunk_iterations=2)
    engine = Engine(learner, data, [held], Schedule(_rounds(2, 2)), options)
    _assert_equal(engine, 1e-10)
    single = Options(batch_size=4, chunk_iterations=1)
    engine = Engine(learner, data, [held], Schedule(_rounds(1, 2)), single)
    _assert_equal(engine, 2e-5)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "quantity", "resample"])
def test_every_partition_and_an_optimiser_with_memory(kind):
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind=kind, alpha=0.5)
    options = Options(batch_size=8, precision="float64", optimizer="adam", learning_rate=0.01)
    engine = Engine(build("logistic", data.shape, 3), data, [held], Schedule(_rounds(3)), options)
    _assert_equal(engine, 1e-10)


@pytest.mark.parametrize("mixing", ["mean", "dense", "sparse"])
def test_departures_and_skipped_exchanges(mixing):
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind="iid")
    rounds, active = _rounds(4), np.ones((4, DEVICES), bool)
    active[2:, 1] = False
    rounds[~active] = 0
    schedule = Schedule(rounds, active, np.array([True, False, True, True]), **MIXINGS[mixing])
    engine = Engine(
        build("logistic", data.shape, 3),
        data,
        [held],
        schedule,
        Options(batch_size=8, precision="float64"),
    )
    _assert_equal(engine, 1e-10)


def _engine(seeds, rounds=None, **options):
    data = _data((4,))
    parts = [partition(data.y_train, DEVICES, kind="dirichlet", seed=s) for s in seeds]
    schedule = Schedule(_rounds(6) if rounds is None else rounds)
    chosen = Options(batch_size=8, chunk_iterations=2, eval_every=2, **options)
    return Engine(build("mlp", data.shape, 3, (6,)), data, parts, schedule, chosen, seeds)


def test_one_program_with_several_seeds_equals_single_runs():
    together = _engine((3, 4, 9), precision="float64")
    *_, (state, _) = together.train()
    for number, seed in enumerate((3, 4, 9)):
        alone = _engine((seed,), precision="float64")
        *_, (own, _) = alone.train()
        for ours, theirs in zip(
            jax.tree.leaves(together.params(state)), jax.tree.leaves(alone.params(own)), strict=True
        ):
            np.testing.assert_allclose(ours[number], theirs[0], rtol=0, atol=1e-12)


def test_the_same_seed_gives_the_same_bits_and_chunks_do_not_matter():
    first, second = _engine((0,)).run(), _engine((0,)).run()
    assert np.array_equal(first.test_loss, second.test_loss)
    longer = _engine((0,), precision="float64")
    *_, (one, _) = longer.train()
    whole = Engine(
        longer.model,
        longer.dataset,
        longer.partitions,
        longer.schedule,
        Options(batch_size=8, chunk_iterations=6, eval_every=2, precision="float64"),
    )
    *_, (other, _) = whole.train()
    for a, b in zip(
        jax.tree.leaves(longer.params(one)), jax.tree.leaves(whole.params(other)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


def test_one_compilation_serves_every_schedule_of_the_same_shape():
    engine = _engine((0,))
    engine.run()
    before = engine.programs.advance._cache_size(), engine.programs.watched._cache_size()
    other = _engine((0,), rounds=np.full((6, DEVICES), 9))
    other.run()
    assert other.programs is engine.programs
    after = other.programs.advance._cache_size(), other.programs.watched._cache_size()
    assert after == before
    assert max(before) == 1


def test_a_restored_checkpoint_goes_on_with_the_same_bits(tmp_path):
    engine = _engine((0, 1))
    kept = Checkpoints(tmp_path / "checkpoint")
    states = engine.train()
    state, _ = next(states)
    kept.save(state)
    *_, (final, _) = states
    again = Checkpoints(tmp_path / "checkpoint").restore(engine)
    assert int(again.iteration) == 2
    *_, (resumed, _) = engine.train(again)
    for a, b in zip(
        jax.tree.leaves(engine.params(final)), jax.tree.leaves(engine.params(resumed)), strict=True
    ):
        assert np.array_equal(a, b)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path):
    engine = _engine((0,))
    kept = Checkpoints(tmp_path)
    for state, _ in engine.train():
        kept.save(state)
    assert kept.saved() == [4, 6]
    for path in (tmp_path / "6").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    assert int(Checkpoints(tmp_path).restore(engine).iteration) == 4
