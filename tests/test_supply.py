"""Locks, their installer, the bill of materials and the audit; none of it uses the network."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import install, lock

ROOT = Path(__file__).resolve().parents[1]
EXTRAS, GROUPS = lock.requirement_sets()
SETS = {**EXTRAS, **GROUPS}


def lines_of(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """The requirements of a lock file, without those of files that it includes."""
    found = {}
    text = (ROOT / "locks" / f"{name}.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.startswith(("#", "-r ")):
            requirement, *digests = line.split(" --hash=sha256:")
            parsed = Requirement(requirement)
            found[parsed.name] = (parsed, [one.strip() for one in digests])
    return found


def locked_at(name: str, place: lock.Place) -> dict[str, str]:
    """The versions that a lock installs in a place."""
    lines = lines_of(name)
    if name in EXTRAS:
        lines = {**lines_of("base"), **lines}
    environment = next(lock._markers(place))
    return {
        one: str(next(iter(requirement.specifier)).version)
        for one, (requirement, _) in lines.items()
        if requirement.marker is None or requirement.marker.evaluate(environment)
    }


def places(name: str) -> list[lock.Place]:
    path = ROOT / "locks" / f"{name}.txt"
    return [place for place in lock.PLACES if install.covers(path, *place)]


# --- the files of the repository ---------------------------------------------------------------


def test_every_dependency_has_a_lower_bound_and_a_tested_upper_one() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    every = [*map(Requirement, build), *(one for some in SETS.values() for one in some)]
    for requirement in every:
        assert {one.operator for one in requirement.specifier} == {">=", "<"}, str(requirement)
        pinned = Version(lock.pins()[canonicalize_name(requirement.name)])
        assert pinned in requirement.specifier, str(requirement)


def test_every_extra_and_group_has_a_lock_and_nothing_else_has() -> None:
    assert {path.stem for path in (ROOT / "locks").glob("*.txt")} == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_a_lock_pins_what_constraints_pin_with_digests(name: str) -> None:
    pins = lock.pins()
    for one, (requirement, digests) in lines_of(name).items():
        assert str(requirement.specifier) == f"=={pins[one]}"
        assert digests
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)
    assert "://" not in (ROOT / "locks" / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", SETS)
def test_a_lock_covers_every_requirement_on_every_python(name: str) -> None:
    assert {python for python, _ in places(name)} == set(lock.PYTHONS)
    for place in places(name):
        found = locked_at(name, place)
        for requirement in SETS[name]:
            assert found[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_pin_nothing_that_no_lock_has() -> None:
    assert set(lock.pins()) == {one for name in SETS for one in lines_of(name)}


# --- the walk ----------------------------------------------------------------------------------


# --- installing --------------------------------------------------------------------------------


# --- bill of materials, audit ------------------------------------------------------------------
