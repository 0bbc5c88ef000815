"""The model that a fleet hands over, and what late devices are given."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.device import Wanted, require_data
from joulemesh.deploy.device.model import FOLDER, ModelFile, fleet_model, read_model, save_model
from joulemesh.deploy.device.simulated import own_data
from joulemesh.deploy.effects import (
    Begin,
    Commit,
    Delivered,
    Durable,
    Effect,
    End,
    Event,
    Received,
    Save,
    Saved,
    Send,
    Tick,
)
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet
from joulemesh.deploy.messages import OVER, Beat, Fetch, Given, Recall, Refused
from joulemesh.deploy.node.ending import COMPLETE, Served, succeeded
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.view import LATE, Proof, Settings, View
from joulemesh.study.export import export_model
from joulemesh.testing.fleets.hardware import VirtualSigner

ROWS = 60
TABLE = "name,profile,cycles_per_sample,energy_j\n" + "".join(
    f"{name},raspberry-pi-4,2e4,9\n" for name in ("gate", "barn", "mast")
)


def readings(path: Path, *names: str) -> Path:
    rng = np.random.default_rng(3)
    lines = ["name,volts,degrees,label"]
    for k in range(ROWS):
        name = ("gate", "barn", "mast")[k % 3]
        label = ("well", "hot")[k // 3 % 2]
        volts, degrees = rng.normal((230, 40), (5, 10))
        if name in names:
            lines.append(f"{name},{volts:.2f},{degrees:.2f},{label}")
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture
def laptop(tmp_path: Path) -> Path:
    """A folder with a scenario whose data are a file, and its fleet."""
    home = tmp_path / "laptop"
    home.mkdir()
    (home / "devices.csv").write_text(TABLE, "utf-8")
    readings(home / "readings.csv", "gate", "barn", "mast")
    (home / "mine.toml").write_text(
        '[devices]\ntable = "devices.csv"\n[network]\ntopology = "complete"\narea_m = 100\n'
        "[budget]\ndeadline_s = 0.05\n[plan]\niterations = 4\n"
        '[training]\ndataset = "readings.csv"\npartition = "column:name"\nnormalize = true\n'
        "hidden = [4]\n",
        "utf-8",
    )
    plan = joulemesh.plan(joulemesh.Scenario.load(home / "mine.toml"))
    make_fleet(home / "fleet", plan, with_keys=True)
    return home


# The model ----------------------------------------------------------------------------------------


def written(folder: Path, fleet: Fleet, device: int, value: float, **more: Any) -> ModelFile:
    commit = Commit(more.pop("iteration", 4), np.full(3, value, np.float32))
    given: dict[str, Any] = {
        "iterations": 4,
        "complete": True,
        "spent_j": 1.5,
        "figures": {"accuracy": 0.5},
    }
    params = {"w": commit.vector[:2].reshape(1, 2), "b": commit.vector[2:]}
    place = save_model(folder, fleet, device, commit, params, torch=False, **(given | more))
    return read_model(place)


def test_devices_with_the_same_model_give_it_and_others_their_mean(laptop: Path) -> None:
    fleet, homes = Fleet.load(laptop / "fleet"), laptop / "fleet" / "devices"
    found = [written(homes / name, fleet, k, 2.0) for k, name in enumerate(fleet.names)]
    params, names, notes = fleet_model(found)
    assert (params["w"].tolist(), names, notes) == ([[2.0, 2.0]], ["gate", "barn", "mast"], [])
    made = export_model(laptop / "fleet", laptop / "model")
    assert json.loads((made / "config.json").read_text())["iteration"] == 4
    assert "3 of 3 devices" in (made / "README.md").read_text("utf-8")

    found[1] = written(homes / "barn", fleet, 1, 5.0)
    params, names, notes = fleet_model(found)
    assert params["b"].tolist() == [3.0]
    assert params["b"].dtype == np.float32
    assert "differ, by 3 at the most" in notes[0]

    found[1] = written(homes / "barn", fleet, 1, 5.0, iteration=3, complete=False)
    params, names, notes = fleet_model(found)
    assert (params["b"].tolist(), names) == ([2.0], ["gate", "mast"])
    assert notes == ["behind iteration 4, and left out: barn"]
    one = export_model(homes / "barn", laptop / "barn-model")
    assert json.loads((one / "config.json").read_text())["complete"] is False
    assert (homes / "barn" / FOLDER).stat().st_mode & 0o077 == 0


def test_a_fleet_without_a_model_is_refused(laptop: Path) -> None:
    with pytest.raises(ScenarioError, match="holds no model yet: `joulemesh deploy collect"):
        export_model(laptop / "fleet", laptop / "model")
    with pytest.raises(ScenarioError, match="holds no model"):
        export_model(laptop / "fleet" / "devices" / "gate", laptop / "model")
    fleet = Fleet.load(laptop / "fleet")
    written(laptop / "fleet" / "devices" / "gate", fleet, 0, 1.0)
    (laptop / "fleet" / "devices" / "gate" / FOLDER / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ScenarioError, match="holds a damaged model"):
        export_model(laptop / "fleet", laptop / "model")
    assert not (laptop / "model").exists()


# Late devices -------------------------------------------------------------------------------------


class FakeMeter:
    def __init__(self, left_j: float = 1.0) -> None:
        self.left = left_j

    def left_j(self) -> float:
        return self.left

    def spent_j(self) -> float:
        return 0.0

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        return 0.25

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        self.left -= 0.25

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None:
        pass

    def recall(self, spent_j: float) -> None:
        pass


def ended(iteration: int = 30) -> Durable:
    views = (View(0, 1, (0, 1, 2)), View(1, 9, (0, 1), proof=Proof((0, 0), ())))
    commit = Commit(iteration, np.arange(3.0), average=(iteration, np.arange(3.0)), view=1)
    return Durable(2, views, commit, ended=COMPLETE)


def settled(node: Node, effects: list[Effect], now: float) -> list[Effect]:
    """Everything that follows once the disk has kept what is saved."""
    found: list[Effect] = []
    while effects:
        effect = effects.pop(0)
        found.append(effect)
        if isinstance(effect, Save):
            effects += node.handle(Saved(effect.token), now)
    return found


def test_a_device_that_comes_late_is_given_what_the_fleet_ended_with() -> None:
    """Two devices: one has ended, and the other is started again with iteration 8 behind it."""
    alike = replace(ended(), views=(View(0, 1, (0, 1, 2)),))  # views need a majority's votes
    served = Served(0, alike, FakeMeter(), 7)  # type: ignore[arg-type]
    behind = Durable(1, (View(0, 1, (0, 1, 2)),), Commit(8, np.zeros(3)))
    meter: Any = FakeMeter()
    node = Node(2, ((0, 2), (1, 2)), behind, meter, Settings(), VirtualSigner(2), epoch=5)
    now, waiting = 1.0, settled(node, node.handle(Begin(), 1.0), 1.0)
    ends: list[End] = []
    for _ in range(20):
        events: list[Event] = []
        for effect in waiting:
            if isinstance(effect, End):
                ends.append(effect)
            if isinstance(effect, Send) and effect.to == 0:
                events.append(Delivered(effect.token))
                events += [Received(0, one) for one in served.answer(2, effect.message)]
        waiting, now = [], now + 0.1
        for event in [*events, Tick("tick")]:
            waiting += settled(node, node.handle(event, now), now)
        if ends:
            break
    assert ends, "it waits for ever"
    assert ends[0].complete
    assert ends[0].reason == f"{LATE} (of iteration 30)"
    assert succeeded(ends[0].reason)


def test_an_ended_device_sends_only_what_its_battery_pays_for() -> None:
    meter = FakeMeter(0.3)
    served = Served(0, ended(), meter, 7)  # type: ignore[arg-type]
    fetch = Fetch(1, 30)
    (given,) = served.answer(2, fetch)
    assert isinstance(given, Given)
    assert given.payload.tolist() == [0.0, 1.0, 2.0]
    assert served.answer(2, fetch) == []
    assert served.answer(2, replace(fetch, iteration=29)) == []


def test_an_ended_device_names_the_views_that_a_late_one_lacks() -> None:
    served = Served(0, ended(), FakeMeter(), 7)  # type: ignore[arg-type]
    recall, told, sign = served.answer(2, Beat(11, 0, 8, "waiting", count=3))
    assert recall == Recall(None, epoch=11)
    assert isinstance(told, Refused)
    assert [view.number for view in told.views] == [1]
    assert isinstance(sign, Beat)
    assert (sign.phase, sign.iteration, sign.epoch, sign.echo) == (OVER, 30, 7, (11, 3))
    assert served.answer(1, Beat(1, 1, 30, OVER)) == []  # two that have ended are silent


# Data on another machine --------------------------------------------------------------------------


def test_no_path_of_the_laptop_travels(laptop: Path, tmp_path: Path) -> None:
    home = laptop / "fleet" / "devices" / "gate"
    for path in home.rglob("*"):
        if path.is_file():
            assert str(laptop).encode() not in path.read_bytes(), path
    here = Fleet.load(laptop / "fleet").scenario.training.dataset
    assert here == str(laptop / "readings.csv")  # on the laptop itself they are known
    assert Fleet.load(home).scenario.training.dataset == here

    field = tmp_path / "field" / "gate"
    field.parent.mkdir()
    home.rename(field)
    pack = DevicePack.load(field)
    with pytest.raises(ScenarioError, match=r"readings.csv, which is not here: give .*--data"):
        require_data(pack, Wanted())
    require_data(pack, Wanted(data=tmp_path / "own.csv"))
    require_data(pack, Wanted(learner="a.py:b"))
    (field / "inputs").mkdir(exist_ok=True)
    readings(field / "inputs" / "readings.csv", "gate")
    require_data(DevicePack.load(field), Wanted())


@pytest.mark.parametrize("names", [("gate",), ("gate", "barn", "mast")])
def test_a_devices_own_table_is_read_as_a_run_reads_it(
    laptop: Path, tmp_path: Path, names: tuple[str, ...]
) -> None:
    fleet = Fleet.load(laptop / "fleet")
    path = readings(tmp_path / "mine.csv", *names)
    found = own_data(path, fleet.scenario, fleet.task, "gate")
    assert found.shape == fleet.task.shape
    assert found.class_names == fleet.task.class_names
    assert found.holders is None
    assert 0 < len(found.y_train) <= ROWS // 3
    whole = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2), dtype=np.float32)
    held = {tuple(row) for row, line in zip(whole, path.read_text().splitlines()[1:], strict=True)
            if line.startswith("gate")}  # fmt: skip
    assert {tuple(row) for row in found.x_train} <= held
    assert np.allclose(found.mean, fleet.task.mean)


def test_a_table_without_rows_of_the_device_is_refused(laptop: Path, tmp_path: Path) -> None:
    fleet = Fleet.load(laptop / "fleet")
    path = readings(tmp_path / "mine.csv", "barn", "mast")
    with pytest.raises(ScenarioError, match="no row of gate in its column 'name', only of barn"):
        own_data(path, fleet.scenario, fleet.task, "gate")


def test_where_published_data_lie_does_not_decide_a_plan() -> None:
    base = joulemesh.Scenario.preset("adaptive")
    there = base.override({"training.data_dir": "somewhere"})
    from joulemesh.planning.plan import digest_of

    one, other = (digest_of(joulemesh.plan(scenario)) for scenario in (base, there))
    assert one == other


# Waits --------------------------------------------------------------------------------------------


def test_every_wait_has_a_word_from_the_fifth_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from joulemesh.deploy.device import device as module

    monkeypatch.setattr(module, "_WAIT_S", 0.02)  # in place of 5
    said: list[str] = []
    phases = iter(["starting"] * 60 + ["exchanging"] * 60)

    def standing() -> Standing:
        return Standing(2, "gate", next(phases), iteration=3, iterations=9, waiting=("barn",))

    async def work() -> None:
        with pytest.raises((StopIteration, RuntimeError)):
            await module._say_waits(standing, said.append)

    asyncio.run(work())
    assert "s for barn to be there (after iteration 3 of 9)" in said[0]
    assert "s for messages of barn" in said[-1]
    assert 2 <= len(said) < 12  # twice as long each time
