"""Small cases worked by hand: metrics, counts, schedules and what a run is cut into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import joulemesh
from joulemesh import metrics
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, partition
from joulemesh.metrics import ACCURACY, LOSS, Reported, metrics_of, reported
from joulemesh.models import Model, curves, kinds, networks
from joulemesh.scenario import Scenario, Training
from joulemesh.training import Options, Schedule, Trace, hosts
from joulemesh.training.batches import Batches, scale_of
from joulemesh.training.from_plan import power_mixing, record, require_room, rounded_mixing
from joulemesh.training.jax.engine import metrics_digest
from joulemesh.training.jax.evaluation import consensus_error, in_groups
from joulemesh.training.jax.layout import Layout, stride_of
from joulemesh.training.jax.local_sgd import weighted_loss
from joulemesh.training.learner import check_inputs, mean_of
from joulemesh.training.prepare import said_loss, with_data
from joulemesh.training.schedule import digest
from joulemesh.training.software import packages
from joulemesh.training.tensors import named_leaves, read_arrays, write_arrays
from joulemesh.training.trace import evaluated, sample_counts

TWO = [[0.0, 1.0], [0.0, 1.0]]
HALF = float(np.log(2))
VALUES: dict[str, tuple[Any, Any, Any, Any]] = {
    "correct": (metrics.correct, [[0.0, 1.0], [3.0, 2.0]], [1, 1], [True, False]),
    "cross entropy": (metrics.cross_entropy, [[0.0, 0.0]], [1], [HALF]),
    "Brier score": (metrics.brier, [[0.0, 0.0]], [1], [0.5]),
    "balanced": (metrics.balanced, TWO, [1, 0], [[0, 1, 0, 1], [0, 0, 1, 0]]),
    "squared error": (metrics.squared_error, [[1.0, 2.0]], [[1.0, 4.0]], [2]),
    "absolute error": (metrics.absolute_error, [[1.0, 2.0]], [[1.0, 4.0]], [1]),
    "Huber": (metrics.huber, [[0.5], [3.0]], [[0.0], [0.0]], [0.125, 2.5]),
    "moments": (metrics.moments_of_error, [[1.0]], [[3.0]], [[4, 3, 9]]),
    "tokens": (metrics.token_cross_entropy, [[[0.0] * 4] * 3], [[1, 2, -1]], [2 * HALF]),
    "right tokens": (metrics.correct_tokens, [[*TWO, [1.0, 0.0]]], [[1, 0, -1]], [[1, 2]]),
    "surprise": (metrics.surprise, [[[0.0] * 4] * 2], [[3, -1]], [[2 * HALF, 1]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_metrics_and_losses_give(name: str) -> None:
    function, outputs, targets, expected = VALUES[name]
    for arrays in (jnp, np):
        found = function(arrays.asarray(outputs), arrays.asarray(targets))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_metrics_in_words() -> None:
    assert (ACCURACY.heading, LOSS.heading) == ("accuracy [%]", "loss")
    assert (ACCURACY.text(0.9512), LOSS.text(0.123456)) == ("95.1 %", "0.1235")
    assert (ACCURACY.sampling_error(0.9, 400), LOSS.sampling_error(0.5, 400)) == (0.015, None)
    assert ACCURACY.samples_text(0.9, 400) == "400 test samples, standard error 1.5 points"
    assert LOSS.samples_text(0.5, 400) == "400 test samples"


def test_which_metrics_a_run_reports() -> None:
    assert [one.name for one in metrics.further_of(["brier", "loss", "accuracy"])] == ["brier"]
    assert [one.name for one in metrics_of(["mae"], "rmse")] == ["rmse", "loss", "mae"]
    assert metrics.score_metric("loss").devices
    assert metrics.as_loss(lambda outputs, targets: outputs, "square").score == "loss"
    assert metrics.name_of(lambda outputs, targets: outputs) == "own:lambda"
    assert reported(Training()) == Reported((), "accuracy")
    assert reported(Training(loss="mse", score="rmse")) == Reported(("mae",), "rmse")


def test_curves() -> None:
    ends = ["test_brier", "device_brier_mean", "device_brier_min", "device_brier_max"]
    assert [curve.name for curve in curves.own_curves(["brier"])] == ends
    by_loss = [curve.name for curve in curves.curves_of((), "loss")]
    assert by_loss[:3] == ["train_loss", "test_loss", "device_loss_mean"]
    assert by_loss[curves.score_place("loss")] == "test_loss"
    assert curves.column_names(["brier"])[:9] == (*curves.CURVES, "test_brier")
    assert curves.score_columns("r2")["device_score_min"] == "device_r2_min"
    names = ("train_loss", "test_loss", "test_score", "device_score_mean")
    assert curves.trace_names()[:4] == names


def test_when_and_on_how_many_samples_a_run_is_evaluated() -> None:
    five = Schedule(np.ones((5, 1), int))
    assert evaluated(Options(eval_every=2), five, 2, 5).tolist() == [False, True, True]
    named = evaluated(Options(eval_at=(1, 3)), five, 0, 5).tolist()
    assert named == [True, False, True, False, True]
    assert sample_counts(0.08, 16_000, 20, 10_000, 1000) == (1000, 500, 100)
    assert sample_counts(0.0, 16_000, 20, 10_000, 1000) == (10_000, 10_000, 1000)


def test_schedules() -> None:
    rounds = np.ones((2, 3), int)
    schedule = Schedule(rounds, arrived=lambda t: np.arange(3) > t, gifts=((1, 2, 0),))
    assert schedule.arrivals(0, 2).tolist() == [[False, True, True], [False, False, True]]
    assert schedule.begins_with(0, 2).tolist() == [[0, 1, 2], [0, 1, 0]]
    assert schedule.mean_weights(np.array([[3, 4, 5]]), by_samples=True).tolist() == [[3, 4, 5]]
    assert stride_of(np.array([5, 5, 5]), 0.3) == 5
    assert stride_of(np.array([1, 2, 3, 4]), 0.1) == stride_of(np.array([0, 0]), 0.3) == 1
    with pytest.raises(ScenarioError, match="there are 0 partitions for 1 seeds: give one"):
        check_inputs([], schedule, [0], 5)


def test_matrices_of_a_plan() -> None:
    mixing, rounds = power_mixing(sparse.csr_array(np.full((2, 2), 0.5)), 3)
    assert isinstance(mixing, np.ndarray)
    assert (mixing.shape, rounds) == ((1, 2, 2), 1)
    require_room(10, 1_000)
    with pytest.raises(ScenarioError, match="lower training"):
        require_room(1_000, 1_000)


def test_recorded_exchanges() -> None:
    plan = joulemesh.plan(Scenario(devices={"count": 3}, plan={"aggregation": "ring"}))
    route = plan.route(1)
    assert route is not None
    made = record(plan.scheme_at(1), route, 3, "float16")
    assert made.target.tolist() == [[0, 1, 2, 1, 1]]
    assert made.rounds.tolist() == [[True, True, True, False, True]]
    assert made.divisor.tolist() == [[1, 1, 1, 1, 3]]
    assert made.output.tolist() == [[1, 1, 1]]
    mixed = rounded_mixing(np.full((2, 2), 0.5))
    assert mixed.target.tolist() == [[0, 1, 0, 1, 1]]
    assert mixed.rounds.tolist() == [[True, True, False, False, True]]


def test_samples_and_batches() -> None:
    x, y = np.ones((2, 1), np.float32), np.array([0, 1], np.int32)
    toy = Dataset("toy", x, y, x, y, 2, mean=1.0, std=0.5)
    assert [float(one) for one in scale_of(toy, np.float64)] == [2, -2]
    held = partition(np.arange(40) % 2, 4, kind="iid")
    index, valid = Batches([held], [0], Options(batch_size=8)).draw(0, np.arange(4), 0, 3)
    assert (index.shape, valid) == ((3, 4, 8), None)
    assert np.isin(index[:, 2], held.indices(2)).all()


def test_traces() -> None:
    names = ("iteration", *curves.trace_names(), *curves.COUNTS)
    columns: dict[str, Any] = dict.fromkeys(names, np.array([[1.0, 3.0], [2.0, 4.0]]))
    two = Trace(**(columns | {"iteration": np.array([5, 9])}), sent=np.ones(5))
    assert two.part(np.array([False, True]), slice(1, 2)).test_loss.tolist() == [[4]]
    assert (two.last.iteration.tolist(), two.last.test_loss.tolist()) == ([9], [[2, 4]])
    assert Trace.from_arrays(two.to_arrays(), like=two).sent.shape == (5,)


def test_arrays_in_a_file(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", {"w": np.arange(3.0), "trace.loss": np.ones(1)})
    found = read_arrays(tmp_path / "a", {"w": ((3,), np.dtype(float))}, besides="trace.")
    assert (found["w"].tolist(), found["trace.loss"].tolist()) == ([0, 1, 2], [1])
    assert list(named_leaves({"dense": {"b": np.zeros(2), "w": np.ones(3)}})) == [
        "dense.b", "dense.w"
    ]  # fmt: skip


def test_what_a_run_is_known_by() -> None:
    assert digest([b"ab"]) != digest([b"a", b"b"])
    labels = jax.ShapeDtypeStruct((2,), np.int32)
    one, other = (metrics_digest(metrics_of(own), (10,), labels) for own in ((), ["brier"]))
    assert one != other
    assert list(packages("jax")) == ["numpy", "scipy", "jax", "jaxlib", "optax", "flax"]
    assert said_loss(Scenario(), "mse").training.loss == "mse"
    named = with_data(Scenario(), ([[0.0]], [0], [[0.0]], [0]))
    assert named.training.dataset == "./inputs/data.npz"


def test_one_process_alone() -> None:
    assert hosts.alone()
    assert hosts.leads()
    assert hosts.any_of(True, False) == (True, False)
    assert hosts.on_leader(lambda: "done") == "done"
    assert hosts.from_leader(np.arange(2), (2,), np.int64).tolist() == [0, 1]


def test_means_and_losses() -> None:
    mean = mean_of({"w": np.array([[[0.0], [4.0]]])}, np.array([[1, 3]]))
    assert mean["w"].tolist() == [3]
    apart = consensus_error(jnp.array([[[1.0]], [[3.0]]]), jnp.array([True, True]))
    assert apart.tolist() == [0.5]
    assert in_groups(lambda x: 2 * x, jnp.arange(5), 3).tolist() == [0, 2, 4, 6, 8]
    toy = Model("toy", lambda key: jnp.ones((1, 2)), lambda w, x: x @ w, l2=0.5)
    x, y = jnp.ones((4, 1)), jnp.zeros(4, jnp.int32)
    value, _ = weighted_loss(toy, jnp.ones((1, 2)), x, y, jnp.full(4, 0.25), jnp.float32)
    assert float(value) == pytest.approx(HALF + 0.25 * 2)


def test_where_devices_lie() -> None:
    layout = Layout.deal(np.array([9, 9, 1, 1]), 1, 2)
    assert layout.order.tolist() == [0, 3, 1, 2]
    assert layout.slots_of(np.array([0, 1, 2, 0])).tolist() == [0, 0, 2, 3]
    padded = Layout.deal(np.ones(3), 1, 2)
    assert padded.spread(np.array([5, 6, 7]), 0).tolist() == [5, 6, 7, 0]
    assert padded.rows_of(np.array([[[5], [6], [7]]])).ravel().tolist() == [5, 6, 7, 7]
    assert Layout.deal(np.ones(2), 2, 1).rows(np.array([[1, 2], [3, 4]]), 0).tolist() == [
        1, 3, 2, 4
    ]  # fmt: skip


def test_models_by_arithmetic() -> None:
    kind = kinds.ModelKind("wide", "", lambda *_: None, parameters=("hidden",))
    assert kinds.options_of(kind, {"l2": 0.1}) == {"hidden": (64,)}
    assert [kinds.conv_output(side) for side in (32, 28, 21)] == [2, 1, 0]
    assert kinds.multiply_adds("cnn", (28, 28, 1), 10) == 2_190_080
    params = networks.token_mlp_init(5, (8,))(jax.random.key(0))
    assert networks.token_mlp_apply(params, jnp.zeros((2, 7), jnp.int32)).shape == (2, 7, 5)
    params = networks.mlp_init((4, 3, 2))(jax.random.key(0))
    whole = networks.mlp_apply(params, jnp.ones((5, 2, 2)))
    first = jnp.ones((5, 4)) @ params.pop("dense0_w")
    np.testing.assert_array_equal(networks.after_input(params, first), whole)
