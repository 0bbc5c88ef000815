"""Small rules of studies, each by an example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulemesh.cli.doctor import _name
from joulemesh.methods import Setting, build
from joulemesh.scenario import Scenario
from joulemesh.study.compare import rates_of
from joulemesh.study.contest import evaluations, grid
from joulemesh.study.export import _dotted, wilson
from joulemesh.study.flower import _distribution
from joulemesh.study.folder import costs_of, flat, trace_of
from joulemesh.study.identity import _suffix, difference
from joulemesh.study.pricing import Candidate
from joulemesh.study.record import gathered, notes_over_worlds
from joulemesh.study.runs import about
from joulemesh.study.search import Halving, Objective, Score
from joulemesh.study.statistics import band
from joulemesh.study.sweep import ask
from joulemesh.study.sweep_result import column_of
from joulemesh.study.tracking import curves_of, fields_of, run_id
from joulemesh.study.tuning import front

SCENARIO = Scenario.preset("adaptive")


def test_learning_rates_and_the_seeds_they_are_tried_on() -> None:
    assert rates_of(SCENARIO, True) == (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
    assert rates_of(SCENARIO, "0.1, 0.05") == (0.05, 0.1)


def test_when_methods_are_evaluated() -> None:
    points = [7.78, 8.49, 9.25, 10.09, 11.0, 12.0, 13.0, 14.0, 15.27]
    assert grid(1.0, 14, 8.0, 16.0).round(2).tolist() == points
    setting = Setting(SCENARIO)
    found = evaluations(setting, build("fixed:3", setting).reserve)
    assert found[:14] == tuple(range(1, 15))


def test_statistics_of_few_figures() -> None:
    assert [round(end, 4) for end in wilson(9, 10)] == [0.5958, 0.9821]
    mean, half = band(np.array([[0.5, 0.7], [0.8, 0.8]]))
    assert mean.round(3).tolist() == [0.6, 0.8]
    assert half.round(3).tolist() == [1.271, 0.0]  # 12.706 · 0.1414/√2


def test_names_and_texts() -> None:
    assert _dotted(".params['dense0_w']") == "dense0_w"
    assert [_dotted("params.0.weight"), _dotted(".params")] == ["0.weight", "params"]
    assert [_distribution("My farm, 2026!"), _distribution("")] == ["my-farm-2026", "joulemesh-app"]
    assert [_suffix(Path("a.b.csv")), _suffix(Path("a.csv.gz"))] == [".csv", ".csv.gz"]
    assert _name("orbax-checkpoint<1,>=0.11") == "orbax-checkpoint"
    assert [column_of("devices.count"), column_of("seed")] == ["devices.count", "scenario.seed"]
    record = {"python": "3.11", "packages": {"jax": "0.10"}, "seeds": [0, 1]}
    assert flat(record) == {"python": "3.11", "jax": "0.10", "seeds": "0, 1"}
    changes = {"plan.aggregation": "tree", "training.learning_rate": 0.2}
    assert Candidate(3, changes).name == "tree, rate 0.2"
    assert Candidate(0, {}).name == "as given"
    text = [Objective().text(Score(0, -0.9512)), Objective.parse("time-to:0.9").text(Score(0, 2.5))]
    assert text == ["95.1 %", "2.5 s"]


def test_what_metrics_csv_holds() -> None:
    assert trace_of("", (0,), np.float32).test_loss.shape == (0, 1)
    text = "seed,iteration,energy_j,time_s\n0,5,1.5,3.0\n1,5,2.5,3.0\n"
    assert [costs.tolist() for costs in costs_of(text, (0, 1))] == [[[1.5, 2.5]], [[3.0, 3.0]]]


def test_in_what_two_runs_differ() -> None:
    assert difference({"seeds": [0, 1]}, {"seeds": [0]}) == "seeds were [0, 1] and are [0]"
    then, now = ({"asked": {"plan": {"iterations": n}}} for n in (5, 6))
    assert difference(then, now) == "plan.iterations was 5 and is 6"


def test_notes_of_worlds_and_of_methods() -> None:
    assert list(
        notes_over_worlds([["the tree is deep", "3 never train"], ["the tree is deep"]])
    ) == [
        "the tree is deep",
        "in 1 of 2 worlds, for instance world 0: 3 never train",
    ]
    found = gathered([("spread", ["one is idle", "late"]), ("adaptive", ["one is idle"])])
    assert found == [("spread, adaptive", "one is idle"), ("spread", "late")]


def test_a_method_and_where_it_was_published() -> None:
    said, citation = about("fixed:3")
    assert said.startswith("The same number of rounds on every device in every iteration")
    assert citation is not None
    assert citation.arxiv == "2403.20075"
    assert about("of-another-machine") == ("", None)


def test_what_a_search_has_left_and_its_front() -> None:
    assert Halving(9).left == pytest.approx(3.9)  # 9 tenths, 3 thirds, 2
    assert front([3.0, 1.0, 2.0, 4.0], [0.8, 0.5, 0.4, 0.8]) == [1, 0]


def test_a_sweep_counts_its_runs() -> None:
    vary = {"devices.count": "10,20"}
    assert ask(Scenario(), vary, "adaptive,fixed:3", "batteries", 5).count == 20


def test_what_trackers_are_told() -> None:
    row = {"seed": 0, "iteration": 5, "test_loss": 0.5, "test_samples": 100}
    assert curves_of(row) == {"test_loss": 0.5}
    assert fields_of(Scenario())["devices.count"] == "20"
    assert run_id(None) != run_id(None)
