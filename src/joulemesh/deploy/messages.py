"""What devices say to each other.

A message goes from a device to one of its neighbours. The envelope that carries it, which the
transport writes and checks, names the fleet and the plan; what is here, the node checks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import Field

from joulemesh.deploy.codec import Array, Record, Text, write_record
from joulemesh.deploy.view import View

Ballot: TypeAlias = tuple[int, int]
"""(attempt, device that makes it): proposals for one view number, in order."""


@dataclass(frozen=True, eq=False)
class Part(Record):
    """A message of an exchange: what a `Peer` sends in a step."""

    view: int
    iteration: int
    step: int
    payload: Array


@dataclass(frozen=True)
class Account(Record):
    """What a device says of itself and signs, for its neighbours to remember.

    They give it back when it is started again: what it then lacks, it has lost. The incarnation,
    the epoch and the saves tell which of two states of its folder is the later one.
    """

    device: int  # whose it is
    spent_j: float  # joules that it has spent
    iteration: int  # the last that it has committed
    incarnation: int  # how often it has been started
    epoch: int  # names the run of its process, at random
    saves: int  # how often its folder has been written
    # has it compared its folder with what its neighbours remember, in this run, and is on disk
    # what came of it?
    sure: bool = True
    signature: str = ""  # of all this, with its key


@dataclass(frozen=True)
class Beat(Record):
    """A sign of life to a neighbour, with what the sender is about."""

    epoch: int  # names the run of the sender's process, at random
    view: int  # the newest view that it has installed
    iteration: int  # the last that it has committed; −1 while it waits for its parameters
    phase: Text  # what it is doing
    # (neighbour, step): the first messages of each neighbour for which it waits; who has sent them
    # long ago sends them again
    waiting: tuple[tuple[int, int], ...] = ()
    # the devices of which it knows that they have committed the last iteration
    finished: tuple[int, ...] = ()
    count: int = 0  # of the sender's beats to this neighbour, in this epoch
    # (epoch, count) of the last beat that the sender has had of this neighbour: proof that it is
    # reached there
    echo: tuple[int, int] = (0, 0)
    account: Account | None = None  # what the neighbour is to remember
    roster: int = 0  # number of the newest `FleetRoster` that the sender has


@dataclass(frozen=True)
class FleetRoster(Record):
    """Which devices came to the fleet after its start, and which are to leave it for good.

    The fleet's authority signs it: it may come from anybody, and only a higher number counts.
    """

    number: int = 0  # 1, 2, …; 0 before the first
    added: tuple[int, ...] = ()  # spare places that are taken now; see `Fleet.spares`
    # devices that leave at the next boundary and are not taken in again
    retired: tuple[int, ...] = ()
    signature: str = ""  # of all this, with the authority's key


NO_ROSTER = FleetRoster()


@dataclass(frozen=True)
class Fetch(Record):
    """Please send the exact average of an iteration, or a gift, as of an iteration."""

    view: int
    iteration: int
    gift: bool = False


@dataclass(frozen=True, eq=False)
class Given(Record):
    """The answer to `Fetch`."""

    view: int
    iteration: int
    payload: Array
    gift: bool = False


@dataclass(frozen=True)
class Absent(Record):
    """The sender has nothing (more) for the receiver in a mixing with neighbours of the past.

    It was started again since, and what it had sent is lost: the receiver goes on without it.
    """

    view: int
    iteration: int


@dataclass(frozen=True)
class Refused(Record):
    """A message was not taken; ``views``, each with its proof, are those its sender lacks."""

    reason: Text
    views: tuple[View, ...] = ()


# Bodies of floods: to everybody, over the links that there are ------------------------------------


@dataclass(frozen=True)
class Suspect(Record):
    """A device seems to have failed."""

    view: int  # in which
    device: int  # which; the origin itself, if its own training takes too long
    reason: Text  # one line
    hung: bool = False  # it is there, but its training does not end: it is left out until that has
    kind: Literal["suspect"] = "suspect"


@dataclass(frozen=True)
class Join(Record):
    """The origin was away, or has lost its folder, and asks to be taken into the next view."""

    view: int  # the newest that it knows
    iteration: int  # the last that it has committed
    left_j: float  # joules that it may still spend
    pace: float = 1.0  # how many times as long as planned its training takes
    epoch: int = 0  # names the run of its process: the next view says which run it has taken in
    kind: Literal["join"] = "join"


@dataclass(frozen=True)
class Leave(Record):
    """The origin leaves at this boundary: it cannot pay for the next iteration, or was told to."""

    view: int
    reason: Text
    kind: Literal["leave"] = "leave"


@dataclass(frozen=True)
class Replan(Record):
    """The origin stays, but cannot follow the view's plan: it asks for a new one."""

    view: int
    reason: Text
    kind: Literal["replan"] = "replan"


