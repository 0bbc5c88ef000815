"""What must hold whatever happens, checked from outside: disks, messages and batteries are seen.

A node's own variables are not: what it believes cannot hide that it breaks an invariant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.effects import Commit, Durable, Effect, End, Send, Train, Trained
from joulemesh.deploy.messages import (
    Accepted,
    Ballot,
    Beat,
    Flood,
    Join,
    Message,
    Part,
    Promise,
    Recall,
    Refused,
)
from joulemesh.deploy.view import FINISHED, LATE, UNHELD, View
from joulemesh.testing.fleets.hardware import Battery, Memory, train
from joulemesh.testing.fleets.setup import VirtualPlan, VirtualPlanner

Sent = dict[tuple[int, int, int], list[Vector]]
"""Payloads by (step, sender, receiver): all that were sent, in several lives of a sender."""

_UNPLANNED = (FINISHED, UNHELD)  # digests of views without a plan


class InvariantError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, found: str) -> None:
        super().__init__(f"{invariant}: {found}")
        self.invariant = invariant


@dataclass(frozen=True, eq=False)
class Record:
    """A commit that reached a disk, and the view that its iteration follows."""

    device: int
    view: int
    commit: Commit


class Audit:
    """Sees everything that becomes durable or is said, and objects."""

    def __init__(self, planner: VirtualPlanner, first: View, begin: list[Durable]) -> None:
        self.planner = planner
        self.views = {0: first}
        self.records: dict[tuple[int, int, int], Record] = {}  # device, iteration, its view
        self.gifts: dict[tuple[int, int, int], Record] = {}  # device, iteration, view of the gift
        self._plans: dict[int, VirtualPlan] = {}
        self._disk = list(begin)
        self._wiped: dict[int, set[int]] = {}  # iterations that devices have lost
        self._forgot: dict[int, set[int]] = {}  # runs of processes since folders were lost
        self._accepted: dict[tuple[Ballot, View], set[int]] = {}
        self.trained: dict[tuple[int, int], Trained] = {}  # (device, iteration): the last time
        self.sent: dict[tuple[int, int], Sent] = {}  # by view and iteration
        self._averages: dict[tuple[int, int], Record] = {}
        self._promises: set[tuple[int, int, int]] = set()
        self._ended: dict[int, dict[int, bytes]] = {}  # by iteration: who said done, with what
        self._late: list[Commit] = []  # what those ended with that were away
        for device, state in enumerate(begin):
            self.records[device, 0, 0] = Record(device, 0, state.commit)

    # Views --------------------------------------------------------------------------------------

    def governing(self, iteration: int, newest: int) -> int:
        """The number of the view that an iteration follows, as one sees it who knows so many."""
        number = newest
        while number and self.views[number].start > iteration:
            number -= 1
        return number

    def plan(self, number: int) -> VirtualPlan:
        """The plan of a view, as its first member sees it."""
        if number not in self._plans:
            view = self.views[number]
            odd = VirtualPlanner(self.planner.setup, self.planner.battery_j, odd=True)
            for planner in (self.planner, odd):
                plan = planner.plan(view, view.members[0])
                if isinstance(plan, str):
                    raise InvariantError("a view has a plan", plan)
                if plan.view == view:  # it is the plan of whoever proposed the view
                    self._plans[number] = plan
                    break
            else:
                raise InvariantError("a view has its plan's digest", f"{view} has another")
        return self._plans[number]

    def planned(self, number: int, iteration: int) -> bool:
        """Has the plan of a view, if it has one, an iteration?"""
        view = self.views[number]
        if view.digest in _UNPLANNED or not view.start <= iteration:
            return False
        return iteration <= self.plan(number).last

    def _installed(self, view: View, who: str) -> None:
        known = self.views.get(view.number)
        if known is not None:
            if known != view:
                raise InvariantError(
                    "one view per number", f"{who} has {view}, others have {known}"
                )
            return
        before = self.views.get(view.number - 1)
        if before is None:
            raise InvariantError(
                "views follow each other", f"{who} has {view} without the one before it"
            )
        self._has_majority(before, view)
        self._keeps_commits(before, view)
        self.views[view.number] = view
        if view.digest not in _UNPLANNED and view.start <= self.planner.setup.iterations:
            self.plan(view.number)

    def _has_majority(self, before: View, view: View) -> None:
        behind = [
            len(by.intersection(before.members))
            for (_, accepted), by in self._accepted.items()
            if accepted == view
        ]
        if max(behind, default=0) < majority_of(before):
            raise InvariantError(
                "a view is accepted by a majority of the one before it",
                f"{max(behind, default=0)} of {before.members} have {view} on disk",
            )

    def _keeps_commits(self, before: View, view: View) -> None:
        """What a majority has committed is not done again."""
        for iteration in range(view.start, self.planner.setup.iterations + 1):
            number = self.governing(iteration, before.number)
            done = [
                one
                for one in before.members
                if (one, iteration, number) in self.records
                and iteration not in self._wiped.get(one, ())
            ]
            if len(done) >= majority_of(before):
                raise InvariantError(
                    "a committed iteration is never lost",
                    f"{done} have committed iteration {iteration}, from which {view} starts again",
                )

    # Disks --------------------------------------------------------------------------------------

    def durable(self, device: int, state: Durable) -> None:
        before, self._disk[device] = self._disk[device], state
        if state.accepted is not None and state.accepted != before.accepted:
            self._accepted.setdefault(state.accepted, set()).add(device)
        for view in state.views:
            self._installed(view, f"device {device}")
        newest = state.views[-1].number
        if newest < before.views[-1].number:
            raise InvariantError(
                "a view is never forgotten", f"device {device} goes back to {newest}"
            )
        if state.ended.startswith(LATE):
            self._took_the_last(device, state.commit)
            return
        self._goes_back(device, before, state)
        if state.commit is not before.commit and state.commit.iteration:
            self._committed(device, state.commit, newest)

    def lost(self, device: int, state: Durable) -> None:
        """A device's folder is lost, or is as it was once, and so is what it had committed."""
        self._disk[device] = state
        self._forgot[device] = set()
        had = max(key[1] for key in self.records if key[0] == device)
        self._wiped.setdefault(device, set()).update(range(state.commit.iteration + 1, had + 1))

    def starts(self, device: int, epoch: int) -> None:
        if device in self._forgot:
            self._forgot[device].add(epoch)

    def forgetful(self, view: View) -> set[int]:
        """Members that may have voted against a view and do not know it: they do not vote.

        They have lost their folders since it was decided; or else it says that it has taken them
        in afterwards. In a view of two the other one knows.
        """
        if len(view.members) == 2:
            return set()
        return {
            one
            for one, epochs in self._forgot.items()
            if one in view.members and not any((one, epoch) in view.lives for epoch in epochs)
        }

    def has_lost(self, device: int, iteration: int) -> bool:
        return iteration in self._wiped.get(device, ())

    def keeps_still(self, device: int, effects: Sequence[Effect]) -> None:
        """A double takes no part: it shows that it is there, and no more."""
        for effect in effects:
            if isinstance(effect, Train) or (
                isinstance(effect, Send) and not isinstance(effect.message, Beat | Recall)
            ):
                raise InvariantError("a double keeps still", f"that of device {device}: {effect}")

    def _took_the_last(self, device: int, commit: Commit) -> None:
        """The fleet had ended without this device: it holds what another ended with."""
        held = [one.commit for one in self.records.values()] + self._late
        self._late.append(commit)
        found = {one.vector.tobytes() for one in held if one.iteration == commit.iteration}
        if commit.vector.tobytes() not in found:
            raise InvariantError(
                "whoever comes late gets what the others ended with",
                f"device {device} has iteration {commit.iteration} as nobody ended with it",
            )

    def _goes_back(self, device: int, before: Durable, state: Durable) -> None:
        """Nobody ends up behind its own commit, nor is taken to before it."""
        had, has = before.commit.iteration, state.commit.iteration
        if has < had:
            raise InvariantError(
                "a committed iteration is never lost", f"device {device} goes from {had} to {has}"
            )
        for number in range(before.views[-1].number + 1, state.views[-1].number + 1):
            view = self.views[number]
            if device in view.members and had >= view.start:
                raise InvariantError(
                    "a view starts after what its members have committed",
                    f"device {device} had committed {had} when it took up {view}",
                )

    def _committed(self, device: int, commit: Commit, newest: int) -> None:
        iteration = commit.iteration
        number = self.governing(iteration, newest)
        given = commit.view <= newest and any(
            newcomer == device and self.views[commit.view].start == iteration + 1
            for newcomer, _ in self.views[commit.view].gifts
        )
        if commit.view < number and not any(
            device in self.views[later].members and self.views[later].start <= iteration
            for later in range(commit.view + 1, newest + 1)
        ):
            number = commit.view  # it was put out since, and could not save before it learned so
        if commit.view != number and not given:
            raise InvariantError(
                "an iteration follows the plan of its view",
                f"device {device} commits {iteration} by view {commit.view} instead of {number}",
            )
        record = Record(device, number, commit)
        if given:
            known = self.gifts.setdefault((device, iteration, commit.view), record)
        else:
            if iteration in self._wiped.get(device, ()):  # nobody was told of it: it is done again
                self.records.pop((device, iteration, number), None)
            known = self.records.setdefault((device, iteration, number), record)
        if known.commit.vector.tobytes() != commit.vector.tobytes():
            raise InvariantError(
                "a committed iteration is never lost",
                f"device {device} has other parameters after iteration {iteration}",
            )
        if self.plan(number).exact(iteration):
            self._same_bits(record)

    def base(self, device: int, iteration: int, number: int) -> Record | None:
        """What a device begins an iteration of a view with: the last gift, or its own commit."""
        for newest in range(number, -1, -1):
            gift = self.gifts.get((device, iteration - 1, newest))
            if gift is not None:
                return gift
        before = self.governing(iteration - 1, number)
        return self.records.get((device, iteration - 1, before))

    def _same_bits(self, record: Record) -> None:
        """After an exact exchange everybody holds the same."""
        commit = record.commit
        other = self._averages.setdefault((commit.iteration, record.view), record)
        if other.commit.vector.tobytes() != commit.vector.tobytes():
            raise InvariantError(
                "after an exact exchange all members hold the same bits",
                f"devices {other.device} and {record.device} differ by "
                f"{np.abs(other.commit.vector - commit.vector).max():.3g} after iteration "
                f"{commit.iteration} of view {record.view}",
            )

    # Messages -----------------------------------------------------------------------------------

    def says(self, device: int, to: int, message: Message) -> None:
        """A device sends a message: what it says of itself must be on its disk."""
        disk = self._disk[device]
        if isinstance(message, Part):
            sent = self.sent.setdefault((message.view, message.iteration), {})
            sent.setdefault((message.step, device, to), []).append(message.payload)
        elif isinstance(message, Beat):
            self._on_disk(device, message.iteration <= disk.commit.iteration, message)
        elif isinstance(message, Refused):
            for view in message.views:
                self._installed(view, f"device {device}")
        elif isinstance(message, Flood):
            body = message.body
            if message.origin != device:
                return
            if isinstance(body, Promise):
                self._on_disk(device, _promised(disk, body.number, body.ballot), body)
            elif isinstance(body, Accepted):
                held = disk.accepted is not None and disk.accepted[0] >= body.ballot
                past = disk.views[-1].number >= body.number
                self._on_disk(device, held or past, body)
            elif isinstance(body, Join):
                self._on_disk(device, body.iteration <= disk.commit.iteration, body)

    def credits(self, device: int, message: Message, at_work: int) -> None:
        """A promise counts a training that is under way, and paid for, as paid."""
        if not isinstance(message, Flood) or message.origin != device:
            return
        said, name = message.body, (device, message.epoch, message.sequence)
        if not isinstance(said, Promise) or name in self._promises:
            return  # or it is only sent again
        self._promises.add(name)
        wanted = not said.pending and said.left_j > 0.0 and said.iteration + 1 == at_work
        if wanted and said.paid[1] <= 0.0:
            raise InvariantError(
                "a training that is paid for is credited",
                f"device {device} trains iteration {at_work}, and promises {said}",
            )

    def stopped(self, device: int, end: End) -> None:
        if not end.resumable:
            raise InvariantError(
                "no budget ends a fleet for good", f"device {device}: {end.reason}"
            )
        total_s, setup = self.planner.setup.total_s, self.planner.setup
        if "no time is left" not in end.reason or total_s is None:
            return
        last = max(state.commit.iteration for state in self._disk)
        each_s = [self._iteration_s(t) for t in range(1, last + 1)]
        slowest_s = max(map(setup.round_s, range(setup.devices)))
        least_s = max(each_s, default=0.0) + slowest_s
        if total_s - sum(each_s) > 2.0 * least_s:
            raise InvariantError(
                "time counts by the plan's clock",
                f"{sum(each_s):.3g} s of {total_s:.3g} s are over, and device {device} stops: "
                f"{end.reason}",
            )

    def _iteration_s(self, iteration: int) -> float:
        """Seconds of an iteration that was committed, by the plan's clock."""
        plans = [self.plan(view) for _, t, view in self.records if t == iteration]
        return max((plan.price(iteration).iteration_s for plan in plans), default=0.0)

    @staticmethod
    def _on_disk(device: int, holds: bool, said: object) -> None:
        if not holds:
            raise InvariantError(
                "what others hear of is on disk", f"device {device} says {said} and forgets it"
            )

    @staticmethod
    def paid(device: int, battery: Battery) -> None:
        if battery.used_j > battery.capacity_j + battery.untold_j + 1e-9:
            raise InvariantError(
                "no battery is overdrawn",
                f"device {device} has used {battery.used_j:.6g} J of {battery.capacity_j:.6g} J",
            )

    def done(self, device: int) -> None:
        """A device says that all iterations are done: it has the model that the others end with."""
        commit, newest = self._disk[device].commit, self.newest()
        planned = newest.digest not in _UNPLANNED
        last = self.plan(newest.number).last if planned else newest.start - 1
        if commit.iteration != last:
            raise InvariantError(
                "whoever says done has the last model",
                f"device {device} has committed {commit.iteration} of {last} iterations",
            )
        for number in reversed(range(newest.number + 1)):
            if self.planned(number, last):
                self._same_as_others(device, commit, exact=self.plan(number).exact(last))
                return

    def _same_as_others(self, device: int, commit: Commit, *, exact: bool) -> None:
        held = self._ended.setdefault(commit.iteration, {})
        held[device] = commit.vector.tobytes()
        if exact and len(set(held.values())) > 1:
            raise InvariantError(
                "whoever says done has the last model",
                f"of devices {sorted(held)} some end with other ones",
            )

    def metered(self, device: int, battery: Battery) -> None:
        """All is done: nothing was done that was not metered.

        Of what a device spends just before its folder is lost nobody may know: an iteration.
        """
        if battery.used_j == battery.forgot_at_j:
            return  # it has done nothing since
        if battery.used_j > battery.spent_j() + battery.untold_j + 1e-9:
            raise InvariantError(
                "no battery is overdrawn",
                f"device {device} has used {battery.used_j:.6g} J and metered "
                f"{battery.spent_j():.6g} J",
            )

    def committed(self, device: int) -> Commit:
        return self._disk[device].commit

    def known(self, device: int) -> View:
        """The newest view that a device has on its disk."""
        return self._disk[device].views[-1]

    def newest(self) -> View:
        return self.views[max(self.views)]

    def history(self) -> Iterable[Record]:
        """All commits of iterations, in the order of iterations."""
        return sorted(
            (one for one in self.records.values() if one.commit.iteration),
            key=lambda one: (one.commit.iteration, one.view, one.device),
        )


def majority_of(view: View) -> int:
    """More than half of a view's members, counted independently of the nodes."""
    return len(view.members) // 2 + 1


def _promised(disk: Durable, number: int, ballot: Ballot) -> bool:
    if disk.views[-1].number >= number:
        return True
    return disk.promised is not None and disk.promised >= ballot


_CLOSE = 1e-10


def check_history(audit: Audit) -> None:
    """Compare every commit with the exchange of what was trained from the commits before it."""
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
        that it heard before: its neighbours hold what it sent in its earlier life. So they do in
        the iterations after, where an old copy of its folder is put back. One that is put out may
        have gone without a neighbour, too, and its commit never tells.
        """
        whole = self._records.keys() >= set(self._who) and not self._sent_by
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
