"""Whole comparisons: equal terms, kept runs, what happens when something goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.methods import Setting, build
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario
from joulemesh.study.compare import DEFAULT_METHODS, Progress, _sized
from joulemesh.study.comparison import Comparison
from joulemesh.tolerance import within
from joulemesh.training.jax import engine as learners
from joulemesh.training.jax.engine import Engine
from joulemesh.training.learner import DivergedError
from tests.compiled import compiled_programs

Same = Callable[..., bool]
Seven = tuple[Comparison, list[Engine]]


@pytest.fixture
def mine(kept: Path, seven: Seven, tmp_path: Path) -> Path:
    """A copy of the session's kept runs."""
    return Path(shutil.copytree(kept, tmp_path / "kept"))


def test_seven_methods_run_within_every_battery(seven: Seven, small: Scenario) -> None:
    found, _ = seven
    assert [entry.name for entry in found.entries] == list(DEFAULT_METHODS)
    battery = Setting(small).battery_j
    for entry in found.entries:
        assert entry.status == "ran"
        assert np.isfinite(entry.curves["test_accuracy"]).all()
        assert within(battery, entry.spent_j).all()
        np.testing.assert_allclose(entry.leftover_j, battery - entry.spent_j)
        # The ledger's total, the curve's end and the batteries say the same.
        np.testing.assert_allclose(entry.energy_j[-1], entry.spent_j.sum(axis=1))
        np.testing.assert_allclose(entry.totals[:, :2].sum(axis=1), entry.spent_j.sum(axis=1))
        assert (np.diff(entry.energy_j, axis=0) > 0).all()


def test_programs_are_compiled_once_and_shared(seven: Seven) -> None:
    _, engines = seven
    assert len(engines) == 7  # all seeds of a method in one
    assert all(engine.seeds == (0, 1) for engine in engines)
    # Exact means share one, mixing matrices share one; gossip learning and PENS have their own.
    shared = {id(engine.programs): engine.programs for engine in engines}
    assert len(shared) == 4
    compiled = [compiled_programs(function) for made in shared.values() for function in made]
    assert max(compiled) == 1


def test_every_method_is_evaluated_on_the_same_samples(seven: Seven) -> None:
    _, engines = seven
    assert {engine.evaluator.counts.curve for engine in engines} == {(60, 60, 60)}
    for engine in engines:
        assert engine.options.eval_at[0] == 1
        assert engine.options.eval_at[-1] == engine.schedule.iterations


# Equal terms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("equal", ["iterations", "time"])
def test_equal_terms(
    small: Scenario, digits: Dataset, seven: Seven, tmp_path: Path, equal: str
) -> None:
    methods = ["adaptive", "fixed:1", "inverse"]  # of one program, which is compiled already
    found = joulemesh.compare(small, methods, equal, (0, 1), data=digits, cache=tmp_path)
    clock = Setting(small).clock_s
    for entry in found.entries:
        if equal == "iterations":
            assert entry.iteration[-1] == 8
        else:
            assert entry.time_s[-1].max() <= clock * (1 + 1e-9)
        n, setting = int(entry.iteration[-1]), Setting(small, equal)
        ledger = build(entry.name, setting).ledger()
        assert ledger.iterations == n
        np.testing.assert_allclose(entry.energy_j[-1], ledger.total_j)
        np.testing.assert_allclose(entry.time_s[-1], ledger.seconds.sum())


RIVALS = ("d-psgd", "gossip-pga:3", "merge", "skiptrain:2,sync=1", "led:2")


