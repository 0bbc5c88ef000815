"""What happens to a node, and what it wants done: the two sides of its state machine.

``node.handle(event, now)`` takes one `Event` and gives the `Effect`s that follow, in order. A node
has no clock, no network, no disk and no threads: the asyncio runner and the tests' virtual world
drive the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

from joulemesh.aggregation.peer import Peer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.deploy.codec import Array, Record
from joulemesh.deploy.messages import NO_ROSTER, Account, Ballot, FleetRoster, Message, Part
from joulemesh.deploy.view import View


@dataclass(frozen=True)
class Price:
    """What an iteration costs one device, as planned."""

    round_j: float  # joules of one local round
    round_s: float  # its seconds
    exchange_j: float  # joules of the device's part in the exchange
    exchange_s: float  # seconds of the whole exchange
    iteration_s: float  # seconds of the iteration on the slowest device, exchange included
    rest_j: float = 0.0  # joules that the device draws at rest in that time


class ViewPlan(Protocol):
    """The plan of one view, as one device sees it. Iterations count from 1, as in `View`."""

    @property
    def view(self) -> View:
        """Whose plan it is; its ``digest`` is filled in."""

    @property
    def last(self) -> int: ...

    def rounds(self, iteration: int) -> int: ...

    def active(self, iteration: int) -> tuple[int, ...]:
        """The members that take part, ascending; others cannot pay, or are cut off by such.

        Who is not among them trains nothing and exchanges nothing from then on.
        """

    def route(self, iteration: int) -> Route | None:
        """Everybody's messages of the exchange; None where there is no exchange."""

    def peer(self, iteration: int) -> Peer | None:
        """What this device does in the exchange; None where it takes no part in one."""

    def exact(self, iteration: int) -> bool:
        """Does everybody hold the same mean after the exchange?"""

    def price(self, iteration: int) -> Price: ...

    def rest_j(self, iteration: int) -> float:
        """Joules of this device's part, from an iteration to the last."""


class Meter(Protocol):
    """What a device's battery still holds for this run.

    The node asks for a price before it begins anything, and reports what it begins: a modelled
    meter counts these reports, a sensor does not need them.
    """

    def left_j(self) -> float: ...

    def train_j(self, rounds: int) -> float: ...

    def exchange(self, route: Route, iteration: int) -> None: ...

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        """Joules that a message to a neighbour takes.

        ``step`` is that of the exchange, for a message that is sent for the first time.
        """

    def train(self, rounds: int) -> None: ...

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters is sent to a neighbour, for the first time or again."""

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters has come from a neighbour."""

    def spent_j(self) -> float: ...

    def recall(self, spent_j: float) -> None:
        """At least so many were spent before: neighbours remember what this device has lost."""


class Learner(Protocol):
    """What trains on a device: `DeviceTrainer`, or a user's own object."""

    def parameters(self) -> Vector: ...

    def load(self, parameters: Vector) -> None: ...

    def train(self, iteration: int, rounds: int) -> None: ...

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present parameters, by name: ``{"accuracy": 0.93}``."""

    def save(self) -> Mapping[str, NDArray[Any]]:
        """What the optimiser remembers, as named arrays."""

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None: ...


@dataclass(frozen=True, eq=False)
class Commit(Record):
    """A device's state after an iteration."""

    iteration: int  # the last that is done; 0 before the first
    vector: Array  # [P], its parameters
    memory: Mapping[str, Array] = field(default_factory=dict)  # what the optimiser remembers
    spent_j: float = 0.0  # joules metered so far
    elapsed_s: float = 0.0  # seconds that its iterations took, from the first training on
    # the latest exact average and its iteration, for those who missed it
    average: tuple[int, Array] | None = None
    # (step, neighbour): messages that this iteration's exchange had to go without
    absent: tuple[tuple[int, int], ...] = ()
    view: int = 0  # the number of the view by whose plan it was done, or in which it was given
    planned_s: float = 0.0  # seconds of its iterations by the plan's clock, which a total limits
    # [P], what its messages have lost so far, where they are quantised; otherwise None
    owed: Array | None = None
    # [P], the last average, where messages are quantised and ``vector`` is another
    agreed: Array | None = None

    @property
    def shared(self) -> Vector:
        """What a newcomer begins with."""
        return self.vector if self.agreed is None else self.agreed


