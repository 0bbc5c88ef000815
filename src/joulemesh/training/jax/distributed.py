"""Several processes: each is watched by another; how they join, and leave.

When a process of a run is lost, JAX ends the others at once, from threads that no Python code can
reach. So the work is done by a child; the parent passes signals on, waits, and says what happened.
Whichever of them notices a loss first, the parent alone speaks of it, once and last.
"""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, Any, Self, TextIO

from joulemesh.base.errors import ScenarioError, printable

_MOST_SECONDS = 86_400
_MOST_BYTES = 65_536
# With the value NONE, the gRPC within JAX silences fatal errors too, of all of JAX's C++.
_VERBOSITY = "GRPC_VERBOSITY"
_ALARMS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Group:
    """Which processes make a run together."""

    # HOST:PORT of process 0; None leaves all to what started the job
    coordinator: str | None = None
    processes: int | None = None  # how many
    process_id: int | None = None  # which of them this is, from 0
    timeout_s: int = 300  # how long to wait for the others

    @classmethod
    def asked(
        cls,
        hosts: str | None,
        coordinator: str | None,
        processes: int | None,
        process_id: int | None,
        timeout_s: int = 300,
    ) -> Self | None:
        by_hand = {"--coordinator": coordinator, "--processes": processes}
        by_hand["--process-id"] = process_id
        given = [name for name, value in by_hand.items() if value is not None]
        if not 1 <= timeout_s <= _MOST_SECONDS:
            raise ScenarioError(
                f"--join-timeout {timeout_s} is out of range: use 1 to {_MOST_SECONDS} seconds"
            )
        if hosts is not None:
            if hosts != "auto":
                raise ScenarioError(f"--hosts {hosts} is unknown: write --hosts auto")
            if given:
                raise ScenarioError(f"--hosts auto finds {given[0]} by itself: leave one of them")
            return cls(timeout_s=timeout_s)
        if not given:
            return None
        missing = [name for name, value in by_hand.items() if value is None]
        if missing:
            raise ScenarioError(f"{given[0]} needs {' and '.join(missing)} too: add them")
        assert coordinator is not None
        assert processes is not None
        assert process_id is not None
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16:
            raise ScenarioError(f"--coordinator {coordinator} is not an address: write HOST:PORT")
        if processes < 1:
            raise ScenarioError(f"--processes {processes} is out of range: use 1 or more")
        if not 0 <= process_id < processes:
            raise ScenarioError(
                f"--process-id {process_id} is out of range: use 0 to {processes - 1} "
                f"(--processes {processes})"
            )
        return None if processes == 1 else cls(coordinator, processes, process_id, timeout_s)

    def others(self) -> tuple[int, ...]:
        """The number of the other process, if there is one other."""
        return (1 - self.process_id,) if self.processes == 2 and self.process_id is not None else ()

    def absent(self) -> str:
        if self.coordinator is None:
            return f"the processes of this job did not meet within {self.timeout_s} s: see why"
        return (
            f"the {self.processes} processes did not meet at {self.coordinator} within "
            f"{self.timeout_s} s: start all of --process-id 0 to {(self.processes or 1) - 1}"
        )


class Supervised:
    """The child's side."""

    def __init__(self, report: int) -> None:
        self._report = report

    def joined(self) -> None:
        os.write(self._report, b"j")

    def leave(self, code: int, words: str = "") -> None:
        """Say how this ends; what happens to the process afterwards does not matter."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os.write(self._report, bytes([code]) + words.encode(errors="replace") + b"\0")


def supervise(group: Group, resume: str) -> Supervised:
    """Split into a parent, which never returns, and a child, which does.

    Call it before any thread has started, and before JAX is imported.
    """
    if not hasattr(os, "fork"):
        raise ScenarioError(
            "several processes need a system that can split one, which Windows cannot: run one "
            "process, or all of them on Linux (WSL)"
        )
    report_in, report_out = os.pipe()
    alive_in, alive_out = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
    child = os.fork()
    if child:
        os.close(report_out)
        os.close(alive_in)
        os._exit(_attend(child, report_in, log, group, resume))
    os.close(report_in)
    os.close(alive_out)
    if os.environ.get(_VERBOSITY, "").upper() == "NONE":
        del os.environ[_VERBOSITY]  # the parent reads in the log why JAX ended the child
    _set_aside(log)
    threading.Thread(target=_mourn, args=(alive_in,), daemon=True).start()
    return Supervised(report_out)


def _set_aside(log: IO[bytes]) -> None:
    """Give what C++ prints (connections, fatal errors) a place of its own, off the console."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: TextIO = getattr(sys, name)
        stream.flush()
        own = os.fdopen(os.dup(number), "w", 1, encoding=stream.encoding, errors=stream.errors)
        setattr(sys, name, own)
        os.dup2(log.fileno(), number)


def _mourn(alive: int) -> None:
    """Exit when the parent dies: killing the parent is meant to stop the child too."""
    os.read(alive, 1)
    os._exit(1)


def _attend(child: int, report: int, log: IO[bytes], group: Group, resume: str) -> int:
    """Wait for the child, passing signals on; its exit code, or what stands for it."""

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _ALARMS:
        signal.signal(number, pass_on)
    begun = time.monotonic()
    _, status = os.waitpid(child, 0)
    waited_s = time.monotonic() - begun
    code = os.waitstatus_to_exitcode(status)
    said = os.read(report, _MOST_BYTES)
    joined, last = said[:1] == b"j", said.removeprefix(b"j")
    if last:
        if words := last[1:].partition(b"\0")[0].decode():
            _say(words)
        return last[0]
    if code >= 0:
        return code
    if -code in _ALARMS:
        return 128 - code
    log.seek(0)
    end = _Killed(signal.Signals(-code), log.read(), None if joined else waited_s)
    return _explain(end, group, resume)


