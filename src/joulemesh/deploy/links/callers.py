"""The end that calls: links to one listener or several, both ways, one by one and all at once."""

from __future__ import annotations

__all__ = ["Listener", "measure_listeners", "parse_address"]

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from joulemesh.deploy.links.figures import Rule, Timed
from joulemesh.deploy.links.pair import Session, session
from joulemesh.deploy.links.transfers import Way, time_way
from joulemesh.deploy.links.whole import LinkFigures
from joulemesh.deploy.transport import Address, Reason, TransportError
from joulemesh.errors import ScenarioError


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
            ways.append(_Direction(one.device, here[0], found, "pull", (name, own)))
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
        found = self.open_to
        return await time_way(found.channel, found.address, self.way, rule, self.ends)


def _check_size(rule: Rule, found: Session) -> None:
    most = found.hello.most_bytes
    if rule.payload_bytes > most:
        raise TransportError(
            Reason.TOO_LARGE,
            f"the listener at {found.address} takes transfers of {most:,} bytes at the most, and "
            f"{rule.payload_bytes:,} are wanted; add --size {most // 2**20 * 2**20}B",
        )