@dataclass(frozen=True, eq=False)
class Durable(Record):
    """What outlives a crash: all of it is on disk before anybody hears of it."""

    # how often the node has been started; 0 before the first time. The node counts.
    incarnation: int
    # those installed that may still be asked for, ascending; the last is the present one
    views: tuple[View, ...]
    commit: Commit  # the last iteration that is done
    promised: Ballot | None = None  # the highest ballot promised for the number that follows it
    accepted: tuple[Ballot, View] | None = None  # what was accepted for that number
    # the iteration that is trained but not committed, its parameters and memory: what an exchange
    # can be repeated from. None if there is none, or it may be trained again.
    trained: tuple[int, Array, Mapping[str, Array]] | None = None
    # parameters of an earlier iteration that a newcomer has not fetched yet
    gift: tuple[int, Array] | None = None
    ended: str = ""  # why the node ended for good, once it has
    # (receiver, message) of mixings with neighbours that are committed here, but not there as far
    # as is known: what a receiver that was started again may ask for
    sent: tuple[tuple[int, Part], ...] = ()
    # what neighbours have said of themselves, for when they have lost it
    accounts: tuple[Account, ...] = ()
    epoch: int = 0  # of the run of the process that wrote this
    saves: int = 0  # how often the folder has been written
    # ``"new"`` until neighbours have said that they do not know the device; ``"lost"`` if they
    # know more of it than is here, until a view takes it in as it is; ``"copied"`` if it is not
    # where it was written, until all of them have said what they know; else ``"whole"``. Only a
    # device whose folder is whole votes.
    folder: Literal["new", "whole", "lost", "copied"] = "new"
    roster: FleetRoster = NO_ROSTER  # the newest that the device has


# Events -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """The node is started, for the first time or again."""


@dataclass(frozen=True)
class Received:
    """A message has come from a neighbour, which the transport knows by its certificate."""

    sender: int
    message: Message


@dataclass(frozen=True)
class Delivered:
    """The receiver has acknowledged a message."""

    token: int


@dataclass(frozen=True)
class Undelivered:
    """It has not, within its deadline; it may have come through all the same."""

    token: int
    reason: str


@dataclass(frozen=True, eq=False)
class Trained:
    """The learner has run the rounds of an iteration."""

    iteration: int  # which
    vector: Vector  # [P], the parameters afterwards
    memory: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # what the optimiser remembers
    # would it end with the same bits again? What cannot be repeated is on disk before anybody
    # hears of it
    repeatable: bool = False
    attempt: int = 0  # that of the `Train` which it answers
    seconds: float = 0.0  # that the learner took, without what it had to wait for


@dataclass(frozen=True)
class TrainFailed:
    """The learner could not: it diverged, or its code failed."""

    iteration: int
    reason: str
    attempt: int = 0


@dataclass(frozen=True)
class Saved:
    """What `Save` carried is on disk."""

    token: int


@dataclass(frozen=True)
class SaveFailed:
    """It is not: the disk is full or broken. What was there before is still whole."""

    token: int
    reason: str


@dataclass(frozen=True)
class Planned:
    """The plan of a view, or why there is none."""

    view: View
    plan: ViewPlan | None
    refusal: str = ""


@dataclass(frozen=True)
class Tick:
    """A timer has run out."""

    name: str


@dataclass(frozen=True)
class StopAsked:
    """The user or the system asks the node to stop; started again, it resumes."""

    reason: str


Event: TypeAlias = (
    Begin
    | Received
    | Delivered
    | Undelivered
    | Trained
    | TrainFailed
    | Saved
    | SaveFailed
    | Planned
    | Tick
    | StopAsked
)


# Effects ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Carry a message to a neighbour; `Delivered` or `Undelivered` follows, once, by then."""

    token: int  # names this sending in the event that follows
    to: int  # the neighbour
    message: Message  # what is said
    within_s: float  # its deadline


@dataclass(frozen=True, eq=False)
class Train:
    """Run local rounds; `Trained` or `TrainFailed` of the same attempt follows.

    The memory that a commit holds is loaded first: a round that was begun and lost leaves no trace.
    No other is asked for before it is answered.
    """

    iteration: int  # which, from 1
    rounds: int  # how many
    start: Commit  # what to begin with
    attempt: int = 0  # names this training in the event that follows
    iteration_s: float = 0.0  # seconds of the whole iteration, by the plan that it belongs to


@dataclass(frozen=True, eq=False)
class Save:
    """Make the state durable; `Saved` or `SaveFailed` follows. Saves are carried out in order."""

    token: int
    state: Durable


@dataclass(frozen=True)
class Plan:
    """Make the plan of a view; `Planned` follows."""

    view: View


@dataclass(frozen=True, eq=False)
class Evaluate:
    """Measure and journal the accuracy of the parameters after an iteration; nothing follows."""

    iteration: int  # that was committed
    vector: Vector  # [P], the parameters
    # the devices that hold the same parameters, of which one evaluation is enough; none where this
    # device's are its own
    holders: tuple[int, ...] = ()


@dataclass(frozen=True)
class SetTimer:
    """`Tick` of this name follows after so many seconds; a timer of the same name is replaced."""

    name: str
    after_s: float


@dataclass(frozen=True)
class Note:
    """A line for the journal."""

    kind: str  # what happened, in a word
    figures: Mapping[str, Any] = field(default_factory=dict)  # plain values that belong to it


@dataclass(frozen=True)
class End:
    """The node has finished, or gives up; nothing is wanted of it any more."""

    reason: str  # one line
    complete: bool  # were all iterations of the plan carried out?
    # can it be started again and go on? If not, either the state says that it has ended for good,
    # or the user has to change something first
    resumable: bool = True


Effect: TypeAlias = Send | Train | Save | Plan | Evaluate | SetTimer | Note | End
