"""What the devices should hold: every commit computed again from those before it, one by one.

It shares nothing with the nodes but the schemes: no messages in flight, no time, no recovery.
"""

from __future__ import annotations

__all__ = ["check_history"]

from itertools import islice, product
from typing import Any

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.effects import Commit
from joulemesh.deploy.virtual.audit import Audit, InvariantError, Record
from joulemesh.deploy.virtual.hardware import Memory, train
from joulemesh.deploy.virtual.setup import VirtualPlan

_CLOSE = 1e-10


def check_history(audit: Audit) -> None:
    """Compare every commit with the exchange of what was trained from the commits before it.

    Raises:
        InvariantError: some device holds something else.
    """
    done: dict[tuple[int, int], _Iteration] = {}
    for record in audit.history():
        key = (record.commit.iteration, record.view)
        if key not in done:
            done[key] = _Iteration(audit, *key)
        done[key].check(record)
    for gift in audit.gifts.values():
        _check_gift(audit, gift)


def _check_gift(audit: Audit, record: Record) -> None:
    """It was taken from another, as that one had it."""
    view = audit.views[record.commit.view]
    giver = dict(view.gifts)[record.device]
    given = audit.base(giver, view.start, view.number)
    if given is None or not np.array_equal(given.commit.vector, record.commit.vector):
        raise InvariantError(
            "the simulation gives the same",
            f"device {record.device} holds another gift of iteration {record.commit.iteration} "
            f"than device {giver} had",
        )


