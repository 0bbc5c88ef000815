"""Journals that are read while they are written tell what they tell in the end."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.deploy.record.history import FileTail, History, JournalTail, history_of
from joulemesh.scenario import Scenario
from tests.deploy.journals import Fleet, Outage

SCENARIO = Scenario(devices={"count": 3}, plan={"iterations": 12})


@pytest.fixture(scope="module")
def journal() -> bytes:
    """Of a device that was killed and came back."""
    plan = joulemesh.plan(SCENARIO)
    made = Fleet(plan, ("a", "b", "c"), outages=[Outage(1, 4, 8)])
    return b"".join(json.dumps(line).encode() + b"\n" for line in made.lines(1, made.began()))


def same(one: History, other: History) -> bool:
    return bool(
        np.array_equal(one.iterations, other.iterations)
        and np.array_equal(one.committed, other.committed)
        and np.array_equal(one.evaluations, other.evaluations)
        and one.sent == other.sent
        and one.events == other.events
        and one.damaged == other.damaged
    )


@given(cuts=st.lists(st.integers(0, 20_000), max_size=12), asked=st.booleans())
@settings(max_examples=60, deadline=None)
def test_however_it_is_cut_it_tells_the_same(journal: bytes, cuts: list[int], asked: bool) -> None:
    tail = JournalTail(1, "b")
    places = sorted({min(cut, len(journal)) for cut in cuts} | {0, len(journal)})
    for begin, end in pairwise(places):
        tail.feed(journal[begin:end])
        if asked:
            tail.history()
    assert tail.size == len(journal)
    assert same(tail.history(), history_of(journal.splitlines(), 1, "b"))


def test_a_file_is_followed_through_being_put_aside(journal: bytes, tmp_path: Path) -> None:
    lines = journal.splitlines(keepends=True)
    middle = len(lines) // 2
    tail, path = FileTail(tmp_path, 1, "b"), tmp_path / "journal.jsonl"
    assert not tail.look()
    path.write_bytes(b"".join(lines[:3]))
    assert tail.look()
    assert same(tail.history(), history_of(lines[:3], 1, "b"))
    with path.open("ab") as file:
        file.write(b"".join(lines[3:middle]))
    tail.look()
    before = tail.history()
    assert same(before, history_of(lines[:middle], 1, "b"))
    tail.look()
    assert tail.history() is before  # nothing new
    os.rename(path, tmp_path / "journal-000001.jsonl")
    path.write_bytes(b"".join(lines[middle:]))
    tail.look()
    assert same(tail.history(), history_of(lines, 1, "b"))


def test_a_file_that_was_cut_short_is_read_again(journal: bytes, tmp_path: Path) -> None:
    lines = journal.splitlines(keepends=True)
    tail, path = FileTail(tmp_path, 1, "b"), tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(lines[:6]) + lines[6][:10])
    tail.look()
    os.truncate(path, sum(map(len, lines[:6])))  # as a node does that is started again
    tail.look()
    assert same(tail.history(), history_of(lines[:6], 1, "b"))
