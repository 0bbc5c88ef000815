"""The way to one neighbour: a channel, its lanes, and what is known of why it does not work."""

from __future__ import annotations

__all__ = ["EXCHANGE", "Link", "bytes_in"]

import asyncio
from typing import Any

from joulemesh.deploy.fleet.identity import Identity
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Address, Reason, TransportError
from joulemesh.deploy.transport.channel import open_channel
from joulemesh.deploy.transport.lane import Lane, Waiting
from joulemesh.deploy.transport.packets import PACKET_BYTES
from joulemesh.deploy.transport.tls import diagnose
from joulemesh.deploy.wire import LANES, Terms, encode, greeting

EXCHANGE = "/joulemesh.Node/Exchange"

_GRACE_S = 0.25  # to connect in, before anybody asks what is wrong
_KNOWN_S = 3.0  # for which an answer holds
_TOGETHER_S = 0.005  # messages that go together take no longer than this on the planned link
_PACKET_S = 0.1  # nor does a packet, since others must wait until it is through
_USUAL_BPS = 20e6  # of a link of which nothing is known
_LEAST_BYTES = 64 * 1024
_PASSING = (Reason.UNREACHABLE, Reason.LATE, Reason.CLOSED)


def bytes_in(seconds: float, rate_bps: float | None, most: int) -> int:
    """How many bytes a link carries in some seconds; enough for a header, and no more than most.

    >>> bytes_in(0.1, 10e6, 2**20)
    125000
    """
    carried = seconds * (_USUAL_BPS if rate_bps is None else rate_bps) / 8
    return int(min(max(carried, _LEAST_BYTES), most))


class Link:
    """Sends messages to one neighbour.

    Args:
        identity: of this device.
        name: of the neighbour.
        address: where it listens.
        terms: of the fleet.
        rate_bps: of the link, as planned; None if it does not matter.
        at: where this device listens, for a neighbour that was not told.
    """

    def __init__(
        self,
        identity: Identity,
        name: str,
        address: Address,
        terms: Terms,
        rate_bps: float | None = None,
        at: Address | None = None,
    ) -> None:
        self._identity, self._name, self._address, self._terms = identity, name, address, terms
        self._channel = open_channel(identity, name, address)
        method = self._channel.stream_stream(EXCHANGE)
        together = PACKET_BYTES if rate_bps is None else int(rate_bps / 8 * _TOGETHER_S)
        most = bytes_in(_PACKET_S, rate_bps, PACKET_BYTES)
        self._lanes = {
            lane: Lane(
                lambda: method(wait_for_ready=True),
                greeting(terms, lane, at),
                together=together,
                most=most,
            )
            for lane in LANES
        }
        self._asked: asyncio.Task[TransportError | None] | None = None
        self._asked_at = 0.0
        self._verified = False  # that its certificate is not revoked

    async def send(self, message: Message, within_s: float) -> None:
        """Deliver a message.

        Raises:
            TransportError: it was not acknowledged in time, or was refused.
        """
        if self._identity.revoked and not self._verified:
            await self._verify()
        frame = encode(message, self._terms)
        lane = self._lanes[LANES[bool(frame.payload)]]
        one = lane.put(frame)
        loop = asyncio.get_running_loop()
        clock = loop.call_later(within_s, self._give_up, lane, one, within_s)
        try:
            if lane.ready:
                await one.done
            else:
                await self._patiently(lane, one)
        finally:
            clock.cancel()
            one.done.cancel()  # nobody waits any more: nothing is sent again

    async def _verify(self) -> None:
        """Find out whether the neighbour's certificate is revoked, which gRPC does not.

        Raises:
            TransportError: it is.
        """
        trouble = await asyncio.shield(self._ask())
        if trouble is not None and trouble.reason is Reason.REVOKED:
            raise trouble
        self._verified = trouble is None

    def _give_up(self, lane: Lane, one: Waiting, within_s: float) -> None:
        if not one.done.done():
            one.done.set_exception(self._late(lane, within_s))

    async def _patiently(self, lane: Lane, one: Waiting) -> None:
        """Wait for a neighbour that is not connected, unless it is clear that it never will be."""
        await asyncio.wait({one.done}, timeout=_GRACE_S)
        while not one.done.done() and not lane.ready:
            asked = self._ask()
            either: set[asyncio.Future[Any]] = {one.done, asked}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            trouble = asked.result() if asked.done() and not asked.cancelled() else None
            if trouble is None or trouble.reason in _PASSING or one.done.done() or lane.ready:
                await asyncio.wait({one.done}, timeout=_KNOWN_S)
            else:
                raise trouble
        await one.done

    def _ask(self) -> asyncio.Task[TransportError | None]:
        """Find out why the neighbour is not connected, at most every few seconds."""
        loop = asyncio.get_running_loop()
        asked = self._asked
        if asked is None or (asked.done() and loop.time() > self._asked_at + _KNOWN_S):
            self._asked_at = loop.time()
            asked = loop.create_task(diagnose(self._identity, self._name, self._address))
            self._asked = asked
        return asked

    def _late(self, lane: Lane, within_s: float) -> TransportError:
        known: Any = None
        if not lane.ready and self._asked is not None and self._asked.done():
            known = None if self._asked.cancelled() else self._asked.result()
        return known or TransportError(
            Reason.LATE if lane.ready else Reason.UNREACHABLE,
            f"{self._name} at {self._address} has acknowledged nothing within {within_s:g} s",
        )

    async def close(self) -> None:
        """Give up what is under way."""
        if self._asked is not None:
            self._asked.cancel()
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))
        await self._channel.close()
