"""Hash-locked requirements for each extra, Python and platform that is tested.

    python -m tools.lock              write locks/ from the versions of constraints.txt
    python -m tools.lock --missing    first let pip pin what constraints.txt does not
    python -m tools.lock --upgrade    first let pip choose all versions anew, within pyproject.toml

A lock lists every wheel of a release that a tested Python can install on a tested platform, so one
file serves them all. Versions come from constraints.txt; digests and requirements come from the
package index that pip uses. A second run with the same versions writes the same bytes.
"""

from __future__ import annotations

__all__ = ["PLATFORMS", "PYTHONS", "Lock", "Wheel", "locked", "main", "pins", "requirement_sets"]

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from email import message_from_bytes
from functools import cache
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin
from urllib.request import Request, urlopen
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LOCKS = ROOT / "constraints.txt", ROOT / "locks"
METADATA = r"[^/]+\.dist-info/METADATA"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {  # as install.py names them: how their wheels end
    "linux x86_64": r"manylinux.*_x86_64",
    "linux aarch64": r"manylinux.*_aarch64",
    "darwin arm64": r"macosx_.*_(arm64|universal2)",
    "win32 AMD64": r"win_amd64",
}
Place = tuple[str, str]  # a Python and a platform
Sets = dict[str, list[Requirement]]
PLACES: tuple[Place, ...] = tuple(product(PYTHONS, PLATFORMS))


class LockError(Exception):
    """What keeps a lock from being written, in one line."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of a release, as the index lists it."""

    name: str
    url: str
    sha256: str

    @property
    def version(self) -> str:
        """The release it belongs to; empty for a name that breaks the rules, as old ones do."""
        try:
            return str(parse_wheel_filename(self.name)[1])
        except InvalidWheelFilename:
            return ""

    def fits(self, place: Place) -> bool:
        """Whether a Python can install it on a platform.

        >>> wheel = Wheel("numpy-2.4.6-cp311-cp311-macosx_14_0_arm64.whl", "", "")
        >>> wheel.fits(("3.11", "darwin arm64")), wheel.fits(("3.12", "darwin arm64"))
        (True, False)
        """
        python, platform = place
        return any(
            (tag.interpreter, tag.abi) in _tags(python)
            and (tag.platform == "any" or re.fullmatch(PLATFORMS[platform], tag.platform))
            for tag in parse_wheel_filename(self.name)[3]
        )


@cache
def _tags(python: str) -> frozenset[tuple[str, str]]:
    version = tuple(map(int, python.split(".")))
    cp = "cp" + python.replace(".", "")
    tags = [
        *cpython_tags(version, abis=[cp], platforms=["any"]),
        *compatible_tags(version, interpreter=cp, platforms=["any"]),
    ]
    return frozenset((tag.interpreter, tag.abi) for tag in tags)


def _markers(place: Place) -> Iterator[dict[str, str]]:
    """The environments of a place: the first and a late patch release of its Python."""
    python, platform = place
    system, machine = platform.split()
    for patch in ("0", "99"):
        yield {
            "implementation_name": "cpython",
            "implementation_version": f"{python}.{patch}",
            "os_name": "nt" if system == "win32" else "posix",
            "platform_machine": machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Windows" if system == "win32" else system.capitalize(),
            "platform_version": "",
            "python_full_version": f"{python}.{patch}",
            "python_version": python,
            "sys_platform": system,
        }


# --- the package index -------------------------------------------------------------------------


class _Links(HTMLParser):
    """The wheels of a project's page in the index (PEP 503), without those that were yanked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page, self.wheels = page, list[Wheel]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        url, digest = urldefrag(urljoin(self.page, given.get("href") or ""))
        name = unquote(url.rsplit("/", 1)[-1])
        if name.endswith(".whl") and digest.startswith("sha256=") and "data-yanked" not in given:
            self.wheels.append(Wheel(name, url, digest.removeprefix("sha256=")))


@cache
def _index() -> str:
    """The address of the index that pip uses: as configured, or its own default."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    configured = dict(re.findall(r"^(\S+)\.index-url='(.*)'$", found, re.MULTILINE))
    for section in (":env:", "install", "global"):
        if section in configured:
            return str(configured[section])
    from pip._internal.models.index import PyPI

    return str(PyPI.simple_url)


