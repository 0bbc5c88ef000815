"""Journals that are read while they are written tell what they tell in the end."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.aggregation.route import Route
from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.effects import Commit, Durable, Note, Received
from joulemesh.deploy.local.local import Follower, Planned
from joulemesh.deploy.messages import Refused
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import (
    FileTail,
    History,
    JournalTail,
    history_of,
    read_history,
    views_of,
)
from joulemesh.deploy.view import Settings, View
from joulemesh.scenario import Scenario
from joulemesh.testing.fleets.hardware import VirtualSigner
from tests.deploy.by_hand import proven
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


class Full:
    """A meter of a battery that is never empty."""

    def left_j(self) -> float:
        return 1e9

    def spent_j(self) -> float:
        return 0.0

    def train_j(self, rounds: int) -> float:
        return 0.0

    def recall(self, spent_j: float) -> None: ...

    def exchange(self, route: Route, iteration: int) -> None: ...

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        return 0.0

    def train(self, rounds: int) -> None: ...

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None: ...

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None: ...


def test_a_view_that_a_node_installs_comes_back_whole_from_its_journal(tmp_path: Path) -> None:
    view = View(
        1, 5, (0, 1, 3), cut=((1, 3),), left_j=(5.5, 6.25, 7.0), elapsed_s=2.5, gifts=((3, 0),),
        digest="ab" * 32,
    )  # fmt: skip
    state = Durable(1, (View(0, 1, (0, 1, 2, 3), digest="cd" * 32),), Commit(4, np.zeros(3)))
    links = ((0, 1), (0, 3), (1, 2), (1, 3))
    node = Node(0, links, state, Full(), Settings(), VirtualSigner(0), epoch=1)
    known = proven(view, 0, 1, 3)
    told = node.handle(Received(1, Refused("view 0 is over", (known,))), 1.0)
    journal = Journal(tmp_path)
    for effect in told:
        if isinstance(effect, Note):
            journal.write(effect.kind, effect.figures)
    journal.flush()
    (seen,) = views_of([read_history(tmp_path, 0, "gate")])
    assert seen.view == view
    assert seen.devices == (0,)
    assert json.loads((tmp_path / "journal.jsonl").read_text())["kind"] == "view"
