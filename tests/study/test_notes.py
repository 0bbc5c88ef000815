"""A note of a plan reaches everything that is made from the plan."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from rich.console import Console

import joulemesh
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.paper import write_comparison_paper
from joulemesh.views.comparison import render_comparison
from joulemesh.views.console import show_worlds
from joulemesh.views.printing import Printing
from joulemesh.views.report import ReportView, Summary, render_report
from joulemesh.views.sweep import render_sweep
from joulemesh.views.tables import show_comparison, show_sweep, show_tuning
from joulemesh.views.tuning import render_tuning

IDLE = "never train, they only average and relay: their samples stay unseen"


@cache
def scenario() -> Scenario:
    """A round of the last of four devices takes longer than the training."""
    made = Scenario.preset("default").override(
        {
            "devices.count": 4,
            "network.profile": "ideal",
            "devices.cycles_per_sample": {"values": [1e5, 1e5, 1e5, 1e9]},
            "budget.total_s": 0.05,
            "plan.iterations": 6,
            "training.model": "logistic",
            "training.hidden": [],
            "training.eval_every": 3,
        }
    )
    assert any(IDLE in note for note in joulemesh.plan(made).notes)
    return made


@cache
def compared() -> Comparison:
    return joulemesh.compare(scenario(), ["spread", "spread:4"], seeds=[0])


def printed(show: Callable[..., None], *arguments: object) -> str:
    text = io.StringIO()
    show(*arguments, Console(file=text, width=4000))
    return text.getvalue()


def test_a_comparison_carries_the_notes(tmp_path: Path) -> None:
    study = compared()
    assert any(IDLE in note for note in study["spread"].remarks)
    assert IDLE in printed(show_comparison, study)
    assert IDLE in render_comparison(study)
    assert IDLE in study.table_csv()
    assert IDLE in json.dumps(study.summary())
    write_comparison_paper(study, tmp_path, Printing())
    assert IDLE in " ".join((tmp_path / "methods.txt").read_text().split())


def test_a_run_carries_the_notes(tmp_path: Path) -> None:
    result = joulemesh.run(scenario(), out=tmp_path / "run")
    assert any(IDLE in note for note in result.notes)
    assert IDLE in (tmp_path / "run" / "report.html").read_text()
    assert IDLE in json.dumps(result.summary())
    plan = joulemesh.plan(scenario())
    assert IDLE in render_report(ReportView(plan, Summary(1.0, 1.0)))


def test_a_sweep_tells_in_which_combinations(tmp_path: Path) -> None:
    study = joulemesh.sweep(
        scenario(), {"budget.total_s": [0.05, 0.06]}, methods=["spread"], seeds=[0]
    )
    assert printed(show_sweep, study).count(IDLE) == 1
    assert IDLE in render_sweep(study)
    rows = list(csv.DictReader(io.StringIO(study.summary_csv())))
    assert sum(IDLE in row["notes"] for row in rows) == 2


def test_what_tuning_found_carries_the_notes() -> None:
    found = joulemesh.tune(
        scenario(), {"plan.iterations": [5, 6]}, seeds=1, search_seeds=1, candidates=2
    )
    assert any(IDLE in note for note in found.winner.notes)
    assert IDLE in printed(show_tuning, found)
    assert IDLE in render_tuning(found)
    assert IDLE in json.dumps(found.summary())


def test_equal_notes_of_several_methods_are_told_once() -> None:
    text = printed(show_comparison, compared())
    for note in compared()["spread"].remarks:
        assert text.count(note) == 1


def test_worlds_carry_the_notes() -> None:
    study = joulemesh.compare(scenario(), ["spread"], seeds=1, worlds=2)
    assert IDLE in json.dumps(study.summary())
    assert IDLE in printed(show_comparison, study)
    runs = joulemesh.run(scenario(), worlds=2)
    assert IDLE in json.dumps(runs.summary())
    assert IDLE in printed(show_worlds, runs)
