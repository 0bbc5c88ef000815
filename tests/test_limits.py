"""Limits on files: every reader asks one, and the documentation prints them all."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import joulemesh
from joulemesh import machine
from joulemesh.files import limits
from joulemesh.files.limits import LIMITS
from tools.reference import limits_page

HOME = Path(joulemesh.__file__).parent

# Readers without a limit of their own, and why that is right.
ALLOWED = {
    "machine.py": "files of the kernel",
    "profiles/__init__.py": "the package's own",
    "scenario/scenario.py": "the package's own presets",
    "templates/__init__.py": "the package's own",
    "templates/project/data.py": "a template: the user's code",
    "views/plan/figure.py": "a picture that it has just drawn",
    "views/page.py": "the package's own",
    "runs/tune.py": "what it has just written",
    "studies/identity.py": "the package's own code; others' by SOURCE",
    "deploy/record/history.py": "JOURNAL, and JOURNAL_LINE, a line at a time",
    "files/lock.py": "the first 1,000 bytes",
    "files/bounded.py": "the readers with a limit",
    "files/growing.py": "a digest, a piece at a time",
    "files/manifest.py": "a digest, a piece at a time; MANIFEST_LINE",
    "files/disk.py": "writes",
    "runs/folder.py": "EVALUATIONS",
    "runs/request.py": "a text of its own leader",
    "studio/jobs.py": "a line of its own process",
    "studio/worker.py": "a line of its own parent",
    "training/jax/distributed/supervise.py": "a log of its own processes",
    "deploy/local/namespaces.py": "files of the kernel",
    "deploy/local/supervisor.py": "the end of a log of its own processes",
    "files/whole.py": "opens a draft to lock it",
    "data/load.py": "the package's own file",
    "data/own.py": "maps files, and reads rows that lie in them; maps a file; labels by DATA",
    "data/packed.py": "XZ, TARBALL, a block at a time",
    "data/readers.py": "DATA_LINE, a block at a time",
    "deploy/device/ceiling.py": "opens its own file to write; a file of the kernel, 36 characters",
    "deploy/device/journal.py": "the end of its own file, a piece at a time",
    "deploy/device/rest.py": "a file of the kernel",
    "calibration/calibrate.py": "opens a meter",
    "deploy/links/service.py": "an answer, which gRPC limits",
    "deploy/local/template.py": "a line of its own parent; opens a log to write",
    "meters/meter.py": "opens a meter; files of the kernel, a few hundred characters",
    "meters/nvml.py": "a figure of NVIDIA's library",
    "deploy/transport/grpc.py": "a packet, which gRPC limits",
    "deploy/transport/halves.py": "what it has just encrypted",
    "deploy/transport/lane.py": "an acknowledgement, which gRPC limits",
    "deploy/transport/stream.py": "a packet, which gRPC limits",
    "deploy/transport/tls.py": "opens a file to write",
    "files/arrays.py": "ARRAY_HEADER, ARRAY_LIST",
}
NAMES = {"read_text", "read_bytes", "loadtxt", "genfromtxt", "fromfile", "memmap", "open_memmap"}
FUNCTIONS = {"np.load", "json.load", "json.loads", "tarfile.open", "gzip.open", "lzma.open"}
OPENS_NO_FILE = {"self._open", "webbrowser.open"}
FUNCTIONS |= {"pickle.load", "pickle.loads", "zipfile.ZipFile", "tomllib.load"}


def unbounded(tree: ast.AST) -> list[str]:
    """Calls that read as much as there is."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = called.rsplit(".", 1)[-1]
            whole = name == "read" and not node.args
            opened = name == "open" and not {"w", "wb", "a"} & {
                part.value for part in node.args if isinstance(part, ast.Constant)
            }
            opened &= called not in OPENS_NO_FILE
            if called in FUNCTIONS or name in NAMES or whole or opened:
                found.append(f"line {node.lineno}: {called}")
    return found


def test_no_reader_is_without_a_limit() -> None:
    """Whoever adds a reader gives it a limit, or says here why it needs none."""
    wrong, idle = {}, set(ALLOWED)
    for path in sorted(HOME.rglob("*.py")):
        name = path.relative_to(HOME).as_posix()
        found = unbounded(ast.parse(path.read_text("utf-8")))
        if found and name not in ALLOWED:
            wrong[name] = found
        if found:
            idle.discard(name)
    assert not wrong
    assert not idle  # reasons for what is no longer there


def test_the_search_for_readers_sees_them() -> None:
    code = "np.load(a)\njson.loads(b)\nfile.read()\npath.read_bytes()\npath.open('rb')\nf.read(9)"
    assert len(unbounded(ast.parse(code))) == 5


def test_every_limit_is_used_and_documented() -> None:
    places = (HOME, Path(__file__).parents[1] / "publications")
    paths = [path for place in places for path in place.rglob("*.py") if path.name != "limits.py"]
    source = {path: path.read_text("utf-8") for path in paths}
    names = [name for name in limits.__all__ if name not in ("LIMITS", "Limit")]
    assert len(names) == len(LIMITS)
    page = limits_page()
    for name in names:
        assert any(f"import {name}" in text or f"{name}.now" in text for text in source.values())
        one = getattr(limits, name)
        assert one.now > 0
        assert f"| {one.reads} | {one} | {one.why} |" in page


def test_limits_follow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2**31)
    assert limits.DATA.now == 2**30
    assert limits.TABLE.now == 2**26
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2**50)
    assert limits.TABLE.now == 256 * 2**20


def test_memory_is_what_the_resource_limits_allow() -> None:
    code = "from joulemesh.machine import memory_bytes; print(memory_bytes())"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=limit
    )
    assert int(done.stdout) <= 2**30
