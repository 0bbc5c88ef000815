"""CPUs and memory of this process; the commands on a system that lacks what only Linux has."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from joulemesh.base import machine

# Names of `os` that Linux has and macOS lacks.
LINUX_ONLY = (
    "sched_getaffinity sched_setaffinity sched_yield process_cpu_count fdatasync posix_fadvise "
    "posix_fallocate memfd_create eventfd getrandom pidfd_open copy_file_range splice setns "
    "unshare getresuid getresgid O_DIRECT O_TMPFILE O_PATH SCHED_OTHER"
)

ELSEWHERE = f"""
import ctypes, os, pathlib, sys
for name in {LINUX_ONLY.split()!r}:
    if hasattr(os, name):
        delattr(os, name)
sysconf = os.sysconf
def strange(name):
    if name == "SC_PHYS_PAGES":
        raise ValueError("unrecognized configuration name")
    return sysconf(name)
os.sysconf = strange
class Library:  # a C library that is not glibc
    def __init__(self, name, *rest, **options):
        if name is not None:
            raise OSError(name)
    def __getattr__(self, name):
        raise AttributeError(name)
from joulemesh.base import machine
machine._CGROUPS = machine._OWN_CGROUP = pathlib.Path("/nowhere")
import jax
ctypes.CDLL = Library
from joulemesh.cli.main import main
for words in (["plan"], ["doctor"], ["run", "--out", "made"],
              ["compare", "--methods", "adaptive,fixed:1", "--seeds", "1", "--cache", "kept"]):
    small = ["--set=plan.iterations=2", "--set=devices.count=4", "--set=training.model=logistic"]
    sys.argv = ["joulemesh", *words, *([] if words[0] == "doctor" else small)]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
print("CPUS", machine.cpus())
"""


@pytest.mark.slow
def test_commands_work_where_only_posix_is_there(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "all is well" in done.stdout
    assert (tmp_path / "made" / "report.html").is_file()
    assert done.stdout.split()[-2:] == ["CPUS", str(os.cpu_count())]


def _groups(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """Control groups as they would be; ``__`` stands for a slash."""
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    monkeypatch.setattr(machine, "_CGROUPS", folder)
    monkeypatch.setattr(machine, "_OWN_CGROUP", folder / "own")
    monkeypatch.setattr(machine, "_allowed", lambda: 8)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 8),
        ({"own": "0::/\n", "cpu.max": "max 100000\n"}, 8),
        ({"own": "0::/\n", "cpu.max": "150000 100000\n"}, 2),
        ({"own": "0::/\n", "cpu.max": "1000 100000\n"}, 1),
        ({"own": "0::/\n", "cpu.max": "9900000 100000\n"}, 8),
        # The tightest of the groups that this one lies in counts.
        ({"own": "0::/a/b\n", "a__cpu.max": "300000 100000\n", "a__b__cpu.max": "max 100000"}, 3),
        ({"own": "0::/a/b\n", "a__cpu.max": "max 100000\n", "a__b__cpu.max": "400000 100000"}, 4),
        # The older kind.
        ({"cpu__cpu.cfs_quota_us": "-1\n", "cpu__cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu__cpu.cfs_quota_us": "250000\n", "cpu__cpu.cfs_period_us": "100000\n"}, 3),
        ({"own": "0::/../elsewhere\n", "cpu.max": "nonsense\n"}, 8),
    ],
)
def test_a_quota_of_the_control_group_is_respected(
    files: dict[str, str], wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _groups(tmp_path, monkeypatch, **files)
    assert machine.cpus() == wanted


def test_affinity_is_respected() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    one = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
    code = f"{one} from joulemesh.base.machine import cpus; print(cpus())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"]


def test_memory_is_what_the_control_group_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "sys" / "job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("123456789\n")
    (tmp_path / "sys" / "memory.max").write_text("max\n")
    (tmp_path / "cgroup").write_text("0::/job\n")
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path / "sys")
    monkeypatch.setattr(machine, "_OWN_CGROUP", tmp_path / "cgroup")
    assert machine.memory_bytes() == 123456789


def test_memory_is_what_the_resource_limits_allow() -> None:
    code = "from joulemesh.base.machine import memory_bytes; print(memory_bytes())"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=limit
    )
    assert int(done.stdout) <= 2**30
