"""Fleets of processes on this machine, with stand-ins for nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import FolderLock
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.local.emulate import measured
from joulemesh.deploy.local.local import LocalFleet, environment, free_ports, open_fleet
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan

# Writes the journal of a node that carries out two iterations, and ends as it is told to.
NODE = """
import json, os, pathlib, sys, time
run = pathlib.Path(sys.argv[1], "run")
run.mkdir(exist_ok=True)
first = not (run / "journal.jsonl").exists()
with (run / "journal.jsonl").open("a") as journal:
    def write(kind, **figures):
        journal.write(json.dumps({"at": time.time(), "kind": kind, **figures}) + "\\n")
        journal.flush()
    write("start", iteration=0)
    if first and sys.argv[2] == "crash":
        os.kill(os.getpid(), 9)
    for t in (1, 2):
        write("committed", iteration=t, spent_j=0.5 * t, elapsed_s=0.1 * t)
print("no more room" if sys.argv[2] == "3" else "good", file=sys.stderr)
sys.exit(int(sys.argv[2]) if sys.argv[2].isdigit() else 0)
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return joulemesh.plan(joulemesh.Scenario(devices={"count": 3}, plan={"iterations": 2}))


@pytest.fixture
def fleet(tmp_path: Path, plan: Plan) -> Fleet:
    return open_fleet(tmp_path / "fleet", plan, settings=Settings())[0]


def local(fleet: Fleet, plan: Plan, *ends: str) -> LocalFleet:
    def wrap(device: int, command: Sequence[str]) -> Sequence[str]:
        assert list(command[1:5]) == ["-m", "joulemesh", "node", "run"]
        return [sys.executable, "-Sc", NODE, command[5], ends[device]]

    return LocalFleet(fleet.folder, fleet, plan, wrap=wrap)


def test_a_fleet_is_packed_once_and_taken_up_again(tmp_path: Path, plan: Plan) -> None:
    folder, settings = tmp_path / "fleet", Settings(patience_s=3)
    one, there = open_fleet(folder, plan, settings=settings)
    assert not there
    assert DevicePack.load(folder / "devices" / "device-2").identity.bearer.name == "device-2"
    other, there = open_fleet(folder, plan, settings=settings)
    assert there
    assert other.id == one.id
    with pytest.raises(ScenarioError, match=r"a fleet with patience_s = 3\.0; give another --out"):
        open_fleet(folder, plan, settings=Settings())
    another = joulemesh.plan(joulemesh.Scenario(seed=5, devices={"count": 3}))
    with pytest.raises(ScenarioError, match="of another plan"):
        open_fleet(folder, another, settings=settings)


def test_every_device_is_run_and_followed_to_its_end(fleet: Fleet, plan: Plan) -> None:
    running, seen = local(fleet, plan, "0", "crash", "0"), list[Sequence[Standing]]()
    running.run(seen.append, every_s=0.05)
    assert running.complete
    assert [one.restarts for one in running.processes] == [0, 1, 0]
    last = seen[-1]
    assert [one.name for one in last] == list(fleet.names)
    assert [(one.iteration, one.iterations, one.spent_j) for one in last] == [(2, 2, 1.0)] * 3
    assert last[1].trouble == "crashed 1 time"
    assert last[0].planned_j == pytest.approx(plan.spent_j[0])
    assert last[0].planned_s == pytest.approx(plan.time_s)


def test_devices_are_told_of_the_user_s_own_code_and_learner(fleet: Fleet, plan: Plan) -> None:
    seen: list[Sequence[str]] = []

    def wrap(device: int, command: Sequence[str]) -> Sequence[str]:
        seen.append(command)
        return command

    LocalFleet(fleet.folder, fleet, plan, [Path("mine.py")], "learner.py:make", wrap=wrap)
    assert len(seen) == 3
    for command in seen:
        assert list(command[-2:]) == ["--learner", "learner.py:make"]
        assert command[command.index("--load") + 1] == str(Path("mine.py").absolute())


def test_neighbours_know_where_each_other_are(fleet: Fleet, plan: Plan) -> None:
    local(fleet, plan, "0", "0", "0").run(lambda standings: None)
    packs = [DevicePack.load(fleet.folder / "devices" / name) for name in fleet.names]
    ports = {pack.device: pack.hosts[pack.device].port for pack in packs}
    assert len(set(ports.values())) == 3
    for pack in packs:
        assert {host.address for host in pack.hosts.values()} == {"127.0.0.1"}
        assert {one: host.port for one, host in pack.hosts.items()} == {
            one: ports[one] for one in pack.hosts
        }


def test_a_device_that_ends_early_says_why(fleet: Fleet, plan: Plan) -> None:
    running = local(fleet, plan, "0", "3", "2")
    running.run(lambda standings: None)
    assert not running.complete
    assert [one.state for one in running.processes] == ["done", "ended", "refused"]
    good, ended, refused = running.standings()
    assert (good.trouble, ended.trouble, refused.phase) == ("", "no more room", "refused")


def test_a_fleet_is_run_once_at_a_time(fleet: Fleet, plan: Plan) -> None:
    with FolderLock(fleet.folder), pytest.raises(ScenarioError, match="is in use"):
        local(fleet, plan, "0", "0", "0").run(lambda standings: None)


def test_ports_are_free_and_few_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(set(free_ports(40))) == 40
    monkeypatch.setattr("joulemesh.deploy.local.local._PORTS", range(20_000, 20_002))
    with pytest.raises(ScenarioError, match="for 3 devices"):
        free_ports(3)


def test_what_the_user_has_set_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    made = environment()
    assert made["XLA_FLAGS"].startswith("--xla_dump_to=here --xla_cpu")
    assert "OMP_NUM_THREADS" not in made
    assert made["JAX_NUM_CPU_DEVICES"] == "1"


def test_exchanges_are_measured_from_the_last_that_trained_to_the_last_that_finished(
    fleet: Fleet, plan: Plan
) -> None:
    """Device d is ready at d seconds, and all finish at 10 + d / 10."""
    for device, name in enumerate(fleet.names):
        run = fleet.folder / "devices" / name / "run"
        run.mkdir()
        end = 10 + device / 10
        line = {"at": end, "kind": "committed", "iteration": 1, "exchange_s": end - device}
        zeros = dict.fromkeys(("view", "rounds", "train_j", "train_s", "exchange_j", "spent_j"), 0)
        sent = {"sent": {str((device + 1) % 3): [1000, 0.5, 2]}}
        (run / "journal.jsonl").write_text(json.dumps({**zeros, **line, **sent}) + "\n")
    found = measured(fleet.folder, fleet, plan, slow_down=100.0)
    (took, planned), costs = found.exchange_s[1], plan.ground.forecast
    assert took == pytest.approx(8.2)
    assert planned == pytest.approx(100 * plan.exchange_s[0])
    assert found.ratio == pytest.approx(took / planned)
    edge = plan.world.graph.edges.tolist().index([0, 1])
    assert costs.packet is not None
    headers = 1 + costs.packet[edge, 0] / costs.packet_bits  # bits on the air per bit of payload
    rate_bps = 0.01 / (costs.forward_s[edge] * headers)
    assert found.goodput[0, 1] == pytest.approx(8 * 1000 / 0.5 / rate_bps)
