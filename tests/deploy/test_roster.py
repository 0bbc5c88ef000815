"""Devices that come to a running fleet, and leave it for good, by rosters that somebody signs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.cli.main import app
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.effects import Effect, Event, Note, Received, Send, Train
from joulemesh.deploy.fleet.certificates import (
    CERTIFICATE,
    Authority,
    FleetSigner,
    authorise,
    make_identity,
)
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import (
    ROSTER,
    DevicePack,
    add_device,
    make_fleet,
    read_roster,
    retire_device,
)
from joulemesh.deploy.messages import Beat, FleetRoster, Join, Leave, Prepare, Recall, signed_text
from joulemesh.deploy.node.ending import RETIRED
from joulemesh.deploy.view import View
from joulemesh.testing.fleets.cases import Case
from joulemesh.testing.fleets.fleet import VirtualFleet, make_node
from joulemesh.testing.fleets.hardware import AUTHORITY, VirtualSigner
from joulemesh.testing.fleets.network import Weather
from joulemesh.testing.fleets.setup import Setup
from tests.deploy.by_hand import TRIANGLE, ByHand, only, said

SPARE = Setup(4, (*TRIANGLE, (1, 3), (2, 3), (0, 3)), "tree", iterations=8, spares=(3,))


def roster(
    number: int, added: tuple[int, ...] = (), retired: tuple[int, ...] = (), by: int = AUTHORITY
) -> FleetRoster:
    made = FleetRoster(number, added, retired)
    return replace(made, signature=VirtualSigner(by).sign(signed_text(made)))


def begun(setup: Setup = SPARE) -> ByHand:
    world = ByHand(setup=setup)
    world.start()
    for other in (1, 2):
        world.hear(other, Recall())
        world.hear(other, Beat(1, 0, 0, "training"))
    return world


# One node ----------------------------------------------------------------------------------------


def test_a_spare_device_is_neither_waited_for_nor_heard_before_the_roster_has_it() -> None:
    world = begun()
    assert all(send.to != 3 for send in only(world.effects, Send))
    assert not world.hear(3, Beat(1, 0, 0, "waiting"))
    assert not said(world.flood(3, Join(0, 0, 9e5)), Prepare)


def test_a_roster_is_saved_then_passed_on_and_lets_the_device_in() -> None:
    world = begun()
    world.disk = False
    assert not said(world.hear(1, roster(1, (3,))), FleetRoster)
    world.disk = True
    found = world.sync()
    assert world.state.roster == roster(1, (3,))
    assert {send.to for send in only(found, Send) if isinstance(send.message, FleetRoster)} == {
        1,
        2,
        3,
    }
    assert said(world.flood(3, Join(0, 0, 9e5)), Prepare)


@pytest.mark.parametrize("wrong", [roster(2, (3,), by=1), replace(roster(1, (3,)), number=2)])
def test_a_roster_that_the_authority_has_not_signed_changes_nothing(wrong: FleetRoster) -> None:
    world = begun()
    found = world.hear(1, wrong)
    assert [note.kind for note in only(found, Note)] == ["forged"]
    assert world.state.roster == FleetRoster()
    assert not world.hear(1, wrong)  # noted once


@pytest.mark.parametrize("older", [roster(2, (), (1,)), roster(1, (), (1,)), FleetRoster()])
def test_an_older_roster_changes_nothing(older: FleetRoster) -> None:
    world = begun()
    world.hear(1, roster(2, (3,)))
    assert not world.hear(2, older)
    assert world.state.roster == roster(2, (3,))


def test_who_has_an_older_roster_is_given_the_newest() -> None:
    world = begun()
    world.hear(1, roster(2, (3,)))
    (given,) = said(world.hear(2, Beat(1, 0, 0, "training", roster=1)), FleetRoster)
    assert given.number == 2
    assert not said(world.hear(2, Beat(1, 0, 0, "training", roster=2)), FleetRoster)
    assert {beat.roster for beat in said(world.tick(8), Beat)} == {2}


def test_a_retired_device_leaves_for_good_and_the_others_do_without_it() -> None:
    leaving = begun()
    assert {one.reason for one in said(leaving.hear(1, roster(1, (), (0,))), Leave)} == {RETIRED}
    other = begun()
    assert said(other.hear(1, roster(1, (), (2,))), Prepare)  # whether it says so or not


def test_a_retired_device_is_not_taken_in_again() -> None:
    out = View(1, 1, (0, 1), left_j=(9e5,) * 2)
    setup = Setup(3, TRIANGLE, "tree")
    world = ByHand(setup=setup)
    view = world.planner.plan(out, 0)
    assert not isinstance(view, str)
    world = ByHand(setup=setup, state=replace(world.state, views=(view.view,)))
    world.begin()
    world.hear(1, roster(1, (), (2,)))
    assert not said(world.flood(2, Join(1, 0, 9e5)), Prepare)


# Fleets in memory ---------------------------------------------------------------------------------

ROSTERS = {4: roster(1, (3,)), 14: roster(2, (3,), (1,))}
"""By the iteration that somebody trains when the operator hands them over."""


class Growing(VirtualFleet):
    """A fleet to which the operator brings rosters."""

    def __init__(self, seed: int) -> None:
        setup = replace(SPARE, iterations=30)
        weather = Weather(loss=0.05, twice=0.05, held=0.05, held_s=0.3)
        super().__init__(
            Case(seed, setup, (1e4,) * 4, 0.8, "go-on", weather, (), (), well_s=2.0),
            make_node,
            self._look,
        )
        self._due = dict(ROSTERS)
        self._taker = self.machines[seed % 3]

    def _look(self, now: float, device: int, event: Event, effects: Sequence[Effect]) -> None:
        for effect in only(effects, Train):
            brought = self._due.pop(effect.iteration, None)
            if brought is not None:
                self.clock.after(0.0, self._bring, brought)

    def _bring(self, brought: FleetRoster) -> None:
        to = self._taker
        if to.runner is None:  # the operator tries again
            self.clock.after(0.1, self._bring, brought)
        else:
            to.runner.take(Received(to.device, brought))


@pytest.mark.parametrize("seed", range(20))
def test_a_device_is_added_and_another_retired_while_the_fleet_works(seed: int) -> None:
    """The audit checks views, votes, joules and parameters all the time, as with any fault."""
    world = Growing(seed)
    world.run()
    members = [view.members for view in world.audit.views.values()]
    assert members[0] == (0, 1, 2)
    assert members[-1] == (0, 2, 3)
    assert (0, 1, 2, 3) in members
    assert world.complete == {0, 2, 3}
    (_,) = {world.machines[one].disk.state.commit.vector.tobytes() for one in (0, 2, 3)}
    assert world.machines[1].disk.state.ended == RETIRED


# Plans, signatures and folders --------------------------------------------------------------------


def spare_plan(iterations: int = 6) -> joulemesh.Plan:
    devices = {"count": 4, "leave": [[3, 1]]}
    return joulemesh.plan(joulemesh.Scenario(devices=devices, plan={"iterations": iterations}))


def test_a_spare_place_is_planned_as_absent_until_a_view_has_it() -> None:
    plan = spare_plan()
    assert not plan.rounds[:, 3].any()
    assert not plan.spent_j[3]
    assert plan.rounds[:, :3].all()
    planner = Replanner(plan.ground, 3)
    assert not planner.plan(first_view(4, (3,))).rounds(1)
    left_j = tuple((0.5 * plan.energy_budget_j).tolist())
    joined = planner.plan(View(1, 4, (0, 1, 2, 3), left_j=left_j))
    assert joined.active(4) == (0, 1, 2, 3)
    assert joined.rounds(4) > 0
    other = Replanner(plan.ground, 0).plan(View(1, 4, (0, 1, 2, 3), left_j=left_j))
    assert joined.view.digest == other.view.digest


def test_a_roster_counts_with_the_authority_s_signature_in_its_own_fleet_only() -> None:
    fleet, other = Authority.make("orchard"), Authority.make("elsewhere")
    text = signed_text(FleetRoster(1, (2,)))
    own = make_identity(fleet, "gate")
    gate = FleetSigner(own, ("gate", "barn"), "orchard")
    assert gate.authorised(text, authorise(fleet.key, "orchard", text))
    assert not gate.authorised(text, authorise(fleet.key, "meadow", text))
    assert not gate.authorised(text, authorise(other.key, "orchard", text))
    assert not gate.authorised(text, authorise(own.key, "orchard", text))
    assert not gate.authorised(text, gate.sign(text))
    assert not gate.authorised(text, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_fleet(tmp_path / "fleet", spare_plan(), with_keys=True)
    return tmp_path / "fleet"


def test_rosters_count_up_and_say_what_they_say_once(folder: Path) -> None:
    fleet, pack = Fleet.load(folder), DevicePack.load(folder / "devices" / "device-0")
    assert fleet.spares == (3,)
    first = add_device(folder, "device-3")
    assert add_device(folder, "device-3") == first == read_roster(folder)
    second = retire_device(folder, "device-1")
    assert (second.number, second.added, second.retired) == (2, (3,), (1,))
    signer = FleetSigner(pack.identity, fleet.names, f"{fleet.id} {fleet.digest}")
    assert signer.authorised(signed_text(second), second.signature)
    assert not signer.authorised(signed_text(second), first.signature)


@pytest.mark.parametrize(
    ("act", "name", "message"),
    [
        (add_device, "device-1", "belongs to the fleet from its start; places .*: device-3"),
        (add_device, "device-9", "has no device 'device-9'"),
        (retire_device, "device-3", "no device has taken"),
    ],
)
def test_what_makes_no_roster(
    folder: Path, act: Callable[[Path, str], FleetRoster], name: str, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        act(folder, name)
    assert not (folder / ROSTER).exists()


def test_two_devices_stay_and_the_retired_do_not_come_back(folder: Path) -> None:
    retire_device(folder, "device-0")
    with pytest.raises(ScenarioError, match="fewer than two devices are left"):
        retire_device(folder, "device-1")
    (folder / "devices" / "device-3" / CERTIFICATE).unlink()
    with pytest.raises(ScenarioError, match="has no certificate yet; sign its request first"):
        add_device(folder, "device-3")
    with pytest.raises(ScenarioError, match="is retired, and its run has ended for good"):
        add_device(folder, "device-0")
    (folder / ROSTER).write_text("{}")
    with pytest.raises(ScenarioError, match="is damaged"):
        retire_device(folder, "device-1")


def test_the_command_keeps_places_free_and_says_so(tmp_path: Path) -> None:
    def made(name: str, *words: str) -> Result:
        count = ("--set", "devices.count=4", "--set", "plan.iterations=3")
        out = ("--with-keys", "--out", str(tmp_path / name))
        return CliRunner().invoke(app, ["deploy", "init", *count, *out, *words])

    said = made("fleet", "--spares", "1")
    assert said.exit_code == 0, said.output
    assert "places kept free for joulemesh deploy add: device-3" in said.output
    assert Fleet.load(tmp_path / "fleet").spares == (3,)
    for words in (("--spares", "3"), ("--spares", "1", "--set", "devices.leave=[[2,1]]")):
        refused = made("other", *words)
        assert isinstance(refused.exception, ScenarioError)
        assert not (tmp_path / "other").exists()
    said = CliRunner().invoke(app, ["deploy", "add", str(tmp_path / "fleet"), "device-3"])
    assert isinstance(said.exception, ScenarioError)  # nobody is there to take it
    assert "roster 1 is signed, and no device has taken it" in str(said.exception)
