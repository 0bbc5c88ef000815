"""A process that has imported what nodes need, and becomes a node as often as it is asked to.

Importing everything takes a node longer than starting in every other respect, and twenty nodes on
two cores would do it twenty times. The template does it once, then forks: each node is a process of
its own as any other, with its own memory, session and log, that may be killed as any other. It
forks only while it has one thread, so nothing of JAX has begun before a node begins it.

The supervisor asks over a pair of sockets, and hears how nodes end. Where the supervisor goes, the
template goes, and with it the nodes.
"""

from __future__ import annotations

__all__ = ["NODE", "SIMULATED", "Forked", "Template"]

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from joulemesh.deploy.local.supervisor import Child, Job, following

_MODULE = "joulemesh"
_COMMAND = [sys.executable, "-m", _MODULE]
_MOST = 2**16  # bytes of a message
_PDEATHSIG = 1
_FAILED = 1

NODE = (
    "joulemesh.cli",
    "joulemesh.deploy.device.device",
    "joulemesh.deploy.operator.control",
    "joulemesh.deploy.transport.tcp",
)
"""What every node imports."""

SIMULATED = (*NODE, "joulemesh.deploy.device.simulated")
"""What a node imports that trains the scenario's own model."""


class Forked:
    """A node that a template has become; see `supervisor.Child`."""

    def __init__(self, template: Template, pid: int) -> None:
        self.pid, self._template = pid, template
        self.returncode: int | None = None
        self._settled = False

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs.

        Until it has been told, the process's number is nobody else's.
        """
        self._template.hear()
        self._settle()
        return self.returncode

    def _settle(self) -> None:
        if self.returncode is not None and not self._settled:
            self._settled = True
            self._template.settle(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended; the template knows for sure."""
        self._template.signal(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it has ended."""
        while self.returncode is None:
            self._template.hear(wait=True)
        self._settle()
        return self.returncode


class Template:
    """Starts nodes by forking; use it in a ``with`` statement.

    Args:
        environment: variables that nodes have besides this process's own.
        modules: what is imported before the first node begins.
    """

    def __init__(self, environment: Mapping[str, str], modules: Sequence[str] = SIMULATED) -> None:
        self._environment, self._modules = dict(environment), modules
        self._process: subprocess.Popen[bytes] | None = None
        self._children: dict[int, Forked] = {}

    @staticmethod
    def can() -> bool:
        """Does this system fork, and tell processes of their parent's end?"""
        return sys.platform == "linux" and hasattr(os, "fork")

    def __enter__(self) -> Template:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", __name__, str(theirs.fileno()), *self._modules]
        with theirs:
            self._process = subprocess.Popen(
                following(command),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **self._environment},
                start_new_session=True,  # Ctrl-C comes through the supervisor, once
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if self._process is not None:
            self._process.wait()

    @staticmethod
    def fits(job: Job) -> bool:
        """Is this job what a template can become: Joulemesh, by the same Python?"""
        return list(job.command[: len(_COMMAND)]) == _COMMAND

    def starts(self, job: Job) -> bool:
        """Can it start this job: a node with the environment that it has?"""
        return self.fits(job) and dict(job.environment) == self._environment and self._alive

    @property
    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, job: Job) -> Child | None:
        """Start a node; None if the template cannot, for whatever reason."""
        arguments = list(job.command[len(_COMMAND) :])
        try:
            with job.log.open("ab") as log:
                said = json.dumps({"run": arguments}).encode()
                socket.send_fds(self._socket, [said], [log.fileno()])
            while "run" not in (answer := self._next()):
                self._heed(answer)
        except OSError:
            return None
        if not answer["run"]:
            return None
        child = self._children[answer["run"]] = Forked(self, answer["run"])
        return child

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a node that has not ended."""
        with suppress(OSError):
            self._socket.send(json.dumps({"signal": [pid, int(number)]}).encode())

    def settle(self, pid: int) -> None:
        """It is known how a node ended: its number may be used again."""
        with suppress(OSError):
            self._socket.send(json.dumps({"settle": pid}).encode())

    def hear(self, wait: bool = False) -> None:
        """Take in how nodes have ended."""
        with suppress(OSError):
            while self._children and (wait or select.select([self._socket], [], [], 0)[0]):
                self._heed(self._next())
                wait = False

    def _next(self) -> dict[str, Any]:
        """What the template says next; if it has gone, its nodes have, too."""
        said = self._socket.recv(_MOST)
        if not said:
            for child in self._children.values():
                child.returncode = -signal.SIGTERM
            self._children.clear()
            raise ConnectionResetError("the template has ended")
        found: dict[str, Any] = json.loads(said)
        return found

    def _heed(self, answer: Mapping[str, Any]) -> None:
        if "ended" in answer:
            pid, code = answer["ended"]
            self._children.pop(pid).returncode = code


# In the template ----------------------------------------------------------------------------------


def serve(ours: socket.socket) -> None:
    """Become nodes, pass on signals, and tell how nodes end, until the supervisor has gone."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    running, told = set[int](), set[int]()
    while True:
        ready, _, _ = select.select([ours.fileno(), reads], [], [])
        if reads in ready:
            os.read(reads, _MOST)
        told |= _ended(running - told, ours)
        if ours.fileno() not in ready:
            continue
        said, logs, _, _ = socket.recv_fds(ours, _MOST, 1)
        if not said:
            return
        asked = json.loads(said)
        if "signal" in asked:
            pid, number = asked["signal"]
            if pid in running:  # it is not reaped, so the number is nobody else's
                os.kill(pid, number)
            continue
        if "settle" in asked:
            os.waitpid(asked["settle"], 0)
            running.discard(asked["settle"])
            told.discard(asked["settle"])
            continue
        pid = _forked(asked["run"], logs[0], ours)
        os.close(logs[0])
        running |= {pid} if pid else set()
        ours.send(json.dumps({"run": pid}).encode())


def _ended(running: set[int], ours: socket.socket) -> set[int]:
    """Tell of the nodes that have ended, and give their numbers, which they keep as yet."""
    found = set()
    for pid in running:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            found.add(pid)
            by_itself = ended.si_code == os.CLD_EXITED
            code = ended.si_status if by_itself else -ended.si_status
            ours.send(json.dumps({"ended": [pid, code]}).encode())
    return found


def _forked(arguments: Sequence[str], log: int, ours: socket.socket) -> int:
    """The number of a new node; 0 if something that was imported has started a thread."""
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        return 0
    template = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = _FAILED
    try:
        ours.close()
        _settle(log, template)
        code = _run(arguments)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)  # taking down JAX and what was imported takes longer than being done


def _settle(log: int, template: int) -> None:
    """Become a process as a supervisor starts it: session, output, signals."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != template:
        os._exit(_FAILED)
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)


def _run(arguments: Sequence[str]) -> int:
    """What ``python -m joulemesh`` does with such arguments, and the exit code."""
    sys.argv = [_MODULE, *arguments]
    try:
        runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return _FAILED
    except BaseException:
        traceback.print_exc()
        return _FAILED
    return 0


def main() -> None:
    """Import, and serve: ``FD MODULE ...``."""
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        for name in sys.argv[2:]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # nodes need not look through all of it again and again
        serve(ours)


if __name__ == "__main__":
    main()
