"""Processes of one machine that stand for devices: started, watched, started again and stopped.

A process says by its exit code how it ended (`Exit`); one that crashed is started again, a few
times, unless it has never been ready. All end with the supervisor: when it is asked to stop, and,
on Linux, also when it is killed.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Literal, TypeAlias

from joulemesh.base.machine import cpus

State = Literal[
    "to start", "starting", "running", "done", "stopped", "refused", "ended", "lost", "away"
]

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE_S = 0.5  # before a process is started again; twice as long each time
_START_S = 60.0  # a process that is not ready by then no longer keeps others from starting
_LOOK_S = 0.05
_LAST_WORDS_BYTES = 4096
_MODULE = "joulemesh"
COMMAND = [sys.executable, "-m", _MODULE]

# Asks the kernel for a signal when the parent ends, and becomes the command itself.
_FOLLOW = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


class Exit(IntEnum):
    """What a node's exit code means."""

    DONE = 0  # the plan was carried out
    FAILED = 1  # by a defect; everything is saved
    REFUSED = 2  # the user must change something first
    ENDED = 3  # it cannot go on at present; everything is saved
    INTERRUPTED = 130  # Ctrl-C; everything is saved
    TERMINATED = 143  # SIGTERM; everything is saved


_STATES: Mapping[int, State] = {
    Exit.DONE: "done",
    Exit.REFUSED: "refused",
    Exit.ENDED: "ended",
    Exit.INTERRUPTED: "stopped",
    Exit.TERMINATED: "stopped",
}


@dataclass(frozen=True)
class Job:
    """What is run for one device."""

    name: str
    command: Sequence[str]
    log: Path  # file to which its output is appended
    # variables that it has besides this process's own
    environment: Mapping[str, str] = field(default_factory=dict)
    # has it started, so that others may? Asked with the time at which it was launched, in seconds
    # since the epoch
    ready: Callable[[float], bool] = lambda launched: True


Child: TypeAlias = "subprocess.Popen[bytes] | Forked"


