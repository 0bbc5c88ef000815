"""What carries messages between neighbours, seen from a node: the seam to any network.

A transport knows neighbours by their device numbers. Whatever it hands over came from the
neighbour that it names, belongs to this fleet and this plan, and has the types and sizes that the
plan allows; everything else is refused with a `Reason` that both sides hear of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.messages import Message


class Reason(StrEnum):
    """Why a message, or a connection, came to nothing."""

    NAME_NOT_FOUND = "name not found"
    UNREACHABLE = "unreachable"
    LATE = "too late"
    NOT_TLS = "not TLS"
    BROKEN_OFF = "handshake broken off"
    OLD_TLS = "older than TLS 1.3"
    NO_CERTIFICATE = "no certificate"
    OTHER_AUTHORITY = "certificate of another fleet"
    EXPIRED = "certificate expired"
    NOT_YET_VALID = "certificate not yet valid"
    BAD_CERTIFICATE = "unusable certificate"
    REVOKED = "certificate revoked"
    OTHER_NAME = "certificate of another device"
    NOT_IN_ROSTER = "not in the roster"
    NOT_A_NEIGHBOUR = "not a neighbour"
    NOT_PERMITTED = "not permitted"
    OTHER_VERSION = "another version"
    OTHER_FLEET = "another fleet"
    OTHER_PLAN = "another plan"
    TOO_LARGE = "too large"
    MALFORMED = "malformed"
    TOO_MANY = "too many at once"
    CLOSED = "closed"


class TransportError(JoulemeshError):
    """A message was not delivered, as far as the sender knows: the reason, and a line about it."""

    reason: Reason

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Refusal:
    """Something that a device would not take from another."""

    reason: Reason
    detail: str  # a line about it, safe to print
    peer: str = ""  # the name in the other's certificate; empty if it has shown none
    address: str = ""  # where it came from
    count: int = 1  # how many of the kind there were since the last one that was reported


class Address(NamedTuple):
    """Where a device listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Roster:
    """Who is in the fleet, and whom this device talks to."""

    device: int
    names: tuple[str, ...]  # of all devices, by number
    # of its neighbours, by number; the host is empty while it is not known
    addresses: Mapping[int, Address]
    at: Address | None = None  # where this device itself is reached, if that is known

    @property
    def name(self) -> str:
        return self.names[self.device]


Receive: TypeAlias = Callable[[int, Message], None]
"""(sender, message): called for each message that comes; when it returns, the sender hears."""


class Transport(Protocol):
    """Carries messages to and from neighbours. All calls are made in one event loop."""

    async def start(self, receive: Receive) -> None:
        """Begin to listen; messages are handed over one at a time."""

    async def send(self, to: int, message: Message, within_s: float) -> None:
        """Deliver a message; return once the receiver has acknowledged it."""
        # While the neighbour cannot be reached, the message waits for it as long as it may. It may
        # come through even where this fails, and may come through twice.

    async def close(self) -> None:
        """Stop listening and give up what is under way."""
