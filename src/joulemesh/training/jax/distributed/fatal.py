"""What JAX's C++ runtime prints before it ends a process, read by the process that watches it."""

from __future__ import annotations

__all__ = ["details", "lost", "lost_processes"]

import re
from collections.abc import Sequence

# How absl begins the line of a fatal error.
_FATAL = re.compile(rb"^F\d{4} ", re.MULTILINE)
_OF_THE_GROUP = re.compile(rb"JAX distributed service|coordination.?service", re.IGNORECASE)
_SILENT = re.compile(rb"stopped sending heartbeats\):\n((?:\S*\d\n)+)")
# Process 0 holds the service that all others talk to.
_NO_LEADER = re.compile(
    rb"Failed to send RPC to coordination service|CoordinationService/Heartbeat"
)
_CONNECTED = re.compile(rb"^\[Gloo\] Rank \d+ is connected.*\n?", re.MULTILINE)


def lost_processes(printed: bytes) -> tuple[int, ...] | None:
    """Which processes the runtime could not reach when it ended this one."""
    begun = _FATAL.search(printed)
    said = printed[begun.start() :] if begun else b""
    if not _OF_THE_GROUP.search(said):
        return None
    silent = _SILENT.search(said)
    if silent:
        return tuple(int(number) for number in re.findall(rb"(\d+)\n", silent[1]))
    return (0,) if _NO_LEADER.search(said) else ()


def details(printed: bytes, most: int = 4000) -> bytes:
    """The end of what the runtime has written, without its remarks about connections."""
    return _CONNECTED.sub(b"", printed)[-most:]


def lost(numbers: Sequence[int]) -> str:
    """What happened to processes, in words."""
    if not numbers:
        return "another process of this run was lost or has ended"
    if len(numbers) == 1:
        return f"process {numbers[0]} of this run was lost or has ended"
    *most, last = map(str, numbers)
    return f"processes {', '.join(most)} and {last} of this run were lost or have ended"
