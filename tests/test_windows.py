"""Plan, run and compare on a Windows that is acted: without what native Windows lacks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
