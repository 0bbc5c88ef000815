"""What each iteration took and sent, counted while it happens: the figures of a journal's line."""

from __future__ import annotations

__all__ = ["Cost", "Punctuality", "Tally"]

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from joulemesh.deploy.effects import Commit


class Cost(NamedTuple):
    """What local training took."""

    rounds: int
    joules: float
    seconds: float


@dataclass
class _Iteration:
    rounds: int = 0
    train_j: float = 0.0
    train_s: float = 0.0
    trained_at: float | None = None
    spent_j: float = 0.0  # when training was over
    sent: dict[int, list[float]] = field(default_factory=dict)
    received: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Punctuality:
    """How iterations kept the deadline, since the node was started.

    Attributes:
        deadline_s: seconds that an iteration may take; None without a limit.
        timed: iterations that were timed.
        late: those of them that took longer.
        worst: how many times the deadline the longest took.

    >>> kept = Punctuality(0.5)
    >>> for seconds in (0.25, 0.75, 4.0):
    ...     kept.took(seconds)
    >>> print(kept)
    2 of 3 iterations took longer than the deadline of 0.5 s, the worst 8 times as long
    """

    deadline_s: float | None = None
    timed: int = 0
    late: int = 0
    worst: float = 0.0

    def took(self, seconds: float) -> None:
        """An iteration is over; one that was given took no time."""
        if self.deadline_s and seconds > 0.0:
            self.timed += 1
            self.late += seconds > self.deadline_s
            self.worst = max(self.worst, seconds / self.deadline_s)

    def figures(self) -> dict[str, Any]:
        """For the journal; none without a deadline."""
        if not self.deadline_s:
            return {}
        return {"timed": self.timed, "late": self.late, "worst": round(self.worst, 3)}

    def __str__(self) -> str:
        return (
            f"{self.late:,} of {self.timed:,} iterations took longer than the deadline of "
            f"{self.deadline_s:.3g} s, the worst {self.worst:.3g} times as long"
        )


class Tally:
    """Counts by iteration, since messages of the next one may come early.

    >>> tally = Tally()
    >>> tally.trained(1, Cost(4, joules=2.0, seconds=0.5), now=10.0, spent_j=2.0)
    >>> for now in (10.0, 10.125):
    ...     tally.sending(3, now)
    >>> for now in (10.25, 10.5):
    ...     tally.sent(1, 3, 50)
    ...     tally.answered(1, 3, now)
    >>> took = tally.costs(Commit(1, None, spent_j=2.5), now=11.0)
    >>> took["exchange_s"], took["exchange_j"], tally.traffic(1)["sent"]
    (1.0, 0.5, {'3': [100, 0.5, 2]})
    >>> tally.costs(Commit(2, None, spent_j=2.75), now=11.5)["exchange_j"]  # nothing was trained
    0.25
    """

    def __init__(self) -> None:
        self._done: tuple[float | None, float] = (
            None,
            0.0,
        )  # when the last iteration was, and joules
        self._of: dict[int, _Iteration] = {}
        self.sent_bytes: dict[int, int] = {}
        self.received_bytes: dict[int, int] = {}
        self._under_way: dict[int, tuple[int, float]] = {}  # how many, and since when

    def begin(self, spent_j: float) -> None:
        """The node is started; so much was spent before."""
        self._done = None, spent_j

    def _at(self, iteration: int) -> _Iteration:
        return self._of.setdefault(iteration, _Iteration())

    def trained(self, iteration: int, cost: Cost, *, now: float, spent_j: float) -> None:
        """Local rounds are over; those that had to be repeated are added up."""
        one = self._at(iteration)
        one.rounds, one.trained_at, one.spent_j = cost.rounds, now, spent_j
        one.train_j += cost.joules
        one.train_s += cost.seconds

    def sending(self, to: int, now: float) -> None:
        """A message of an exchange goes out to a neighbour."""
        under_way, since = self._under_way.get(to, (0, now))
        self._under_way[to] = (under_way + 1, since if under_way else now)

    def answered(self, iteration: int, to: int, now: float) -> None:
        """It is under way no more: seconds are those in which any was, however many at once."""
        under_way, since = self._under_way[to]
        self._under_way[to] = (under_way - 1, now)
        link = self._at(iteration).sent.setdefault(to, [0, 0.0, 0])
        link[1] = round(link[1] + now - since, 6)

    def sent(self, iteration: int, to: int, payload_bytes: int) -> None:
        """A message of an exchange has been acknowledged."""
        link = self._at(iteration).sent.setdefault(to, [0, 0.0, 0])
        link[0] += payload_bytes
        link[2] += 1
        self.sent_bytes[to] = self.sent_bytes.get(to, 0) + payload_bytes

    def received(self, iteration: int, sender: int, payload_bytes: int) -> None:
        """A message of an exchange has come."""
        link = self._at(iteration).received.setdefault(sender, [0, 0])
        link[0] += payload_bytes
        link[1] += 1
        self.received_bytes[sender] = self.received_bytes.get(sender, 0) + payload_bytes

    def costs(self, commit: Commit, now: float) -> dict[str, Any]:
        """What an iteration took that has just been done; earlier ones are forgotten."""
        for stale in [number for number in self._of if number < commit.iteration]:
            del self._of[stale]
        one = self._at(commit.iteration)
        at, spent_j = self._done if one.trained_at is None else (one.trained_at, one.spent_j)
        self._done = now, commit.spent_j
        return {
            "rounds": one.rounds,
            "train_j": one.train_j,
            "train_s": one.train_s,
            "exchange_j": max(0.0, commit.spent_j - spent_j),
            "exchange_s": 0.0 if at is None else round(now - at, 6),
        }

    def traffic(self, iteration: int) -> dict[str, Any]:
        """What was sent and received in an iteration, by neighbour."""
        one = self._of.get(iteration, _Iteration())
        return {
            "sent": {str(to): link for to, link in sorted(one.sent.items())},
            "received": {str(sender): link for sender, link in sorted(one.received.items())},
        }
