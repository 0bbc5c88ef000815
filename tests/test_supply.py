"""Locks, their installer, the bill of materials and the audit; none of it uses the network."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import audit, install, lock, sbom

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


def test_the_locked_pythons_are_those_that_the_package_names() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert tuple(re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))) == lock.PYTHONS


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


@pytest.mark.parametrize("name", ["base", "dev", "build", "docs"])
def test_set_up_is_locked_on_every_platform(name: str) -> None:
    assert places(name) == list(lock.PLACES)


def test_constraints_pin_nothing_that_no_lock_has() -> None:
    assert set(lock.pins()) == {one for name in SETS for one in lines_of(name)}


def test_the_lock_has_all_that_is_installed_here() -> None:
    """The installed packages' own metadata, against the walk through the index's."""
    python, platform = install.here()
    if (python, platform) not in lock.PLACES:
        pytest.skip(f"no lock for Python {python} on {platform}")
    installed = sbom._installed(["dev"]).keys() - {"joulemesh"}
    assert installed <= locked_at("dev", (python, platform)).keys()


# --- the walk ----------------------------------------------------------------------------------

INDEX = {
    "app-1-py3-none-any.whl": [
        "lib[fast]>=1",
        'old; python_version < "3.12"',
        "gone; extra == 'x'",
    ],
    "lib-1-cp311-abi3-manylinux_2_28_x86_64.whl": ["quick; extra == 'fast'"],
    "lib-1-cp311-abi3-manylinux_2_28_aarch64.whl": ["quick; extra == 'fast'", "arm"],
    "old-1-py2.py3-none-any.whl": ["app"],
    "quick-1-py3-none-any.whl": [],
    "arm-1-py3-none-any.whl": [],
}
VERSIONS = dict.fromkeys(("app", "lib", "old", "quick", "arm"), "1")


def walk(versions: dict[str, str], *roots: str) -> lock.Lock:
    def wheels(name: str, version: str) -> list[lock.Wheel]:
        return [lock.Wheel(file, "", "") for file in INDEX if file.startswith(f"{name}-{version}-")]

    def requires(wheel: lock.Wheel) -> list[Requirement]:
        return [Requirement(text) for text in INDEX[wheel.name]]

    return lock.locked([Requirement(root) for root in roots], versions, wheels, requires)


def test_the_walk_follows_markers_extras_and_each_platforms_own_wheel() -> None:
    found = walk(VERSIONS, "app")
    linux = {(python, p) for python in lock.PYTHONS for p in ("linux x86_64", "linux aarch64")}
    arm = {place for place in linux if place[1] == "linux aarch64"}
    assert found.where == {
        "app": linux, "lib": linux, "quick": linux, "arm": arm,
        "old": {place for place in linux if place[0] == "3.11"},
    }  # fmt: skip
    assert found.lacking == {
        place: f"lib 1 has no wheel for 3.11 on {place}"
        for place in ("darwin arm64", "win32 AMD64")
    }
    assert found.platforms == ["linux aarch64", "linux x86_64"]


def test_the_walk_refuses_what_is_not_pinned_or_pinned_out_of_bounds() -> None:
    with pytest.raises(lock.LockError, match=r"does not pin quick, which lib 1 requires: .*--miss"):
        walk({k: v for k, v in VERSIONS.items() if k != "quick"}, "app")
    with pytest.raises(lock.LockError, match=r"pyproject.toml requires app>=2, but 1 is pinned"):
        walk(VERSIONS, "app>=2")


@settings(deadline=None)  # a busy machine is no defect
@given(st.sets(st.sampled_from(lock.PLACES), min_size=1))
def test_a_marker_is_true_just_where_it_should_be(where: set[lock.Place]) -> None:
    text = lock.marker(where, lock.PLATFORMS)
    for place in lock.PLACES:
        for environment in lock._markers(place):
            assert (not text or Marker(text[3:]).evaluate(environment)) == (place in where)


def test_a_project_page_is_read_without_yanked_files_and_sdists() -> None:
    links = lock._Links("http://index.test/simple/a/")
    links.feed(
        '<a href="../../f/a-1-py3-none-any.whl#sha256=0a">a</a>'
        '<a href="a-1.tar.gz#sha256=0b">a</a>'
        '<a href="a-2-py3-none-any.whl#sha256=0c" data-yanked="broken">a</a>'
    )
    wheel = lock.Wheel("a-1-py3-none-any.whl", "http://index.test/f/a-1-py3-none-any.whl", "0a")
    assert links.wheels == [wheel]


@pytest.fixture(params=["ranges", "whole files"])
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[int]]]:
    """A server of one wheel of 1 MiB, and how many bytes each answer had."""
    content, sent = io.BytesIO(), list[int]()
    with ZipFile(content, "w") as archive:
        archive.writestr("a/data", os.urandom(1 << 20))
        archive.writestr("a-1.dist-info/METADATA", "Name: a\nRequires-Dist: b>=2\n\nText")

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content.getvalue())))
            self.end_headers()

        def do_GET(self) -> None:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            ranged = request.param == "ranges"
            body = content.getvalue()[first : last + 1] if ranged else content.getvalue()
            sent.append(len(body))
            self.send_response(206 if ranged else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a-1-py3-none-any.whl", sent
        server.shutdown()


def test_metadata_is_read_from_a_part_of_a_wheel(served: tuple[str, list[int]]) -> None:
    url, sent = served
    assert lock.requires_of(lock.Wheel("a-1-py3-none-any.whl", url, "")) == (Requirement("b>=2"),)
    assert max(sent) > 1 << 20 or sum(sent) < 1 << 19


# --- installing --------------------------------------------------------------------------------


def test_a_lock_covers_only_what_it_names() -> None:
    dev, cuda = ROOT / "locks" / "dev.txt", ROOT / "locks" / "cuda.txt"
    assert install.covers(dev, "3.12", "darwin arm64")
    assert not install.covers(dev, "3.1", "linux x86_64")
    assert not install.covers(dev, "3.13 (free-threaded)", "linux x86_64")
    assert not install.covers(dev, "3.12", "linux x86_64 (not glibc)")
    assert not install.covers(cuda, "3.12", "darwin arm64")


def test_without_a_lock_the_same_sets_are_installed_by_constraints() -> None:
    (command,) = install.commands(["dev", "build"], locked=False)
    assert command[command.index("--constraint") + 1] == str(ROOT / "constraints.txt")
    assert command[-1] == f"{ROOT}[dev]"
    assert {"hatchling", "editables"} <= {re.split("[<>=]", part)[0] for part in command}


def test_another_file_than_the_locked_one_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "locks").mkdir()
    (tmp_path / "tools" / "install.py").write_text((ROOT / "tools" / "install.py").read_text())
    with ZipFile(tmp_path / "a_locked_one-1-py3-none-any.whl", "w") as archive:
        archive.writestr("a_locked_one-1.dist-info/METADATA", "Name: a-locked-one\nVersion: 1\n")
    python, platform = install.here()
    (tmp_path / "locks" / "base.txt").write_text(
        f"# python: {python}\n# platform: {platform}\na-locked-one==1 --hash=sha256:{'0' * 64}\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "tools" / "install.py"), "base"],
        env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "JOULEMESH_UNLOCKED=1" in done.stderr.splitlines()[-1]


# --- bill of materials, audit ------------------------------------------------------------------


def test_the_bill_of_materials_is_cyclonedx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    sbom.main([str(tmp_path / "a.json"), "--extra", "jax", "--extra", "tools"])
    sbom.main([str(tmp_path / "b.json"), "--extra", "jax", "--extra", "tools"])
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    bill = json.loads((tmp_path / "a.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    components = [bill["metadata"]["component"], *bill["components"]]
    refs = [one["bom-ref"] for one in components]
    assert len(refs) == len(set(refs))
    assert {one["ref"] for one in bill["dependencies"]} == set(refs)
    assert {ref for one in bill["dependencies"] for ref in one["dependsOn"]} <= set(refs)
    for one in components:
        assert one["type"] in ("application", "library")
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        kinds = [next(iter(licence)) for licence in one.get("licenses", [])]
        assert kinds == ["expression"] or set(kinds) <= {"license"}
    names = {one["name"] for one in components}
    assert {"jax", "jaxlib", "pandas", "python-dateutil"} <= names
    assert not {"pytest", "mkdocs-material"} & names


def test_the_bill_has_the_digests_of_the_lock() -> None:
    known = sbom.digests()
    assert known["numpy", lock.pins()["numpy"]] == lines_of("base")["numpy"][1]
    for one in sbom.bill()["components"]:
        if digests := known.get((one["name"], one["version"])):
            (file,) = one["externalReferences"]
            assert [digest["content"] for digest in file["hashes"]] == digests


VULNERABLE = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "b", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "status", "text"),
    [
        ([VULNERABLE, SKIPPED], 1, "a 1: PYSEC-1, fixed in 1.1\nb: not audited: not found\n1 pack"),
        ([{**VULNERABLE, "vulns": []}, SKIPPED], 0, "b: not audited: not found\n1 packages aud"),
        ([SKIPPED], None, "audit skipped: no source of advisories can be reached"),
        (None, None, "osv: no advisories to be had: ConnectionError: no route"),
    ],
)
def test_an_audit_fails_for_vulnerabilities_and_never_passes_unreached(
    packages: list[dict[str, object]] | None, status: int | None, text: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        report = json.dumps({"dependencies": packages}) if packages else ""
        return subprocess.CompletedProcess(command, 0, report, "trace\nConnectionError: no route\n")

    monkeypatch.setattr(subprocess, "run", answer)
    if status is None:
        audit.main()
    else:
        with pytest.raises(SystemExit) as end:
            audit.main()
        assert int(end.value.code or 0) == status
    assert text in capsys.readouterr().out
