"""A fleet of devices in one process: started, stopped, started again, to the same bits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.files import FolderLock
from joulemesh.deploy.device.continuation import LonePlan
from joulemesh.deploy.device.device import RUN, Device, Wanted, _keep_receipt, _until_stopped
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.effects import End
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet
from joulemesh.deploy.local.supervisor import Exit
from joulemesh.deploy.record.history import read_history
from joulemesh.deploy.record.receipt import Receipt, planned
from joulemesh.deploy.transport import Receive
from joulemesh.deploy.view import Settings, View
from tests.deploy.loopback import Loopback

SETTINGS = Settings(patience_s=1.0)
LEARNER = """
import numpy as np

class Walk:
    def __init__(self, device):
        self.device, self.at = device, np.zeros(650, np.float32)

    def parameters(self):
        return self.at

    def load(self, parameters):
        self.at = parameters

    def train(self, iteration, rounds):
        for step in range(rounds):
            draw = np.random.default_rng([self.device, iteration, step])
            self.at = self.at + draw.normal(size=650).astype(np.float32)

    def evaluate(self):
        return {"accuracy": float(abs(self.at).mean())}
"""


def scenario(**changes: object) -> joulemesh.Scenario:
    plain = {
        "devices.count": 4,
        "plan.iterations": 6,
        "plan.rounds": "fixed",
        "training.model": "logistic",
        "training.eval_every": 2,
    }
    return joulemesh.Scenario.preset("adaptive").override({**plain, **changes})


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    (tmp_path / "walk.py").write_text(LEARNER)
    plan = joulemesh.plan(scenario())
    make_fleet(tmp_path / "fleet", plan, with_keys=True, settings=SETTINGS)
    return tmp_path / "fleet"


def devices(fleet: Path, wanted: Wanted | None = None) -> list[Device]:
    network: dict[int, Receive] = {}
    wanted = wanted or Wanted(learner=f"{fleet.parent / 'walk.py'}:Walk", meter="modelled")
    packs = [DevicePack.load(folder) for folder in sorted((fleet / "devices").iterdir())]
    return [
        Device(pack, wanted, transport=lambda one: Loopback(one.pack.device, network))
        for pack in packs
    ]


def run(
    fleet: Path,
    interrupt: Callable[[list[Device]], None] = lambda made: None,
    wanted: Wanted | None = None,
) -> list[End]:
    async def all_of_them() -> list[End]:
        made = devices(fleet, wanted)
        interrupt(made)
        return await asyncio.wait_for(asyncio.gather(*(one.run() for one in made)), 30)

    return asyncio.run(all_of_them())


def parameters(fleet: Path) -> list[bytes]:
    found = []
    for folder in sorted((fleet / "devices").iterdir()):
        pack = DevicePack.load(folder)
        owner = Owner(pack.fleet.id, pack.fleet.digest, pack.device)
        state = Store(folder / RUN, owner).load()
        assert state is not None
        assert state.commit.iteration == 6
        found.append(state.commit.vector.tobytes())
    return found


def test_a_fleet_carries_out_its_plan(fleet: Path) -> None:
    assert all(end.complete for end in run(fleet))
    found = parameters(fleet)
    assert len({*found}) == 1  # an exact mean
    plan = joulemesh.plan(scenario())
    for device, folder in enumerate(sorted((fleet / "devices").iterdir())):
        history = read_history(folder / RUN, device, folder.name)
        assert history.iterations.tolist() == [1, 2, 3, 4, 5, 6]
        assert history.column("rounds").tolist() == plan.rounds[:, device].tolist()
        assert [event.kind for event in history.events][-1] == "end"
        assert history.damaged == 0


def test_a_device_keeps_its_own_receipt(fleet: Path) -> None:
    kept = []

    def keep(made: list[Device]) -> None:
        kept.extend(made)

    assert all(end.complete for end in run(fleet, keep))
    for device in kept:
        _keep_receipt(device, pytest.fail)
        written = json.loads((device.folder / "receipt.json").read_text())
        (mine,) = written["devices"]
        assert (mine["device"], mine["name"]) == (device.pack.device, device.pack.name)
        assert mine["spent_j"] == pytest.approx(device.meter.spent_j())
        assert mine["trained_by"] == "walk.py:Walk"
        lines = (device.folder / "receipt.csv").read_text().splitlines()
        assert len(lines) == 1 + 6  # a line for each iteration
    (device.folder / "receipt.json").unlink()
    (device.folder / "receipt.json").mkdir()
    said: list[str] = []
    _keep_receipt(device, said.append)
    assert "has no receipt" in said[0]


def declared(fleet: Path, watts: float) -> Wanted:
    return Wanted(learner=f"{fleet.parent / 'walk.py'}:Walk", watts=watts)


@pytest.fixture
def read_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meters are read whenever they are asked: a run may take less than a tenth of a second."""
    monkeypatch.setattr("joulemesh.deploy.device.meter._READ_EVERY_S", 0.0)


