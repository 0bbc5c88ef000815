"""A local fleet calibrated as it will run: the figures, the files, and the whole loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.deploy.links.figures import Timed
from joulemesh.deploy.links.whole import LinkFigures
from joulemesh.deploy.local.calibrated import DEVICES, LINKS, SCENARIO, _outcome, calibrate_fleet
from joulemesh.deploy.local.rehearsal import Pace, measures_of, rehearsed
from joulemesh.deploy.record.costs import planned
from joulemesh.deploy.record.history import FIGURES, History, history_of
from joulemesh.deploy.record.pace import iteration_seconds, mean_iteration_s
from joulemesh.deploy.record.receipt import Receipt
from joulemesh.errors import JoulemeshError
from joulemesh.planning.plan import Plan
from joulemesh.tables import read_table


def history(device: int, ends: dict[int, float]) -> History:
    figures = dict.fromkeys(FIGURES, 0.0)
    lines = [
        json.dumps({"kind": "committed", "iteration": t, **figures, "at": at, "sent": {}}).encode()
        for t, at in ends.items()
    ]
    return history_of(lines, device, f"d{device}")


def test_an_iteration_ends_with_the_last_device() -> None:
    one = history(0, {1: 10.0, 2: 11.0, 3: 12.5, 5: 20.0})
    other = history(1, {1: 10.5, 2: 10.75, 3: 13.0, 4: 14.0, 5: 20.0})
    # Ends at 10.5, 11 and 13; of iteration 4 one device knows nothing, so that 5 follows none.
    assert iteration_seconds([one, other]) == (0.5, 2.0)
    assert iteration_seconds([history(0, {})]) == ()


def test_the_receipt_has_seconds_per_iteration_planned_and_measured() -> None:
    plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 3}, plan={"iterations": 3}))
    costs = planned(plan)
    step = 2.0 * float(plan.latency_s[1:].mean())
    histories = [history(k, {t: 5.0 + step * t for t in (1, 2, 3)}) for k in range(3)]
    assert mean_iteration_s(histories, costs) == pytest.approx((step / 2, step))
    battery_j = plan.world.devices.energy_budget_j
    made = Receipt.of(histories, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    said = json.loads(made.to_json())["iteration_s"]
    assert said["ratio"] == pytest.approx(2.0)
    assert said["measured"] == pytest.approx(step)
    empty = [history(k, {}) for k in range(3)]
    made = Receipt.of(empty, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    assert json.loads(made.to_json())["iteration_s"]["ratio"] is None


def pace(rounds: int, *seconds: float, plan: Plan | None = None) -> Pace:
    return Pace(rounds, seconds, plan)  # type: ignore[arg-type]


def test_two_paces_give_step_and_rest_with_their_intervals() -> None:
    few, many = pace(1, 0.10, 0.12, 0.11), pace(11, 0.30, 0.32, 0.31)
    found = measures_of(few, many)
    assert found.step_s == pytest.approx(0.02)
    assert found.rest_s == pytest.approx(0.09)
    half = 4.302653 * 0.01 / np.sqrt(3)  # Student's t with 2 degrees of freedom
    assert found.step_half_s == pytest.approx(half * np.sqrt(2) / 10, rel=1e-5)
    assert found.rest_half_s == pytest.approx(half * np.hypot(11, 1) / 10, rel=1e-5)


def test_a_machine_that_was_too_busy_is_said() -> None:
    with pytest.raises(JoulemeshError, match="calibrate while it is quiet"):
        measures_of(pace(1, 0.5, 0.5), pace(9, 0.4, 0.4))


TABLE = """\
name,cycles_per_sample,cpu_hz,energy_j
north,2e5,1e9,40
south,3e5,1e9,30
west,2e5,2e9,50
"""


@pytest.fixture
def scenario(tmp_path: Path) -> joulemesh.Scenario:
    (tmp_path / "devices.csv").write_text(TABLE)
    (tmp_path / "fleet.toml").write_text(
        '[devices]\ntable = "devices.csv"\n[network]\ntopology = "ring"\nprofile = "wifi"\n'
        '[budget]\ndeadline_s = "300 ms"\n[plan]\niterations = 5\nrounds = "theorem4"\n'
    )
    return joulemesh.Scenario.load(tmp_path / "fleet.toml")


def ring(seconds: float) -> list[LinkFigures]:
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    return [
        LinkFigures(i, j, Timed(str(i), str(j), 19_240, (seconds,) * 5, 0.001)) for i, j in pairs
    ]


def test_the_calibrated_plan_takes_what_was_measured(
    scenario: joulemesh.Scenario, tmp_path: Path
) -> None:
    plan = joulemesh.plan(rehearsed(scenario, 1, 2))
    folder = tmp_path / "calibration"
    folder.mkdir()
    few, many = pace(1, *[0.06] * 5, plan=plan), pace(21, *[0.16] * 5, plan=plan)
    found = _outcome(scenario, folder, few, many, ring(0.004))
    made = found.scenario
    assert made.devices.table == str(folder / DEVICES)
    assert read_table(folder / DEVICES)["name"] == ["north", "south", "west"]
    assert "cycles_per_sample" not in read_table(folder / DEVICES)
    assert made.network.links == str(folder / LINKS)
    again = joulemesh.plan(made)
    assert np.allclose(again.world.devices.round_latency_s, 0.005)
    # Joules are the scenario's own.
    assert np.allclose(again.world.devices.round_energy_j, plan.world.devices.round_energy_j, 1e-4)
    assert again.world.devices.energy_budget_j.tolist() == [40.0, 30.0, 50.0]
    # What two runs took is what the plan says of them, and of anything in between.
    for rounds, seconds in ((1, 0.06), (21, 0.16), (11, 0.11)):
        like = joulemesh.plan(rehearsed(made, rounds, 2))
        assert np.allclose(like.latency_s, seconds, rtol=1e-3)
    # The file can be moved with the tables that it names.
    assert str(tmp_path) not in (folder / SCENARIO).read_text()


def test_links_that_were_not_measured_are_named(
    scenario: joulemesh.Scenario, tmp_path: Path
) -> None:
    bad = [LinkFigures(0, 1, Timed("north", "south", trouble="unreachable: gone"))]
    with pytest.raises(JoulemeshError, match="the link 0-1 was not measured: unreachable: gone"):
        _outcome(scenario, tmp_path, pace(1, 1.0, 1.0), pace(2, 2.0, 2.0), bad)
    assert not (tmp_path / LINKS).exists()


@pytest.mark.slow
def test_processes_are_calibrated_and_carried_out(tmp_path: Path) -> None:
    """The whole of it with three devices; `benchmarks.loop` measures how near it comes."""
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"devices.count": 3, "training.model": "logistic"}
    )
    said: list[str] = []
    found = calibrate_fleet(scenario, tmp_path / "calibration", say=said.append)
    assert len(said) == 2
    assert found.measures.step_s > 0
    table = read_table(tmp_path / "calibration" / LINKS)
    assert sorted(zip(table["i"], table["j"], strict=True)) == [
        (i, j) for i in "012" for j in "012" if i != j
    ]
    plan = joulemesh.plan(rehearsed(found.scenario, 4, 3))
    assert plan.latency_s.min() > 4 * found.measures.step_s
