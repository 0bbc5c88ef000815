"""Losses beside cross-entropy: every learner minimises the same, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh import registries
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition, from_arrays, partition
from joulemesh.metrics import Loss, Reported, huber, loss_named, name_of, reported
from joulemesh.models import build, from_functions
from joulemesh.models.core import Model, with_loss
from joulemesh.registries import LOSSES, METRICS
from joulemesh.scenario import Training
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax.device import DeviceTrainer
from joulemesh.training.reference import run_reference

DEVICES, TOKENS, POSITIONS = 3, 5, 4
# Devices stay apart, so that each one's own model is measured.
MIXING = ((np.ones((3, 3)) + 3 * np.eye(3)) / 6)[None]


def numbers() -> Dataset:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(40, 6))
    y = x @ draw.normal(size=(6, 2)) + 0.1 * draw.normal(size=(40, 2))
    return from_arrays(x[:30], y[:30], x[30:], y[30:], name="toy", targets="numbers")


def tokens() -> Dataset:
    draw = np.random.default_rng(1)
    text = np.cumsum(draw.integers(1, 3, (40, POSITIONS + 1)), axis=1) % TOKENS
    x, y = text[:, :-1], text[:, 1:].copy()
    y[draw.random(y.shape) < 0.2] = -1  # nothing to predict
    return from_arrays(x[:30], y[:30], x[30:], y[30:], name="text", targets="tokens")


def bigram() -> Model:
    """The next token from the one before: a table of logits."""
    made = from_functions(
        lambda key: {"weight": jnp.zeros((TOKENS, TOKENS))}, lambda p, x: p["weight"][x]
    )
    return replace(made, seen="int32", loss=loss_named("token-cross-entropy"))


def held(data: Dataset) -> Partition:
    return partition(data.strata(), DEVICES, kind="iid", seed=2)


def engine(model: Model, data: Dataset, **options: Any) -> Engine:
    settings = {"precision": "float64", "eval_every": 2, "batch_size": 4, "loss": model.loss.name}
    rounds = np.array([[1, 2, 3], [2, 0, 1], [1, 1, 1]])
    schedule = Schedule(rounds, mixing=MIXING)
    return Engine(model, data, [held(data)], schedule, Options(**{**settings, **options}))


def trained(learner: Any) -> tuple[Any, dict[str, np.ndarray]]:
    *_, (state, trace) = learner.train()
    return trace, {name: leaf[0] for name, leaf in learner.params(state).items()}


CASES = {
    "mse": lambda: (build("mlp", (6,), 2, (8,), l2=0.1, loss="mse"), numbers()),
    "mae": lambda: (build("logistic", (6,), 2, loss="mae"), numbers()),
    "huber": lambda: (build("mlp", (6,), 2, (8,), loss="huber"), numbers()),
    "token-cross-entropy": lambda: (
        build("token-mlp", (POSITIONS,), TOKENS, (8,), loss="token-cross-entropy"),
        tokens(),
    ),
}


CHEAP = ("mse", "token-cross-entropy")
RARER = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name not in CHEAP]


@pytest.mark.parametrize("name", [*CHEAP, *RARER])
def test_the_engine_equals_the_obvious_loop(
    name: str, unevaluated: Callable[[Engine], Engine]
) -> None:
    model, data = CASES[name]()
    fast = unevaluated(engine(model, data))
    fast.reported = Reported()
    slow = run_reference(fast)[0]
    _, params = trained(fast)
    for device in range(DEVICES):
        for leaf, values in params.items():
            np.testing.assert_allclose(
                values[device], slow[device][leaf], rtol=0, atol=1e-10, err_msg=leaf
            )


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_a_deployed_device_trains_as_its_row_does(name: str) -> None:
    model, data = CASES[name]()
    row = engine(model, data)
    alone = DeviceTrainer.of(model, data, held(data), row.options, seed=0, device=2)
    own = alone.train(alone.begin(), iteration=1, rounds=3)
    schedule = Schedule(np.array([[1, 2, 3]]), exchanged=np.array([False]))
    _, params = trained(Engine(model, data, [held(data)], schedule, row.options))
    for leaf, values in params.items():
        np.testing.assert_allclose(values[2], own[leaf], rtol=0, atol=1e-12)


def by_hand(data: Dataset, outputs: np.ndarray) -> dict[str, float]:
    """Metrics of outputs, by the textbook."""
    y = data.y_test.astype(np.float64)
    if data.targets == "numbers":
        error = outputs - y
        spread = ((y - y.mean(axis=0)) ** 2).mean(axis=0)
        return {
            "r2": float((1 - (error**2).mean(axis=0) / spread).mean()),
            "rmse": float(np.sqrt((error**2).mean())),
            "mae": float(np.abs(error).mean()),
        }
    counts = data.y_test >= 0
    z = outputs - outputs.max(axis=2, keepdims=True)
    logs = z - np.log(np.exp(z).sum(axis=2, keepdims=True))
    own = np.take_along_axis(logs, np.maximum(data.y_test, 0)[..., None], 2)[..., 0]
    hits = outputs.argmax(axis=2) == data.y_test
    return {
        "token_accuracy": float(hits[counts].mean()),
        "perplexity": float(np.exp(-own[counts].mean())),
    }


@pytest.mark.parametrize("name", CHEAP)
def test_evaluations_measure_what_goes_with_the_loss(name: str) -> None:
    model, data = CASES[name]()
    learner = engine(model, data, eval_share=0.0)
    *_, (state, trace) = learner.train()
    with learner.scope():
        mean = learner.mean_params(state)
        outputs = np.asarray(model.apply(mean, _seen(data)))
    wanted = by_hand(data, outputs)
    found = {metric: float(trace.curve(f"test_{metric}")[-1, 0]) for metric in wanted}
    assert found == pytest.approx(wanted, abs=1e-6)  # targets are float32
    assert trace.score == reported(learner.options).score
    worst, best = (trace.curve(f"device_{trace.score}_{end}")[-1, 0] for end in ("min", "max"))
    assert worst < best


def _seen(data: Dataset) -> Any:
    return data.x_test if data.seen == "int32" else data.x_test.astype(np.float64)


def test_tokens_that_do_not_count_change_nothing() -> None:
    data = tokens()
    outputs = jax.random.normal(jax.random.key(0), (10, POSITIONS, TOKENS))
    loss = loss_named("token-cross-entropy").values
    y = jnp.asarray(data.y_test)
    silent = y.at[:, -1].set(-100)
    moved = outputs.at[:, -1].add(7.0 * jnp.arange(TOKENS))
    np.testing.assert_array_equal(loss(outputs, silent), loss(moved, silent))
    assert float(loss(outputs, jnp.full_like(y, -1)).sum()) == 0.0


def test_hubers_loss_is_quadratic_then_linear() -> None:
    far = jnp.array([[0.0], [0.5], [1.0], [3.0], [-3.0]])
    assert huber(far, jnp.zeros((5, 1))).tolist() == [0.0, 0.125, 0.5, 2.5, 2.5]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LOSSES.built_in if name != "cross-entropy"])
def test_the_torch_learner_minimises_the_same(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
    from joulemesh.models import from_torch
    from joulemesh.training.torch.learner import TorchLearner

    if loss_named(name).targets == "tokens":
        data, model, module = tokens(), bigram(), torch.nn.Embedding(TOKENS, TOKENS)
    else:
        data, model = numbers(), build("logistic", (6,), 2, loss=name)
        module = torch.nn.Linear(6, 2)
    for one in module.parameters():
        torch.nn.init.zeros_(one)
    fast = engine(model, data)
    given = replace(from_torch(module), minimised=loss_named(name))
    other = TorchLearner(given, data, fast.partitions, fast.schedule, fast.options)
    mine, theirs = trained(fast), trained(other)
    pairs = {"weight": "weight"} if "weight" in mine[1] else {"weight": "w", "bias": "b"}
    for torchs, own in pairs.items():
        wanted = mine[1][own].swapaxes(1, 2) if own == "w" else mine[1][own]
        np.testing.assert_allclose(theirs[1][torchs], wanted, rtol=0, atol=1e-10)
    for curve in ("train_loss", "test_loss", *mine[0].own, f"test_{mine[0].score}"):
        np.testing.assert_allclose(
            theirs[0].curve(curve), mine[0].curve(curve), rtol=0, atol=1e-6, err_msg=curve
        )


@pytest.mark.slow
def test_a_function_of_the_users_own_is_minimised_and_measured() -> None:
    data = numbers()
    own = loss_named(
        name_of(lambda outputs, targets: jnp.sum((outputs - targets) ** 2, axis=1) / 2)
    )
    model = with_loss(build("logistic", (6,), 2), own)
    assert isinstance(model, Model)
    _, params = trained(engine(model, data))
    _, wanted = trained(engine(build("logistic", (6,), 2, loss="mse"), data))  # of two numbers
    for leaf, values in params.items():
        np.testing.assert_allclose(values, wanted[leaf], rtol=0, atol=1e-12)
    trace, _ = trained(engine(model, data))
    assert trace.score == "loss"
    np.testing.assert_array_equal(trace.test_score, trace.test_loss)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (lambda outputs, targets: jnp.mean(outputs - targets), "return one value per sample"),
        (lambda outputs, targets: outputs @ targets, "cannot be computed of outputs"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused_before_training(values: Any, said: str) -> None:
    model = with_loss(build("logistic", (6,), 2), Loss("odd", "", values))
    assert isinstance(model, Model)
    with pytest.raises(ScenarioError, match=said):
        engine(model, numbers(), loss="cross-entropy", score="loss")


def test_a_metric_for_other_targets_is_refused() -> None:
    model, data = CASES["mse"]()
    with pytest.raises(ScenarioError, match="metric 'brier' is for classes, and toy holds numbers"):
        engine(model, data, metrics=("brier",))


def test_scores_follow_the_loss_unless_they_are_named() -> None:
    with registries.scoped():
        LOSSES.register(Loss("mine", "", huber, "numbers", score="mae", metrics=("r2",)))
        assert reported(Training(loss="mine")) == (("r2",), "mae")
        assert reported(Training(loss="mine", score="r2", metrics=("rmse",))) == (("rmse",), "r2")
    assert reported(Training(metrics=("loss", "brier"))) == (("brier",), "accuracy")


@pytest.mark.parametrize("name", LOSSES.built_in)
def test_every_loss_is_measured_by_metrics_that_take_its_targets(name: str) -> None:
    loss = loss_named(name)
    for metric in (loss.score, *loss.metrics):
        assert METRICS[metric].targets in (loss.targets, "any")
