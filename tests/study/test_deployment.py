"""The report of a fleet's folder: journals found, views planned again, the curve beside it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.cli.main import app
from joulemesh.deploy.device.continuation import Replanner
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import make_fleet
from joulemesh.deploy.record.history import read_history
from joulemesh.deploy.view import View
from joulemesh.planning.static import plan_of
from joulemesh.study.deployment import replayed_curve, report_of_fleet
from tests.deploy.journals import Fleet as Journals

CHANGES = {
    "devices.count": 4,
    "network.profile": "ideal",  # idling is free
    "plan.iterations": 6,
    "training.model": "logistic",
}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet's folder with the journals that its devices would have sent."""
    folder = tmp_path_factory.mktemp("deployment") / "fleet"
    plan = joulemesh.plan(joulemesh.Scenario.preset("default").override(CHANGES))
    fleet = make_fleet(folder, plan)
    Journals(plan, fleet.names).write(folder / "journals")
    return folder


@pytest.fixture
def fleet(packed: Path, tmp_path: Path) -> Path:
    place = tmp_path / "fleet"
    shutil.copytree(packed, place)
    return place


def change(folder: Path, name: str, view: View, *, at: float) -> None:
    """Add a view to a device's journal."""
    line = {"at": at, "kind": "view", **view.__dict__}
    journal = folder / "journals" / name / "journal.jsonl"
    with journal.open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_it_writes_the_page_and_the_receipt(fleet: Path) -> None:
    made = report_of_fleet(fleet, simulate=False)
    assert made.page == fleet / "report.html"
    page = made.page.read_text("utf-8")
    assert "Deployment of fleet, 15 January 2027" in page
    rows = list(csv.DictReader((fleet / "receipt.csv").open()))
    assert len(rows) == 4 * 6
    record = json.loads((fleet / "receipt.json").read_text())
    assert record["fleet"] == Fleet.load(fleet).id
    assert record["plan"] == Fleet.load(fleet).digest
    assert record["sources"]["simulated"] == "simulation of the scenario"
    assert made.notes == ()


def test_after_a_change_of_view_the_simulated_figures_are_those_of_its_plan(fleet: Path) -> None:
    plan = plan_of(Fleet.load(fleet).ground())
    view = View(1, 4, (0, 1, 2), left_j=tuple(plan.energy_budget_j[:3].tolist()))
    rest = Replanner(plan.ground, 0, Fleet.load(fleet).settings.reserve).plan(view)
    change(fleet, Fleet.load(fleet).names[0], rest.view, at=1_800_000_001.0)
    made = report_of_fleet(fleet, simulate=False)
    after = made.receipt.simulated
    assert np.array_equal(after.joules[:3], made.receipt.planned.joules[:3])
    assert np.isnan(after.joules[3:, 3]).all()
    for t in (4, 5, 6):
        paid = rest.rest.rounds(t) * plan.world.devices.round_energy_j + rest.rest.exchange_j(t)
        assert np.allclose(after.joules[t - 1, :3], paid[:3])
    assert after.source == "simulation of the scenario, planned again for 1 view change"
    assert not any("another plan" in note for note in made.notes)


def test_a_view_whose_plan_is_not_that_of_the_devices_is_said(fleet: Path) -> None:
    view = View(1, 4, (0, 1, 2), left_j=(9.0, 9.0, 9.0), digest="cd" * 32)
    change(fleet, Fleet.load(fleet).names[0], view, at=1_800_000_001.0)
    made = report_of_fleet(fleet, simulate=False)
    assert any("View 1 gives another plan here" in note for note in made.notes)


def test_without_any_journal_it_says_where_to_put_them(fleet: Path) -> None:
    shutil.rmtree(fleet / "journals")
    with pytest.raises(ScenarioError, match="copy each device's folder 'run' to"):
        report_of_fleet(fleet, simulate=False)
    assert not (fleet / "report.html").exists()


def test_the_command_says_what_happened_and_what_it_wrote(fleet: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app, ["deploy", "report", str(fleet), "--no-simulate", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "4 devices carried out 6 iterations" in done.output
    assert {path.name for path in out.iterdir()} == {"report.html", "receipt.json", "receipt.csv"}
    done = CliRunner().invoke(app, ["deploy", "report", str(fleet), "--no-simulate", "--json"])
    record = json.loads(done.output)
    assert len(record["devices"]) == 4
    assert record["devices"][0]["totals"]["charged"]["joules"] > 0


@pytest.mark.slow
def test_the_simulated_curve_is_drawn_and_kept(fleet: Path) -> None:
    made = report_of_fleet(fleet)
    assert "(simulated " in made.sentence
    kept = (fleet / "simulated" / "metrics.csv").stat().st_mtime_ns
    again = report_of_fleet(fleet)
    assert again.sentence == made.sentence
    assert (fleet / "simulated" / "metrics.csv").stat().st_mtime_ns == kept
    other = report_of_fleet(fleet, run=fleet / "simulated")
    assert other.sentence == made.sentence


def test_a_run_that_is_none_is_refused_before_anything_is_written(
    fleet: Path, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError):
        report_of_fleet(fleet, run=tmp_path / "nothing")
    assert not (fleet / "receipt.json").exists()


@pytest.mark.slow
def test_played_again_without_faults_it_is_the_simulated_run(fleet: Path) -> None:
    found = Fleet.load(fleet)
    histories = [
        read_history(fleet / "journals" / name, device, name)
        for device, name in enumerate(found.names)
    ]
    again = replayed_curve(found, histories)
    result = joulemesh.run(found.scenario)
    where = np.searchsorted(result.trace.iteration, again.iteration)
    assert again.iteration.tolist() == [5, 6]
    assert np.allclose(again.accuracy[0], result.trace.device_accuracy_mean[where, 0], atol=1e-6)


def test_without_all_journals_it_is_not_played_again(fleet: Path) -> None:
    shutil.rmtree(fleet / "journals" / Fleet.load(fleet).names[2])
    with pytest.raises(ScenarioError, match="nobody knows what happened"):
        report_of_fleet(fleet, replay=True)
    assert not (fleet / "receipt.json").exists()