class _Iteration:
    """One iteration of a view, done again."""

    def __init__(self, audit: Audit, iteration: int, number: int) -> None:
        self._iteration, self._number = iteration, number
        self._sent = audit.sent.get((number, iteration), {})
        self._plan: VirtualPlan = audit.plan(number)
        self._who = self._plan.active(iteration)
        self._trained: dict[int, tuple[Vector, Memory]] = {}
        self._sent_by: dict[int, list[Vector]] = {}  # what members may have averaged
        self._before: dict[int, Memory] = {}
        self._records = {
            one.device: one
            for one in audit.records.values()
            if one.commit.iteration == iteration and one.view == number
        }
        for member in self._who:
            base = audit.base(member, iteration, number)
            if base is not None:
                self._trained[member] = self._train(audit, member, base.commit)
                self._before[member] = base.commit.memory

    def _train(self, audit: Audit, member: int, base: Commit) -> tuple[Vector, Memory]:
        """Train again. What was trained before a change of view is kept, by the older plan."""
        plans = [
            audit.plan(number)
            for number in range(self._number + 1)
            if member in audit.views[number].members and audit.planned(number, self._iteration)
        ]
        rounds = sorted({plan.rounds_of(member, self._iteration) for plan in plans})
        ways = [train(member, self._iteration, one, base) for one in rounds]
        if audit.has_lost(member, self._iteration):  # in an earlier life it trained by either plan
            self._sent_by[member] = [way[0] for way in ways]
        known = self._records.get(member)
        last = audit.trained.get((member, self._iteration))
        for shown in (known.commit.memory if known else None, last.memory if last else None):
            for way in ways:
                if shown is not None and _same(shown, way[1]):
                    return way
        return ways[-1]

    def check(self, record: Record) -> None:
        device = record.device
        if device not in self._who:
            self._check_aside(record)
            return
        if device not in self._trained:
            raise InvariantError(
                "the simulation gives the same",
                f"device {device} commits iteration {self._iteration} of view {self._number} "
                "without the iteration before it",
            )
        apart = min(
            float(np.abs(wanted - record.commit.vector).max()) for wanted in self._wanted(device)
        )
        if not apart < _CLOSE and not self._by_what_was_sent(record):
            raise InvariantError(
                "the simulation gives the same",
                f"device {device} is {apart:.3g} from it after iteration {self._iteration} of "
                f"view {self._number}",
            )
        allowed = [self._trained[device][1], self._before[device]]
        if not any(_same(record.commit.memory, memory) for memory in allowed):
            raise InvariantError(
                "the simulation gives the same",
                f"device {device} remembers something else after iteration {self._iteration}",
            )

    def _check_aside(self, record: Record) -> None:
        """A device without a part in the plan takes up what another ends with, and only then."""
        held = [self._records[one].commit for one in self._who if one in self._records]
        same = any(np.array_equal(one.vector, record.commit.vector) for one in held)
        if not same or self._iteration != self._plan.last:
            raise InvariantError(
                "the simulation gives the same",
                f"device {record.device} has no part in iteration {self._iteration} of view "
                f"{self._number}, and holds something that nobody ended with",
            )

    def _wanted(self, device: int) -> list[Vector]:
        """What a device may hold: one vector, unless somebody has lost what it had trained."""
        if self._plan.exact(self._iteration):
            missing = [one for one in self._who if one not in self._trained]
            if missing:
                raise InvariantError(
                    "the simulation gives the same",
                    f"view {self._number} averages over {missing}, who are not there",
                )
            trained = [self._sent_by.get(one, [self._trained[one][0]]) for one in self._who]
            return [np.asarray(np.mean(one, axis=0)) for one in islice(product(*trained), 256)]
        if self._plan.route(self._iteration) is None:
            return [self._trained[device][0]]
        return [self._mixed()[device]]

    def _mixed(self) -> dict[int, Vector]:
        """All devices of a mixing with neighbours, each without those that it counted out."""
        if not hasattr(self, "_after"):
            self._after = self._mix()
        return self._after

    def _mix(self) -> dict[int, Vector]:
        route, size = self._plan.route(self._iteration), self._plan.setup.size
        assert route is not None
        peers: dict[int, Any] = {}
        after = {one: trained for one, (trained, _) in self._trained.items()}
        for device in self._who:
            peer = self._plan.peer_of(device, self._iteration)
            if peer is not None:
                peers[device] = peer
                peer.start(after.get(device, np.full(size, np.nan)))
        for step in range(route.length):
            sent = [
                (device, to, payload)
                for device, peer in peers.items()
                for to, payload in peer.send(step)
            ]
            for sender, to, payload in sent:
                if self._counted_out(to, step, sender):
                    peers[to].skip(step, sender)
                else:
                    peers[to].receive(step, sender, payload)
        return after | {device: peer.finish() for device, peer in peers.items()}

    def _by_what_was_sent(self, record: Record) -> bool:
        """Does it follow from what was really sent?

        A device that is started again in the middle of a mixing may have to go without a neighbour
        that it heard before: its neighbours hold what it sent in its earlier life. One that is put
        out may have gone without a neighbour, too, and its commit never tells.
        """
        whole = self._records.keys() >= set(self._who)
        if whole and not any(one.commit.absent for one in self._records.values()):
            return False
        route, device = self._plan.route(self._iteration), record.device
        assert route is not None
        mine = [(step, sender) for step, sender, to, _ in route.messages() if to == device]
        heard = [one for one in mine if one not in record.commit.absent]
        offers = [_different(self._sent.get((*one, device), [])) for one in heard]
        for choice in islice(product(*offers), 256):
            payloads = dict(zip(heard, choice, strict=True))
            result = self._alone(device, mine, payloads)
            if np.abs(result - record.commit.vector).max() < _CLOSE:
                return True
        return False

    def _alone(
        self, device: int, mine: list[tuple[int, int]], payloads: dict[tuple[int, int], Vector]
    ) -> Vector:
        """One device's mixing, given what it hears."""
        peer: Any = self._plan.peer_of(device, self._iteration)
        peer.start(self._trained[device][0])
        for step, sender in mine:
            if (step, sender) in payloads:
                peer.receive(step, sender, payloads[step, sender])
            else:
                peer.skip(step, sender)
        return np.asarray(peer.finish())

    def _counted_out(self, device: int, step: int, sender: int) -> bool:
        record = self._records.get(device)
        return record is not None and (step, sender) in record.commit.absent


def _same(one: Memory, other: Memory) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


def _different(payloads: list[Vector]) -> list[Vector]:
    return list({payload.tobytes(): payload for payload in payloads}.values())
