"""Drafts that killed processes leave behind are swept away; drafts under way are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import joulemesh
from joulemesh.base.cache import keep, require_usable
from joulemesh.base.checksums import verified
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import DRAFT, sweep, write_whole
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


def test_a_link_with_a_drafts_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / f".a{DRAFT}").symlink_to(tmp_path / "mine")
    sweep(tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("opened", ["require_usable", "keep"])
def test_a_cache_is_swept_when_it_is_opened(tmp_path: Path, opened: str) -> None:
    leave_a_draft(tmp_path / "ab", "ab12.run")
    if opened == "keep":
        keep(tmp_path / "ab" / "ab34.run", b"result")
    else:
        require_usable(tmp_path, "choose another --cache")
    assert not drafts(tmp_path)


@pytest.mark.slow
def test_run_and_study_folders_are_swept_when_they_are_opened(tmp_path: Path) -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(TINY)
    run, study = tmp_path / "run", tmp_path / "study"
    joulemesh.run(scenario, out=run)
    leave_a_draft(run / "checkpoint", "9.safetensors")
    joulemesh.run(scenario, out=run, resume=True)
    assert not drafts(run)
    found = joulemesh.compare(scenario, "fixed:1", seeds=1, cache=tmp_path / "cache")
    leave_a_draft(study / "inputs", "devices.csv")
    found.save(study)
    assert not drafts(study)


def test_a_comparison_is_not_taken_for_a_run(tmp_path: Path) -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(TINY)
    study = tmp_path / "study"
    joulemesh.compare(scenario, "fixed:1", seeds=1, cache=tmp_path / "cache").save(study)
    words = "is not a run folder: its manifest.jsonl names no plan.npz; name one"
    with pytest.raises(ScenarioError, match=words):
        report_of_folder(study, tmp_path / "page.html")
    with pytest.raises(ScenarioError, match=words):
        joulemesh.run(scenario, out=study, resume=True)


def test_a_manifest_of_endless_brackets_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(b"[" * 100_000 + b"\n")
    assert verified(tmp_path).lines() == [
        f"{tmp_path}/manifest.jsonl is damaged: line 1: its contents have changed"
    ]
