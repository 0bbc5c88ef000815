"""Views: who takes part, from which iteration on, what a new plan is made from, and how patient
the devices of a fleet are with each other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from joulemesh.deploy.codec import Record, write_record


@dataclass(frozen=True)
class Vote(Record):
    """A member's signed acceptance of a view: what its flood `Accepted` was signed with."""

    origin: int  # the member
    epoch: int  # of its flood
    sequence: int  # of its flood
    signature: str  # of its flood


@dataclass(frozen=True)
class Proof(Record):
    """Why a view may be installed: a majority's acceptances of it in one ballot."""

    ballot: tuple[int, int]
    votes: tuple[Vote, ...]


@dataclass(frozen=True)
class View(Record):
    """A numbered agreement about who takes part. All that re-planning needs is in it.

    View 0 is the plan's own: all devices, from iteration 1 on. The iterations from ``start`` on
    follow the plan that is made from the newest view; those before it are finished as they were
    begun: an exact average is fetched from a device that has it, and a mixing with neighbours goes
    on without those that are gone.
    """

    number: int  # 0, 1, 2, … in the order in which views are installed
    start: int  # the first iteration (from 1) that follows the plan of this view
    members: tuple[int, ...]  # the devices that take part, ascending
    # links between members that carry nothing, each (lower, higher), ascending
    cut: tuple[tuple[int, int], ...] = ()
    # joules that each member has left before iteration ``start``, in their order
    left_j: tuple[float, ...] = ()
    # seconds of the iterations before ``start`` by the plan's clock, which a total limits
    elapsed_s: float = 0.0
    # (newcomer, giver): a member that was away and the neighbour whose parameters, as of iteration
    # ``start`` − 1, it takes up
    gifts: tuple[tuple[int, int], ...] = ()
    digest: str = ""  # of the plan that follows from all this
    # the votes by which it was decided; None for view 0 and while it is proposed. Two views are
    # equal whoever voted for them.
    proof: Proof | None = field(default=None, compare=False)
    # how many times as long as planned each member's training takes, in their order; empty if no
    # training takes longer
    pace: tuple[float, ...] = ()
    # (newcomer, epoch): which run of its process has asked to be taken in. In this view no earlier
    # run of it can have voted.
    lives: tuple[tuple[int, int], ...] = ()

    @property
    def majority(self) -> int:
        """Members that must agree to the view that follows this one.

        >>> View(0, 1, (0, 1, 2, 3)).majority
        3
        """
        return len(self.members) // 2 + 1

    def pace_of(self, device: int) -> float:
        """How many times as long as planned a member's training may be expected to take.

        >>> View(1, 4, (0, 2), pace=(1.0, 6.5)).pace_of(2), View(0, 1, (0, 2)).pace_of(2)
        (6.5, 1.0)
        """
        known = dict(zip(self.members, self.pace, strict=False))
        return max(1.0, known.get(device, 1.0))


@lru_cache(maxsize=1024)
def fingerprint(view: View) -> str:
    """SHA-256 of what a view says, without its proof: what a vote is for."""
    return hashlib.sha256(write_record(view, without="proof").encode()).hexdigest()


FINISHED = "finished"
"""Digest of a view that begins after the last iteration: there is nothing to plan."""

LATE = "the fleet ended without this device, which has its last parameters"
"""Why a device ended that was away when the others ended, and was given what they ended with."""

UNHELD = "unheld"
"""Digest of a view whose members lack the parameters, and nobody stays who could give them: the run
ends."""


def governing(views: Sequence[View], iteration: int) -> View:
    """The view by whose plan an iteration is carried out: the newest that has begun by then.

    >>> views = (View(0, 1, (0, 1, 2)), View(1, 10, (0, 1)), View(2, 9, (0, 1)))
    >>> [governing(views, t).number for t in (8, 9, 10)]
    [0, 2, 2]
    """
    return next((view for view in reversed(views) if view.start <= iteration), views[0])


def stays(views: Sequence[View], since: int, device: int, other: int) -> bool:
    """Has a neighbour taken part in every view after one, without a break and over its link?

    >>> views = (View(0, 1, (0, 1, 2)), View(1, 4, (0, 1)), View(2, 6, (0, 1, 2), gifts=((2, 0),)))
    >>> stays(views, 0, 0, 1), stays(views, 0, 0, 2), stays(views, 2, 0, 2)
    (True, False, True)
    """
    link = (min(device, other), max(device, other))
    return all(
        other in view.members
        and link not in view.cut
        and all(newcomer != other for newcomer, _ in view.gifts)
        for view in views
        if view.number > since
    )


@dataclass(frozen=True)
class Settings:
    """Patience and what follows when it runs out.

    >>> Settings(patience_s=8.0).tick_s
    1.0
    """

    patience_s: float = 10.0  # seconds without a sign of life after which a device is suspected
    slack: float = 3.0  # factor by which training and exchanges may take longer than planned
    # ``"go-on"`` without devices that fail, or ``"stop"`` at the first failure
    on_failure: Literal["go-on", "stop"] = "go-on"
    # who must agree to go on: a ``"majority"`` of the members, or, of two members, ``"one"``: then
    # each goes on by itself where only the link between them is broken
    quorum: Literal["majority", "one"] = "majority"
    starting_s: float = 120.0  # seconds that a neighbour may take to be heard for the first time
    # seconds that training may take beyond what is planned (a first compilation)
    hang_s: float = 120.0
    minority_s: float = 120.0  # seconds after which a device that cannot reach a majority stops
    # share of each battery that a plan made after a fault leaves alone, for the next one; what
    # would otherwise not be paid for may be paid from it
    reserve: float = 0.01

    def needed(self, view: View) -> int:
        """Members of a view that must agree to the one that follows it.

        >>> pair, one = View(0, 1, (0, 1)), Settings(quorum="one")
        >>> Settings().needed(pair), one.needed(pair), one.needed(View(0, 1, (0, 1, 2)))
        (2, 1, 2)
        """
        alone = self.quorum == "one" and len(view.members) == 2
        return 1 if alone else view.majority

    @property
    def tick_s(self) -> float:
        """Period of a node's chores; every second time it sends signs of life."""
        return self.patience_s / 8.0
