"""Plan, run and compare use nothing that native Windows lacks: looked for, and acted."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import windows

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "joulemesh"
CHANGES = (
    "devices.count=4",
    "plan.iterations=3",
    "training.model=logistic",
    "training.eval_every=1",
)
SMALL = [word for change in CHANGES for word in ("--set", change)]
COMMANDS = [
    ["plan", "--out", "plan.json", "--figure", "plan.svg"],
    ["init", "fleet.toml"],
    ["run", "fleet.toml", *SMALL, "--out", "run"],
    ["run", "--out", "run", "--resume"],
    ["verify", "run"],
    ["compare", *SMALL, "--methods", "adaptive,fixed:3,balanced:tau1=2,tau2=1", "--seeds", "2",
     "--out", "study"],
    ["report", "run"],
    ["new", "project"],
    ["cite", "study"],
    ["run", "--coordinator", "127.0.0.1:4000", "--processes", "2", "--process-id", "0"],
]  # fmt: skip
SCRIPT = """
import json, sys
from tests.windows import become
become()
from joulemesh.cli.main import main
codes = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["joulemesh", *line]
    try:
        main()
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code or 0)
from pathlib import Path
from joulemesh.base.errors import ScenarioError
from joulemesh.base.lock import FolderLock
from joulemesh.base.files import sweep
left = Path(".note.txt.0123456789abcdef.part")
left.touch()
sweep(Path())
refused = ""
with FolderLock(Path()):
    try:
        FolderLock(Path()).__enter__()
    except ScenarioError as error:
        refused = str(error)
loaded = sorted(name for name in sys.modules if name.startswith("joulemesh"))
with open("done.json", "w", encoding="utf-8") as file:
    json.dump([codes, loaded, left.exists(), refused], file)
"""
# Where a name that Windows lacks may stand, and what keeps it from being reached there.
GUARDED = {
    "base/files.py": {"O_NOFOLLOW": "getattr", "O_CLOEXEC": "getattr", "fchmod": "sys.platform"},
    "base/lock.py": {"O_NOFOLLOW": "getattr", "fcntl": "sys.platform"},
    "base/machine.py": {
        "resource": "except ImportError",
        "sched_getaffinity": "hasattr",
        "sysconf": "sys.platform",
    },
    "training/jax/distributed/supervise.py": {
        "fork": "hasattr, and refused in words",
        "kill": "after fork",
        "SIGKILL": "after fork",
    },
}


class Acted(NamedTuple):
    folder: Path
    codes: list[int]
    loaded: list[str]
    litter: bool
    refused: str
    errors: str


@pytest.fixture(scope="module")
def acted(tmp_path_factory: pytest.TempPathFactory) -> Acted:
    if sys.platform != "linux":
        pytest.skip("Windows is acted on Linux only")
    folder = tmp_path_factory.mktemp("windows")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-X", "warn_default_encoding", "-c", SCRIPT, json.dumps(COMMANDS)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "cp1252",
             "XDG_CACHE_HOME": str(folder / "cache")},
        cwd=folder, capture_output=True, check=False,
    )  # fmt: skip
    errors = done.stderr.decode("cp1252")
    assert done.returncode == 0, errors
    codes, loaded, litter, refused = json.loads((folder / "done.json").read_text())
    return Acted(folder, codes, loaded, litter, refused, errors)


@pytest.mark.slow
def test_windows_acted_plans_runs_and_compares(acted: Acted) -> None:
    assert acted.codes == [0] * (len(COMMANDS) - 1) + [2], acted.errors
    for name in ("plan.json", "plan.svg", "run/report.html", "study/report.html"):
        assert (acted.folder / name).stat().st_size > 1000
    assert acted.errors.endswith("run one process, or all of them on Linux (WSL)\n")


@pytest.mark.slow
def test_windows_acted_locks_folders_and_removes_litter(acted: Acted) -> None:
    assert not acted.litter
    assert re.search(r"is in use by process \d+ on .* since .*; wait for it", acted.refused)


LACKING = {"os": windows.OS, "signal": windows.SIGNAL, **windows.OTHERS}
"""Names that Windows does not have, by their module."""


def names_used(tree: ast.AST) -> Iterator[str]:
    """Names of modules, methods and modules themselves that Windows does not have."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in LACKING.get(
                module, ()
            ):
                yield name
            case ast.Attribute(attr=name) if name in windows.METHODS:
                yield name
            case ast.Call(
                func=ast.Name(id="getattr"), args=[ast.Name(id="os"), ast.Constant(value=name), *_]
            ) if name in windows.OS:
                yield str(name)
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in windows.MODULES)
            case ast.ImportFrom(module=str(module), names=names):
                yield from [module] if module in windows.MODULES else []
                lacking = LACKING.get(module, frozenset())
                yield from (one.name for one in names if one.name in lacking)


