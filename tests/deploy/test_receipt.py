"""Histories and receipts: every line counts once, every figure has a source, damage is counted."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.record.history import FIGURES, History, history_of, read_history
from joulemesh.deploy.record.receipt import (
    COLUMNS,
    Receipt,
    continued,
    iteration_seconds,
    mean_iteration_s,
    metered,
    planned,
    simulated,
)
from joulemesh.planning.plan import Plan
from joulemesh.planning.walk import Continuation
from tests.deploy.journals import MODELLED, Fleet, Outage

NAMES = ("gate", "barn", "mast", "pump")


@pytest.fixture(scope="module")
def plan() -> Plan:
    changes = {"devices.count": 4, "plan.iterations": 12}
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))


@pytest.fixture
def fleet(plan: Plan) -> Fleet:
    return Fleet(plan, NAMES, [Outage(device=2, after=4, back=8)])


def read(folder: Path) -> list[History]:
    return [read_history(folder / name, k, name) for k, name in enumerate(NAMES)]


def receipt(fleet: Fleet, histories: list[History]) -> Receipt:
    before = planned(fleet.plan)
    after = simulated(before, [(view, before) for view in fleet.views()])
    battery_j = fleet.plan.energy_budget_j
    return Receipt(histories, before, after, fleet="farm", plan="ab", battery_j=battery_j)


def test_journals_give_back_what_was_done(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    gate, _, mast, _ = read(tmp_path)
    assert gate.iterations.tolist() == list(range(1, 13))
    assert mast.iterations.tolist() == [1, 2, 3, 4, 8, 9, 10, 11, 12]
    assert len(mast.starts) == 2
    assert gate.meter == MODELLED
    assert gate.end is not None
    assert [event.kind for event in gate.events] == ["start", "view", "view", "end"]
    assert gate.evaluations[:, 0].tolist() == [5, 10, 12]
    lines = [json.loads(line) for line in (tmp_path / "gate" / "journal.jsonl").open()]
    sent = [line["sent"] for line in lines if line["kind"] == "committed"]
    for to, total in gate.sent.items():
        assert total.payload_bytes == sum(one[str(to)][0] for one in sent if str(to) in one)
        assert total.messages == sum(str(to) in one for one in sent)


def test_rotated_journals_are_read_in_order(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    whole = read_history(tmp_path / "mast", 2, "mast")
    place = tmp_path / "mast" / "journal.jsonl"
    lines = place.read_text("utf-8").splitlines(keepends=True)
    for k, part in enumerate((lines[:5], lines[5:9], lines[9:])):
        name = "journal.jsonl" if k == 2 else f"journal-{k + 1:06d}.jsonl"
        (tmp_path / "mast" / name).write_text("".join(part), "utf-8")
    parted = read_history(tmp_path / "mast", 2, "mast")
    assert np.array_equal(parted.committed, whole.committed)
    assert parted.events == whole.events


@pytest.mark.parametrize(
    "line",
    [
        b'{"at": 5, "kind": "commi',
        b"\x00\xff\x00",
        b"[1, 2]",
        b'{"kind": "view"}',
        b'{"at": "soon", "kind": "view"}',
        b'{"at": NaN, "kind": "view"}',
        b'{"at": 1, "kind": "committed", "iteration": 3}',
        b'{"at": 1, "kind": "evaluated", "iteration": -1, "accuracy": 0.5}',
        b'{"at": 1, "kind": "evaluated", "iteration": 1, "accuracy": Infinity}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_counted_and_the_rest_stands(
    fleet: Fleet, tmp_path: Path, line: bytes
) -> None:
    fleet.write(tmp_path)
    journal = tmp_path / "gate" / "journal.jsonl"
    before = read_history(journal.parent, 0, "gate")
    whole = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n".join([*whole[:3], line, *whole[3:]]))
    after = read_history(journal.parent, 0, "gate")
    assert after.damaged == 1
    assert np.array_equal(after.committed, before.committed)
    assert after.events == before.events


def test_a_clock_that_is_set_while_the_node_runs_tears_nothing_apart() -> None:
    lines = [
        {"at": 100.0, "t": 0.0, "kind": "start", "device": 0},
        {"at": 105.0, "t": 5.0, "kind": "suspected", "device": 1},
        {"at": 9010.0, "t": 10.0, "kind": "stopped"},
        {"at": 9020.0, "t": 0.0, "kind": "start", "device": 0},
        {"at": 9021.0, "kind": "left"},
    ]
    made = history_of([json.dumps(line).encode() for line in lines], 0, "gate")
    assert [event.at for event in made.events] == [9000.0, 9005.0, 9010.0, 9020.0, 9021.0]
    assert (made.first_at, made.last_at) == (9000.0, 9021.0)


def test_nothing_is_half_taken_from_a_damaged_line() -> None:
    figures = ", ".join(f'"{name}": 1' for name in FIGURES)
    bad = f'{{"kind": "committed", "iteration": 1, {figures}, "sent": {{"1": [1, 1]}}}}'.encode()
    made = history_of([bad], 0, "gate")
    assert made.damaged == 1
    assert not len(made.iterations)
    assert not made.sent


def test_a_journal_in_the_wrong_folder_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    with pytest.raises(ScenarioError, match=r"journal of device 1 \(barn\), not of device 0"):
        read_history(tmp_path / "barn", 0, "gate")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScenarioError, match="holds no journal of gate"):
        read_history(tmp_path / "empty", 0, "gate")


def test_a_receipt_has_every_figure_three_times(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    made = receipt(fleet, read(tmp_path))
    absent = np.isnan(made.simulated.rounds)
    assert np.argwhere(absent).tolist() == [[4, 2], [5, 2], [6, 2]]
    assert np.array_equal(np.isnan(made.metered.rounds), absent)
    assert made.missing.tolist() == [0, 0, 0, 0]
    assert np.allclose(made.metered.train_j[~absent], made.planned.train_j[~absent])
    assert np.allclose(made.outside_j, 0)
    assert made.views[:, 2].tolist()[:4] == [0, 0, 0, 0]
    assert np.isnan(made.views[5, 2])
    assert made.views[7:, 2].tolist() == [2] * 5


def test_json_and_csv_say_the_same(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    made = receipt(fleet, read(tmp_path))
    record = json.loads(made.to_json())
    assert set(record["sources"]) == {"planned", "simulated", "charged", "measured"}
    rows = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert len(rows) == 4 * 12
    for row in rows:
        device, place = record["devices"][int(row["device"])], int(row["iteration"]) - 1
        assert row["name"] == device["name"] == NAMES[int(row["device"])]
        assert row["meter"] == device["meter"] == MODELLED
        for name, kinds in COLUMNS.items():
            for kind in kinds:
                value = device[name][kind][place]
                assert row[f"{kind}_{name}"] == ("" if value is None else f"{value:.9g}")
        assert (row["view"] == "") == (device["view"][place] is None)
    totals = record["devices"][0]["totals"]
    assert totals["planned"]["joules"] == pytest.approx(fleet.plan.spent_j[0])


def test_a_device_without_a_journal_is_missing_and_not_free(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    histories = read(tmp_path)
    histories[1] = history_of([], 1, "barn")
    made = receipt(fleet, histories)
    assert made.missing.tolist() == [0, 12, 0, 0]
    assert np.isnan(made.spent_j[1])
    record = json.loads(made.to_json())["devices"][1]
    for kind in ("charged", "measured"):
        assert record["totals"][kind] == {"joules": None, "seconds": None}
    assert record["spent_j"] is None


def test_joules_are_charged_by_a_model_and_measured_by_a_meter(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.write(tmp_path)
    journal = tmp_path / "pump" / "journal.jsonl"
    journal.write_text(
        journal.read_text("utf-8").replace(MODELLED, "measured by powercap"), "utf-8"
    )
    made = receipt(fleet, read(tmp_path))
    assert made.charged.tolist() == [True, True, True, False]
    assert made.word == "charged or measured"
    record = json.loads(made.to_json())["devices"]
    for device, (here, there) in ((0, ("charged", "measured")), (3, ("measured", "charged"))):
        joules = record[device]["totals"]
        assert joules[here]["joules"] == pytest.approx(np.nansum(made.metered.joules[:, device]))
        assert joules[there]["joules"] is None
        assert joules["measured"]["seconds"] > 0  # by the clock, whatever counts joules
        assert set(record[device]["rounds"]) == {"planned", "simulated", "measured"}
    head = made.to_csv().splitlines()[0].split(",")
    assert [one for one in head if one.endswith("train_j")] == [
        "planned_train_j", "simulated_train_j", "charged_train_j", "measured_train_j",
    ]  # fmt: skip


def test_what_a_crash_cost_is_not_hidden(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    journal = tmp_path / "pump" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.open()]
    for line in lines:
        if line["kind"] == "committed" and line["iteration"] > 6:
            line["spent_j"] += 0.125
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    made = receipt(fleet, read(tmp_path))
    assert made.outside_j[3] == pytest.approx(0.125)


def test_what_was_trained_and_never_committed_is_in_the_receipt(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.write(tmp_path)
    before = receipt(fleet, read(tmp_path))
    journal = tmp_path / "pump" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.open()]
    last = {"at": lines[-1]["at"] + 1.0, "kind": "end", "reason": "its battery is empty"}
    lines.append({**last, "spent_j": float(before.spent_j[3]) + 0.41, "iteration": 12})
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    made = receipt(fleet, read(tmp_path))
    assert made.spent_j[3] == pytest.approx(before.spent_j[3] + 0.41)
    assert made.outside_j[3] == pytest.approx(before.outside_j[3] + 0.41)


def test_iterations_beyond_the_plan_are_left_out(plan: Plan) -> None:
    figures = dict.fromkeys(FIGURES, 1.0)
    line = {"kind": "committed", "iteration": 99, "sent": {}, **figures}
    made = metered([history_of([json.dumps(line).encode()], 0, "gate")], plan.iterations)
    assert np.isnan(made.rounds).all()


def test_a_meter_that_could_not_be_read_is_said_in_the_receipt() -> None:
    lines = [
        b'{"at": 1.0, "kind": "start", "device": 0, "meter": "measured by powercap package-0"}',
        b'{"at": 2.0, "kind": "meter", "reason": "permission denied"}',
    ]
    said = history_of(lines, 0, "gate").meter
    assert said == "measured by powercap package-0, modelled while it could not be read (1×)"


def test_what_is_drawn_at_rest_is_in_the_receipt() -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"devices.count": 6, "devices.idle_w": 0.002, "devices.receive_j_per_bit": 1e-9}
    )
    plan = joulemesh.plan(scenario)
    costs = planned(plan)
    assert np.allclose(costs.joules.sum(axis=0), plan.spent_j)
    again = continued(Continuation.of_plan(plan), plan.iterations)
    assert np.allclose(again.joules, costs.joules)


def test_the_receipt_says_how_the_deadline_was_kept(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(tmp_path)
    made = receipt(fleet, read(tmp_path))
    assert made.deadline(0) is None
    took_s = made.metered.train_s[:, 0] + made.metered.exchange_s[:, 0]
    for deadline_s in (float(np.median(took_s)), 0.25 * float(took_s.min()), 1e9):
        kept = replace(made, deadline_s=deadline_s, reserve=0.01)
        (late,) = {kept.deadline(0)["late"]}  # type: ignore[index]
        assert late == int((took_s > deadline_s).sum())
        told = json.loads(kept.to_json())["devices"][0]
        assert told["deadline"]["iterations"] == 12
        assert told["deadline"]["worst"] == pytest.approx(took_s.max() / deadline_s)
        assert told["reserve_j"] == pytest.approx(0.01 * fleet.plan.energy_budget_j[0])


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
    made = Receipt(histories, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    said = json.loads(made.to_json())["iteration_s"]
    assert said["ratio"] == pytest.approx(2.0)
    assert said["measured"] == pytest.approx(step)
    empty = [history(k, {}) for k in range(3)]
    made = Receipt(empty, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    assert json.loads(made.to_json())["iteration_s"]["ratio"] is None
