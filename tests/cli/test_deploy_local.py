"""`deploy local` and `deploy emulate`, with stand-ins for nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from joulemesh.cli.main import main
from joulemesh.deploy.local import local
from joulemesh.deploy.local.emulate import why_not
from tests.deploy.test_local import NODE

_REFUSAL = why_not()
SMALL = ("--set", "devices.count=3", "--set", "plan.iterations=2", "--no-report")

Command = Callable[..., SimpleNamespace]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Runs a command whose devices end as they are told to."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, ends: Sequence[str] = ("0", "0", "0")) -> SimpleNamespace:
        made = local.LocalFleet._job

        def job(self: local.LocalFleet, device: int) -> Any:
            job = made(self, device)
            at = list(job.command).index(sys.executable)
            words = [*job.command[:at], sys.executable, "-Sc", NODE, job.command[at + 5]]
            return replace(job, command=[*words, ends[device]])

        with monkeypatch.context() as patch:
            patch.setattr(local.LocalFleet, "_job", job)
            patch.setattr(sys, "argv", ["joulemesh", "deploy", *arguments])
            try:
                main()
                code: Any = 0
            except SystemExit as end:
                code = end.code or 0
        caught = capsys.readouterr()
        return SimpleNamespace(code=code, out=caught.out, err=caught.err)

    return run


@pytest.mark.parametrize("clock", ["auto", "just-in-time"])
@pytest.mark.parametrize("line", ["init", "local", "emulate"])
def test_a_plan_with_slower_clocks_is_refused_and_nothing_written(
    command: Command, line: str, clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulemesh.deploy.local.emulate.check_emulation", lambda: None)
    slower = ("--set", "devices.clock_range=[0.4,1.0]", "--set", f"plan.clock={clock}")
    done = command(line, *SMALL[:4], *slower, "--out", "fleet")
    assert done.code == 2
    assert f'plan.clock = "{clock}"' in done.err
    assert "nodes do not set the clocks" in done.err
    assert 'set plan.clock = "full"' in done.err
    assert list(tmp_path.iterdir()) == []
    done = command("init", *SMALL[:4], *slower[:2], "--set", "plan.clock=full", "--out", "fleet")
    assert done.code == 0, done.err


def test_local_packs_runs_and_tells(command: Command) -> None:
    done = command("local", *SMALL)
    assert done.code == 0, done.err
    assert done.err.startswith("packed default-local: Plan(")
    assert "3 of 3 devices answer" in done.err
    assert "1.5 J charged" not in done.out  # 3 devices with 1 J each
    assert done.out.startswith("3 J charged, ")
    again = command("local", *SMALL)
    assert again.code == 0
    assert again.err.startswith("goes on with default-local: ")


def test_local_says_who_ended_early_and_how_to_go_on(command: Command) -> None:
    done = command("local", *SMALL, ends=("0", "3", "0"))
    assert done.code == 3
    assert "device-1: no more room (see default-local/devices/device-1/node.log)" in done.err
    assert "to go on: joulemesh deploy local --set devices.count=3" in done.err


def test_local_prints_json(command: Command) -> None:
    done = command("local", *SMALL, "--json", "--out", "there", ends=("0", "crash", "0"))
    came = json.loads(done.out)
    assert (came["folder"], came["complete"], came["restarts"]) == ("there", True, 1)
    assert [one["iteration"] for one in came["devices"]] == [2, 2, 2]
    assert came["charged_j"] == 3.0


def test_local_refuses_the_folder_of_another_plan(command: Command) -> None:
    assert command("local", *SMALL).code == 0
    done = command("local", *SMALL, "--set", "seed=3")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "holds the fleet of another plan; give another --out" in done.err


def test_an_interrupted_local_run_says_how_to_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = local.LocalFleet.run

    def interrupted(self: local.LocalFleet, watch: Any, every_s: float = 0.5) -> None:
        run(self, lambda standings: os.kill(os.getpid(), signal.SIGINT), every_s)

    monkeypatch.setattr(local.LocalFleet, "run", interrupted)
    done = command("local", *SMALL, ends=("0", "crash", "0"))
    assert done.code == 130
    assert "to go on: joulemesh deploy local" in done.err


def test_emulate_refuses_where_it_cannot(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulemesh.deploy.local.emulate.why_not", lambda: "the moon is full")
    done = command("emulate", *SMALL)
    assert (done.code, done.out) == (2, "")
    assert done.err.strip().endswith("links cannot be emulated here: the moon is full")


@pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL)
def test_emulate_says_when_links_are_too_fast_for_the_machine(command: Command) -> None:
    done = command("emulate", *SMALL)
    assert done.code == 0, done.err
    assert "add --slow-down" in done.err
    slow = command("emulate", *SMALL, "--slow-down", "500", "--out", "slow", "--json")
    assert "--slow-down" not in slow.err
    assert json.loads(slow.out)["slow_down"] == 500.0
    hosts = Path("slow", "hosts.csv").read_text()
    assert "device-2,10.213.0.3,7100" in hosts
