"""Joining the processes of a run, and leaving them (see ``hosts``, which needs nothing of this)."""

from __future__ import annotations

__all__ = ["start", "stop"]

import ipaddress
import socket
import time
from contextlib import suppress
from typing import Any

import jax

from joulemesh.errors import ScenarioError
from joulemesh.training import hosts, platform

# A process that says nothing for so long is lost (JAX then ends the others).
_HEARTBEAT_S = 40
# How long one that leaves waits for the others to leave as well.
_FAREWELL_S = 10


def start(
    coordinator: str | None = None,
    processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout_s: int = 300,
) -> None:
    """Join the other processes of a run; call it before JAX has computed anything.

    Args:
        coordinator: HOST:PORT of process 0; found from Slurm, Kubernetes or Open MPI unless given.
        processes: how many there are.
        process_id: which of them this is, from 0.
        timeout_s: how long to wait for the others.

    Raises:
        ScenarioError: there is no cluster, or the coordinator cannot be reached.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    # Programs must run in the same order everywhere, and signals are ours.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
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
    try:
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
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            if time.monotonic() > end:
                raise ScenarioError(
                    f"no coordinator at {address} after {timeout_s:g} s "
                    f"({error.strerror or error}): start process 0 there, or mend --coordinator"
                ) from None
            time.sleep(0.2)
        else:
            return


def stop() -> None:
    """Leave the others, if they leave as well."""
    with suppress(Exception):  # they may be gone already
        jax.distributed.shutdown()  # type: ignore[no-untyped-call]
