"""Metrics: a contract for every registered one, what further ones leave as it is, and refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh import registries
from joulemesh.base.errors import ScenarioError
from joulemesh.data import partition
from joulemesh.metrics import Metric, metrics_of
from joulemesh.models import build
from joulemesh.models.curves import COUNTS, CURVES, column_names, curves_of, own_curves
from joulemesh.registries import METRICS
from joulemesh.training import Engine, Options, Schedule, Trace

DEVICES = 4
# Those of numbers and tokens: tests/training/test_losses.py.
OF_CLASSES = [name for name in METRICS.names() if METRICS[name].targets in ("classes", "any")]
# Two neighbours each: devices stay apart.
MIXING = (np.eye(4) + np.eye(4)[[1, 0, 3, 2]] / 2 + np.eye(4)[[3, 2, 1, 0]] / 2)[None] / 2


def engine(toy: Any, *metrics: str, **options: Any) -> Engine:
    rounds = np.tile(np.arange(1, DEVICES + 1), (3, 1))
    held = partition(toy.y_train, DEVICES, kind="dirichlet", alpha=0.3, seed=1)
    settings = Options(eval_every=2, learning_rate=0.3, metrics=metrics, **options)
    schedule = Schedule(rounds, mixing=MIXING)
    model = build("logistic", toy.shape, 3, l2=0.01)
    return Engine(model, toy, [held], schedule, settings)


def learned(trainer: Engine) -> tuple[Trace, dict[str, np.ndarray]]:
    """All evaluations, and every device's final parameters [N, ...]."""
    *_, (state, _) = trainer.train()
    params = {name: leaf[0] for name, leaf in trainer.params(state).items()}
    return trainer.run(), params


def figure(metric: Metric, params: dict[str, np.ndarray], toy: Any) -> float:
    """A metric of one model on the whole test set, at once and without weights."""
    x = toy.normalise(toy.x_test).reshape(len(toy.y_test), -1)
    logits = jnp.asarray(x @ params["w"] + params["b"], jnp.float32)
    means = np.asarray(metric.values(logits, jnp.asarray(toy.y_test))).astype(np.float32).mean(0)
    return float(means if metric.finish is None else metric.finish(np.atleast_1d(means)))


@pytest.mark.parametrize("name", OF_CLASSES)
def test_every_metric_is_what_it_is_on_the_whole_test_set_at_once(name: str, toy: Any) -> None:
    metric = METRICS[name]
    trace, params = learned(engine(toy, name))
    mean = {leaf: values.mean(axis=0) for leaf, values in params.items()}
    found = trace.curve(f"test_{name}")[-1, 0]
    assert found == pytest.approx(figure(metric, mean, toy), abs=2e-6)
    if metric.share:
        assert 0 <= found <= 1
    if not metric.devices:
        assert f"device_{name}_mean" not in column_names([name])
        return
    each = [figure(metric, {k: v[i] for k, v in params.items()}, toy) for i in range(DEVICES)]
    assert np.ptp(each) > 0
    for end, value in (("mean", np.mean(each)), ("min", min(each)), ("max", max(each))):
        assert trace.curve(f"device_{name}_{end}")[-1, 0] == pytest.approx(value, abs=2e-6)


@pytest.mark.parametrize("name", OF_CLASSES)
def test_every_metric_says_which_direction_is_better(name: str) -> None:
    metric = METRICS[name]
    labels = jnp.arange(6) % 3
    right = 5.0 * jnp.eye(3)[labels]

    def of(logits: Any) -> float:
        means = jnp.atleast_1d(jnp.asarray(metric.values(logits, labels), jnp.float32).mean(axis=0))
        return float(means[0] if metric.finish is None else metric.finish(means))

    good, bad = of(right), of(-right)
    assert (good > bad) == (metric.better == "higher")
    assert metric.description
    assert all(curve.better == metric.better for curve in curves_of([name]) if curve.metric == name)


