"""Nodes that are forked from a process that has imported everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joulemesh.deploy.local.local import environment
from joulemesh.deploy.local.supervisor import Job, Process, Supervisor, spawned
from joulemesh.deploy.local.template import Forked, Template
from tests.deploy.test_supervisor import _runs

pytestmark = pytest.mark.skipif(not Template.can(), reason="nodes are forked on Linux only")

ONE_THREAD = dict(environment())
PATIENT = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with Template(ONE_THREAD, ["joulemesh.cli"]) as made:
        yield made


def job(
    place: Path, *words: str, name: str = "one", environment: dict[str, str] | None = None
) -> Job:
    command = [sys.executable, "-m", "joulemesh", *words]
    return Job(name, command, place / f"{name}.log", environment or ONE_THREAD)


def patient(place: Path, name: str = "one") -> Job:
    """A job that says so when it is up, and then waits."""
    script = place / "patient.py"
    script.write_text(PATIENT)
    return job(place, "plan", "--load", str(script), name=name)


def until_up(process: Process) -> None:
    until = time.monotonic() + 30
    while process.last_words() != "up":
        assert time.monotonic() < until, process.last_words()
        time.sleep(0.02)


def test_a_fork_is_a_process_that_says_how_it_ended(template: Template, tmp_path: Path) -> None:
    made = Supervisor(
        [job(tmp_path, "--version"), job(tmp_path, "plan", "nowhere.toml", name="two")],
        start=lambda one: template.start(one) or pytest.fail("it was not forked"),
    )
    made.run()
    good, bad = made.processes
    assert (good.state, good.code, bad.state, bad.code) == ("done", 0, "refused", 2)
    assert good.last_words().startswith("joulemesh ")
    assert "nowhere.toml" in bad.last_words()


def test_a_killed_fork_is_known_to_be_killed(template: Template, tmp_path: Path) -> None:
    one = patient(tmp_path)
    child = template.start(one)
    assert isinstance(child, Forked)
    assert child.pid != os.getpid()
    until_up(Process(one))
    assert os.getpgid(child.pid) == child.pid  # a session of its own: Ctrl-C is not for it
    assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while _runs(child.pid) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)  # its number is its own until somebody has asked
    assert child.wait() == -signal.SIGKILL
    child.send_signal(signal.SIGKILL)  # nobody's any more: not sent
    while Path("/proc", str(child.pid)).exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not Path("/proc", str(child.pid)).exists()


def test_forks_end_with_their_template_and_are_then_started_without(tmp_path: Path) -> None:
    one = patient(tmp_path)
    with Template(ONE_THREAD, []) as template:
        child = template.start(one)
        assert child is not None
        until_up(Process(one))
        assert template.starts(one)
        assert template._process is not None
        template._process.kill()
        assert child.wait() == -signal.SIGTERM
        template._process.wait()
        assert not template.starts(one)
    until = time.monotonic() + 10
    while _runs(child.pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(child.pid)


@pytest.mark.slow
def test_forks_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from tests.deploy.test_template import *\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        "with Template(ONE_THREAD, []) as template:\n"
        "    made = Supervisor([patient(place)], start=template.start)\n"
        "    made.run(lambda: print(made.processes[0].pid, flush=True), 0.1)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = next(int(line) for line in parent.stdout if int(line))
    until_up(Process(patient(tmp_path)))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(child)


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    threads = tmp_path / "has_threads.py"
    threads.write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with Template(ONE_THREAD | {"PYTHONPATH": path}, ["has_threads"]) as made:
        assert made.start(job(tmp_path, "--version")) is None
    assert spawned(job(tmp_path, "--version")).wait() == 0


def test_only_nodes_of_the_same_environment_are_forked(template: Template, tmp_path: Path) -> None:
    assert template.starts(job(tmp_path, "--version"))
    assert not template.starts(job(tmp_path, "--version", environment={"A": "b"}))
    assert not template.starts(Job("one", ["ip", "netns"], tmp_path / "log"))