def _get(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    try:
        with urlopen(Request(url, headers=dict(headers or {})), timeout=120) as answer:
            return bytes(answer.read())
    except OSError as error:
        name = url.rstrip("/").rsplit("/", 1)[-1]
        raise LockError(f"the package index gave no {name}: {error}") from error


class _Remote(io.RawIOBase):
    """A file of the index, read in parts: of a large wheel only its metadata is of interest."""

    def __init__(self, url: str) -> None:
        self.url, self.position = url, 0
        with urlopen(Request(url, method="HEAD"), timeout=120) as answer:
            self.size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether it can be sought in: always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset from the beginning, the position or the end."""
        self.position = offset + (0, self.position, self.size)[whence]
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Read the bytes at the position."""
        end = min(self.position + len(buffer), self.size)
        if end <= self.position:
            return 0
        got = _get(self.url, {"Range": f"bytes={self.position}-{end - 1}"})
        if len(got) == self.size:  # the index sends whole files only
            got = got[self.position : end]
        buffer[: len(got)] = got
        self.position += len(got)
        return len(got)


@cache
def _project(name: str) -> tuple[Wheel, ...]:
    page = f"{_index().rstrip('/')}/{name}/"
    links = _Links(page)
    links.feed(_get(page).decode())
    return tuple(links.wheels)


@cache
def wheels_of(name: str, version: str) -> tuple[Wheel, ...]:
    """The wheels of a release in the index that some place can install."""
    return tuple(
        wheel
        for wheel in _project(name)
        if wheel.version == version and any(wheel.fits(place) for place in PLACES)
    )


@cache
def requires_of(wheel: Wheel) -> tuple[Requirement, ...]:
    """The requirements of a wheel, from its metadata."""
    with ZipFile(io.BufferedReader(_Remote(wheel.url), 1 << 16)) as archive:
        (path,) = (one for one in archive.namelist() if re.fullmatch(METADATA, one))
        metadata = message_from_bytes(archive.read(path))
    return tuple(Requirement(text) for text in metadata.get_all("Requires-Dist", []))


# --- what a set of requirements needs ----------------------------------------------------------


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """The versions of constraints.txt, by canonical name."""
    lines = (line.split("==") for line in path.read_text().splitlines() if "==" in line)
    return {canonicalize_name(name): version.strip() for name, version in lines}


def requirement_sets(pyproject: Path = ROOT / "pyproject.toml") -> tuple[Sets, Sets]:
    """What is locked: `base` with every extra, and the groups of maintainers' tools."""
    content = tomllib.loads(pyproject.read_text())
    project = content["project"]
    extras = {"base": project["dependencies"], **project["optional-dependencies"]}
    own = project["name"]
    return (
        {name: list(_without(own, texts, extras)) for name, texts in extras.items()},
        {name: list(map(Requirement, some)) for name, some in content["dependency-groups"].items()},
    )


def _without(
    own: str, texts: Iterable[str], extras: Mapping[str, list[str]]
) -> Iterator[Requirement]:
    """The requirements, with the project's own extras replaced by what they stand for."""
    for requirement in map(Requirement, texts):
        if requirement.name == own:
            for extra in sorted(requirement.extras):
                yield from _without(own, extras[extra], extras)
        else:
            yield requirement


@dataclass
class Lock:
    """Where each package of a set is needed, and why a platform is left out."""

    where: dict[str, set[Place]] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)

    @property
    def platforms(self) -> list[str]:
        """The platforms that the lock is for."""
        return sorted(PLATFORMS.keys() - self.lacking.keys())


def locked(
    roots: Sequence[Requirement],
    versions: Mapping[str, str],
    wheels: Callable[[str, str], Sequence[Wheel]] = wheels_of,
    requires: Callable[[Wheel], Iterable[Requirement]] = requires_of,
) -> Lock:
    """Follow requirements through the pinned releases, in every place.

    A platform for which a package has no wheel is left out of the lock. A package without a pin, or
    with one that a requirement excludes, is an error.
    """
    lock = Lock()
    for platform in PLATFORMS:
        try:
            found = [
                (name, (python, platform))
                for python in PYTHONS
                for name in _needed((python, platform), roots, versions, wheels, requires)
            ]
        except LookupError as error:
            lock.lacking[platform] = str(error.args[0])
            continue
        for name, place in found:
            lock.where.setdefault(name, set()).add(place)
    return lock


def _needed(
    place: Place,
    roots: Sequence[Requirement],
    versions: Mapping[str, str],
    wheels: Callable[[str, str], Sequence[Wheel]],
    requires: Callable[[Wheel], Iterable[Requirement]],
) -> set[str]:
    """The canonical names of all packages that the roots need in a place."""
    environments = list(_markers(place))
    followed = set[tuple[str, str]]()
    queue = [(root, "", "pyproject.toml") for root in roots]
    while queue:
        requirement, extra, source = queue.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({**environment, "extra": extra})
            for environment in environments
        ):
            continue
        name = canonicalize_name(requirement.name)
        if name not in versions:
            raise LockError(
                f"constraints.txt does not pin {name}, which {source} requires: "
                "python -m tools.lock --missing"
            )
        if not requirement.specifier.contains(versions[name], prereleases=True):
            raise LockError(f"{source} requires {requirement}, but {versions[name]} is pinned")
        new = {(name, extra) for extra in ("", *requirement.extras)} - followed
        followed |= new
        if new:
            wheel = next((w for w in wheels(name, versions[name]) if w.fits(place)), None)
            if wheel is None:
                raise LookupError(f"{name} {versions[name]} has no wheel for {' on '.join(place)}")
            queue += [
                (one, extra, f"{name} {versions[name]}")
                for one in requires(wheel)
                for _, extra in sorted(new)
            ]
    return {name for name, _ in followed}


