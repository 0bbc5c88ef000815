"""Fleets of real processes that are stopped, killed, frozen, or run out of disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from benchmarks import deploy_faults as faults
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.local.local import LocalFleet, open_fleet
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan

pytestmark = pytest.mark.slow

ITERATIONS = 60


@pytest.fixture(scope="module")
def plan() -> Plan:
    return joulemesh.plan(faults.scenario(ITERATIONS))


def packed(folder: Path, plan: Plan) -> Fleet:
    return open_fleet(folder, plan, settings=Settings(patience_s=faults.PATIENCE_S))[0]


def ended(running: LocalFleet) -> bytes:
    """The parameters that all devices end with."""
    assert running.complete, [one.last_words() for one in running.processes]
    (bits,) = {vector.tobytes() for vector in faults.vectors(running.folder, running.fleet)}
    return bits


@pytest.fixture(scope="module")
def undisturbed(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("undisturbed") / "fleet"
    running = LocalFleet(folder, packed(folder, plan), plan)
    running.run(lambda standings: None)
    return ended(running)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "power cut"])
def test_a_fleet_that_was_stopped_ends_with_the_bits_of_one_that_was_not(
    number: signal.Signals, plan: Plan, undisturbed: bytes, tmp_path: Path
) -> None:
    fleet = packed(tmp_path / "fleet", plan)
    first = LocalFleet(fleet.folder, fleet, plan, restarts=0)

    def watch(standings: Sequence[Standing]) -> None:
        if min(one.iteration for one in standings) < ITERATIONS // 3 or first.supervisor.stopping:
            return
        if number == signal.SIGTERM:
            first.supervisor.stop()
        for process in first.processes:
            if number == signal.SIGKILL and process.pid:
                os.kill(process.pid, number)

    first.run(watch, every_s=0.05)
    assert not first.complete
    assert max(one.iteration for one in first.standings()) < ITERATIONS
    again = LocalFleet(fleet.folder, fleet, plan)
    again.run(lambda standings: None)
    assert ended(again) == undisturbed


@pytest.mark.parametrize("seed", range(4))
def test_survivors_go_on_and_killed_devices_rejoin(seed: int, tmp_path: Path) -> None:
    came = faults.tried(tmp_path / "fleet", faults.kills(5, seed))
    assert came.faults == 5
    assert came.good, came


def test_survivors_go_on_and_a_frozen_device_rejoins(tmp_path: Path) -> None:
    """The benchmark freezes five for a minute each."""
    frozen = [faults.Fault(1.0, "freeze", 3, lasts_s=12.0)]
    came = faults.tried(tmp_path / "fleet", frozen)
    assert came.faults == 1
    assert came.good, came


def test_a_device_whose_folder_is_removed_comes_back_without_its_joules(
    plan: Plan, tmp_path: Path
) -> None:
    """It is a newcomer at once, ends with what the others have, and counts what it had spent."""
    fleet = packed(tmp_path / "fleet", plan)
    running = LocalFleet(fleet.folder, fleet, plan)
    home, before = fleet.folder / "devices" / fleet.names[2], list[Standing]()

    def watch(standings: Sequence[Standing]) -> None:
        pid = running.processes[2].pid
        if not before and pid and standings[2].iteration >= ITERATIONS // 3:
            before.append(standings[2])
            os.kill(pid, signal.SIGKILL)
            shutil.rmtree(home / "run")

    running.run(watch, every_s=0.05)
    ended(running)
    lines = [json.loads(line) for line in (home / "run" / "journal.jsonl").open()]
    recalled = [line for line in lines if line["kind"] == "recalled" and "spent_j" in line]
    assert max(line["spent_j"] for line in recalled) >= 0.9 * before[0].spent_j
    assert [line["iteration"] for line in lines if line["kind"] == "gift"]
    (end,) = [line for line in lines if line["kind"] == "end"]
    assert end["spent_j"] >= before[0].spent_j


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 16 MB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_device_whose_disk_is_full_loses_nothing(
    plan: Plan, undisturbed: bytes, small_disk: Path, tmp_path: Path
) -> None:
    """Whatever it does while nothing can be written, it ends with what the others have."""
    fleet = packed(tmp_path / "fleet", plan)
    home = fleet.folder / "devices" / fleet.names[2]
    (home / "run").symlink_to(small_disk / "run")
    (small_disk / "run").mkdir()
    first = LocalFleet(fleet.folder, fleet, plan)
    filler, filled = small_disk / "filler", 0.0

    def watch(standings: Sequence[Standing]) -> None:
        nonlocal filled
        if not filled and standings[2].iteration >= 10:
            filled = time.monotonic()
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        elif filled and time.monotonic() > filled + 2:
            filler.unlink(missing_ok=True)

    first.run(watch, every_s=0.05)
    assert filled
    if not first.complete:  # a device that could not write has ended, with everything saved
        first = LocalFleet(fleet.folder, fleet, plan)
        first.run(lambda standings: None)
    assert first.complete
    states = faults.vectors(fleet.folder, fleet)
    assert len({vector.tobytes() for vector in states}) == 1
    assert np.isfinite(states[0]).all()


def test_the_command_runs_reports_and_equals_the_simulation(tmp_path: Path) -> None:
    """And run again, it finds everything done."""
    folder = tmp_path / "fleet"
    words = ["--preset", "adaptive", "--set", "devices.count=4", "--set", "plan.iterations=5"]
    command = [sys.executable, "-m", "joulemesh", "deploy", "local", *words, "--json"]
    for _ in range(2):
        said = subprocess.run([*command, "--out", str(folder)], stdout=subprocess.PIPE, check=True)
        came = json.loads(said.stdout)
        assert came["complete"]
        assert came["largest_difference"] <= 1e-5
        assert [one["iteration"] for one in came["devices"]] == [5] * 4
        assert came["charged_j"] == pytest.approx(came["planned_j"])
        assert "5 iterations" in (folder / "report.html").read_text("utf-8")
