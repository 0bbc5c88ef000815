"""Scores of which lower is better: targets, tables, learning rates and tuning follow them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.metrics import Reported, score_metric
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Record, TunedRate, entry_of
from joulemesh.study.runs import check_target, default_target, to_target
from joulemesh.study.statistics import reached_at
from joulemesh.study.tuning import front

RMSE = Reported(("mae",), "rmse")
COST = np.array([1.0, 2.0, 3.0, 4.0])


def run(curve: list[float]) -> Record:
    """A run whose RMSE falls along a curve."""
    names = column_names(*RMSE)
    curves = np.full((len(curve), len(names)), 9.0)
    curves[:, names.index("test_rmse")] = curve
    curves[:, names.index("device_rmse_mean")] = [value + 0.5 for value in curve]
    cost = COST[: len(curve)]
    iteration = np.arange(1, len(curve) + 1)
    spent, totals = np.array([1.0, 2.0]), np.ones(4)
    return Record(iteration, curves, curves[-1], cost, 10 * cost, spent, totals)


def test_a_falling_curve_reaches_its_target_from_above() -> None:
    curve = np.array([[5.0, 5.0], [3.0, 4.0], [1.0, 4.5]])
    found = reached_at(np.array([5, 10, 15]), curve, np.tile(COST[:3, None], 2), 2.0, "lower")
    rising = reached_at(np.array([5, 10, 15]), -curve, np.tile(COST[:3, None], 2), -2.0)
    np.testing.assert_array_equal(found.value, rising.value)
    assert 2.0 < found.value[0] < 3.0
    assert math.isnan(found.value[1])


@pytest.mark.parametrize(
    ("score", "final", "target"),
    [("accuracy", 0.8, 0.95 * 0.8), ("r2", 0.4, 0.95 * 0.4), ("r2", -0.4, -0.42),
     ("rmse", 2.0, 2.1), ("perplexity", 10.0, 10.5)],
)  # fmt: skip
def test_the_target_unless_given_is_a_little_worse_than_the_end(
    score: str, final: float, target: float
) -> None:
    metric = score_metric(score)
    found, words = default_target(final, metric, "the final")
    assert found == pytest.approx(target)
    assert metric.sign * found < metric.sign * final
    assert words.endswith(metric.label)


def test_targets_are_figures_of_the_score() -> None:
    check_target(61.5, score_metric("rmse"))
    with pytest.raises(ScenarioError, match=r"target = 61\.5 is not a token accuracy"):
        check_target(61.5, score_metric("token_accuracy"))
    found = to_target(np.array([1, 2]), np.array([[3.0], [1.0]]), COST[:2], COST[:2], 1.5,
                      score_metric("rmse"))  # fmt: skip
    assert found["energy_to_target_j"] == 2.0
    assert found["target_words"] == "test RMSE 1.5000 of the mean model (as asked)"
    assert found["target_metric"] == "rmse"


def test_a_comparison_takes_the_lowest_for_the_best() -> None:
    slow = entry_of("slow", {0: run([5.0, 4.0, 3.0])}, np.full(2, 9.0), measured=RMSE)
    good = entry_of("good", {0: run([4.0, 2.0, 1.0])}, np.full(2, 9.0), measured=RMSE)
    asked = Scenario(training={"dataset": "diabetes", "loss": "mse", "score": "rmse"})
    study = Comparison(asked, "time", (0,), (slow, good))
    assert study.score == "rmse"
    assert study.target == pytest.approx(1.05)
    assert "1.05 times the best method's final RMSE" in study.target_words
    first, second = study.table()
    assert (first["rmse"], second["rmse"], second["rmse_difference"]) == (3.0, 1.0, -2.0)
    assert (first["reached"], second["reached"]) == (0, 1)
    assert first["device_rmse"] == 3.5
    assert "accuracy" not in " ".join(first)
    assert "test_rmse" in study.to_csv().splitlines()[0]
    assert repr(study) == "Comparison(slow 3.0000, good 1.0000; equal time, 1 seed)"


def test_the_best_learning_rate_has_the_lowest_error() -> None:
    reached = np.array([[3.0, 3.0], [1.0, 2.0], [np.nan, 0.5]])
    assert TunedRate((0.1, 0.2, 0.4), (7, 8), reached, "lower").chosen == 0.2
    assert TunedRate((0.1, 0.2, 0.4), (7, 8), reached).chosen == 0.1


def test_the_front_is_of_the_lowest() -> None:
    assert front([1.0, 2.0, 3.0], [5.0, 6.0, 4.0], "lower") == [0, 2]
