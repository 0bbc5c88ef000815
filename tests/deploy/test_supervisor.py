"""Processes: started, watched, started again and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from joulemesh.deploy.local.supervisor import Exit, Job, Process, Supervisor

PATIENT = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(143))\ntime.sleep(60)"
STUBBORN = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\ntime.sleep(60)"


def job(place: Path, script: str, name: str = "one", **more: object) -> Job:
    return Job(name, [sys.executable, "-uSc", script], place / f"{name}.log", **more)  # type: ignore[arg-type]


def supervised(place: Path, *scripts: str, restarts: int = 5) -> list[Process]:
    made = Supervisor(
        [job(place, one, f"n{k}") for k, one in enumerate(scripts)], restarts=restarts
    )
    made.run()
    return made.processes


@pytest.mark.parametrize(
    ("code", "state"),
    [(Exit.DONE, "done"), (Exit.REFUSED, "refused"), (Exit.ENDED, "ended")],
)
def test_an_exit_code_says_how_a_process_ended(code: Exit, state: str, tmp_path: Path) -> None:
    script = f"import sys\nprint('because of rain\\n', file=sys.stderr)\nsys.exit({code:d})"
    (process,) = supervised(tmp_path, script)
    assert (process.state, process.restarts, process.code) == (state, 0, code)
    assert process.last_words() == "because of rain"


def test_a_crashed_process_is_started_again(tmp_path: Path) -> None:
    crash_once = (
        "import os, pathlib\n"
        f"seen = pathlib.Path({str(tmp_path)!r}, 'seen')\n"
        "if not seen.exists():\n    seen.touch()\n    os.kill(os.getpid(), 9)"
    )
    (process,) = supervised(tmp_path, crash_once)
    assert (process.state, process.restarts) == ("done", 1)


def test_a_process_that_always_crashes_is_given_up(tmp_path: Path) -> None:
    good, bad = supervised(tmp_path, "", "raise SystemExit(1)", restarts=1)
    assert (good.state, bad.state, bad.restarts, bad.code) == ("done", "lost", 1, 1)


def test_a_process_that_was_never_ready_is_not_started_again(tmp_path: Path) -> None:
    never = job(tmp_path, "raise SystemExit(1)", ready=lambda launched: False)
    made = Supervisor([never])
    made.run()
    assert (made.processes[0].state, made.processes[0].restarts) == ("lost", 0)


def test_no_more_start_at_once_than_may(tmp_path: Path) -> None:
    """Each is ready when its file is there; the next is launched only then."""
    script = "import pathlib, time\ntime.sleep(0.1)\npathlib.Path({!r}).touch()\ntime.sleep(0.3)"
    jobs = [
        job(tmp_path, script.format(str(tmp_path / name)), name, ready=_there(tmp_path / name))
        for name in ("a", "b", "c")
    ]
    made, most = Supervisor(jobs, at_once=1), 0

    def watch() -> None:
        nonlocal most
        most = max(most, sum(one.state == "starting" for one in made.processes))

    made.run(watch, every_s=0.0)
    assert most == 1
    assert [one.state for one in made.processes] == ["done"] * 3


def _there(path: Path) -> Callable[[float], bool]:
    return lambda launched: path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all(number: signal.Signals, tmp_path: Path) -> None:
    jobs = [job(tmp_path, PATIENT, name) for name in ("a", "b", "c")]
    made = Supervisor(jobs, at_once=2)

    def watch() -> None:
        if [one.state for one in made.processes].count("running") >= 2 and not made.stopping:
            os.kill(os.getpid(), number)

    begun = time.monotonic()
    made.run(watch, every_s=0.3)
    assert [one.state for one in made.processes] == ["stopped"] * 3
    assert time.monotonic() - begun < 10


def test_a_frozen_process_stops_too(tmp_path: Path) -> None:
    made = Supervisor([job(tmp_path, PATIENT)])
    frozen = False

    def watch() -> None:
        nonlocal frozen
        if made.processes[0].state == "running" and not frozen:
            os.kill(made.processes[0].pid, signal.SIGSTOP)
            frozen = True
        elif frozen and not made.stopping:
            made.stop()

    made.run(watch, every_s=0.2)
    assert made.processes[0].state == "stopped"


def test_what_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    made = Supervisor([job(tmp_path, STUBBORN)], stop_within_s=0.2)

    def watch() -> None:
        if made.processes[0].last_words() == "up" and not made.stopping:
            made.stop()

    made.run(watch, every_s=0.1)
    assert (made.processes[0].state, made.processes[0].code) == ("stopped", -signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent")
def test_processes_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\nfrom joulemesh.deploy.local.supervisor import *\n"
        f"log = pathlib.Path({str(tmp_path)!r}, 'log')\n"
        "made = Supervisor([Job('a', [sys.executable, '-Sc', 'import time; time.sleep(60)'], log)])"
        "\nmade.run(lambda: print(made.processes[0].pid, flush=True), 0.1)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = next(int(line) for line in parent.stdout if int(line))
    time.sleep(0.3)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        stat = Path("/proc", str(process), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
