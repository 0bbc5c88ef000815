"""What is in examples/deploy fits Joulemesh and what would run it, as far as can be tried here."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

import joulemesh
from joulemesh.cli.main import app
from joulemesh.deploy.fleet.fleet import PORT, Fleet, read_hosts
from joulemesh.deploy.fleet.pack import make_fleet
from joulemesh.deploy.local.supervisor import Exit

yaml: Any = pytest.importorskip("yaml")  # a dependency of Flax
ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "deploy"
UNIT = HERE / "joulemesh-node@.service"


def check_command(words: list[str]) -> None:
    """A command and its options are those of our command line."""
    assert words[0].rpartition("/")[2] == "joulemesh", words
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest, f"{words} names no command"
        assert rest[0] in command.commands, f"{rest[0]} is no command of {command.name}"
        command = command.commands[rest[0]]
        rest = rest[1:]
    known = {option for one in command.params for option in one.opts}
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in known, f"{word} is no option of {words}"
    wanted = [one for one in command.params if one.param_type_name == "argument" and one.required]
    assert len([word for word in rest if not word.startswith("-")]) >= len(wanted)


def unit() -> configparser.ConfigParser:
    made = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    made.optionxform = str  # type: ignore[assignment, method-assign]
    made.read(UNIT, "utf-8")
    return made


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text("utf-8"))
    return read


def test_the_unit_runs_a_node_and_knows_its_exit_codes() -> None:
    service = unit()["Service"]
    check_command(shlex.split(service["ExecStart"].replace("%i", "farm-01")))
    assert service["SuccessExitStatus"] == str(int(Exit.TERMINATED))
    assert service["RestartPreventExitStatus"] == str(int(Exit.REFUSED))
    assert service["Restart"] == "on-failure"
    assert "MemoryDenyWriteExecute" not in service  # XLA compiles into memory that it executes


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text("utf-8").replace("/opt/joulemesh/bin/joulemesh", "/bin/true")
    (tmp_path / "joulemesh-node@farm-01.service").write_text(text, "utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "joulemesh-node@farm-01.service"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "joulemesh" in line]
    assert said == []


def test_the_compose_file_mounts_what_init_makes(tmp_path: Path) -> None:
    plan = joulemesh.plan(joulemesh.Scenario.load(HERE / "farm.toml"))
    fleet = make_fleet(tmp_path / "farm", plan, with_keys=True)
    assert read_hosts(HERE / "hosts.csv", fleet.names)
    services = compose()["services"]
    assert tuple(services) == fleet.names == Fleet.load(tmp_path / "farm").names
    for name, service in services.items():
        check_command(["joulemesh", *service["command"]])
        (mounted,) = service["volumes"]
        source, inside = mounted.split(":")
        assert (tmp_path / source / "key.pem").is_file()
        assert source.endswith(f"/{name}")
        assert inside in service["command"]
        assert (HERE / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        check_command(service["healthcheck"]["test"][1:])


def test_the_hosts_are_the_services_of_the_compose_file() -> None:
    services = tuple(compose()["services"])
    hosts = read_hosts(HERE / "hosts.csv", services)
    assert [(host.address, host.port) for host in hosts.values()] == [(n, PORT) for n in services]


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return asked.returncode == 0


@pytest.mark.skipif(not has_compose(), reason="no docker compose here")
def test_docker_accepts_the_compose_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "-f", HERE / "compose.yaml", "config", "--quiet"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_commands_of_the_page_exist() -> None:
    page = (HERE / "README.md").read_text("utf-8")
    typed = re.findall(r"^[$#] (joulemesh .+)$", page, re.MULTILINE)
    assert len(typed) == 2
    for line in typed:
        check_command(shlex.split(line, comments=True))
