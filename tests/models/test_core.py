"""Models: the loss by hand, and what may pass for a model."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.models import Model, build, coerce, from_flax, from_functions, loss
from joulemesh.models.core import of_jax


def linear(features: int, classes: int) -> tuple[Any, Any]:
    return (lambda key: {"w": jnp.zeros((features, classes))}, lambda p, x: x @ p["w"])


def test_loss_of_a_case_worked_by_hand() -> None:
    # Logits (0, ln 3): p = (1/4, 3/4). Labels 0 and 1: -(ln 1/4 + ln 3/4)/2, plus 0.1/2·(ln 3)².
    model = from_functions(
        lambda key: {"b": jnp.array([0.0, np.log(3.0)])},
        lambda p, x: jnp.broadcast_to(p["b"], (len(x), 2)),
        l2=0.1,
    )
    value = loss(model, model.init(jax.random.key(0)), jnp.zeros((2, 1)), jnp.array([0, 1]))
    by_hand = -(np.log(1 / 4) + np.log(3 / 4)) / 2 + 0.05 * np.log(3) ** 2
    assert float(value) == pytest.approx(by_hand, rel=1e-6)


def test_loss_stays_finite_for_huge_logits() -> None:
    model = from_functions(*linear(1, 2))
    value = loss(model, {"w": jnp.array([[1e30, -1e30]])}, jnp.ones((1, 1)), jnp.array([0]))
    assert float(value) == 0.0


def test_regulariser_covers_every_parameter() -> None:
    model = build("mlp", (3,), 2, (4,), l2=0.5)
    params = model.init(jax.random.key(1))
    x, y = jnp.ones((2, 3)), jnp.array([0, 1])
    plain = loss(build("mlp", (3,), 2, (4,)), params, x, y)
    squares = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(params))
    assert float(loss(model, params, x, y) - plain) == pytest.approx(0.25 * squares, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_arithmetic_follows_the_parameters_and_loss_is_summed_wide(name: str) -> None:
    model = build(name, (22, 22, 1), 3, (4,), l2=0.1)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.init(jax.random.key(0)))
    x = jnp.ones((2, 22, 22, 1), jnp.float32)
    assert jax.eval_shape(model.apply, params, x).dtype == jnp.bfloat16
    value = jax.jit(loss, static_argnums=0)(model, params, x, jnp.array([0, 2]))
    assert value.dtype == jnp.float32
    assert jnp.isfinite(value)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_initial_weights_are_he_scaled_and_a_function_of_the_key(name: str) -> None:
    model = build(name, (28, 28, 1), 10, (300,))
    params = model.init(jax.random.key(3))
    again, other = model.init(jax.random.key(3)), model.init(jax.random.key(4))
    for leaf, weight in params.items():
        assert weight.dtype == jnp.float32
        assert jnp.array_equal(weight, again[leaf])
        if leaf.endswith("_b"):
            assert not weight.any()
            continue
        assert not jnp.array_equal(weight, other[leaf])
        gain = 1.0 if leaf == "dense1_w" else 2.0
        sd = (gain / weight.shape[0]) ** 0.5
        # Standard error of a standard deviation: sd / sqrt(2·count); five of them.
        assert float(weight.std()) == pytest.approx(sd, abs=5 * sd / (2 * weight.size) ** 0.5)


def test_equal_arguments_give_the_same_model_so_that_it_compiles_once() -> None:
    model = build("mlp", [8, 8, 1], 10, [64])
    assert model is build("mlp", (8, 8, 1), 10, (64,))
    assert hash(model) == hash(build("mlp", (8, 8, 1), 10, (64,)))
    assert model != build("mlp", (8, 8, 1), 10, (65,))


@pytest.mark.parametrize("l2", [-1.0, float("nan"), float("inf")])
def test_l2_must_be_a_weight(l2: float) -> None:
    with pytest.raises(ScenarioError, match="l2 = "):
        build("logistic", (4,), 2, l2=l2)


class Pair(nn.Module):  # type: ignore[misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: jax.Array) -> Any:
        return nn.Dense(3)(nn.relu(nn.Dense(5)(x.reshape(len(x), -1))))


class Normed(nn.Module):  # type: ignore[misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: jax.Array) -> Any:
        return nn.Dense(3)(nn.BatchNorm(use_running_average=True)(x))


def test_a_flax_module_gives_what_flax_gives() -> None:
    module = Pair()
    model = of_jax(coerce(module, (2, 4), 3))
    params = model.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (6, 2, 4))
    assert model.parameters == 8 * 5 + 5 + 5 * 3 + 3
    np.testing.assert_array_equal(model.apply(params, x), module.apply({"params": params}, x))


class Sized(nn.Module):  # type: ignore[misc]
    classes: int
    hidden: int = 4

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: jax.Array) -> Any:
        return nn.Dense(self.classes)(nn.relu(nn.Dense(self.hidden)(x)))


class Ready(Sized):
    classes: int = 3


def test_a_flax_class_is_made_or_refused_with_the_way_out() -> None:
    assert coerce(Ready, (2,), 3).parameters == coerce(Sized(classes=3), (2,), 3).parameters == 27
    with pytest.raises(ScenarioError, match=r"Sized cannot be made .*'classes'\): give its fields"):
        coerce(Sized, (2,), 3)


def test_a_flax_module_with_state_is_refused() -> None:
    with pytest.raises(ScenarioError, match="batch_stats"):
        coerce(Normed(), (4,), 3)
    with pytest.raises(ScenarioError, match="GroupNorm"):
        from_flax(Normed(), (4,)).init(jax.random.key(0))


def test_coerce_takes_a_model_and_a_pair() -> None:
    model = build("logistic", (4,), 3)
    assert coerce(model, (4,), 3) is model
    assert coerce(linear(4, 3), (4,), 3).parameters == 12


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (object(), "a object is not a model"),
        ((1, 2), "pair of int and int"),
        (linear(5, 3), r"does not accept samples of shape \(4,\)"),
        (linear(4, 7), r"gives \(2, 7\) for 2 samples of shape \(4,\), not \(2, 3\)"),
        ((lambda key: {}, lambda p, x: x[:, :3]), "floating-point"),
        ((lambda key: jnp.zeros(3, int), lambda p, x: x[:, :3] + p), "int32"),
        ((lambda key: jnp.zeros(3), lambda p, x: (x, x)), "gives tuple"),
        (Model("bad", lambda key: jnp.zeros(3), lambda p, x: p.nonsense), "AttributeError"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused_in_one_line(obj: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        coerce(obj, (4,), 3)
    assert "\n" not in str(caught.value)