# --- files -------------------------------------------------------------------------------------


def marker(where: set[Place], platforms: Iterable[str]) -> str:
    """The environment marker of a package that is needed in some places only.

    >>> marker({(python, "darwin arm64") for python in PYTHONS}, PLATFORMS)
    ' ; (sys_platform == "darwin" and platform_machine == "arm64")'
    """
    listed = sorted(set(platforms))
    if where == set(product(PYTHONS, listed)):
        return ""
    pythons = sorted({python for python, _ in where})
    there = sorted({platform for _, platform in where})
    if where != set(product(pythons, there)):
        each = (marker({place}, [*listed, ""])[3:] for place in sorted(where))
        return " ; " + " or ".join(f"({one})" for one in each)
    clauses = []
    if pythons != list(PYTHONS):
        clauses.append(" or ".join(f'python_version == "{python}"' for python in pythons))
    if there != listed:
        clauses.append(
            " or ".join(
                'sys_platform == "{}" and platform_machine == "{}"'.format(*platform.split())
                for platform in there
            )
        )
    return " ; " + " and ".join(f"({clause})" for clause in clauses)


def text_of(lock: Lock, versions: Mapping[str, str], base: Lock | None = None) -> str:
    """The file of a lock; of a lock on top of another, only what it adds."""
    platforms = lock.platforms
    lines = [
        "# Written by python -m tools.lock; do not edit.",
        f"# python: {', '.join(PYTHONS)}",
        f"# platform: {', '.join(platforms)}",
        *(["-r base.txt"] if base else []),
    ]
    for name, where in sorted(lock.where.items()):
        if base and where <= base.where.get(name, set()):
            continue
        digests = sorted(
            {w.sha256 for w in wheels_of(name, versions[name]) if any(map(w.fits, where))}
        )
        lines.append(f"{name}=={versions[name]}{marker(where, platforms)} \\")
        lines += [f"    --hash=sha256:{digest} \\" for digest in digests[:-1]]
        lines.append(f"    --hash=sha256:{digests[-1]}")
    return "\n".join(lines) + "\n"


def resolve(requirements: Iterable[str], kept: Path | None) -> dict[str, str]:
    """Let pip choose one version of each package for all sets, keeping those of a file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--isolated", "--index-url", _index(),
             "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:",
             "--report", str(report), *(["--constraint", str(kept)] if kept else []),
             *requirements],
            check=True,
        )  # fmt: skip
        chosen = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {one["name"]: one["version"] for one in chosen}


def _prefetch(versions: Mapping[str, str]) -> None:
    """Read the index with several connections at once: nearly all the time is spent waiting."""

    def release(pin: tuple[str, str]) -> None:
        found = wheels_of(*pin)
        for place in PLACES:
            for wheel in [wheel for wheel in found if wheel.fits(place)][:1]:
                requires_of(wheel)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(release, versions.items()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the locks."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.lock",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--missing", action="store_true", help="pin what constraints.txt does not")
    how.add_argument("--upgrade", action="store_true", help="choose all versions anew")
    chosen = parser.parse_args(arguments)
    extras, groups = requirement_sets()
    sets = {**extras, **groups}
    if chosen.missing or chosen.upgrade:
        wanted = sorted({str(one) for some in sets.values() for one in some})
        found = resolve(wanted, None if chosen.upgrade else CONSTRAINTS)
        lines = sorted((f"{name}=={found[name]}" for name in found), key=str.lower)
        CONSTRAINTS.write_text("\n".join(lines) + "\n")
    versions = pins()
    try:
        _prefetch(versions)
        locks = {name: locked(roots, versions) for name, roots in sets.items()}
        texts = {
            name: text_of(
                lock, versions, locks["base"] if name in extras.keys() - {"base"} else None
            )
            for name, lock in locks.items()
        }
    except LockError as error:
        sys.exit(f"error: {error}")
    for name, lock in locks.items():
        for reason in lock.lacking.values():
            print(f"{name}: {reason}")
    LOCKS.mkdir(exist_ok=True)
    for name, text in texts.items():
        (LOCKS / f"{name}.txt").write_text(text)
    for stale in set(LOCKS.glob("*.txt")) - {LOCKS / f"{name}.txt" for name in texts}:
        stale.unlink()


if __name__ == "__main__":
    main()
