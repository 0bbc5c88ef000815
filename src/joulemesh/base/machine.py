"""What this machine lends to this process: CPUs and memory, on Linux, macOS and Windows
alike; and `Machine`, a description of what training runs on.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 2**60  # the older kind of control group writes a number near 2**63 for none
_OWN_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Machine:
    """What training runs on: where rows (devices × seeds) are placed, and how much runs at once.

    The engine reads the machine from this value only, so ``dataclasses.replace`` makes it follow
    the rules of another: those of an accelerator on a CPU, or of less memory.
    ``training.jax.platform.this_machine`` describes the machine at hand.

    Attributes:
        processors: of all processes, as the numerical library (JAX) has them.
        processes: how many processes share the work.
        loop: train rows one after another, each its own number of steps (CPU); otherwise all at
            once (accelerator).
        memory_bytes: what training may take on one of the processors.
        start: ``"own"`` stores every device's parameters; ``"shared"`` and ``"factored"`` store one
            set for each seed, where all devices take the exact mean; ``"auto"`` chooses.
        many_rows: rows from which on a factored input layer pays: with fewer, an accelerator waits
            for the many small operations.
        block_bytes: bytes of samples (factored) or of parameters that one block may hold.
        stacked_share: share of the memory that all devices' parameters may take.
        working_share: share of the memory that all that one step writes may take: of that, a tenth
            or less is there at once.
        chunk_rounds: rounds (iterations × devices) that the schedule of one chunk may hold.
        segments_per_call: segments in one call on an accelerator, where a call of any other number
            would compile again.
    """

    processors: tuple[Any, ...]
    processes: int
    loop: bool
    memory_bytes: int
    start: Literal["auto", "own", "shared", "factored"] = "auto"
    many_rows: int = 20
    block_bytes: int = 2**29
    stacked_share: float = 0.25
    working_share: float = 1.0
    chunk_rounds: int = 2**18
    segments_per_call: int = 8


def cpus() -> int:
    """CPUs that this process may use.

    Its affinity counts (``taskset``, Slurm), and the CPU quota of its control group, rounded up
    (``docker run --cpus 1.5`` gives 2); systems without either count all processors.
    """
    return max(1, min(_allowed(), _quota()))


def _allowed() -> int:
    """CPUs on which the system may run this process."""
    if sys.version_info >= (3, 13):
        return os.process_cpu_count() or 1  # heeds PYTHON_CPU_COUNT too
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota() -> int:
    """CPUs' worth of time that the control groups allow, rounded up; no limit is a large number."""
    quotas = [*_quotas_of_version_2(), *_quotas_of_version_1()]
    return min((math.ceil(quota / period) for quota, period in quotas), default=sys.maxsize)


def _quotas_of_version_2() -> list[tuple[int, int]]:
    """Quota and period of this process's control group and of all that it lies in."""
    found = [" ".join(_lines(folder / "cpu.max")).split() for folder in _own_groups()]
    return [(int(pair[0]), int(pair[1])) for pair in found if len(pair) == 2 and pair[0] != "max"]


def _own_groups() -> list[Path]:
    """Folders of this process's control group and of all that it lies in."""
    own = next((line[3:] for line in _lines(_OWN_CGROUP) if line.startswith("0::")), "/")
    here = _CGROUPS / own.strip("/")
    return [folder for folder in (here, *here.parents) if folder.is_relative_to(_CGROUPS)]


def _quotas_of_version_1() -> list[tuple[int, int]]:
    """The same of the older kind, as a container sees it: -1 means no limit."""
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    figures = [int(line) for name in names for line in _lines(_CGROUPS / "cpu" / name)]
    return [(figures[0], figures[1])] if len(figures) == 2 and figures[0] > 0 else []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, ValueError):  # no such file on this system, or not for us
        return []


def memory_bytes() -> int:
    """Bytes of memory that this process may use: the machine's, or less by its control group
    or its resource limits.

    A number larger than any where the system does not tell.
    """
    return min(_installed_bytes(), _memory_quota(), _resource_limit())


def _resource_limit() -> int:
    """Bytes that the limits of this process allow (``ulimit -v``); none is a large number."""
    try:
        import resource
    except ImportError:  # not on Windows
        return sys.maxsize
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((figure for figure in limits if 0 <= figure < _NO_LIMIT), default=sys.maxsize)


def _memory_quota() -> int:
    """Bytes that the control groups allow; no limit is a large number."""
    limits = [line for folder in _own_groups() for line in _lines(folder / "memory.max")]
    limits += _lines(_CGROUPS / "memory" / "memory.limit_in_bytes")
    figures = [int(line) for line in limits if line.isdecimal()]
    return min((figure for figure in figures if figure < _NO_LIMIT), default=sys.maxsize)


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("physical", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )


def _installed_bytes() -> int:
    if sys.platform == "win32":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.physical) if known else sys.maxsize
    with suppress(OSError, ValueError):  # a system that does not know these names
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and size > 0:
            return pages * size
    with suppress(OSError, ValueError, subprocess.SubprocessError):  # macOS, BSD
        asked = ["sysctl", "-n", "hw.memsize"]
        return int(subprocess.run(asked, capture_output=True, check=True, timeout=10).stdout)
    return sys.maxsize


def trim_memory() -> None:
    """Return to the system what was freed: the C library keeps it, in an arena for each thread.

    Where the library cannot be told so, nothing happens.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


def collect_memory() -> None:
    """Free what nothing refers to any more, and return it to the system."""
    gc.collect()
    trim_memory()
