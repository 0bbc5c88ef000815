"""Names of devices, wherever a device is spoken of; and nothing of them where there are none."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import joulemesh
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.planning.orders import Orders, orders
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.views.console import show_plan
from joulemesh.views.report import devices, events

NAMES = ("gate", "barn", "mast", "<hut>$")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    folder = tmp_path_factory.mktemp("farm")
    rows = "".join(f"{name},{9 - k}\n" for k, name in enumerate(NAMES))
    (folder / "d.csv").write_text(f"name,energy_j\n{rows}", "utf-8")
    changes = {"devices.table": str(folder / "d.csv"), "plan.iterations": 20}
    return Scenario.preset("adaptive").override(changes)


@pytest.fixture(scope="module")
def farm(scenario: Scenario) -> Plan:
    return joulemesh.plan(scenario)


@pytest.fixture(scope="module")
def leaving(scenario: Scenario) -> Plan:
    """A plan in which devices leave."""
    changes = {"plan.iterations": 400, "plan.on_depletion": "leave"}
    return joulemesh.plan(scenario.override(changes))


def said(plan: Plan) -> str:
    console = Console(file=io.StringIO(), width=160)
    show_plan(plan, console)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


# With names -------------------------------------------------------------------------------------


def test_tables_and_events_name_devices(farm: Plan, leaving: Plan) -> None:
    assert all(f"{i} {name}" in said(farm) for i, name in enumerate(NAMES))
    named = [row[0] for row in devices(farm).rows]
    assert named == [f"{i} {name}" for i, name in enumerate(NAMES)]
    gone = [NAMES[i] for event in leaving.events for i in event.devices]
    assert gone
    told = str(events(leaving)[1].rows)
    assert all(name in told for name in gone)
    assert all(name in said(leaving) for name in gone)


def test_files_and_frames_name_devices(farm: Plan, tmp_path: Path) -> None:
    assert tuple(json.loads(farm.to_json())["names"]) == NAMES
    assert tuple(farm.frame()["name"]) == NAMES
    assert [name for _, name in farm.graph().nodes(data="name")] == list(NAMES)
    farm.save(tmp_path / "plan.csv")
    head, first, *_ = (tmp_path / "plan.csv").read_text("utf-8").splitlines()
    assert head == "iteration,device,name,rounds,compute_j,exchange_j,receive_j,idle_j,active"
    assert first.startswith("1,0,gate,")


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_orders_name_the_device_and_its_neighbours(farm: Plan, tmp_path: Path, suffix: str) -> None:
    mine = orders(farm, 1)
    assert mine.name == "barn"
    assert mine.neighbour_names == tuple(NAMES[one] for one in mine.neighbours)
    mine.save(tmp_path / f"orders.{suffix}")
    assert Orders.load(tmp_path / f"orders.{suffix}") == mine


def test_refusals_name_devices(scenario: Scenario) -> None:
    with pytest.raises(InfeasibleError, match=r"device \d \((gate|barn|mast|<hut>\$)\) cannot pay"):
        joulemesh.plan(scenario.override({"plan.iterations": 5000}))
    apart = scenario.override({"network.topology": [[0, 1], [2, 3]]})
    with pytest.raises(ScenarioError, match=r"from device 0 \(gate\) to device 2 \(mast\)"):
        joulemesh.plan(apart)


def test_refusals_of_runs_name_devices(scenario: Scenario) -> None:
    x, y = np.zeros((8, 3), np.float32), np.tile([0, 1], 4)
    data = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, "who_train": NAMES * 2}
    changes = {
        "training.model": "logistic",
        "training.partition": "column:who",
        "devices.samples": [2, 3, 2, 2],
    }
    with pytest.raises(ScenarioError, match=r"gives device 1 \(barn\) 3 samples"):
        joulemesh.run(scenario.override(changes), data=data)


# Without ----------------------------------------------------------------------------------------
