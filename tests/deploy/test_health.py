"""What `joulemesh doctor` finds out about deployment."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh.base.files import FolderLock
from joulemesh.cli.main import main
from joulemesh.deploy.fleet.certificates import Authority, make_identity
from joulemesh.deploy.fleet.fleet import Host
from joulemesh.deploy.fleet.pack import make_fleet
from joulemesh.deploy.local.local import free_ports
from joulemesh.deploy.operator import health
from joulemesh.deploy.operator.health import examine_folder, examine_machine
from joulemesh.scenario import Scenario


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("health") / "fleet"
    plan = joulemesh.plan(Scenario(devices={"count": 3}, plan={"iterations": 2}))
    ports = free_ports(3)
    hosts = {f"device-{k}": Host(f"device-{k}", "127.0.0.1", ports[k]) for k in range(3)}
    make_fleet(folder, plan, hosts=hosts, with_keys=True)
    return folder


@pytest.fixture
def fleet(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "fleet"))


def problems_of(folder: Path) -> tuple[dict[str, Any], list[str]]:
    problems: list[str] = []
    return examine_folder(folder, problems), problems


def test_a_good_folder_has_no_problem(fleet: Path) -> None:
    found, problems = problems_of(fleet / "devices" / "device-1")
    assert problems == []
    assert (found["name"], found["running"]) == ("device-1", False)
    assert f"{dt.datetime.now(dt.UTC).year + 1}-" in found["certificate"]
    found, problems = problems_of(fleet)
    assert problems == []
    assert found["name"] == "operator"


def test_a_port_that_another_process_has_is_a_problem_and_the_nodes_own_is_not(fleet: Path) -> None:
    home = fleet / "devices" / "device-1"
    port = problems_of(home)[0]["port"]
    with socket.create_server(("", port)):
        assert problems_of(home)[1][0].startswith(f"port {port} of device-1 is used by another")
        (home / "run").mkdir()
        with FolderLock(home / "run"):
            found, problems = problems_of(home)
    assert found["running"]
    assert problems == []


def expire(fleet: Path, home: Path, days: float, now: dt.datetime) -> None:
    make_identity(Authority.load(fleet), home.name, days=days, now=now).save(home)


@pytest.mark.parametrize(
    ("begun", "days", "said"),
    [(-40, 30, "expired on"), (+40, 30, "is valid from"), (0, 3, "expires in 2 days")],
)
def test_dates_of_certificates(fleet: Path, begun: int, days: float, said: str) -> None:
    home = fleet / "devices" / "device-0"
    expire(fleet, home, days, dt.datetime.now(dt.UTC) + dt.timedelta(days=begun))
    (problem,) = problems_of(home)[1]
    assert said in problem
    assert "\n" not in problem


def test_what_is_missing_is_said(fleet: Path) -> None:
    home = fleet / "devices" / "device-0"
    text = (home / "hosts.csv").read_text("utf-8")
    (home / "hosts.csv").write_text(text.replace("device-1,127.0.0.1", "device-1,?"), "utf-8")
    assert "no address for device-1" in problems_of(home)[1][0]
    (home / "key.pem").chmod(0o644)
    assert "others may read" in problems_of(home)[1][0]
    assert "name a folder that" in problems_of(fleet.parent)[1][0]


def test_a_clock_before_the_installation_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[str] = []
    monkeypatch.setattr("joulemesh.deploy.operator.health.time.time", lambda: 0.0)
    examine_machine(problems)
    assert problems[0].startswith("the clock says 1970-01-01 00:00 UTC, before Joulemesh was")


def test_the_doctor_says_it_in_a_terminal(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["joulemesh", "doctor", "--quick", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == (1 if "nowhere" in arguments else 0)
        return capsys.readouterr().out

    page = typed(str(fleet / "devices" / "device-2"))
    assert "deploy     installed; clock " in page
    assert "; device-2 of fleet " in page
    assert "problem    cannot read nowhere/fleet.json" in typed("nowhere")
    assert json.loads(typed("--json"))["deploy"]["port"]["number"] == 7100


def test_without_the_packages_a_folder_is_a_problem(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from joulemesh.cli.doctor import examine

    monkeypatch.setattr(
        health, "find_spec", lambda name: None if name == "cryptography" else find_spec(name)
    )
    problems = examine(self_test=False, folder=fleet)["problems"]
    assert "deploy needs more packages; pip install 'joulemesh[deploy]'" in problems
    assert examine(self_test=False)["problems"] == []