@pytest.mark.parametrize("equal", ["time", "budget"])
def test_rivals_on_equal_time_may_overdraw_and_on_an_equal_budget_do_not(
    small: Scenario, digits: Dataset, tmp_path: Path, equal: str
) -> None:
    scenario = small.override({"budget.total_s": 2 * Setting(small).clock_s})
    methods = ["adaptive", *RIVALS]
    found = joulemesh.compare(scenario, methods, equal, (0, 1), data=digits, cache=tmp_path)
    setting = Setting(scenario, equal)
    overdrawn = {}
    for entry in found.entries:
        assert entry.status == "ran"
        assert entry.time_s[-1].max() <= setting.limit_s * (1 + 1e-9)
        overdrawn[entry.name] = bool((entry.leftover_j < 0).any())
        assert any("overdraws" in note for note in entry.notes) == overdrawn[entry.name]
    assert overdrawn["d-psgd"] == (equal == "time")
    assert not overdrawn["adaptive"]
    if equal == "budget":
        assert not any(overdrawn.values())
        assert setting.limit_s == scenario.budget.total_s
    # A merge leaves all devices with the mean model.
    merged = found["merge"].final
    np.testing.assert_allclose(merged["device_accuracy_mean"], merged["test_accuracy"])
    assert (merged["consensus"] < 1e-5).all()


def test_a_method_that_cannot_be_paid_is_a_row_and_the_others_run(
    small: Scenario, digits: Dataset, seven: Seven, tmp_path: Path
) -> None:
    methods = ["fixed:500", "fixed:1"]
    found = joulemesh.compare(small, methods, "energy", (0, 1), data=digits, cache=tmp_path)
    assert found["fixed:500"].infeasible is not None
    assert "cannot pay for one iteration of fixed:500" in found["fixed:500"].infeasible
    assert found["fixed:1"].ran
    assert found.table()[1]["accuracy_difference"] is None


# Kept runs ----------------------------------------------------------------------------------------


def test_nothing_is_computed_twice(
    small: Scenario, digits: Dataset, seven: Seven, mine: Path, engines: list[Engine], same: Same
) -> None:
    again = joulemesh.compare(small, DEFAULT_METHODS, "energy", 2, data=digits, cache=mine)
    assert (again.computed, engines) == (0, [])
    assert seven[0].computed == 14
    assert all(same(again[name], seven[0][name]) for name in DEFAULT_METHODS)
    assert again.table() == seven[0].table()


def test_another_seed_or_method_computes_only_itself(
    small: Scenario, digits: Dataset, seven: Seven, mine: Path, engines: list[Engine], same: Same
) -> None:
    methods = ["adaptive", "fixed:2"]
    first = joulemesh.compare(small, methods, "energy", 2, data=digits, cache=mine)
    assert [engine.seeds for engine in engines] == [(0, 1)]  # adaptive is kept
    assert first.computed == 2
    more = joulemesh.compare(small, "adaptive", "energy", 3, data=digits, cache=mine)
    assert [engine.seeds for engine in engines[1:]] == [(2,)]
    assert more.computed == 1
    assert same(more["adaptive"], seven[0]["adaptive"], slice(0, 2))
    assert more["adaptive"].curves["test_accuracy"].shape[1] == 3


