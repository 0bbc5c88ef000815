"""Optuna behind the seam; skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.study import adapters
from joulemesh.study.pricing import Candidate, Priced
from joulemesh.study.search import Score, Trial


def offered() -> list[Priced]:
    """A grid of learning rates and policies, of which one has the lowest cost."""
    points: list[dict[str, Any]] = [{}]
    points += [
        {"training.learning_rate": rate, "plan.rounds": policy}
        for policy in ("theorem4", "uniform", "backfill")
        for rate in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    ]
    return [
        Priced(Candidate(k, point), "tree", 10, 50, 5.0, 2.0, str(k))
        for k, point in enumerate(points)
    ]


def cost(one: Priced) -> float:
    changes = one.candidate.changes
    if not changes:
        return 1.0
    near = abs(changes["training.learning_rate"] - 0.2)
    return float(near + (0.0 if changes["plan.rounds"] == "uniform" else 0.3))


def played(tuner: adapters.OptunaTuner, priced: list[Priced]) -> list[int]:
    tried = []
    while not tuner.finished:
        trial = tuner.ask()
        assert trial is not None
        assert trial.share == 1
        assert tuner.ask() is None  # one at a time: each answer moves the next question
        tuner.tell(trial, Score(0, cost(priced[trial.candidate])))
        tried.append(trial.candidate)
    assert tuner.left == 0
    return tried


def test_every_candidate_is_tried_at_most_once() -> None:
    pytest.importorskip("optuna")
    priced = offered()
    tried = played(adapters.optuna_tuner(trials=100)(priced), priced)
    assert sorted(tried) == list(range(len(priced)))
    assert tried[0] == 0


def test_it_finds_the_best_of_a_grid_and_repeats_itself() -> None:
    pytest.importorskip("optuna")
    priced = offered()
    tuner, again = (adapters.optuna_tuner(trials=16, seed=3)(priced) for _ in range(2))
    tried = played(tuner, priced)
    assert played(again, priced) == tried
    best = tuner.best
    assert best is not None
    assert cost(priced[best]) == min(cost(priced[k]) for k in tried)


def test_a_candidate_without_a_score_is_passed_over() -> None:
    pytest.importorskip("optuna")
    priced = offered()[1:3]
    tuner = adapters.optuna_tuner(trials=2)(priced)
    first = tuner.ask()
    assert first is not None
    tuner.tell(first, None)
    assert tuner.best is None
    with pytest.raises(ScenarioError, match="was not asked for"):
        tuner.tell(Trial(1, 0, 1.0), None)


def test_a_scenario_is_tuned_by_it(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"devices.count": 4, "plan.iterations": 10, "training.model": "logistic"}
    )
    found = joulemesh.tune(
        scenario,
        {"training.learning_rate": [1e-6, 0.05, 0.2]},
        seeds=1,
        search_seeds=1,
        cache=tmp_path,
        tuner=adapters.optuna_tuner(trials=3),
    )
    assert [len(rung.rows) for rung in found.rungs] == [3]
    assert found.rungs[0].share == 1
