"""What must hold whatever happens, checked from outside: disks, messages and batteries are seen.

A node's own variables are not: what it believes cannot hide that it breaks an invariant.
"""

from __future__ import annotations

__all__ = ["Audit", "InvariantError", "Record"]

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from joulemesh.deploy.effects import Commit, Durable, Trained
from joulemesh.deploy.messages import (
    Accepted,
    Ballot,
    Beat,
    Flood,
    Join,
    Message,
    Promise,
    Refused,
)
from joulemesh.deploy.view import View
from joulemesh.deploy.virtual.hardware import Battery
from joulemesh.deploy.virtual.setup import VirtualPlan, VirtualPlanner

_UNPLANNED = ("finished", "refused")  # digests of views without a plan


class InvariantError(AssertionError):
    """An invariant does not hold.

    Args:
        invariant: its name.
        found: what shows it.
    """

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
    """Sees everything that becomes durable or is said, and objects.

    Args:
        planner: of the fleet.
        first: view 0.
        begin: each device's state before anything happened.
    """

    def __init__(self, planner: VirtualPlanner, first: View, begin: list[Durable]) -> None:
        self.planner = planner
        self.views = {0: first}
        self.records: dict[tuple[int, int, int], Record] = {}
        self._disk = list(begin)
        self._accepted: dict[tuple[Ballot, View], set[int]] = {}
        self.trained: dict[tuple[int, int], Trained] = {}  # (device, iteration): the last time
        self._averages: dict[tuple[int, int], Record] = {}
        for device, state in enumerate(begin):
            self.records[device, 0, 0] = Record(device, 0, state.commit)

    # Views --------------------------------------------------------------------------------------

    def governing(self, iteration: int, newest: int) -> int:
        """The number of the view that an iteration follows, as one sees it who knows so many."""
        number = newest
        while number and self.views[number].start > iteration:
            number -= 1
        return number

    def plan(self, number: int, device: int) -> VirtualPlan:
        """A device's plan of a view."""
        plan = self.planner.plan(self.views[number], device)
        if isinstance(plan, str):
            raise InvariantError("a view has a plan", plan)
        return plan

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
        if view.digest in _UNPLANNED or view.start > self.planner.setup.iterations:
            return
        if self.plan(view.number, view.members[0]).view != view:
            raise InvariantError("a view has its plan's digest", f"{who} has {view}")

    def _has_majority(self, before: View, view: View) -> None:
        behind = [
            len(by.intersection(before.members))
            for (_, accepted), by in self._accepted.items()
            if accepted == view
        ]
        if max(behind, default=0) < before.majority:
            raise InvariantError(
                "a view is accepted by a majority of the one before it",
                f"{max(behind, default=0)} of {before.members} have {view} on disk",
            )

    def _keeps_commits(self, before: View, view: View) -> None:
        """What a majority has committed is not done again."""
        for iteration in range(view.start, self.planner.setup.iterations + 1):
            number = self.governing(iteration, before.number)
            done = [one for one in before.members if (one, iteration, number) in self.records]
            if len(done) >= before.majority:
                raise InvariantError(
                    "a committed iteration is never lost",
                    f"{done} have committed iteration {iteration}, from which {view} starts again",
                )

    # Disks --------------------------------------------------------------------------------------

    def durable(self, device: int, state: Durable) -> None:
        """A state has reached a disk."""
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
        commit = state.commit
        if commit is not before.commit or newest > before.views[-1].number:
            self._goes_back(device, before, state)
            self._committed(device, commit, newest)

    def _goes_back(self, device: int, before: Durable, state: Durable) -> None:
        """Only a device that takes a gift may end up behind its own commit."""
        known, newest = before.views[-1].number, state.views[-1].number
        had, has = before.commit.iteration, state.commit.iteration
        recent = [self.views[number] for number in range(known, newest + 1)]
        if any(device in (newcomer for newcomer, _ in view.gifts) for view in recent):
            return
        if has < had:
            raise InvariantError(
                "a committed iteration is never lost", f"device {device} goes from {had} to {has}"
            )
        for view in recent[1:]:
            if device in view.members and had >= view.start:
                raise InvariantError(
                    "a view starts after what its members have committed",
                    f"device {device} had committed {had} when it took up {view}",
                )

    def _committed(self, device: int, commit: Commit, newest: int) -> None:
        number = self.governing(commit.iteration, newest)
        key = (device, commit.iteration, number)
        known = self.records.get(key)
        if known is not None:
            if known.commit.vector.tobytes() != commit.vector.tobytes():
                raise InvariantError(
                    "a committed iteration is never lost",
                    f"device {device} has other parameters after iteration {commit.iteration}",
                )
            return
        if commit.iteration == 0:
            return
        self.records[key] = record = Record(device, number, commit)
        if self.plan(number, self.views[number].members[0]).exact(commit.iteration):
            self._same_bits(record)

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

    def says(self, device: int, message: Message) -> None:
        """A device sends a message: what it says of itself must be on its disk."""
        disk = self._disk[device]
        if isinstance(message, Beat):
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

    @staticmethod
    def _on_disk(device: int, holds: bool, said: object) -> None:
        if not holds:
            raise InvariantError(
                "what others hear of is on disk", f"device {device} says {said} and forgets it"
            )

    @staticmethod
    def paid(device: int, battery: Battery) -> None:
        """A node has decided what to do."""
        if battery.left_j() < -1e-9:
            raise InvariantError(
                "no battery is overdrawn", f"device {device} has {battery.left_j():.3g} J left"
            )

    @staticmethod
    def metered(device: int, battery: Battery) -> None:
        """All is done: nothing was done that was not metered."""
        if battery.used_j > battery.spent_j() + 1e-9:
            raise InvariantError(
                "no battery is overdrawn",
                f"device {device} has used {battery.used_j:.6g} J and metered "
                f"{battery.spent_j():.6g} J",
            )

    def committed(self, device: int) -> Commit:
        """A device's last commit on disk."""
        return self._disk[device].commit

    def newest(self) -> View:
        """The newest view."""
        return self.views[max(self.views)]

    def history(self) -> Iterable[Record]:
        """All commits of iterations, in the order of iterations."""
        return sorted(
            (one for one in self.records.values() if one.commit.iteration),
            key=lambda one: (one.commit.iteration, one.view, one.device),
        )


def _promised(disk: Durable, number: int, ballot: Ballot) -> bool:
    if disk.views[-1].number >= number:
        return True
    return disk.promised is not None and disk.promised >= ballot
