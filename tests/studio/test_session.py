"""One tab's scenario: changed step by step, refused without a trace, and taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.planning.plan import digest_of
from joulemesh.scenario import Scenario
from joulemesh.studio.app import Session
from joulemesh.studio.saving import ExistsError, save_scenario

START = Scenario.preset("adaptive")
TABLE = "name\tx_m\ty_m\tenergy_j\nbarn\t0\t0\t9\nfield\t90\t0\t9 J\nhill\t0\t90\t0.01 Wh\n"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(START, tmp_path)


def test_every_step_is_taken_back_and_done_again(session: Session) -> None:
    steps: list[dict[str, Any]] = [
        {"do": "set", "fields": {"budget.deadline_s": "50 ms"}},
        {"do": "move", "device": 3, "x_m": 10.0, "y_m": 20.0},
        {"do": "cut", "link": [4, 5]},
        {"do": "kill", "device": 7, "iteration": 20},
        {"do": "revive", "device": 7},
        {"do": "mend", "link": [5, 4]},
        {"do": "table", "text": TABLE},
        {"do": "cells", "changes": {"energy_j": {"1": "12"}}},
        {"do": "preset", "name": "paper"},
    ]
    seen = [session.scenario]
    for order in steps:
        session.act(order)
        seen.append(session.scenario)
    for earlier in reversed(seen[:-1]):
        session.act({"do": "undo"})
        assert session.scenario is earlier
    session.act({"do": "undo"})  # there is nothing left to take back
    for later in seen[1:]:
        session.act({"do": "redo"})
        assert session.scenario is later


@pytest.mark.parametrize(
    "order",
    [
        {"do": "set", "fields": {"budget.deadline_s": "-1"}},
        {"do": "set", "fields": {"budget.dedline_s": "1"}},
        {"do": "set", "fields": {"devices.table": "nowhere.csv"}},
        {"do": "set"},
        {"do": "move", "device": 99, "x_m": 0, "y_m": 0},
        {"do": "move", "device": 1, "x_m": "east", "y_m": 0},
        {"do": "cut", "link": [1, 1]},
        {"do": "cut", "link": [1]},
        {"do": "kill", "device": 1, "iteration": 0},
        {"do": "cells", "changes": {"energy_j": {"0": "much"}}},
        {"do": "cells", "changes": {"colour": {"0": "red"}}},
        {"do": "cells", "changes": {"name": {"0": "barn"}}},
        {"do": "table", "text": "a,b\n1\n"},
        {"do": "toml", "text": "[budget"},
        {"do": "preset", "name": "<script>"},
        {"do": "launch"},
        {},
    ],
)
def test_what_is_refused_changes_nothing(session: Session, order: dict[str, object]) -> None:
    with pytest.raises(ScenarioError):
        session.act(order)
    assert session.scenario is START
    assert session.view()["undo"] == ""


def test_an_emptied_field_is_unset_or_at_its_default(session: Session) -> None:
    session.act({"do": "set", "fields": {"budget.total_s": "9", "plan.epsilon": "0.2"}})
    session.act({"do": "set", "fields": {"budget.total_s": "", "plan.epsilon": " "}})
    assert session.scenario.budget.total_s is None
    assert session.scenario.plan.epsilon == Scenario().plan.epsilon


def test_a_device_moves_and_nothing_else_does(session: Session) -> None:
    was = joulemesh.plan(START).world.graph.positions_m
    session.act({"do": "move", "device": 3, "x_m": 10.0, "y_m": 20.0})
    now = joulemesh.plan(session.scenario).world.graph.positions_m
    assert now[3].tolist() == [10.0, 20.0]
    assert (now == was).all(axis=1).sum() == len(was) - 1


def test_a_device_is_killed_and_the_rest_planned_again(session: Session) -> None:
    session.act({"do": "kill", "device": 7, "iteration": 20})
    view = session.view()
    assert [event["kind"] for event in view["plan"]["events"]] == ["gone"]
    assert view["map"]["binding"][7] == "left"
    session.act({"do": "revive", "device": 7})
    assert session.scenario == START


def test_a_link_is_removed_and_put_back(session: Session) -> None:
    session.act({"do": "cut", "link": [5, 4]})
    view = session.view()
    assert [4, 5] not in view["map"]["route"]["ends"] + view["map"]["links"]["ends"]
    assert view["gone"] == [[4, 5]]
    session.act({"do": "mend", "link": [4, 5]})
    assert session.scenario == START


def test_a_pasted_table_becomes_the_devices(session: Session) -> None:
    session.act({"do": "table", "text": TABLE})
    view = session.view()
    assert view["names"] == ["barn", "field", "hill"]
    columns = [column["name"] for column in view["devices"]["columns"]]
    assert view["devices"]["cells"][columns.index("energy_j")] == [9.0, 9.0, 36.0]
    session.act({"do": "cells", "changes": {"name": {"0": "shed"}, "cpu_hz": {"2": "1 GHz"}}})
    view = session.view()
    assert view["names"][0] == "shed"
    columns = [column["name"] for column in view["devices"]["columns"]]
    assert view["devices"]["cells"][columns.index("cpu_hz")] == [2e9, 2e9, 1e9]


def test_a_table_of_other_devices_replaces_lists_of_the_old(session: Session) -> None:
    session.act({"do": "cells", "changes": {"cpu_hz": {"4": "1e9"}}})
    session.act({"do": "kill", "device": 9, "iteration": 20})
    session.act({"do": "table", "text": TABLE})
    view = session.view()
    assert view["plan"] is not None, view["refusal"]
    assert (session.scenario.devices.cpu_hz, session.scenario.devices.leave) == (2e9, ())


def test_a_refusal_names_changes_that_mend_it(session: Session) -> None:
    session.act({"do": "set", "fields": {"budget.deadline_s": "1 ms", "budget.energy_j": "0.01"}})
    refusal = session.view()["refusal"]
    assert session.view()["plan"] is None
    assert refusal["remedies"]
    session.act({"do": "edits", "edits": refusal["remedies"][0]["edits"]})
    assert session.view()["refusal"] is None


def test_a_plan_that_was_kept_is_compared(session: Session) -> None:
    session.act({"do": "pin"})
    session.act({"do": "set", "fields": {"plan.iterations": "50"}})
    found = session.view()["difference"]
    assert {"field": "plan.iterations", "before": "100", "now": "50"} in found["fields"]
    rows = {row["name"]: row["change"] for row in found["figures"]}
    assert rows["iterations"] == -50.0
    session.act({"do": "unpin"})
    assert session.view()["difference"] is None


# Saving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "orders",
    [
        [{"do": "set", "fields": {"budget.deadline_s": "50 ms", "seed": "3"}}],
        [{"do": "set", "fields": {"devices.profile": "esp32", "budget.deadline_s": "2 s"}}],
        [{"do": "move", "device": 3, "x_m": 10.0, "y_m": 20.0}],
        [{"do": "kill", "device": 7, "iteration": 20}, {"do": "cut", "link": [4, 5]}],
        [{"do": "table", "text": TABLE}],
        [{"do": "table", "text": TABLE}, {"do": "set", "fields": {"budget.energy_j": "8"}}],
        [{"do": "table", "text": TABLE}, {"do": "move", "device": 1, "x_m": 50.0, "y_m": 0.0}],
        [{"do": "preset", "name": "paper"}],
    ],
)
@pytest.mark.parametrize("over", ["", "# mine\n[budget]\ndeadline_s = 0.04  # agreed\n"])
def test_a_saved_file_gives_the_same_plan(
    tmp_path: Path, orders: list[dict[str, object]], over: str
) -> None:
    (tmp_path / "tables").mkdir()
    session, place = Session(START, tmp_path / "tables"), tmp_path / "fleet.toml"
    for order in orders:
        session.act(order)
    place.write_text(over)
    session.saved(save_scenario(session.scenario, place, tables=session.folder, replace=True))
    read = joulemesh.Scenario.load(place)
    assert read == session.scenario
    assert digest_of(joulemesh.plan(read)) == session.view()["plan"]["digest"]
    if over:
        assert place.read_text().count("# mine") == 1


@pytest.mark.parametrize(("content", "why"), [(b"\xff\xfe", "not UTF-8"), (None, "directory")])
def test_what_cannot_be_read_is_not_replaced(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "fleet.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(ScenarioError, match=why):
        save_scenario(START, path, tables=tmp_path, replace=True)
    assert path.is_dir() or path.read_bytes() == content


def test_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("seed = 1\n")
    with pytest.raises(ExistsError, match="exists"):
        save_scenario(START, tmp_path / "fleet.toml", tables=tmp_path)
    assert (tmp_path / "fleet.toml").read_text() == "seed = 1\n"
    with pytest.raises(ScenarioError, match=r"NAME\.toml"):
        save_scenario(START, tmp_path / "fleet.sh", tables=tmp_path)
