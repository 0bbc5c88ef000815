from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax.evaluation import in_batches
from joulemesh.training.trace import TEST_ORDER, Trace, sample_counts


@given(
    st.floats(0.01, 0.5),
    st.floats(1, 1e9),
    st.integers(1, 1000),
    st.integers(1, 20_000),
    st.integers(1, 5000),
)
def test_counts_keep_to_the_share_or_to_the_floors(
    share: float, trained: float, devices: int, test: int, most: int
) -> None:
    on_test, on_train, each = sample_counts(share, trained, devices, test, most)
    assert 1 <= each <= min(most, test)
    assert each <= on_test <= test
    work = on_test * (on_test > 1000) + on_train * (on_train > 500) + each * devices * (each > 100)
    assert work <= max(share * 2 * trained, 1000 + each)


@given(st.integers(1, 700), st.integers(1, 4), st.integers(1, 300))
def test_batches_hold_every_sample_once(count: int, shards: int, batch: int) -> None:
    samples = in_batches(np.arange(count), np.full(count, 1 / count), shards, batch)
    assert samples.index.shape[0] % shards == 0
    assert samples.index.shape[1] <= batch
    counted = samples.index[samples.weight[..., 0] > 0]
    assert sorted(counted.tolist()) == list(range(count))
    assert samples.weight.sum() == pytest.approx(1)


