"""The journal: whole lines, on the disk, in files of bounded size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.files import Disk, using
from joulemesh.deploy.device.journal import JOURNAL, Journal, journals_in


def lines_in(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in journals_in(folder)]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def test_a_line_has_both_clocks_and_plain_figures(tmp_path: Path) -> None:
    times = iter([100.0, 107.25])
    journal = Journal(tmp_path, clock=lambda: next(times), wall=lambda: 1.7e9)
    journal.write(
        "committed", {"j": np.float64(0.5), "n": np.int64(3), "x": float("nan"), "s": {4: (1,)}}
    )
    journal.flush()
    assert lines_in(tmp_path) == [
        {"at": 1.7e9, "t": 7.25, "kind": "committed", "j": 0.5, "n": 3, "x": None, "s": {"4": [1]}}
    ]


def test_half_a_line_is_cut_off_before_the_next_is_written(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    first.write("start")
    first.flush()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"at": 1.0, "kind": "comm')
    again = Journal(tmp_path)
    again.write("end")
    again.flush()
    assert [line["kind"] for line in lines_in(tmp_path)] == ["start", "end"]


class FullDisk(Disk):
    def append(self, path: Path, data: bytes) -> None:
        super().append(path, data[:10])
        raise OSError(28, "No space left on device")


def test_what_a_full_disk_refuses_is_written_later_and_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("start")
    journal.flush()
    journal.write("view", {"number": 1})
    with using(FullDisk()), pytest.raises(OSError, match="No space"):
        journal.flush()
    journal.write("end")
    journal.flush()
    assert [line["kind"] for line in lines_in(tmp_path)] == ["start", "view", "end"]
    assert journal.waiting == 0


def test_full_files_are_put_aside_in_order_and_the_oldest_go(tmp_path: Path) -> None:
    journal = Journal(tmp_path, full_bytes=200, most_files=5)
    for number in range(15):
        journal.write("view", {"number": number, "padding": "x" * 200})
        journal.flush()
    found = journals_in(tmp_path)
    assert len(found) <= 5
    numbers = [line["number"] for line in lines_in(tmp_path)]
    assert numbers == list(range(numbers[0], 15))
    assert len(numbers) >= 3


def test_what_repeats_itself_is_counted(tmp_path: Path) -> None:
    now = [0.0]
    journal = Journal(tmp_path, clock=lambda: now[0])
    for _ in range(1000):
        journal.write("refused", {"sender": 4, "reason": "another plan"})
    journal.write("refused", {"sender": 5, "reason": "another plan"})
    now[0] = 60.0
    journal.write("refused", {"sender": 4, "reason": "another plan"})
    journal.flush()
    counted = [(line["sender"], line["count"]) for line in lines_in(tmp_path)]
    assert counted == [(4, 1), (5, 1), (4, 1000)]


def test_a_stranger_who_varies_his_reasons_does_not_fill_the_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path, clock=lambda: 0.0)
    for number in range(5000):
        journal.write("refused", {"sender": 4, "reason": f"malformed: {number}"})
    journal.flush()
    assert len(lines_in(tmp_path)) <= 1001
