"""Files that never end, or are far too large, are refused before anything is allocated for them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.tables import read_table

LIMIT_BYTES = 2 * 2**30


def limited(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command within 2 GiB of address space and 30 seconds."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))

    return subprocess.run(
        [sys.executable, "-m", "joulemesh", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        preexec_fn=limit,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "/dev/zero"),
        ("plan", "PIPE"),
        ("plan", "SPARSE"),
        ("plan", "--set", "devices.table=/dev/zero"),
        ("plan", "--set", "devices.table=PIPE"),
        ("plan", "--set", "devices.table=SPARSE"),
        ("plan", "--set", f"seed={'9' * 100_000}"),
        ("verify", "/dev/zero"),
        ("report", "/dev/zero"),
    ],
)
def test_one_line_within_two_gigabytes(arguments: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    places = {"PIPE": str(tmp_path / "pipe"), "SPARSE": str(tmp_path / "sparse")}
    asked = list(arguments)
    for word, place in places.items():
        asked = [text.replace(word, place) for text in asked]
    done = limited(*asked)
    assert done.returncode == 2, done.stderr[-2000:]
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 500


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.json").write_text('{"seed": 1, "plan": {"zeta": 9, "zeta": 8}}')
    with pytest.raises(ScenarioError, match="'zeta' is given twice"):
        Scenario.load(tmp_path / "twice.json")


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="Is a directory"):
        read_table(tmp_path)