# How JAX's C++ runtime names what connects processes, in all that it prints before it ends one.
_OF_THE_GROUP = (b"distributed service", b"coordination")
_CONNECTED = re.compile(rb"^\[Gloo\] Rank \d+ is connected.*\n?", re.MULTILINE)


def lost(numbers: Sequence[int]) -> str:
    """What happened to the other process, in words; its number where there is one other."""
    which = f"process {numbers[0]}" if numbers else "another process"
    return f"{which} of this run was lost or has ended"


@dataclass(frozen=True)
class _Killed:
    """How a child ended that a signal killed."""

    by: signal.Signals  # which signal
    printed: bytes  # what C++ had written
    alone_s: float | None  # how long it had waited for the others; None if all had met


def _explain(end: _Killed, group: Group, resume: str) -> int:
    """Say why a child was killed, and return the exit code for that."""
    crash = _CONNECTED.sub(b"", end.printed)[-4000:]
    by_group = any(word in crash.lower() for word in _OF_THE_GROUP)
    aborted = end.by == signal.SIGABRT and (by_group or not crash)
    if aborted and end.alone_s is not None and end.alone_s >= group.timeout_s:
        _say(group.absent())
        return 2
    if not (aborted and by_group):
        sys.stderr.buffer.write(b"" if end.by == signal.SIGKILL else crash)
        _say(f"this process was ended by {end.by.name}; {resume}")
        return 1
    words = lost(group.others())
    if end.alone_s is not None:
        _say(f"{words} before all had met: see what it says, and start all of them again")
        return 2
    _say(f"{words}; {resume}")
    return 1


def _say(words: str) -> None:
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    print(f"{show_cursor}error: {printable(words)}", file=sys.stderr, flush=True)


# A process that says nothing for so long is lost (JAX then ends the others).
_HEARTBEAT_S = 40
# How long one that leaves waits for the others to leave as well.
_FAREWELL_S = 10
# Process 0 is gone if its port, once open, is closed so many times in a row, looked at so often.
_LOOK_EVERY_S, _MISSES = 1.0, 4


def start(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout_s: int = 300,
    on_lost: Callable[[str], object] | None = None,
) -> None:
    """Join the other processes of a run; call it before JAX has computed anything."""
    import jax

    from joulemesh.training import hosts
    from joulemesh.training.jax import platform

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Programs must run in the same order everywhere, and signals are ours.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    jax.config.update("jax_enable_preemption_service", False)
    given: dict[str, Any] = {}
    if coordinator is not None:
        given = {
            "coordinator_address": coordinator,
            "num_processes": processes,
            "process_id": process_id,
            "cluster_detection_method": "deactivate",
            "coordinator_bind_address": coordinator if _loopback(coordinator) else None,
        }
        if process_id:
            _await_port(coordinator, timeout_s)
    watching: AbstractContextManager[None] = nullcontext()
    if coordinator is not None and process_id and on_lost is not None:
        watching = _watching(coordinator, on_lost)
    try:
        with watching:
            jax.distributed.initialize(
                **given,
                initialization_timeout=timeout_s,
                heartbeat_timeout_seconds=_HEARTBEAT_S,
                shutdown_timeout_seconds=_FAREWELL_S,
            )
    except (ValueError, RuntimeError) as error:
        raise _refused(coordinator, error) from error
    platform.configure()
    # Connections are made in the first collective, which waits for half a minute only.
    hosts.any_of(False)
    if processes is not None:
        # JAX lets a process in that was told of more: it takes the number of process 0.
        hosts.same(f"{processes:>12}", f"--processes (here {processes})")


def _refused(coordinator: str | None, error: Exception) -> ScenarioError:
    reason = " ".join(str(error).split())[:200].rstrip(".")
    if coordinator is not None:
        return ScenarioError(
            f"cannot join the processes at {coordinator}: {reason}; choose another port, and give "
            "every process the same --coordinator and --processes and its own --process-id"
        )
    return ScenarioError(
        f"--hosts auto finds no job of Slurm, Kubernetes or Open MPI here ({reason}): start it "
        "with srun or mpirun, or give --coordinator HOST:PORT --processes P --process-id I"
    )


def _loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def _await_port(address: str, timeout_s: float) -> None:
    """Wait until something listens there; JAX would end the process without a word of ours."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            _knock(address)
        except OSError as error:
            if time.monotonic() > end:
                raise ScenarioError(
                    f"no coordinator at {address} after {timeout_s:g} s "
                    f"({error.strerror or error}): start process 0 there, or mend --coordinator"
                ) from None
            time.sleep(0.2)
        else:
            return


def _knock(address: str) -> None:
    """Connect, and leave; OSError if nothing listens there."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()


@contextmanager
def _watching(address: str, on_lost: Callable[[str], object]) -> Iterator[None]:
    """Look at a port that was open, again and again; say so once if it stays closed."""
    met = threading.Event()

    def watch() -> None:
        missed = 0
        while missed < _MISSES:
            if met.wait(_LOOK_EVERY_S):
                return
            try:
                _knock(address)
                missed = 0
            except OSError:
                missed += 1
        on_lost(
            f"process 0 at {address} has ended before all processes met: see what it says, and "
            "start all of them again"
        )

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        met.set()


def stop() -> None:
    """Leave the others, if they leave as well."""
    import jax

    with suppress(Exception):  # they may be gone already
        jax.distributed.shutdown()