@dataclass
class Process:
    """A job and how it stands."""

    job: Job
    # how it stands; ``"lost"`` means that it crashed once too often, ``"away"`` that it was stopped
    # to be started again later
    state: State = "to start"
    restarts: int = 0  # how often it was started again after a crash
    pid: int = 0  # of the running process; 0 if there is none
    code: int | None = None  # the last exit code; negative for a signal
    launched: float = 0.0  # when it was last launched, in seconds since the epoch
    known: bool = False  # has it ever been seen ready?

    def ready(self) -> bool:
        found = self.job.ready(self.launched)
        self.known |= found
        return found

    @property
    def over(self) -> bool:
        return self.state not in ("to start", "starting", "running")

    def last_words(self) -> str:
        with suppress(OSError), self.job.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            lines = log.read(_LAST_WORDS_BYTES).decode("utf-8", "replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""


class Supervisor:
    """Runs jobs as processes until all have ended."""

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        restarts: int = 5,
        at_once: int | None = None,
        stop_within_s: float = 30.0,
        start: Callable[[Job], Child] | None = None,
        expects: Callable[[], bool] = lambda: False,
    ) -> None:
        self.processes = [Process(job) for job in jobs]
        self.expects = expects
        self._away: set[int] = set()  # positions of those that are to be away
        self._restarts = restarts
        self._at_once = at_once or cpus() + 1
        self._stop_within_s, self.start = stop_within_s, start or spawned
        self._kill_at = math.inf
        self._children: dict[int, Child] = {}  # by position
        self._next: dict[int, float] = {}  # when a crashed one is started again

    def run(self, watch: Callable[[], None] = lambda: None, every_s: float = 0.5) -> None:
        # ``SIGINT`` and ``SIGTERM`` stop all processes; a second one kills them.
        before = {number: signal.signal(number, self._asked) for number in _STOPPING}
        try:
            looked = -math.inf
            while not all(process.over for process in self.processes) or self._waits:
                self._look()
                if time.monotonic() > self._kill_at:
                    self._signal_all(signal.SIGKILL)
                if time.monotonic() >= looked + every_s:
                    watch()
                    looked = time.monotonic()
                time.sleep(_LOOK_S)
            watch()
        finally:
            self._kill_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def _waits(self) -> bool:
        return self.expects() and not self.stopping

    def send_away(self, position: int) -> None:
        """Stop a process, to be started again by `bring_back`; one that has ended stays so."""
        process = self.processes[position]
        if process.over or position in self._away:
            return
        self._away.add(position)
        child = self._children.get(position)
        if child is None:
            process.state = "away"
        else:
            child.send_signal(signal.SIGTERM)

    def bring_back(self, position: int) -> None:
        """Start a process again that was sent away, once it has stopped."""
        process = self.processes[position]
        if process.state == "away":
            self._away.discard(position)
            process.state = "to start"

    def stop(self) -> None:
        self._signal_all(signal.SIGKILL if self.stopping else signal.SIGTERM)
        self._kill_at = min(self._kill_at, time.monotonic() + self._stop_within_s)

    @property
    def stopping(self) -> bool:
        return self._kill_at < math.inf

    def _asked(self, number: int, frame: FrameType | None) -> None:
        self.stop()

    def _look(self) -> None:
        """See what has ended and what is ready; start what may start."""
        for position, process in enumerate(self.processes):
            child = self._children.get(position)
            if child is not None and (code := child.poll()) is not None:
                del self._children[position]
                self._ended(position, code)
            elif process.state == "starting" and (
                process.ready() or time.time() > process.launched + _START_S
            ):
                process.state = "running"
        starting = sum(process.state == "starting" for process in self.processes)
        for position, process in enumerate(self.processes):
            if process.state != "to start":
                continue
            if self.stopping:
                process.state = "stopped"
            elif starting < self._at_once and time.monotonic() >= self._next.get(position, 0.0):
                self._launch(position)
                starting += 1

    def _launch(self, position: int) -> None:
        process = self.processes[position]
        job = process.job
        process.launched, process.state = time.time(), "starting"
        job.log.parent.mkdir(parents=True, exist_ok=True)
        child = self._children[position] = self.start(job)
        process.pid = child.pid

    def _ended(self, position: int, code: int) -> None:
        process = self.processes[position]
        process.pid, process.code = 0, code
        if code in _STATES and not (code == Exit.TERMINATED and position in self._away):
            process.state = _STATES[code]
        elif position in self._away and not self.stopping:
            process.state = "away"
        elif self.stopping:
            process.state = "stopped"
        elif process.restarts >= self._restarts or not (process.ready() or process.known):
            process.state = "lost"  # what has never been ready will not be
        else:
            self._next[position] = time.monotonic() + _PAUSE_S * 2**process.restarts
            process.restarts += 1
            process.state = "to start"

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children.values():
            child.send_signal(number)  # not to one that was waited for: its number may be another's
            child.send_signal(signal.SIGCONT)

    def _kill_all(self) -> None:
        for child in self._children.values():
            child.kill()
            child.wait()


def spawned(job: Job) -> Child:
    command = list(job.command)
    if sys.platform == "linux":  # a command that ends with this process
        command = [sys.executable, "-ISc", _FOLLOW, str(os.getpid()), *command]
    with job.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **job.environment},
            start_new_session=True,  # Ctrl-C comes through the supervisor, once
        )


# Importing everything takes a node longer than starting in every other respect, and twenty nodes on
# two cores would do it twenty times. A fork server does it once; it has one thread, so that nothing
# of JAX has begun before a node begins it.


def fork_server(
    environment: Mapping[str, str], modules: Sequence[str]
) -> Callable[[Job], Child] | None:
    """What starts jobs by forking a process that has imported modules; None on other systems."""
    if sys.platform != "linux":
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    before = dict(os.environ)
    os.environ.update(environment)  # for what the modules read when they are imported
    try:
        ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)

    def start(job: Job) -> Child:
        if list(job.command[: len(COMMAND)]) != COMMAND:
            return spawned(job)
        arguments = list(job.command[len(COMMAND) :])
        process = context.Process(
            target=_become_node,
            args=(arguments, job.log, {**os.environ, **job.environment}, os.getcwd()),
        )
        process.start()
        return Forked(process)

    return start


def _become_node(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: str
) -> None:
    """Do what ``python -m joulemesh`` does, with a session and an output of its own."""
    os.setsid()
    threading.Thread(target=_end_with_supervisor, daemon=True).start()
    with log.open("ab") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [_MODULE, *arguments]
    runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)


def _end_with_supervisor() -> None:
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


class Forked:
    """A node of the fork server, as `subprocess.Popen` would show it."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int | None:
        self._process.join()
        return self._process.exitcode
