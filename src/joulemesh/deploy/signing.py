"""Signed floods: whoever receives one knows that its origin has said it, whoever passed it on.

A node signs and verifies through a `Signer`. On devices that is `fleet.signer.FleetSigner`, with
the P-256 key of the device's certificate; simulated fleets have a cheap one.
"""

from __future__ import annotations

__all__ = ["Signer", "signed_text"]

import json
from typing import Protocol

from joulemesh.deploy.fields import record_of
from joulemesh.deploy.messages import Account, FleetRoster, Flood


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
