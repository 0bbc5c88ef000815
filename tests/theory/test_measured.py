"""Constants of the bounds against exact linear algebra on tiny problems."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.data import Dataset, Partition, from_arrays, partition
from joulemesh.models import Model, build, curvature
from joulemesh.theory.measured import DeviceLosses, estimate_constants, gap_under_bound

BATCH = 4
Tiny: TypeAlias = tuple[Model, Dataset, Partition, DeviceLosses]


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    y = rng.integers(0, 3, 30)
    data = from_arrays(x, y, x[:5], y[:5])
    held = partition(data.y_train, 3, kind="iid", sizes=[5, 10, 15])
    model = build("logistic", data.shape, 3, l2=0.2)
    return model, data, held, DeviceLosses(model, data, held)


def _loss(v: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The regularised loss of some samples, written out; v is (b, w) flattened in that order."""
    bias, weight = v[:3], v[3:].reshape(3, 3)
    logits = x @ weight + bias
    each = jax.nn.logsumexp(logits, axis=1) - logits[jnp.arange(len(y)), y]
    return each.mean() + 0.1 * jnp.sum(v**2)


def _by_hand(
    data: Dataset, held: Partition, w: jax.Array
) -> list[tuple[float, NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Loss, gradient, per-sample gradients and Hessian of each device."""
    found = []
    loss, slope, bend = jax.jit(_loss), jax.jit(jax.grad(_loss)), jax.jit(jax.hessian(_loss))
    for i in range(held.devices):
        x = data.x_train[held.indices(i)].astype(np.float64)
        y = data.y_train[held.indices(i)]
        singles = [slope(w, x[k : k + 1], y[k : k + 1]) for k in range(len(x))]
        found.append(
            (
                float(loss(w, x, y)),
                np.asarray(slope(w, x, y)),
                np.stack(singles),
                np.asarray(bend(w, x, y)),
            )
        )
    return found


def test_constants_equal_those_of_the_definitions(tiny: Tiny) -> None:
    _, data, held, losses = tiny
    w = np.random.default_rng(1).normal(size=12)
    with jax.enable_x64(True):
        devices = _by_hand(data, held, jnp.asarray(w))
    values = np.array([d[0] for d in devices])
    np.testing.assert_allclose(losses.value(w), values, rtol=1e-12)
    full = np.stack([d[1] for d in devices])
    variance = np.array([((s - g) ** 2).sum(axis=1).mean() / BATCH for (_, g, s, _) in devices])
    centre = full.mean(axis=0)
    apart = variance + ((full - centre) ** 2).sum(axis=1)
    found = estimate_constants(losses, w, BATCH, steps=12)
    ends = [np.linalg.eigvalsh(d[3]) for d in devices]
    assert found["strong_convexity"] == pytest.approx(min(e[0] for e in ends), rel=1e-8)
    assert found["smoothness"] == pytest.approx(max(e[-1] for e in ends), rel=1e-8)
    assert found["gradient_variance"] == pytest.approx(variance.max(), rel=1e-10)
    second = variance + (full**2).sum(axis=1)
    assert found["gradient_bound"] == pytest.approx(second.max(), rel=1e-10)
    assert found["divergence"] == pytest.approx(np.sqrt(apart.mean()), rel=1e-10)


def test_minima_are_stationary_and_below_everything(tiny: Tiny) -> None:
    *_, losses = tiny
    lowest = losses.minima(np.zeros(12))
    rng = np.random.default_rng(2)
    for _ in range(20):
        assert (losses.value(rng.normal(scale=2.0, size=12)) >= lowest - 1e-9).all()


def test_curvature_lies_within_the_known_bounds(tiny: Tiny) -> None:
    model, data, held, losses = tiny
    low, high = losses.curvature(np.random.default_rng(3).normal(size=12), steps=12)
    known = [curvature(data.x_train[held.indices(i)], model.l2)[1] for i in range(held.devices)]
    assert model.l2 - 1e-9 <= low <= high <= max(known) + 1e-9


@pytest.mark.slow
def test_a_non_convex_model_gets_remark_2(tiny: Tiny) -> None:
    _, data, held, _ = tiny
    losses = DeviceLosses(build("mlp", data.shape, 3, (4,)), data, held)
    w = losses.start(0)
    low, high = losses.curvature(w, steps=31)
    assert low < 0
    found = estimate_constants(losses, w, BATCH, steps=31)
    assert found["strong_convexity"] == pytest.approx(-low)
    assert found["smoothness"] == pytest.approx(high - 2 * low)


@pytest.mark.slow
def test_the_measured_gap_is_under_the_corrected_bound() -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": 4,
            "plan.iterations": 15,
            "training.model": "logistic",
            "training.l2": 0.1,
        }
    )
    study = gap_under_bound(scenario)
    assert study.holds
    assert study.gap[-1] < study.gap[0]
    assert study.learning_rate <= 1 / study.constants.smoothness
    with pytest.raises(joulemesh.ScenarioError, match="strongly convex"):
        gap_under_bound(scenario.override({"training.l2": 0.0}))
