"""Measuring links: between two machines by a token, and within a fleet as the operator asks.

Without a fleet one machine listens and prints a token, the other calls with it. The token stands
for a certificate authority: both ends derive its key from it, and each signs a certificate of its
own, so that they meet as two devices of a fleet do, by mutual TLS 1.3. Whoever does not know the
token is refused at the handshake, and a listener ends with its first session, its token with it.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import hashlib
import json
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import si
from joulemesh.deploy.fleet.certificates import (
    Authority,
    Identity,
    derived_key,
    key_pem,
    make_identity,
)
from joulemesh.deploy.fleet.fleet import HOSTS, require_addresses
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.links.transfers import (
    MEASURE,
    Hello,
    LinkFigures,
    LinkService,
    Order,
    Rule,
    Timed,
    Way,
    hello,
    tell_done,
    time_way,
)
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.connection import Endpoint
from joulemesh.deploy.transport.gate import Caller, Peer, calling
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms, wire_type
from joulemesh.tables import merge_rows, read_table

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator

LISTENER, CALLER = "listener", "caller"
_TOKEN_BYTES = 20
_GROUP = 8  # characters of a token that stand together
_SALT = b"joulemesh calibrate links 1"


@dataclass(frozen=True)
class Listener:
    """A machine that listens, and which device of the scenario it is."""

    address: Address
    token: str  # that it has printed
    device: int  # its number in the scenario
    name: str = ""  # what it is called; as it calls itself unless given


def parse_address(text: str, default_host: str = "") -> Address:
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or default_host
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not host or not 0 <= number < 2**16:
        raise ScenarioError(
            f"{text!r:.80} is neither the folder of a fleet or a device, nor HOST:PORT; correct it"
        )
    return Address(host, number)


def new_token() -> str:
    text = base64.b32encode(secrets.token_bytes(_TOKEN_BYTES)).decode().lower()
    return "-".join(text[at : at + _GROUP] for at in range(0, len(text), _GROUP))


def pair_identity(token: str, name: str) -> Identity:
    """Key and certificate of one end, by the authority that a token stands for; valid for a day."""
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


_TIMED = TypeAdapter(list[Timed])
_START_S = 1.0  # in which every device has heard of what is to be measured at once
_ANSWER_S = 1200.0


def link_service(pack: DevicePack) -> LinkService:
    """What serves timed transfers on a device's port: to its neighbours, and to the operator."""

    def permit(peer: Peer) -> None:
        if peer.role != "operator" and peer.device not in pack.neighbours:
            raise TransportError(
                Reason.NOT_A_NEIGHBOUR, f"{peer.name} is no neighbour of {pack.name}"
            )

    async def measure(order: Order) -> list[Timed]:
        return await measure_links(pack, order)

    model_bytes = int(-(-pack.fleet.work.model_bits // 8))
    until = pack.identity.bearer.not_after.timestamp()
    return LinkService(
        pack.name,
        permit,
        most_bytes=model_bytes,
        measure=measure,
        plan=pack.fleet.digest,
        until=until,
    )


async def measure_links(pack: DevicePack, order: Order) -> list[Timed]:
    """Time transfers from a device to its neighbours, one link after another or all at once."""
    near = {pack.fleet.names[one]: one for one in pack.neighbours}
    strange = next((name for name in order.to if name not in near), None)
    if strange is not None:
        raise TransportError(
            Reason.NOT_A_NEIGHBOUR, f"{strange:.80} is no neighbour of {pack.name}"
        )
    if order.rule.together:
        timed = (_to_neighbour(pack, near[name], order.rule) for name in order.to)
        return list(await asyncio.gather(*timed))
    return [await _to_neighbour(pack, near[name], order.rule) for name in order.to]


async def _to_neighbour(pack: DevicePack, device: int, rule: Rule) -> Timed:
    host = pack.hosts[device]
    ends = (pack.name, host.name)
    try:
        with calling(pack.identity, host) as caller:
            return await time_way(caller, "push", rule, ends)
    except TransportError as error:
        return Timed(*ends, trouble=str(error))


async def listen_in_fleet(
    pack: DevicePack, within_s: float, refused: Callable[[Refusal], None]
) -> bool:
    fleet = pack.fleet
    named = {host.name: host for host in pack.hosts.values()}
    require_addresses(pack.folder / HOSTS, named, named)
    bits = fleet.scenario.network.bits_per_parameter
    roster = Roster(pack.device, fleet.names, {})  # nobody's messages are taken
    terms = Terms(fleet.id, fleet.digest, fleet.work.parameters, wire_type(bits))
    transport = TcpTransport(pack.identity, roster, terms, pack.listens_on, refused=refused)
    return await serve_until_done(transport, link_service(pack), within_s)


async def measure_fleet(
    operator: Operator,
    links: Iterable[tuple[int, int]],
    rule: Rule,
    *,
    planned: Iterable[tuple[int, int]] | None = None,
    modes: Sequence[str] = ("alone", "together"),
    done: Callable[[str], None] = lambda words: None,
) -> list[LinkFigures]:
    pairs = _both_ways(links)
    busy = pairs if planned is None else _both_ways(planned)
    alone, together = dict[tuple[int, int], Timed](), dict[tuple[int, int], Timed]()
    if "alone" in modes:
        for i, near in _by_sender(pairs).items():  # in turn, so that no two share the air
            alone.update(await _ordered(operator, i, near, rule))
            done(f"{operator.fleet.names[i]} has measured its links one by one")
    if "together" in modes:
        all_rule = replace(rule, together=True)
        turns = _by_sender(busy).items()
        waits = (_ordered(operator, i, near, all_rule, _START_S) for i, near in turns)
        for one in await asyncio.gather(*waits):
            together.update(one)
        done(f"{len(busy):,} directions of links were measured all at once")
    wanted = sorted(alone.keys() | together.keys())
    return [LinkFigures(*pair, alone.get(pair), together.get(pair)) for pair in wanted]


def _both_ways(links: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted({one for i, j in links for one in ((i, j), (j, i))})


def _by_sender(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for i, j in pairs:
        found[i].append(j)
    return found


async def _ordered(
    operator: Operator, device: int, near: Sequence[int], rule: Rule, wait_s: float = 0.0
) -> dict[tuple[int, int], Timed]:
    names = operator.fleet.names
    host = operator.places[names[device]]
    order = Order(rule, tuple(names[one] for one in near), wait_s)
    try:
        with operator.call(host) as caller:
            request = json.dumps(asdict(order)).encode()
            timed = await caller.get(_TIMED, MEASURE, request, _ANSWER_S)
            seen = {one.there: one for one in timed}
    except TransportError as error:
        seen = {}
        lost = Timed(names[device], "", trouble=f"{error}; is it listening?")
    else:
        lost = Timed(names[device], "", trouble=f"{names[device]} does not say")
    return {
        (device, one): replace(seen.get(names[one], lost), here=names[device], there=names[one])
        for one in near
    }


async def tell_all(operator: Operator) -> None:
    """Tell all devices that nothing more will be measured: those that only listened end."""

    async def tell(name: str) -> None:
        with suppress(TransportError), operator.call(operator.places[name]) as caller:
            await tell_done(caller)

    await asyncio.gather(*(tell(name) for name in operator.fleet.names))


def row_of(link: LinkFigures, use: str = "lower", now: dt.datetime | None = None) -> dict[str, str]:
    taken, rate = link.chosen(use), link.rate(use)
    how = "with all links in use" if taken is link.together else "alone"
    date = (now or dt.datetime.now(dt.UTC)).strftime("%Y-%m-%d")
    size = si(taken.payload_bytes, "B")
    return {
        "i": str(link.i),
        "j": str(link.j),
        "rate_bps": _cell(rate.bps),
        "rate_bps_low": _cell(rate.low),
        "rate_bps_high": _cell(rate.high),
        "rate_bps_source": f"measured {date}: {len(taken.seconds)} transfers of {size}, {how}",
        "alone_bps": _cell(link.alone.rate.bps) if link.alone and link.alone.seconds else "",
        "together_bps": (
            _cell(link.together.rate.bps) if link.together and link.together.seconds else ""
        ),
        "rtt_s": _cell(taken.rtt_s),
        "retransmitted": "" if taken.retransmitted is None else _cell(taken.retransmitted),
        "bytes": str(taken.payload_bytes),
        "transfers": str(len(taken.seconds)),
        "from": taken.here,
        "to": taken.there,
    }


def _cell(figure: float) -> str:
    return f"{figure:.6g}"


def update_links(path: Path, rows: Sequence[Mapping[str, str]]) -> int:
    columns = read_table(path) if path.exists() else {}
    if columns and not {"i", "j"} <= set(columns):
        raise ScenarioError(
            f"{path} has the columns {', '.join(columns)}, and no i and j; give another --out"
        )
    return merge_rows(path, columns, rows, ("i", "j"))