@pytest.mark.usefixtures("read_always")
def test_the_journal_and_the_receipt_say_what_has_measured(fleet: Path) -> None:
    assert all(end.complete for end in run(fleet, wanted=declared(fleet, 0.001)))
    plan = joulemesh.plan(scenario())
    folders = sorted((fleet / "devices").iterdir())
    histories = [read_history(one / RUN, k, one.name) for k, one in enumerate(folders)]
    assert {one.meter for one in histories} == {"declared 0.001 W"}
    costs, battery_j = planned(plan), plan.world.devices.energy_budget_j
    made = Receipt(histories, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    assert made.to_csv().count("declared 0.001 W") == 24
    seconds = np.nansum(made.metered.seconds, axis=0)
    assert (made.spent_j > 0).all()
    assert (made.spent_j <= 0.001 * (seconds + 30)).all()  # watts times seconds, not the plan's


@pytest.mark.usefixtures("read_always")
def test_a_device_whose_meter_says_that_nothing_is_left_begins_nothing(fleet: Path) -> None:
    ends = run(fleet, wanted=declared(fleet, 1e5))
    assert not any(end.complete for end in ends)
    for device, folder in enumerate(sorted((fleet / "devices").iterdir())):
        assert len(read_history(folder / RUN, device, folder.name).iterations) < 6


@pytest.mark.slow
@pytest.mark.parametrize("cast", [False, True])
def test_metered_joules_are_the_plan_s(fleet: Path, cast: bool) -> None:
    plan = joulemesh.plan(scenario())
    if cast:  # one transmission serves all neighbours, in the plan and by the modelled meter
        fields = {"network.broadcast": True, "network.topology": "complete"}
        plan = joulemesh.plan(scenario(**fields, **{"plan.aggregation": "metropolis"}))
        fleet = fleet.parent / "cast"
        make_fleet(fleet, plan, with_keys=True, settings=SETTINGS)
    run(fleet)
    spent = []
    for folder in sorted((fleet / "devices").iterdir()):
        pack = DevicePack.load(folder)
        state = Store(folder / RUN, Owner(pack.fleet.id, pack.fleet.digest, pack.device)).load()
        assert state is not None
        spent.append(state.commit.spent_j)
    assert spent == pytest.approx(plan.spent_j.tolist(), rel=0.01)


@pytest.mark.slow
def test_a_fleet_that_is_stopped_resumes_to_the_same_bits(fleet: Path, tmp_path: Path) -> None:
    run(fleet)
    undisturbed = parameters(fleet)
    plan = joulemesh.plan(scenario())
    make_fleet(tmp_path / "again", plan, with_keys=True, settings=SETTINGS)

    def stop_all_in_the_middle(made: list[Device]) -> None:
        def look() -> None:
            if max(one.runner.iteration for one in made) >= 3:
                for one in made:
                    one.runner.stop("Ctrl-C")
            else:
                asyncio.get_running_loop().call_later(0.005, look)

        look()

    ends = run(tmp_path / "again", stop_all_in_the_middle)
    assert not any(end.complete for end in ends)
    assert all(end.resumable for end in ends)
    assert all(end.complete for end in run(tmp_path / "again"))
    assert parameters(tmp_path / "again") == undisturbed


@pytest.mark.slow
def test_how_a_device_stands(fleet: Path) -> None:
    seen = []

    def watch(made: list[Device]) -> None:
        def look() -> None:
            seen.append(made[0].standing())
            asyncio.get_running_loop().call_later(0.02, look)

        look()

    run(fleet, watch)
    assert seen[0].phase == "starting"
    assert seen[-1].iteration > 0
    assert seen[-1].iterations == 6
    assert 0 < seen[-1].spent_j <= seen[-1].battery_j
    assert seen[-1].planned_j > 0


def test_two_nodes_of_one_device_cannot_run(fleet: Path) -> None:
    from joulemesh.deploy.device.device import run_device

    folder = fleet / "devices" / "device-1"
    (folder / RUN).mkdir()
    with FolderLock(folder / RUN), pytest.raises(ScenarioError, match=r"run is in use by process"):
        run_device(folder, Wanted(), lambda kind, figures: None, lambda line: None)


def test_a_learner_of_another_size_is_refused(fleet: Path) -> None:
    (fleet.parent / "walk.py").write_text(LEARNER.replace("650", "651"))
    with pytest.raises(ScenarioError, match=r"\(651,\) .* priced for one vector of 650 floating"):
        devices(fleet)


@pytest.mark.slow
def test_own_vectors_are_not_shared(fleet: Path) -> None:
    """A learner may change in place what it was given: what is saved must not change with it."""
    text = LEARNER.replace("self.at = self.at + ", "self.at += ")
    (fleet.parent / "walk.py").write_text(text)
    assert all(end.complete for end in run(fleet))
    assert np.frombuffer(parameters(fleet)[0], np.float32).any()


@pytest.mark.parametrize(
    ("end", "ended", "code"),
    [
        (End("all iterations are done", complete=True, resumable=False), "done", Exit.DONE),
        (End("no majority", complete=False), "", Exit.ENDED),
        (End("cannot pay", complete=False, resumable=False), "cannot pay", Exit.ENDED),
        (End("another plan", complete=False, resumable=False), "", Exit.REFUSED),
    ],
)
def test_exit_codes_tell_what_to_do(fleet: Path, end: End, ended: str, code: Exit) -> None:
    from joulemesh.deploy.device import device as module

    said: list[str] = []

    async def run_one() -> int:
        one = devices(fleet)[0]
        one.runner.ended = ended
        one.run = lambda: asyncio.sleep(0, end)  # type: ignore[method-assign]
        return await module._until_stopped(one, said.append)

    assert asyncio.run(run_one()) == code
    assert end.reason in said[-1]
    assert ("started again, it resumes" in said[-1]) == end.resumable


def test_orders_with_another_battery_are_refused(fleet: Path) -> None:
    home = fleet / "devices" / "device-0"
    said = json.loads((home / "orders.json").read_text())
    battery_j = said["battery_j"]
    (home / "orders.json").write_text(json.dumps(said | {"battery_j": 100 * battery_j}))
    with pytest.raises(ScenarioError, match=rf"battery_j is .* and {battery_j:g} J in the fleet"):
        devices(fleet)


PAIR: dict[str, object] = {"devices.count": 2, "network.topology": "complete"}


@pytest.mark.parametrize("quorum", ["one", "majority"])
def test_of_two_devices_one_carries_out_the_plan_alone_if_it_may(
    quorum: Literal["one", "majority"], tmp_path: Path
) -> None:
    (tmp_path / "walk.py").write_text(LEARNER)
    plan = joulemesh.plan(scenario(**PAIR))
    quick = Settings(patience_s=0.4, starting_s=2.0, minority_s=2.0, quorum=quorum)
    make_fleet(tmp_path / "fleet", plan, with_keys=True, settings=quick)

    kept: list[Device] = []

    def lose_one(made: list[Device]) -> None:
        kept.extend(made)

        def look() -> None:
            if made[1].runner.iteration >= 2:
                made[1].runner.stop("lost")
            else:
                asyncio.get_running_loop().call_later(0.002, look)

        look()

    survivor, lost = run(tmp_path / "fleet", lose_one)
    assert not lost.complete
    assert survivor.complete == (quorum == "one")
    _keep_receipt(kept[0], pytest.fail)


def test_a_device_alone_plans_what_its_battery_pays_for() -> None:
    plan = joulemesh.plan(scenario(**PAIR))
    round_j = float(plan.world.devices.round_energy_j[0])
    rounds = int(plan.rounds[3, 0])
    rich = LonePlan.of(View(1, 4, (0,), left_j=(1e9,)), plan)
    assert [rich.rounds(t) for t in (4, 5, 6)] == [rounds] * 3
    assert rich.last == 6
    scarce = LonePlan.of(View(1, 4, (0,), left_j=(3 * 1.5 * round_j,)), plan)
    assert [scarce.rounds(t) for t in (4, 5, 6)] == [1] * 3
    assert scarce.view.digest != rich.view.digest
    with pytest.raises(InfeasibleError, match="device 0 is alone, and its battery"):
        LonePlan.of(View(1, 4, (0,), left_j=(0.5 * round_j,)), plan)


def test_a_defect_ends_the_process_with_a_line_and_an_exit_code_of_its_own() -> None:
    async def run() -> End:
        raise KeyError("iteration 3")

    given = {"pack": SimpleNamespace(name="barn"), "runner": SimpleNamespace(iteration=4)}
    device: Any = SimpleNamespace(run=run, standing=lambda: None, **given)
    said: list[str] = []
    assert asyncio.run(_until_stopped(device, said.append)) == Exit.FAILED
    assert said == [
        "barn failed after iteration 4: KeyError: 'iteration 3'; its journal says where; started "
        "again, it resumes"
    ]
