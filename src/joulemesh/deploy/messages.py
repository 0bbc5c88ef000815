"""What devices say to each other.

A message goes from a device to one of its neighbours. The envelope that carries it, which the
transport writes and checks, names the fleet and the plan; what is here, the node checks.
"""

from __future__ import annotations

__all__ = [
    "NO_ROSTER",
    "OVER",
    "Absent",
    "Accept",
    "Accepted",
    "Account",
    "Ballot",
    "Beat",
    "Body",
    "Double",
    "Fetch",
    "FleetRoster",
    "Flood",
    "Given",
    "Join",
    "Leave",
    "Message",
    "NoPlan",
    "Part",
    "Prepare",
    "Promise",
    "Recall",
    "Refused",
    "Replan",
    "Signer",
    "Suspect",
    "signed_text",
]

import json
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.fields import record_of
from joulemesh.deploy.view import View

Ballot: TypeAlias = tuple[int, int]
"""(attempt, device that makes it): proposals for one view number, in order."""


@dataclass(frozen=True, eq=False)
class Part:
    """A message of an exchange: what a `Peer` sends in a step."""

    view: int
    iteration: int
    step: int
    payload: Vector


@dataclass(frozen=True)
class Account:
    """What a device says of itself and signs, for its neighbours to remember.

    They give it back when it is started again: what it then lacks, it has lost. The incarnation,
    the epoch and the saves tell which of two states of its folder is the later one.

    Attributes:
        device: whose it is.
        spent_j: joules that it has spent.
        iteration: the last that it has committed.
        incarnation: how often it has been started.
        epoch: names the run of its process, at random.
        saves: how often its folder has been written.
        sure: has it compared its folder with what its neighbours remember, in this run, and is on
            disk what came of it?
        signature: of all this, with its key.
    """

    device: int
    spent_j: float
    iteration: int
    incarnation: int
    epoch: int
    saves: int
    sure: bool = True
    signature: str = ""


@dataclass(frozen=True)
class Beat:
    """A sign of life to a neighbour, with what the sender is about.

    Attributes:
        epoch: names the run of the sender's process, at random.
        view: the newest view that it has installed.
        iteration: the last that it has committed; −1 while it waits for its parameters.
        phase: what it is doing.
        waiting: (neighbour, step): the first messages of each neighbour for which it waits; who has
            sent them long ago sends them again.
        finished: the devices of which it knows that they have committed the last iteration.
        count: of the sender's beats to this neighbour, in this epoch.
        echo: (epoch, count) of the last beat that the sender has had of this neighbour: proof that
            it is reached there.
        account: what the neighbour is to remember.
        roster: number of the newest `FleetRoster` that the sender has.
    """

    epoch: int
    view: int
    iteration: int
    phase: str
    waiting: tuple[tuple[int, int], ...] = ()
    finished: tuple[int, ...] = ()
    count: int = 0
    echo: tuple[int, int] = (0, 0)
    account: Account | None = None
    roster: int = 0


@dataclass(frozen=True)
class FleetRoster:
    """Which devices came to the fleet after its start, and which are to leave it for good.

    The fleet's authority signs it: it may come from anybody, and only a higher number counts.

    Attributes:
        number: 1, 2, …; 0 before the first.
        added: spare places that are taken now; see `Fleet.spares`.
        retired: devices that leave at the next boundary and are not taken in again.
        signature: of all this, with the authority's key.
    """

    number: int = 0
    added: tuple[int, ...] = ()
    retired: tuple[int, ...] = ()
    signature: str = ""


NO_ROSTER = FleetRoster()


@dataclass(frozen=True)
class Fetch:
    """Please send the exact average of an iteration, or a gift, as of an iteration."""

    view: int
    iteration: int
    gift: bool = False


@dataclass(frozen=True, eq=False)
class Given:
    """The answer to `Fetch`."""

    view: int
    iteration: int
    payload: Vector
    gift: bool = False


@dataclass(frozen=True)
class Absent:
    """The sender has nothing (more) for the receiver in a mixing with neighbours of the past.

    It was started again since, and what it had sent is lost: the receiver goes on without it.
    """

    view: int
    iteration: int


@dataclass(frozen=True)
class Refused:
    """A message was not taken; ``views``, each with its proof, are those its sender lacks."""

    reason: str
    views: tuple[View, ...] = ()


# Bodies of floods: to everybody, over the links that there are ------------------------------------


@dataclass(frozen=True)
class Suspect:
    """A device seems to have failed.

    Attributes:
        view: in which.
        device: which; the origin itself, if its own training takes too long.
        reason: one line.
        hung: it is there, but its training does not end: it is left out until that has.
    """

    view: int
    device: int
    reason: str
    hung: bool = False


@dataclass(frozen=True)
class Join:
    """The origin was away, or has lost its folder, and asks to be taken into the next view.

    Attributes:
        view: the newest that it knows.
        iteration: the last that it has committed.
        left_j: joules that it may still spend.
        pace: how many times as long as planned its training takes.
        epoch: names the run of its process: the next view says which run it has taken in.
    """

    view: int
    iteration: int
    left_j: float
    pace: float = 1.0
    epoch: int = 0