def cross_entropy(
    params: dict[str, NDArray[Any]], x: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    logits = x.reshape(len(x), -1).astype(np.float64) @ params["w"] + params["b"]
    logits -= logits.max(axis=1, keepdims=True)
    chosen = logits[np.arange(len(y)), y]
    return np.log(np.exp(logits).sum(axis=1)) - chosen, logits.argmax(axis=1) == y


def accuracies(
    params: dict[str, NDArray[Any]], toy: Dataset, samples: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Of models side by side, on some test samples."""
    x, y = toy.normalise(toy.x_test)[samples], toy.y_test[samples]
    count = len(params["w"])
    return np.array(
        [cross_entropy({k: v[i] for k, v in params.items()}, x, y)[1].mean() for i in range(count)]
    )


@pytest.mark.parametrize("machine", ["two processors", "rows together"], indirect=True)
def test_evaluation_is_what_numpy_says(toy: Dataset, machine: Machine) -> None:
    """All columns against a plain computation, after gossip that leaves devices apart."""
    devices, l2 = 5, 0.1
    held = [partition(toy.y_train, devices, kind="quantity", alpha=1.0, seed=s) for s in (0, 1)]
    rng = np.random.default_rng(0)
    mixing = rng.random((1, devices, devices)) + np.eye(devices)
    mixing /= mixing.sum(axis=2, keepdims=True)
    active = np.ones((4, devices), bool)
    active[2:, 1] = False
    options = Options(
        weights="samples", precision="float64", eval_every=2, eval_share=0, batch_size=4,
        eval_device_samples=20, chunk_iterations=2,
    )  # fmt: skip
    rounds = np.where(active, rng.integers(1, 4, (4, devices)), 0)
    model = build("logistic", toy.shape, 3, l2=l2)
    schedule = Schedule(rounds, active, mixing=mixing)
    engine = Engine(model, toy, held, schedule, options, (0, 1), machine=machine)
    chunks = [(engine.params(state), trace) for state, trace in engine.train()]
    whole = np.arange(60)
    some = np.random.default_rng(TEST_ORDER).permutation(60)[:20]
    trace = Trace.join([trace for _, trace in chunks])
    assert trace.iteration.tolist() == [2, 4]
    assert trace.test_samples.tolist() == [[60, 60]] * 2
    assert trace.device_samples.tolist() == [[20, 20], [60, 60]]  # the last iteration: all
    for k, seed in np.ndindex(2, 2):
        params, here, parts = chunks[k][0], active[[1, 3][k]], held[seed]
        share = np.where(here, parts.sizes, 0) / parts.sizes[here].sum()
        mean = {name: np.tensordot(share, v[seed], 1) for name, v in params.items()}
        loss, right = cross_entropy(mean, toy.normalise(toy.x_test), toy.y_test)
        own = accuracies(
            {name: v[seed, here] for name, v in params.items()}, toy, some if k == 0 else whole
        )
        if k == 0:  # on some samples: as far from the mean model's accuracy as on these
            own = np.clip(own - right[some].mean() + right.mean(), 0, 1)
        first = [parts.indices(i)[:12] for i in range(devices)]  # 60 samples in all, 12 of each
        local = [
            cross_entropy(mean, toy.normalise(toy.x_train[j]), toy.y_train[j])[0].mean()
            for j in first
        ]
        penalty = l2 / 2 * sum((leaf**2).sum() for leaf in mean.values())
        flat = np.concatenate([v[seed, here].reshape(here.sum(), -1) for v in params.values()], 1)
        apart = np.sqrt(((flat - flat.mean(0)) ** 2).sum(1).mean()) / np.linalg.norm(flat.mean(0))
        close: dict[str, Any] = {"rtol": 1e-6}
        np.testing.assert_allclose(trace.test_loss[k, seed], loss.mean(), **close)
        np.testing.assert_allclose(trace.test_accuracy[k, seed], right.mean(), **close)
        np.testing.assert_allclose(trace.train_loss[k, seed], share @ local + penalty, **close)
        np.testing.assert_allclose(trace.device_accuracy_mean[k, seed], own.mean(), **close)
        np.testing.assert_allclose(trace.device_accuracy_min[k, seed], own.min(), **close)
        np.testing.assert_allclose(trace.device_accuracy_max[k, seed], own.max(), **close)
        np.testing.assert_allclose(trace.consensus[k, seed], apart, **close)
        assert trace.train_samples[k, seed] == sum(map(len, first))
        assert trace.drift[k, seed] > trace.consensus[k, seed]


def test_after_a_mean_devices_agree_with_it(toy: Dataset) -> None:
    held = [partition(toy.y_train, 3, kind="shards", seed=0)]
    options = Options(eval_every=1, batch_size=4)
    skipped = Schedule(np.full((2, 3), 4), exchanged=np.array([True, False]))
    engine = Engine(build("logistic", toy.shape, 3), toy, held, skipped, options)
    trace = engine.run()
    assert trace.consensus[0, 0] == 0 < trace.drift[0, 0]
    assert trace.device_accuracy_min[0, 0] == trace.device_accuracy_max[0, 0]
    assert trace.test_accuracy[0, 0] == trace.device_accuracy_mean[0, 0]
    assert trace.consensus[1, 0] == trace.drift[1, 0] > 0  # no exchange: still apart


@pytest.mark.parametrize("mixing", ["mean", "dense"])
def test_without_a_gap_there_is_none_to_see(toy: Dataset, mixing: str) -> None:
    """The mean is exact: whatever samples each curve is allowed, the two are one.

    As a matrix it is exact too, but the engine does not know, and evaluates every device.
    """
    held = [partition(toy.y_train, 3, kind="shards", seed=s) for s in (0, 1)]
    options = Options(
        eval_every=1, batch_size=4, eval_share=0, eval_device_samples=7, precision="float64"
    )
    matrices: dict[str, Any] = {"mean": "mean", "dense": np.full((1, 3, 3), 1 / 3)}
    schedule = Schedule(np.full((5, 3), 4), mixing=matrices[mixing])
    engine = Engine(build("logistic", toy.shape, 3), toy, held, schedule, options, (0, 1))
    trace = engine.run()
    assert trace.consensus.max() < 1e-15
    assert len(np.unique(trace.test_accuracy)) > 1
    for name in ("mean", "min", "max"):
        found = getattr(trace, f"device_accuracy_{name}")
        np.testing.assert_allclose(found, trace.test_accuracy, rtol=1e-15)
    wanted = 60 if mixing == "mean" else 7
    assert trace.device_samples[:, 0].tolist() == [wanted] * 4 + [60]
