"""Journals, followed while they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.deploy.local.local import Follower, Planned
from joulemesh.deploy.operator.standing import Standing

PLANNED = Planned(np.outer([0.0, 1.0, 2.5], np.ones(4)), np.array([0.0, 3.0, 6.0]), np.full(4, 4.0))


def write(path: Path, *lines: dict[str, Any], end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(json.dumps({"at": 5.0, "t": 1.0, **line}) for line in lines) + end)


def test_a_device_is_followed_from_its_start_to_its_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path, Standing(3, "barn"), PLANNED)
    assert follower.now().phase == ""
    path = tmp_path / "journal.jsonl"
    write(path, {"kind": "start", "iteration": 0, "spent_j": 0.0})
    assert follower.now().phase == "starting"
    assert follower.started_at == 5.0
    done = {"iteration": 1, "spent_j": 1.25, "elapsed_s": 4.0}
    write(path, {"kind": "trained", "iteration": 1}, {"kind": "committed", **done})
    now = follower.now()
    assert (now.device, now.name, now.phase, now.iteration) == (3, "barn", "training", 1)
    assert (now.spent_j, now.planned_j, now.battery_j) == (1.25, 1.0, 4.0)
    assert (now.elapsed_s, now.planned_s, now.iterations) == (4.0, 3.0, 2)
    write(path, {"kind": "view", "number": 2}, {"kind": "evaluated", "accuracy": 0.5})
    write(path, {"kind": "end", "complete": False, "reason": "too few"})
    now = follower.now()
    assert (now.view, now.accuracy, now.phase, now.trouble) == (2, 0.5, "ended", "too few")
    write(path, {"kind": "start", "iteration": 1})
    assert follower.now().trouble == ""


def test_half_lines_wait_and_damaged_ones_are_passed_over(tmp_path: Path) -> None:
    follower = Follower(tmp_path, Standing(0, "gate"), PLANNED)
    path = tmp_path / "journal.jsonl"
    write(path, {"kind": "trained"}, end="")
    assert follower.now().phase == ""
    path.write_bytes(path.read_bytes() + b'\n{"kind"\n[1]\n{"kind": "committed"}\n\xff\n')
    write(path, {"kind": "evaluated", "accuracy": 0.25})
    now = follower.now()
    assert (now.phase, now.iteration, now.accuracy) == ("exchanging", 0, 0.25)


def test_a_journal_that_was_put_aside_goes_on_in_a_new_file(tmp_path: Path) -> None:
    follower = Follower(tmp_path, Standing(0, "gate"), PLANNED)
    path = tmp_path / "journal.jsonl"
    write(path, {"kind": "committed", "iteration": 1, "spent_j": 1.0})
    assert follower.now().iteration == 1
    path.rename(tmp_path / "journal-000001.jsonl")
    write(path, {"kind": "committed", "iteration": 2, "spent_j": 2.0})
    assert (follower.now().iteration, follower.now().spent_j) == (2, 2.0)