@dataclass(frozen=True)
class Leave:
    """The origin leaves at this boundary: it cannot pay for the next iteration, or was told to."""

    view: int
    reason: str


@dataclass(frozen=True)
class Replan:
    """The origin stays, but cannot follow the view's plan: it asks for a new one."""

    view: int
    reason: str


@dataclass(frozen=True)
class Prepare:
    """First half of a proposal for a view number: promise to heed no earlier ballot."""

    number: int
    ballot: Ballot


@dataclass(frozen=True)
class Promise:
    """The answer, with what the origin accepted before, if anything, and how it stands.

    From here until the view is decided the origin commits nothing.

    Attributes:
        number: of the view that is proposed.
        ballot: the highest that the origin has seen.
        accepted: what it accepted before for that number.
        iteration: the last that it has committed.
        left_j: joules that it may still spend.
        elapsed_s: seconds of its iterations by the plan's clock, which a total limits.
        cut: neighbours that it does not hear.
        pending: it was admitted and has not got its parameters yet.
        paid: (iteration, joules) of the training that it has paid for and not committed, which need
            not be paid again; iteration 0 if there is none.
        pace: how many times as long as planned its training takes.
        behind: it cannot do the iterations that it lacks: the plan has no part for it, or it cannot
            pay for its part in what others have done.
        gives: does its battery pay for giving a neighbour its parameters?
    """

    number: int
    ballot: Ballot
    accepted: tuple[Ballot, View] | None
    iteration: int
    left_j: float
    elapsed_s: float
    cut: tuple[int, ...] = ()
    pending: bool = False
    paid: tuple[int, float] = (0, 0.0)
    pace: float = 1.0
    behind: bool = False
    gives: bool = True


@dataclass(frozen=True)
class Accept:
    """Second half: take this view, if nothing later was promised."""

    ballot: Ballot
    view: View


@dataclass(frozen=True)
class Accepted:
    """The origin has taken it, durably; what a majority has taken is decided.

    Attributes:
        number: of the view.
        ballot: in which it was offered.
        value: its fingerprint: the vote is for this view and no other of that ballot.
    """

    number: int
    ballot: Ballot
    value: str


@dataclass(frozen=True)
class Double:
    """A neighbour of the origin runs twice: a second process bears its name and key."""

    device: int


@dataclass(frozen=True)
class NoPlan:
    """There is no plan for what the members of a view have left: everybody stops, and may resume.

    Attributes:
        view: that was to follow, without a digest; whoever hears of it finds out for itself.
        reason: why, in one line.
    """

    view: View
    reason: str


Body: TypeAlias = (
    Suspect | Join | Leave | Replan | Prepare | Promise | Accept | Accepted | NoPlan | Double
)


@dataclass(frozen=True)
class Flood:
    """A control message, which every device passes on to its neighbours once.

    Attributes:
        origin: who says it.
        epoch: names the run of the origin's process, at random.
        sequence: its floods are counted within one epoch.
        body: what it says.
        signature: of all this, with the origin's key (see `signing`).
    """

    origin: int
    epoch: int
    sequence: int
    body: Body
    signature: str = ""


@dataclass(frozen=True)
class Recall:
    """To a neighbour that was started: what it has said of itself before, with its own signature.

    The sender has on disk that the neighbour runs, before it says so.

    Attributes:
        account: the last that the sender remembers; None if there is none.
        whole: does the sender itself remember all its votes?
        epoch: of the run of the neighbour's process for which it is: it may come to a later one.
    """

    account: Account | None = None
    whole: bool = False
    epoch: int = 0


Message: TypeAlias = Part | Beat | Fetch | Given | Absent | Refused | Recall | FleetRoster | Flood

OVER = "over"  # the sender has ended, and only serves the parameters that it ended with
Phase = Literal[
    "starting", "training", "exchanging", "frozen", "fetching", "waiting", "ended", "over"
]


class Signer(Protocol):
    """Signs as one device of a fleet, and verifies what any device of it has signed."""

    def sign(self, text: bytes) -> str:
        """A signature with this device's key."""

    def verify(self, device: int, text: bytes, signature: str) -> bool:
        """Did that device sign this text?"""

    def authorised(self, text: bytes, signature: str) -> bool:
        """Did the fleet's authority sign this text?"""


def signed_text(said: Flood | Account | FleetRoster) -> bytes:
    """What the signature of a message is of: everything else in it, as it travels.

    >>> from joulemesh.deploy.messages import Leave
    >>> signed_text(Flood(3, 17, 1, Leave(0, "told to")))
    b'{"origin":3,"epoch":17,"sequence":1,"body":{"kind":"leave","view":0,"reason":"told to"}}'
    """
    return json.dumps(record_of(said, without="signature"), separators=(",", ":")).encode()
