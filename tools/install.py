"""Install sets of locks/ into the environment that runs this, then the project itself.

    python tools/install.py dev build     what `make` runs; JOULEMESH_UNLOCKED=1 skips the locks

Where the locks are for this Python and platform, every package is a wheel whose SHA-256 they list.
Elsewhere the versions of constraints.txt are installed without digests, and a line says so. This
file uses only the standard library, because nothing else is installed yet.
"""

from __future__ import annotations

__all__ = ["commands", "covers", "here", "main"]

import os
import platform
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def here() -> tuple[str, str]:
    """The running Python and platform, in the words of the locks."""
    python = "{}.{}".format(*sys.version_info)
    if sys.implementation.name != "cpython":
        python = f"{sys.implementation.name} {python}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        python += " (free-threaded)"
    machine = f"{sys.platform} {platform.machine()}"
    if sys.platform == "linux" and platform.libc_ver()[0] != "glibc":
        machine += " (not glibc)"
    return python, machine


def covers(lock: Path, python: str, machine: str) -> bool:
    """Whether a lock is for a Python on a platform, by the comments that it begins with."""
    listed = dict(re.findall(r"^# (python|platform): (.*)$", lock.read_text(), re.MULTILINE))
    return python in listed["python"].split(", ") and machine in listed["platform"].split(", ")


def commands(names: Sequence[str], locked: bool, root: Path = ROOT) -> list[list[str]]:
    """The calls of pip that install sets and the project."""
    if locked:
        files = [part for name in names for part in ("-r", str(root / "locks" / f"{name}.txt"))]
        return [
            [*PIP, "--require-hashes", "--only-binary", ":all:", "--no-deps", *files],
            [*PIP, "--no-deps", "--no-build-isolation", "--editable", str(root)],
        ]
    groups = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]
    extras = ",".join(name for name in names if name not in groups)
    tools = [requirement for name in names for requirement in groups.get(name, ())]
    project = f"{root}[{extras}]" if extras else str(root)
    return [[*PIP, "--constraint", str(root / "constraints.txt"), *tools, "--editable", project]]


def main(names: Sequence[str]) -> None:
    """Install the sets of these names."""
    python, machine = here()
    asked = not os.environ.get("JOULEMESH_UNLOCKED")
    locked = asked and all(covers(ROOT / "locks" / f"{n}.txt", python, machine) for n in names)
    if not locked:
        why = f"no lock for Python {python} on {machine}" if asked else "JOULEMESH_UNLOCKED is set"
        note = "installing the versions of constraints.txt without checking digests"
        print(f"{why}: {note}", flush=True)  # before what pip prints
    for command in commands(names, locked):
        if subprocess.run(command, check=False).returncode:
            sys.exit(
                "error: pip could not install the locked packages (its message is above); if your "
                "package index serves other files, JOULEMESH_UNLOCKED=1 installs the same versions "
                "without checking digests"
                if locked
                else "error: pip could not install the packages (its message is above)"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
