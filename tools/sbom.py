"""A software bill of materials: what is installed for the project, as CycloneDX 1.6 (JSON).

    python -m tools.sbom [FILE] [--extra NAME ...]     FILE is dist/sbom.json unless given

Names, versions, licences and dependencies are those of the installed packages; digests are those of
locks/. With SOURCE_DATE_EPOCH set, the same environment gives the same bytes.
"""

from __future__ import annotations

__all__ = ["bill", "main"]

import argparse
import json
import os
import re
import time
import uuid
from collections.abc import Sequence
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = "joulemesh"


def digests(locks: Path = ROOT / "locks") -> dict[tuple[str, str], list[str]]:
    """The SHA-256 digests of each locked release, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(locks.glob("*.txt")):
        for line in path.read_text().replace("\\\n", " ").splitlines():
            if release := re.match(r"([\w.-]+)==(\S+)", line):
                found[release[1], release[2]] = re.findall(r"sha256:([0-9a-f]{64})", line)
    return found


def _installed(extras: Sequence[str]) -> dict[str, tuple[Distribution, set[str]]]:
    """The project and all that it needs with these extras: each package and its dependencies."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    followed = set[tuple[str, str]]()
    queue = [(PROJECT, extra) for extra in ("", *extras)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in followed:
            continue
        followed.add((name, extra))
        package, needs = found.setdefault(name, (distribution(name), set()))
        for requirement in map(Requirement, package.requires or ()):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            other = canonicalize_name(requirement.name)
            if other != name:
                needs.add(other)
            queue += [(other, one) for one in ("", *requirement.extras)]
    return found


def _fields(package: Distribution) -> Message:
    """The package's metadata as the e-mail header that it is."""
    return cast(Message, package.metadata)


def _licence(package: Distribution) -> list[dict[str, Any]]:
    """The licence expression, or else what the older fields say."""
    metadata = _fields(package)
    if expression := metadata.get("License-Expression"):
        return [{"expression": expression}]
    named = [
        one.rpartition(" :: ")[2]
        for one in metadata.get_all("Classifier") or ()
        if one.startswith("License :: ")
    ]
    first = (metadata.get("License") or "").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in named or ([first] if first else [])]


def _component(name: str, package: Distribution, known: Sequence[str]) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{package.version}"
    component: dict[str, Any] = {
        "type": "application" if name == PROJECT else "library",
        "bom-ref": purl,
        "name": name,
        "version": package.version,
        "purl": purl,
    }
    if summary := _fields(package).get("Summary"):
        component["description"] = summary
    if licences := _licence(package):
        component["licenses"] = licences
    if known:  # of the wheels that the lock admits: which of them was installed, nobody recorded
        hashes = [{"alg": "SHA-256", "content": digest} for digest in known]
        component["externalReferences"] = [{"type": "distribution", "url": purl, "hashes": hashes}]
    return component


def bill(extras: Sequence[str] = ()) -> dict[str, Any]:
    """The bill of materials of the installed project with these extras."""
    known = digests()
    installed = dict(sorted(_installed(extras).items()))
    components = {
        name: _component(name, package, known.get((name, package.version), ()))
        for name, (package, _) in installed.items()
    }
    content: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime(
                "%Y-%m-%dT%H:%M:%SZ",
                time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))),
            ),
            "lifecycles": [{"phase": "build"}],
            "component": components.pop(PROJECT),
        },
        "components": list(components.values()),
    }
    refs = {name: f"pkg:pypi/{name}@{package.version}" for name, (package, _) in installed.items()}
    content["dependencies"] = [
        {"ref": refs[name], "dependsOn": sorted(refs[other] for other in needs)}
        for name, (_, needs) in installed.items()
    ]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {**content, "serialNumber": f"urn:uuid:{serial}"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the bill of materials."""
    parser = argparse.ArgumentParser(prog="python -m tools.sbom")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "dist" / "sbom.json")
    parser.add_argument("--extra", action="append", default=[], help="include an extra")
    chosen = parser.parse_args(arguments)
    try:
        content = bill(chosen.extra)
    except PackageNotFoundError as error:
        parser.error(f"{error.name} is not installed; install the extras that --extra names")
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    chosen.file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    print(f"{chosen.file}: {len(content['components'])} packages")


if __name__ == "__main__":
    main()
