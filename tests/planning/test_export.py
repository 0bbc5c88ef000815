"""A plan for other programs: the same names and numbers, in JSON and in an .npz file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.planning import export
from joulemesh.planning.plan import Plan
from tests.ideal import ideal

PUBLIC = (
    "scheme",
    "reason",
    "edges",
    "iterations",
    "rounds",
    "compute_j",
    "exchange_j",
    "latency_s",
    "energy_budget_j",
    "deadline_s",
)


def make(**more: Any) -> Plan:
    fields = {"devices.count": 6, "plan.iterations": 5, "budget.energy_j": 1.0}
    fields |= {name.replace("__", "."): value for name, value in more.items()}
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(fields))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"network__fading": "rayleigh", "budget__energy_j": [0.4, 0.8]},
        {"plan__aggregation": "gossip", "budget__deadline_s": 9.0, "budget__energy_j": 9.0},
        {"budget__energy_j": {"values": [0.1, 1, 1, 1, 1, 1]}, "plan__on_depletion": "leave"},
    ],
    ids=str,
)
def test_json_uses_the_public_names_and_equals_the_plan(options: dict[str, Any]) -> None:
    plan = make(**options)
    record = json.loads(plan.to_json())
    for name in PUBLIC:
        wanted = getattr(plan, name)
        if isinstance(wanted, np.ndarray):  # one row stands for all where all are alike
            wanted = wanted[: len(record[name])].tolist()
        assert record[name] == wanted, name
    shape = (plan.iterations, 6)
    assert np.shape(record["rounds"]) == shape
    assert all(isinstance(tau, int) for row in record["rounds"] for tau in row)
    assert np.broadcast_to(np.array(record["exchange_j"]), shape).shape == shape
    assert record["energy_j"] == pytest.approx(plan.spent_j.sum())
    assert record["time_s"] == pytest.approx(plan.latency_s.sum())
    assert record["binding"] == plan.binding.tolist()
    assert ideal(**record["scenario"]) == plan.scenario
    kinds = [event.kind for event in plan.events]
    assert [event["kind"] for event in record["events"]] == kinds


def test_json_knows_no_infinity() -> None:
    assert export._finite({"a": [float("inf"), 1.0, (float("nan"), None)]}) == {
        "a": [None, 1.0, [None, None]]
    }


def test_a_leaving_fleet_that_gossips_can_be_written() -> None:
    """No battery holds a round of gossip in each iteration: there is nothing to balance."""
    fields = {
        "devices.count": 6,
        "devices.cycles_per_sample": [1000, 3000],
        "budget.energy_j": 0.05,
        "budget.deadline_s": 10.0,
        "plan.aggregation": "metropolis",
        "plan.gossip_rounds": 1,
        "plan.iterations": 200,
        "plan.on_depletion": "leave",
    }
    plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(fields))
    assert plan.iterations < 200
    assert json.loads(plan.to_json())["gossip"]["balance"] is None


def test_large_arrays_are_left_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_MOST_ENTRIES", 29)
    record = json.loads(make().to_json())
    assert record["rounds"] == "30 entries: use --out plan.npz"
    assert len(record["latency_s"]) == 5


def test_the_file_holds_the_arrays_and_needs_no_pickle(tmp_path: Path) -> None:
    plan, path = make(), tmp_path / "plan.npz"
    plan.save(str(path))
    with np.load(path, allow_pickle=False) as file:
        for name in ("edges", "rounds", "compute_j", "exchange_j", "latency_s", "energy_budget_j"):
            wanted = getattr(plan, name)
            np.testing.assert_array_equal(np.broadcast_to(file[name], wanted.shape), wanted)
        record = json.loads(str(file["plan"]))
        assert file["positions_m"].shape == (6, 2)
    assert record["scheme"] == plan.scheme
    assert record["deadline_s"] == plan.deadline_s
    assert [p.name for p in tmp_path.iterdir()] == ["plan.npz"]


def test_saving_over_an_old_file_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    path.write_text("old")
    make().save(str(path))
    with np.load(path, allow_pickle=False) as file:
        assert file["rounds"].shape == (5, 6)


@pytest.mark.parametrize("where", ["missing/plan.npz", "file/plan.npz", "folder.csv"])
def test_a_place_that_cannot_be_written_is_refused(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(joulemesh.ScenarioError, match=r"cannot write .*choose another") as refusal:
        make().save(str(tmp_path / where))
    assert "\n" not in str(refusal.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.csv"]
    assert not list((tmp_path / "folder.csv").iterdir())


@pytest.mark.parametrize("name", ["plan", "plan.txt", "plan.csv.gz", "."])
def test_a_suffix_that_says_nothing_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=r"plans end in \.npz, \.json or \.csv, not"):
        make().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"network__fading": "rayleigh", "budget__energy_j": [0.4, 0.8]},
        {"budget__energy_j": {"values": [0.1, 1, 1, 1, 1, 1]}, "plan__on_depletion": "leave"},
    ],
    ids=str,
)
def test_the_csv_file_adds_up_to_the_plan(options: dict[str, Any], tmp_path: Path) -> None:
    plan, path = make(**options), tmp_path / "plan.CSV"
    plan.save(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == plan.iterations * 6
    assert (rows[0]["iteration"], rows[0]["device"]) == ("1", "0")
    assert (rows[-1]["iteration"], rows[-1]["device"]) == (str(plan.iterations), "5")
    assert [int(row["rounds"]) for row in rows] == plan.rounds.ravel().tolist()
    assert [row["active"] == "1" for row in rows] == plan.active.ravel().tolist()
    spent = np.array([float(row["compute_j"]) + float(row["exchange_j"]) for row in rows])
    assert spent.reshape(plan.rounds.shape).sum(axis=0) == pytest.approx(plan.spent_j, rel=1e-12)


def test_a_csv_file_that_no_spreadsheet_opens_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "_MOST_ROWS", 29)
    with pytest.raises(joulemesh.ScenarioError, match=r"30 rows, more than 29; .*\.npz"):
        make().save(tmp_path / "plan.csv")
    assert not list(tmp_path.iterdir())


def test_the_json_file_is_what_to_json_gives(tmp_path: Path) -> None:
    plan = make()
    plan.save(tmp_path / "plan.json")
    text = (tmp_path / "plan.json").read_text("utf-8")
    assert text == plan.to_json() + "\n"
    assert (Plan.from_json(text).rounds == plan.rounds).all()


def test_a_write_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def savez(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", savez)
    path = tmp_path / "plan.npz"
    path.write_text("old")
    with pytest.raises(joulemesh.ScenarioError, match="No space left"):
        make().save(str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["plan.npz"]
    assert path.read_text() == "old"