def in_text_mode(tree: ast.AST) -> Iterator[int]:
    """Lines that open a file as text and leave its encoding to the system."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="read_text" | "write_text", value=owner)):
                if isinstance(owner, ast.Name) and owner.id == "files":
                    continue  # this project's own, always UTF-8
                given = len(node.args) > (node.func.attr == "write_text")  # type: ignore[attr-defined]
            case (
                ast.Call(func=ast.Name(id="open"))
                | ast.Call(func=ast.Attribute(attr="open", value=ast.Name(id="io")))
            ):
                mode: Any = node.args[1] if len(node.args) > 1 else None
                given = isinstance(mode, ast.Constant) and "b" in str(mode.value)
            case _:
                continue
        if not given and "encoding" not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nos.fork()", ["fork"]),
        ("import fcntl", ["fcntl"]),
        ("from signal import SIGKILL", ["SIGKILL"]),
        ("x = getattr(os, 'O_NOFOLLOW', 0)", ["O_NOFOLLOW"]),
        ("import os\nos.kill(pid, 0)", ["kill"]),
        ("from time import clock_gettime", ["clock_gettime"]),
        ("socket.socket(socket.AF_UNIX)", ["AF_UNIX"]),
        ("loop.add_signal_handler(2, end)", ["add_signal_handler"]),
        ("os.replace(a, b); signal.SIGINT; match.group(0); socket.AF_INET", []),
    ],
)
def test_the_search_finds_what_it_is_for(code: str, found: list[str]) -> None:
    assert list(names_used(ast.parse(code))) == found


def test_the_search_finds_text_without_an_encoding() -> None:
    tree = ast.parse("open(p)\nopen(p, 'rb')\np.read_text()\np.read_text('utf-8')\np.write_text(t)")
    assert list(in_text_mode(tree)) == [1, 3, 5]


@pytest.mark.slow
def test_the_search_covers_all_that_was_loaded(acted: Acted) -> None:
    places = {name.split(".")[1] for name in acted.loaded if "." in name}
    assert {"planning", "training", "study", "views"} <= places
    assert not places & NOT_SEARCHED


NOT_SEARCHED = {"deploy", "meters"}  # rooms of what is deployed, for which Windows has WSL


def searched(words: str) -> Iterator[tuple[str, ast.AST]]:
    """The modules in whose text one of these words is: parsing all would take seconds."""
    for path in sorted(SRC.rglob("*.py")):
        place = path.relative_to(SRC)
        text = path.read_text("utf-8")
        if place.parts[0] not in NOT_SEARCHED and re.search(words, text):
            yield place.as_posix(), ast.parse(text)


def test_nothing_that_windows_lacks_is_used_unguarded() -> None:
    lacking = "|".join(windows.MODULES.union(windows.METHODS, *LACKING.values()))
    found = {place: set(names_used(tree)) for place, tree in searched(rf"\b({lacking})\b")}
    used = {place: names for place, names in found.items() if names}
    assert used == {place: set(names) for place, names in GUARDED.items()}


def test_text_is_read_and_written_in_a_named_encoding() -> None:
    places = searched(r"\b(open|read_text|write_text)\(")
    assert not [f"{place}:{line}" for place, tree in places for line in in_text_mode(tree)]
