"""Two machines without a fleet: one listens and prints a token, the other calls with it.

The token stands for a certificate authority. Both ends derive its key from the token, and each
signs a certificate of its own, so that they meet as two devices of a fleet do: by mutual TLS 1.3,
with no fall-back. Whoever does not know the token is refused by name at the handshake, and a
listener ends with its first session, and its token with it.
"""

from __future__ import annotations

__all__ = [
    "Listener",
    "Session",
    "listen",
    "measure_listeners",
    "new_token",
    "pair_identity",
    "parse_address",
    "session",
]

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.identity import Authority, Identity, make_identity
from joulemesh.deploy.fleet.pem import derived_key, key_pem
from joulemesh.deploy.links.figures import LinkFigures, Rule, Timed
from joulemesh.deploy.links.transfers import Hello, LinkService, Way, hello, tell_done, time_way
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.calls import Caller
from joulemesh.deploy.transport.connection import Endpoint
from joulemesh.deploy.transport.gate import Peer
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms

LISTENER, CALLER = "listener", "caller"
_TOKEN_BYTES = 20
_GROUP = 8  # characters of a token that stand together
_SALT = b"joulemesh calibrate links 1"


@dataclass(frozen=True)
class Listener:
    """A machine that listens, and which device of the scenario it is.

    Attributes:
        address: where it listens.
        token: that it has printed.
        device: its number in the scenario.
        name: what it is called; as it calls itself unless given.
    """

    address: Address
    token: str
    device: int
    name: str = ""


def parse_address(text: str, default_host: str = "") -> Address:
    """A host and a port.

    Args:
        text: ``HOST:PORT``, ``[IPV6]:PORT`` or, where there is a default, ``PORT``.
        default_host: for a port alone.

    Raises:
        ScenarioError: it is none.

    >>> parse_address("farm-02.local:7200"), parse_address("7200", "10.0.0.1")
    (Address(host='farm-02.local', port=7200), Address(host='10.0.0.1', port=7200))
    >>> parse_address("[fe80::1]:7200").host
    'fe80::1'
    """
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not host or not 0 <= number < 2**16:
        raise ScenarioError(
            f"{text!r:.80} is neither the folder of a fleet or a device, nor HOST:PORT; correct it"
        )
    return Address(host, number)


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

    def permit(peer: Peer) -> None:
        if peer.name != CALLER or peer.role != "device":
            raise TransportError(Reason.NOT_PERMITTED, f"{peer.name} is not the caller")

    roster, service = Roster(0, (LISTENER, CALLER), {}), LinkService(name, permit)
    identity, terms = pair_identity(token, LISTENER), Terms("links", "", 1)
    transport = TcpTransport(identity, roster, terms, address, refused=refused)
    return await serve_until_done(transport, service, within_s, ready)


async def serve_until_done(
    transport: TcpTransport,
    service: LinkService,
    within_s: float,
    ready: Callable[[int], None] = lambda port: None,
) -> bool:
    """Serve transfers until whoever measures says that it is over; False if the time is up."""
    transport.calls.update(service.calls)
    try:
        await transport.start(lambda sender, message: None)
        ready(transport.port)
        async with asyncio.timeout(within_s):
            await service.done.wait()
        await asyncio.sleep(0)  # for the last answer to go out
        return True
    except TimeoutError:
        return False
    finally:
        await transport.close()


@dataclass(frozen=True)
class Session:
    """A connection to a listener, and what that has said of itself."""

    caller: Caller
    hello: Hello


@asynccontextmanager
async def session(address: Address, token: str) -> AsyncIterator[Session]:
    """Connect to a listener; at the end it is told so, and ends too.

    Raises:
        TransportError: it cannot be reached, does not know the token, or has another version.
    """
    caller = Caller(Endpoint(pair_identity(token, CALLER), LISTENER, address))
    try:
        found = await hello(caller)
        if found.version != __version__:
            raise TransportError(
                Reason.OTHER_VERSION,
                f"{address} has Joulemesh {found.version:.40}, here is {__version__}; install one "
                "of them on both",
            )
        yield Session(caller, found)
        await tell_done(caller)
    except TransportError as error:
        if error.reason is Reason.OTHER_AUTHORITY:
            raise TransportError(
                Reason.NOT_PERMITTED, f"the listener at {address} has printed another token"
            ) from None
        raise
    finally:
        caller.close()


async def measure_listeners(
    listeners: Sequence[Listener],
    here: tuple[int, str],
    rule: Rule,
    *,
    modes: Sequence[str] = ("alone", "together"),
    done: Callable[[str], None] = lambda words: None,
) -> list[LinkFigures]:
    """Measure the links from this machine to listeners, and back.

    Args:
        listeners: whom to call.
        here: number and name of this machine's device.
        rule: how each direction is measured.
        modes: ``"alone"``, ``"together"`` or both; ``"together"`` is both directions of all links.
        done: told of each step.

    Raises:
        TransportError: a listener cannot be reached, or refuses.
    """
    async with AsyncExitStack() as stack:
        ways: list[_Direction] = []
        for one in listeners:
            found = await stack.enter_async_context(session(one.address, one.token))
            _check_size(rule, found)
            name = one.name or found.hello.name or f"device-{one.device}"
            own = here[1] or f"device-{here[0]}"
            ways.append(_Direction(here[0], one.device, found, "push", (own, name)))
            back = Session(Caller(found.caller.to), found.hello)  # for both ways at once
            stack.callback(back.caller.close)
            ways.append(_Direction(one.device, here[0], back, "pull", (name, own)))
        alone: dict[_Direction, Timed] = {}
        together: dict[_Direction, Timed] = {}
        if "alone" in modes:
            for way in ways:
                alone[way] = await way.timed(rule)
                done(f"{way.ends[0]} to {way.ends[1]}: measured alone")
        if "together" in modes:
            all_rule = replace(rule, together=True)
            made = await asyncio.gather(*(way.timed(all_rule) for way in ways))
            together = dict(zip(ways, made, strict=True))
            done(f"{len(ways)} directions of links were measured all at once")
    return [LinkFigures(way.i, way.j, alone.get(way), together.get(way)) for way in ways]


@dataclass(frozen=True, eq=False)
class _Direction:
    i: int
    j: int
    open_to: Session
    way: Way
    ends: tuple[str, str]

    async def timed(self, rule: Rule) -> Timed:
        return await time_way(self.open_to.caller, self.way, rule, self.ends)


def _check_size(rule: Rule, found: Session) -> None:
    most = found.hello.most_bytes
    if rule.payload_bytes > most:
        raise TransportError(
            Reason.TOO_LARGE,
            f"the {found.caller.to} takes transfers of {most:,} bytes at the most, and "
            f"{rule.payload_bytes:,} are wanted; add --size {most // 2**20 * 2**20}B",
        )