@dataclass(frozen=True)
class Prepare(Record):
    """First half of a proposal for a view number: promise to heed no earlier ballot."""

    number: int
    ballot: Ballot
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True)
class Promise(Record):
    """The answer, with what the origin accepted before, if anything, and how it stands.

    From here until the view is decided the origin commits nothing.
    """

    number: int  # of the view that is proposed
    ballot: Ballot  # the highest that the origin has seen
    accepted: tuple[Ballot, View] | None  # what it accepted before for that number
    iteration: int  # the last that it has committed
    left_j: float  # joules that it may still spend
    elapsed_s: float  # seconds of its iterations by the plan's clock, which a total limits
    cut: tuple[int, ...] = ()  # neighbours that it does not hear
    pending: bool = False  # it was admitted and has not got its parameters yet
    # (iteration, joules) of the training that it has paid for and not committed, which need not be
    # paid again; iteration 0 if there is none
    paid: tuple[int, float] = (0, 0.0)
    pace: float = 1.0  # how many times as long as planned its training takes
    # it cannot do the iterations that it lacks: the plan has no part for it, or it cannot pay for
    # its part in what others have done
    behind: bool = False
    gives: bool = True  # does its battery pay for giving a neighbour its parameters?
    kind: Literal["promise"] = "promise"


@dataclass(frozen=True)
class Accept(Record):
    """Second half: take this view, if nothing later was promised."""

    ballot: Ballot
    view: View
    kind: Literal["accept"] = "accept"


@dataclass(frozen=True)
class Accepted(Record):
    """The origin has taken it, durably; what a majority has taken is decided."""

    number: int  # of the view
    ballot: Ballot  # in which it was offered
    value: str  # its fingerprint: the vote is for this view and no other of that ballot
    kind: Literal["accepted"] = "accepted"


@dataclass(frozen=True)
class Double(Record):
    """A neighbour of the origin runs twice: a second process bears its name and key."""

    device: int
    kind: Literal["double"] = "double"


@dataclass(frozen=True)
class NoPlan(Record):
    """There is no plan for what the members of a view have left: all stop, and may resume."""

    view: View  # that was to follow, without a digest; whoever hears of it finds out for itself
    reason: Text  # why, in one line
    kind: Literal["noplan"] = "noplan"


Body: TypeAlias = (
    Suspect | Join | Leave | Replan | Prepare | Promise | Accept | Accepted | NoPlan | Double
)
"""What a flood says; its ``kind`` tells it apart in a record."""


@dataclass(frozen=True)
class Flood(Record):
    """A control message, which every device passes on to its neighbours once."""

    origin: int  # who says it
    epoch: int  # names the run of the origin's process, at random
    sequence: int  # its floods are counted within one epoch
    body: Annotated[Body, Field(discriminator="kind")]  # what it says
    signature: str = ""  # of all this, with the origin's key (see `signing`)


@dataclass(frozen=True)
class Recall(Record):
    """To a neighbour that was started: what it has said of itself before, with its own signature.

    The sender has on disk that the neighbour runs, before it says so.
    """

    account: Account | None = None  # the last that the sender remembers; None if there is none
    whole: bool = False  # does the sender itself remember all its votes?
    # of the run of the neighbour's process for which it is: it may come to a later one
    epoch: int = 0


Message: TypeAlias = Part | Beat | Fetch | Given | Absent | Refused | Recall | FleetRoster | Flood

OVER = "over"  # the sender has ended, and only serves the parameters that it ended with
Phase = Literal[
    "starting", "training", "exchanging", "frozen", "fetching", "waiting", "ended", "over"
]


class Signer(Protocol):
    """Signs as one device of a fleet, and verifies what any device of it has signed."""

    def sign(self, text: bytes) -> str: ...

    def verify(self, device: int, text: bytes, signature: str) -> bool: ...

    def authorised(self, text: bytes, signature: str) -> bool:
        """Did the fleet's authority sign this text?"""


def signed_text(said: Flood | Account | FleetRoster) -> bytes:
    """What the signature of a message is of: everything else in it, as it travels.

    >>> from joulemesh.deploy.messages import Leave
    >>> signed_text(Flood(3, 17, 1, Leave(0, "told to")))
    b'{"origin":3,"epoch":17,"sequence":1,"body":{"view":0,"reason":"told to","kind":"leave"}}'
    """
    return write_record(said, without="signature").encode()