def test_further_metrics_leave_everything_else_as_it_was(toy: Any) -> None:
    plain, more = engine(toy), engine(toy, "brier", "balanced_accuracy")
    (before, params), (after, same) = learned(plain), learned(more)
    for name in (*CURVES, *COUNTS):
        np.testing.assert_array_equal(before.curve(name), after.curve(name))
    for name, values in params.items():
        np.testing.assert_array_equal(values, same[name])
    assert before.own == {}
    assert list(after.own) == [curve.name for curve in own_curves(["brier", "balanced_accuracy"])]


def test_without_further_metrics_columns_and_identity_are_as_ever(toy: Any) -> None:
    assert CURVES == column_names() == (
        "train_loss", "test_loss", "test_accuracy", "device_accuracy_mean", "device_accuracy_min",
        "device_accuracy_max", "drift", "consensus",
    )  # fmt: skip
    plain = engine(toy)
    assert "evaluation" not in plain.identity()
    assert plain.identity().items() < engine(toy, "brier").identity().items()


def power(exponent: int, logits: Any, labels: Any) -> Any:
    return logits.max(axis=1) ** exponent


def test_what_a_metric_computes_is_part_of_the_runs_identity(toy: Any) -> None:
    with registries.scoped():
        marks = []
        for exponent in (1, 2):
            METRICS.register(Metric("own", "of one file", partial(power, exponent)))
            marks.append(engine(toy, "own").identity()["evaluation"])
    assert marks[0] != marks[1]


def test_a_trace_with_further_metrics_is_joined_and_kept(toy: Any) -> None:
    trace = engine(toy, "brier").run()
    arrays = trace.to_arrays()
    again = Trace.from_arrays(arrays, like=trace)
    np.testing.assert_array_equal(again.curve("device_brier_min"), trace.curve("device_brier_min"))
    assert trace.last.curve("test_brier").shape == (1, 1)
    assert Trace.join([trace, trace]).curve("test_brier").shape == (4, 1)


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["one processor", "two processors", "rows together"],
                         indirect=True)  # fmt: skip
def test_metrics_are_the_same_on_any_machine(toy: Any, machine: Any) -> None:
    rounds = np.ones((2, DEVICES), int)
    held = partition(toy.y_train, DEVICES, kind="iid")
    options = Options(metrics=("balanced_accuracy",), eval_every=1)
    model = build("logistic", toy.shape, 3, l2=0.01)
    made = Engine(model, toy, [held], Schedule(rounds, mixing=MIXING), options, machine=machine)
    plain = Engine(model, toy, [held], Schedule(rounds, mixing=MIXING), options)
    for name, values in made.run().own.items():
        np.testing.assert_allclose(values, plain.run().own[name], rtol=1e-6)


REFUSED = {
    "a scalar": (lambda z, y: z.mean(), None, "return one value per sample, [13], or several"),
    "another shape": (lambda z, y: z[:, :, None], None, "return one value per sample"),
    "several without finish": (lambda z, y: z, None, "gives 3 values per sample; give finish"),
    "finish gives many": (lambda z, y: z, lambda means: means, "return a scalar"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_metric_of_another_shape_is_refused_before_training(fault: str, toy: Any) -> None:
    values, finish, words = REFUSED[fault]
    with registries.scoped():
        METRICS.register(Metric("own", "wrong", values, finish))
        with pytest.raises(ScenarioError) as refusal:
            engine(toy, "own")
    assert words in str(refusal.value)
    assert "metric 'own': " in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_metric_that_cannot_be_one_is_refused_when_it_is_made() -> None:
    for given, words in (
        ({"values": lambda z: z}, "values cannot be called with (outputs, targets)"),
        ({"values": lambda z, y: z, "finish": lambda: 0}, "finish cannot be called with (means)"),
        ({"values": lambda z, y: z, "better": "more"}, "use 'higher' or 'lower'"),
    ):
        with pytest.raises(ScenarioError) as refusal:
            Metric("own", "wrong", **given)
        assert words in str(refusal.value)


def test_accuracy_and_loss_cannot_be_replaced() -> None:
    with registries.scoped():
        METRICS.register(Metric("accuracy", "another", lambda z, y: z[:, 0]))
        with pytest.raises(ScenarioError, match="'accuracy' cannot be replaced"):
            metrics_of()
    assert [metric.name for metric in metrics_of(["loss"])] == ["accuracy", "loss"]
