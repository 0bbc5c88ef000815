"""What nodes note is enough for the report: a view comes back whole from a journal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.effects import Commit, Durable, Note, Received
from joulemesh.deploy.messages import Refused
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.record.history import read_history, views_of
from joulemesh.deploy.view import Settings, View
from joulemesh.testing.fleets.hardware import VirtualSigner
from tests.deploy.by_hand import proven


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
