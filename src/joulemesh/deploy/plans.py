"""What a node knows of a plan, and whom it asks for energy: the seams to planning and metering."""

from __future__ import annotations

__all__ = ["Learner", "Meter", "Price", "ViewPlan"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from joulemesh.aggregation.peer import Peer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.deploy.view import View


@dataclass(frozen=True)
class Price:
    """What an iteration costs one device, as planned.

    Attributes:
        round_j: joules of one local round.
        round_s: its seconds.
        exchange_j: joules of the device's part in the exchange.
        exchange_s: seconds of the whole exchange.
        iteration_s: seconds of the iteration on the slowest device, exchange included.
        rest_j: joules that the device draws at rest in that time.
    """

    round_j: float
    round_s: float
    exchange_j: float
    exchange_s: float
    iteration_s: float
    rest_j: float = 0.0


class ViewPlan(Protocol):
    """The plan of one view, as one device sees it. Iterations count from 1, as in `View`."""

    @property
    def view(self) -> View:
        """Whose plan it is; its ``digest`` is filled in."""

    @property
    def last(self) -> int:
        """The last iteration."""

    def rounds(self, iteration: int) -> int:
        """Local rounds of this device."""

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

    def price(self, iteration: int) -> Price:
        """What the iteration costs this device."""

    def rest_j(self, iteration: int) -> float:
        """Joules of this device's part, from an iteration to the last."""


class Meter(Protocol):
    """What a device's battery still holds for this run.

    The node asks for a price before it begins anything, and reports what it begins: a modelled
    meter counts these reports, a sensor does not need them.
    """

    def left_j(self) -> float:
        """Joules that may still be spent."""

    def train_j(self, rounds: int) -> float:
        """Joules that local rounds take."""

    def exchange(self, route: Route, iteration: int) -> None:
        """The exchange of an iteration (from 1) begins along a route."""

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        """Joules that a message to a neighbour takes.

        ``step`` is that of the exchange, for a message that is sent for the first time.
        """

    def train(self, rounds: int) -> None:
        """Local rounds are begun."""

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters is sent to a neighbour, for the first time or again."""

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters has come from a neighbour."""

    def spent_j(self) -> float:
        """Joules spent so far, by the same source."""

    def recall(self, spent_j: float) -> None:
        """At least so many were spent before: neighbours remember what this device has lost."""


class Learner(Protocol):
    """What trains on a device: `DeviceTrainer`, or a user's own object."""

    def parameters(self) -> Vector:
        """[P]: all parameters."""

    def load(self, parameters: Vector) -> None:
        """Take up other parameters."""

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present parameters, by name: ``{"accuracy": 0.93}``."""

    def save(self) -> Mapping[str, NDArray[Any]]:
        """What the optimiser remembers, as named arrays."""

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave."""
