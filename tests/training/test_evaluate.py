from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulemesh.data import partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.evaluate import in_batches, sample_counts


@given(
    st.floats(0.01, 0.5),
    st.floats(1, 1e9),
    st.integers(1, 1000),
    st.integers(1, 20_000),
    st.integers(1, 5000),
)
def test_counts_keep_to_the_share_or_to_the_floors(share, trained, devices, test, most):
    on_test, on_train, each = sample_counts(share, trained, devices, test, most)
    assert 1 <= each <= min(most, test)
    assert each <= on_test <= test
    work = on_test * (on_test > 1000) + on_train * (on_train > 500) + each * devices * (each > 100)
    assert work <= max(share * 2 * trained, 1000 + each)


@given(st.integers(1, 700), st.integers(1, 4), st.integers(1, 300))
def test_batches_hold_every_sample_once(count, shards, batch):
    samples = in_batches(np.arange(count), np.full(count, 1 / count), shards, batch)
    assert samples.index.shape[0] % shards == 0
    assert samples.index.shape[1] <= batch
    counted = samples.index[samples.weight[..., 0] > 0]
    assert sorted(counted.tolist()) == list(range(count))
    assert samples.weight.sum() == pytest.approx(1)


def cross_entropy(params, x, y):
    logits = x.reshape(len(x), -1).astype(np.float64) @ params["w"] + params["b"]
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(y)), y]
    return np.log(np.exp(logits).sum(axis=1)) - chosen, logits.argmax(axis=1) == y


@pytest.mark.parametrize("backend", ["two processors", "rows together"], indirect=True)
def test_evaluation_is_what_numpy_says(toy, backend):
    """All columns against a plain computation, after gossip that leaves devices apart."""
    devices, l2 = 5, 0.1
    held = [partition(toy.y_train, devices, kind="quantity", alpha=1.0, seed=s) for s in (0, 1)]
    rng = np.random.default_rng(0)
    mixing = rng.random((1, devices, devices)) + np.eye(devices)
    mixing /= mixing.sum(axis=2, keepdims=True)
    active = np.ones((4, devices), bool)
    active[2:, 1] = False
    options = Options(
        weights="samples", precision="float64", eval_every=2, eval_share=0, batch_size=4
    )
    rounds = np.where(active, rng.integers(1, 4, (4, devices)), 0)
    model = build("logistic", toy.shape, 3, l2=l2)
    engine = Engine(model, toy, held, Schedule(rounds, active, mixing=mixing), options, (0, 1))
    *_, (state, trace) = engine.train()
    whole, params, here = engine.evaluate(state), engine.params(state), active[-1]
    assert trace.iteration.tolist() == [2, 4]
    for seed, parts in enumerate(held):
        share = np.where(here, parts.sizes, 0) / parts.sizes[here].sum()
        mean = {k: np.tensordot(share, v[seed], 1) for k, v in params.items()}
        loss, right = cross_entropy(mean, toy.normalise(toy.x_test), toy.y_test)
        own = np.array(
            [
                cross_entropy(
                    {k: v[seed, i] for k, v in params.items()},
                    toy.normalise(toy.x_test),
                    toy.y_test,
                )[1].mean()
                for i in np.flatnonzero(here)
            ]
        )
        local = [
            cross_entropy(mean, toy.normalise(toy.x_train[j]), toy.y_train[j])[0].mean()
            for j in (parts.indices(i) for i in range(devices))
        ]
        penalty = l2 / 2 * sum((leaf**2).sum() for leaf in mean.values())
        flat = np.concatenate([v[seed, here].reshape(here.sum(), -1) for v in params.values()], 1)
        apart = np.sqrt(((flat - flat.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(flat.mean(0))
        close = {"rtol": 1e-6}
        np.testing.assert_allclose(whole.test_loss[0, seed], loss.mean(), **close)
        np.testing.assert_allclose(whole.test_accuracy[0, seed], right.mean(), **close)
        np.testing.assert_allclose(whole.train_loss[0, seed], share @ local + penalty, **close)
        np.testing.assert_allclose(whole.device_accuracy_mean[0, seed], own.mean(), **close)
        np.testing.assert_allclose(whole.device_accuracy_min[0, seed], own.min(), **close)
        np.testing.assert_allclose(whole.device_accuracy_max[0, seed], own.max(), **close)
        np.testing.assert_allclose(whole.consensus[0, seed], apart, **close)
        # The curve's last point: the same test set (eval_share = 0), after the same exchange.
        np.testing.assert_allclose(trace.test_loss[-1, seed], loss.mean(), **close)
        np.testing.assert_allclose(trace.consensus[-1, seed], apart, **close)
        assert trace.drift[-1, seed] > trace.consensus[-1, seed]


def test_after_a_mean_devices_agree_with_it(toy):
    held = [partition(toy.y_train, 3, kind="shards", seed=0)]
    options = Options(eval_every=1, batch_size=4)
    skipped = Schedule(np.full((2, 3), 4), exchanged=np.array([True, False]))
    engine = Engine(build("logistic", toy.shape, 3), toy, held, skipped, options)
    trace = engine.run()
    assert trace.consensus[0, 0] == 0 < trace.drift[0, 0]
    assert trace.device_accuracy_min[0, 0] == trace.device_accuracy_max[0, 0]
    assert trace.test_accuracy[0, 0] == pytest.approx(trace.device_accuracy_mean[0, 0])
    assert trace.consensus[1, 0] == trace.drift[1, 0] > 0  # no exchange: still apart