def test_an_interrupted_comparison_goes_on(
    small: Scenario, digits: Dataset, seven: Seven, tmp_path: Path, engines: list[Engine],
    same: Same,
) -> None:  # fmt: skip
    def stop(step: Progress) -> None:
        if step.method == "fixed:3" and step.completed:
            raise KeyboardInterrupt

    methods = ["adaptive", "fixed:3", "inverse"]
    terms: dict[str, Any] = {"data": digits, "cache": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        joulemesh.compare(small, methods, "energy", 2, on_progress=stop, **terms)
    assert len(engines) == 2
    found = joulemesh.compare(small, methods, "energy", 2, **terms)
    assert len(engines) == 4  # the interrupted one once more, and the one after it
    assert found.computed == 4
    assert all(same(found[name], seven[0][name]) for name in methods)


# Divergence ---------------------------------------------------------------------------------------


def test_a_diverged_seed_does_not_lose_the_others(
    small: Scenario, digits: Dataset, seven: Seven, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    class Fragile(Engine):
        def begin(self) -> Any:
            tried.append(self.seeds)
            return super().begin()

        def advance(self, state: Any) -> Any:
            later = int(state.iteration) > 0
            if later and 7 in self.seeds and self.schedule.rounds.max() == 3:
                raise DivergedError(6, 7, 0.05)
            return super().advance(state)

    monkeypatch.setattr(learners, "Engine", Fragile)
    terms: dict[str, Any] = {"data": digits, "cache": tmp_path}
    found = joulemesh.compare(small, ["fixed:3", "fixed:2"], "energy", [7, 0], **terms)
    assert tried == [(7, 0), (0,), (7, 0)]
    lost, other = found.entries
    assert (lost.status, dict(lost.diverged)) == ("diverged", {7: 6})
    accuracy = lost.curves["test_accuracy"]
    assert np.isnan(accuracy[:, 0]).all()
    np.testing.assert_allclose(accuracy[:, 1], seven[0]["fixed:3"].curves["test_accuracy"][:, 0])
    assert other.status == "ran"
    joulemesh.compare(small, ["fixed:3"], "energy", [7, 0], **terms)
    assert len(tried) == 3  # that it diverged is kept too


def test_divergence_is_found_in_training(small: Scenario, digits: Dataset, tmp_path: Path) -> None:
    wild = small.override({"training.learning_rate": 1e30})
    found = joulemesh.compare(wild, ["fixed:3"], "energy", (0, 1), data=digits, cache=tmp_path)
    entry = found.entries[0]
    assert (entry.status, entry.ran, set(entry.diverged)) == ("diverged", False, {0, 1})
    assert found.table()[0]["notes"][0].startswith("diverged: seed 0 in iteration 1")


# Own data, refusals -------------------------------------------------------------------------------


def test_epochs_of_the_users_own_data_are_priced_by_them(small: Scenario, digits: Dataset) -> None:
    scenario = small.override(
        {
            "training.local_round": "epoch",
            "training.partition": "quantity",
            "budget.energy_j": 20.0,
            "budget.deadline_s": 1.0,
        }
    )
    plan = make_plan(scenario, data=digits)
    setting = Setting(_sized(scenario, digits))
    np.testing.assert_array_equal(setting.work.round_samples, plan.work.round_samples)
    assert setting.work.round_samples.sum() == 240
    assert _sized(small, digits) is small  # where a round is a step, they do not matter


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ["adaptve"]}, "'adaptve' is unknown: use some of adaptive, spread, fixed"),
        ({"methods": []}, "no method is given"),
        ({"methods": "fixed:3,fixed:3"}, "'fixed:3' is given twice"),
        ({"methods": ["fixed:x"]}, "tau = 'x' is not a number: give a whole number"),
        ({"methods": ["fixed:0"]}, "tau = '0' is out of range: give a whole number"),
        ({"methods": ["adaptive:x"]}, "'x' is not one of theorem4"),
        ({"equal": "joules"}, "equal = 'joules' is unknown"),
        ({"target": 1.5}, "target = 1.5 is not an accuracy"),
        ({"seeds": 0}, "seeds are \\[\\]"),
        ({"seeds": [1, 1]}, "seeds are \\[1, 1\\]"),
    ],
)
def test_bad_input_is_refused_before_anything_is_trained(
    small: Scenario, digits: Dataset, tmp_path: Path, engines: list[Engine],
    arguments: dict[str, Any], message: str,
) -> None:  # fmt: skip
    given = {"methods": ["fixed:1"], "seeds": 1, **arguments}
    with pytest.raises(ScenarioError, match=message):
        joulemesh.compare(small, data=digits, cache=tmp_path, **given)
    assert engines == []


def test_parameters_and_methods_share_the_comma(
    small: Scenario, digits: Dataset, seven: Seven, tmp_path: Path
) -> None:
    text = "fixed:1,balanced:tau1=4000,tau2=2;fixed:2"
    found = joulemesh.compare(small, text, "energy", (0, 1), data=digits, cache=tmp_path)
    names = [entry.name for entry in found.entries]
    assert names == ["fixed:1", "balanced:tau1=4000,tau2=2", "fixed:2"]
    assert found.entries[1].infeasible is not None
