"""Nodes that are forked from a process that has imported everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from joulemesh.deploy.local.local import environment
from joulemesh.deploy.local.supervisor import COMMAND, Child, Forked, Job, Supervisor, fork_server
from tests.deploy.test_supervisor import _runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nodes are forked on Linux only")

Start = Callable[[Job], Child]
PATIENT = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"


@pytest.fixture(scope="module")
def start() -> Start:
    made = fork_server(environment(), ["joulemesh.cli"])
    assert made is not None
    return made


def job(place: Path, *words: str, name: str = "one") -> Job:
    return Job(name, [*COMMAND, *words], place / f"{name}.log", environment())


def patient(place: Path) -> Job:
    """A job that says so when it is up, and then waits."""
    script = place / "patient.py"
    script.write_text(PATIENT)
    return job(place, "plan", "--load", str(script))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_up(one: Job) -> bool:
    return one.log.exists() and "up" in one.log.read_text()


def test_a_fork_is_a_process_that_says_how_it_ended(start: Start, tmp_path: Path) -> None:
    jobs = [job(tmp_path, "--version"), job(tmp_path, "plan", "nowhere.toml", name="two")]
    made = Supervisor(jobs, start=start)
    made.run()
    good, bad = made.processes
    assert (good.state, good.code, bad.state, bad.code) == ("done", 0, "refused", 2)
    assert good.last_words().startswith("joulemesh ")
    assert "nowhere.toml" in bad.last_words()


def test_a_killed_fork_is_known_to_be_killed(start: Start, tmp_path: Path) -> None:
    one = patient(tmp_path)
    child = start(one)
    assert isinstance(child, Forked)
    until(lambda: is_up(one))
    assert os.getpgid(child.pid) == child.pid  # a session of its own: Ctrl-C is not for it
    assert child.poll() is None
    child.kill()
    assert child.wait() == -signal.SIGKILL
    child.send_signal(signal.SIGKILL)  # nobody's any more: not sent
    assert not _runs(child.pid)


def test_another_command_is_not_forked(start: Start, tmp_path: Path) -> None:
    other = start(Job("one", [sys.executable, "-c", "print('good')"], tmp_path / "log"))
    assert isinstance(other, subprocess.Popen)
    assert other.wait() == 0


@pytest.mark.slow
def test_forks_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = tmp_path / "supervise.py"
    script.write_text(
        "import pathlib\n"
        "from tests.deploy.test_fork_server import *\n"
        "if __name__ == '__main__':\n"
        f"    place = pathlib.Path({str(tmp_path)!r})\n"
        "    made = Supervisor([patient(place)], start=fork_server(environment(), []))\n"
        "    made.run(lambda: print(made.processes[0].pid, flush=True), 0.1)\n"
    )
    path = os.pathsep.join([str(Path.cwd()), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert parent.stdout is not None
    child = next(int(line) for line in parent.stdout if int(line))
    until(lambda: is_up(patient(tmp_path)))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not _runs(child))
