"""The light installation, acted in a full one: processes that can import only its packages.

A real one is made in tests/test_wheel.py, which takes longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import lock

ROOT = Path(__file__).resolve().parents[1]
OURS = {"joulemesh", "tests", "tools", "benchmarks"}
# Read by every Python that has its folder on PYTHONPATH, so that child processes are light too.
SITE = """
import sys

names = {names!r}


class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in names:
            return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""


def closure(*sets: str) -> set[str]:
    """The packages that sets of pyproject.toml need, by the installed packages' metadata."""
    extras = lock.requirement_sets()[0]
    queue = [(one, "") for name in sets for one in extras[name]]
    found = set[tuple[str, str]]()
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in found:
                found.add((name, wanted))
                needs = map(Requirement, distribution(name).requires or ())
                queue += [(one, wanted) for one in needs]
    return {name for name, _ in found}


@cache
def absent(*sets: str) -> frozenset[str]:
    """Modules that are installed here and would not be with these sets alone."""
    there = closure(*sets)
    return frozenset(
        module
        for module, owners in packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & there and module not in OURS
    )


def environment(folder: Path, *sets: str) -> dict[str, str]:
    """Variables under which a Python sees these sets only: ``base``, and perhaps extras."""
    (folder / "sitecustomize.py").write_text(SITE.format(names=set(absent(*sets))))
    path = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def python(
    folder: Path, *arguments: str, sets: tuple[str, ...] = ("base",), timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a Python that sees these sets only."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment(folder, *sets),
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
