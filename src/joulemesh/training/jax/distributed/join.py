"""Joining the processes of a run, and leaving them (see ``hosts``, which needs nothing of this)."""

from __future__ import annotations

__all__ = ["start", "stop"]

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import jax

from joulemesh.base.errors import ScenarioError
from joulemesh.training import hosts
from joulemesh.training.jax import platform

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
    with suppress(Exception):  # they may be gone already
        jax.distributed.shutdown()
