"""Drafts that killed processes leave behind are swept away; drafts under way are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import DRAFT, keep, require_usable, sweep, write_whole
from joulemesh.study.paper import report_of_folder
from tests.works import TINY

KILLED = """
import os, signal, sys
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_whole
def killed(draft):
    draft.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
write_whole(sys.argv[1], killed)
"""


def leave_a_draft(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", KILLED, str(folder / name)], check=False)
    assert drafts(folder)


def drafts(folder: Path) -> list[Path]:
    return list(folder.rglob(f".*{DRAFT}"))


def test_a_draft_under_way_is_left_alone(tmp_path: Path) -> None:
    def write(draft: IO[bytes]) -> None:
        sweep(tmp_path)
        draft.write(b"whole")

    write_whole(tmp_path / "note.txt", write)
    assert (tmp_path / "note.txt").read_bytes() == b"whole"


@pytest.mark.parametrize("opened", ["require_usable", "keep"])
def test_a_cache_is_swept_when_it_is_opened(tmp_path: Path, opened: str) -> None:
    leave_a_draft(tmp_path / "ab", "ab12.run")
    if opened == "keep":
        keep(tmp_path / "ab" / "ab34.run", b"result")
    else:
        require_usable(tmp_path, "choose another --cache")
    assert not drafts(tmp_path)


def test_a_comparison_is_not_taken_for_a_run(tmp_path: Path) -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(TINY)
    study = tmp_path / "study"
    joulemesh.compare(scenario, "fixed:1", seeds=1, cache=tmp_path / "cache").save(study)
    words = "is not a run folder: its manifest.jsonl names no plan.npz; name one"
    with pytest.raises(ScenarioError, match=words):
        report_of_folder(study, tmp_path / "page.html")
    with pytest.raises(ScenarioError, match=words):
        joulemesh.run(scenario, out=study, resume=True)
