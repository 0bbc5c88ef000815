"""Two machines without a fleet: one listens and prints a token, the other calls with it.

The token stands for a certificate authority. Both ends derive its key from the token, and each
signs a certificate of its own, so that they meet as two devices of a fleet do: by mutual TLS 1.3,
with no fall-back. Whoever does not know the token is refused by name at the handshake, and a
listener ends with its first session, and its token with it.
"""

from __future__ import annotations

__all__ = ["Session", "listen", "new_token", "pair_identity", "session"]

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from joulemesh._version import __version__
from joulemesh.deploy.fleet.identity import Authority, Identity, make_identity
from joulemesh.deploy.fleet.pem import derived_key, key_pem
from joulemesh.deploy.links.service import DONE, LinkService
from joulemesh.deploy.links.transfers import PIECE, Hello, hello
from joulemesh.deploy.operator.probing import call_error
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.channel import open_channel
from joulemesh.deploy.transport.gate import Peer
from joulemesh.deploy.wire import Terms
from joulemesh.errors import ScenarioError

import grpc.aio  # isort: skip  (channel prepares it, and says what to install where it is missing)

LISTENER, CALLER = "listener", "caller"
_TOKEN_BYTES = 20
_GROUP = 8  # characters of a token that stand together
_SALT = b"joulemesh calibrate links 1"


def new_token() -> str:
    """A token of 160 random bits, to be read out or pasted.

    >>> len(new_token()), new_token() == new_token()
    (35, False)
    """
    text = base64.b32encode(secrets.token_bytes(_TOKEN_BYTES)).decode().lower()
    return "-".join(text[at : at + _GROUP] for at in range(0, len(text), _GROUP))


def pair_identity(token: str, name: str) -> Identity:
    """Key and certificate of one end, by the authority that a token stands for; valid for a day.

    Args:
        token: as `new_token` made it; hyphens, spaces and case do not matter.
        name: of this end.

    Raises:
        ScenarioError: it is no token.

    >>> one, other = (pair_identity("abcdefgh" * 4, name) for name in ("listener", "caller"))
    >>> one.key == other.key, one.bearer.name
    (False, 'listener')
    """
    plain = "".join(token.split()).replace("-", "").upper()
    try:
        seed = base64.b32decode(plain)
    except ValueError:
        seed = b""
    if len(seed) != _TOKEN_BYTES:
        raise ScenarioError(
            f"--token: {len(plain)} characters are no token; paste the {_TOKEN_BYTES * 8 // 5} "
            "letters and digits that the listener printed"
        )
    key = derived_key(hashlib.sha512(_SALT + seed).digest())
    authority = Authority.make("links", days=1, key=key_pem(key))
    return make_identity(authority, name, days=1)


async def listen(
    address: Address,
    token: str,
    *,
    name: str,
    within_s: float,
    refused: Callable[[Refusal], None],
    ready: Callable[[int], None] = lambda port: None,
) -> bool:
    """Serve one session of timed transfers to whoever knows the token.

    Args:
        address: where to listen.
        token: that the caller must know.
        name: what this machine is called; may be empty.
        within_s: seconds after which it ends.
        refused: told of everybody who is refused.
        ready: called with the port, once it listens.

    Returns:
        Whether there was a session, before the time was up.

    Raises:
        TransportError: the address is not this machine's, or is taken.
    """
    from joulemesh.deploy.transport.grpc import GrpcTransport

    transport = GrpcTransport(
        pair_identity(token, LISTENER),
        Roster(0, (LISTENER, CALLER), {}),
        Terms("links", "", 1),
        address,
        refused=refused,
    )

    def permit(peer: Peer) -> None:
        if peer.name != CALLER or peer.role != "device":
            raise TransportError(Reason.NOT_PERMITTED, f"{peer.name} is not the caller")

    service = LinkService(transport, name, permit)
    transport.add_handler(service)
    try:
        await transport.start(lambda sender, message: None)
        ready(transport.port)
        async with asyncio.timeout(within_s):
            await service.done.wait()
        return True
    except TimeoutError:
        return False
    finally:
        await transport.close()


@dataclass(frozen=True)
class Session:
    """A connection to a listener.

    Attributes:
        channel: of gRPC.
        address: of the listener.
        hello: what it has said of itself.
    """

    channel: Any
    address: Address
    hello: Hello


@asynccontextmanager
async def session(address: Address, token: str) -> AsyncIterator[Session]:
    """Connect to a listener; at the end it is told so, and ends too.

    Raises:
        TransportError: it cannot be reached, does not know the token, or has another version.
    """
    identity = pair_identity(token, CALLER)
    channel = open_channel(identity, LISTENER, address, most_bytes=4 * PIECE)
    try:
        found = await hello(channel)
        if found.version != __version__:
            raise TransportError(
                Reason.OTHER_VERSION,
                f"{address} has Joulemesh {found.version:.40}, here is {__version__}; install one "
                "of them on both",
            )
        yield Session(channel, address, found)
        await channel.unary_unary(DONE)(b"", timeout=5.0)
    except (grpc.aio.AioRpcError, ValidationError) as error:
        fault = await call_error(identity, LISTENER, address, error)
        if fault.reason is Reason.OTHER_AUTHORITY:
            fault = TransportError(
                Reason.NOT_PERMITTED, f"the listener at {address} has printed another token"
            )
        raise fault from None
    finally:
        await channel.close()
