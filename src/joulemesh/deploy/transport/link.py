"""The way to one neighbour: a channel, its lanes, and what is known of why it does not work."""

from __future__ import annotations

__all__ = ["EXCHANGE", "Link"]

import asyncio
from typing import Any

from joulemesh.deploy.identity import Identity
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Address, Reason, TransportError
from joulemesh.deploy.transport.channel import open_channel
from joulemesh.deploy.transport.lane import Lane, Waiting
from joulemesh.deploy.transport.packets import PACKET_BYTES
from joulemesh.deploy.transport.tls import diagnose
from joulemesh.deploy.wire import LANES, Terms, encode, greeting

EXCHANGE = "/joulemesh.Node/Exchange"

_GRACE_S = 0.5  # to connect in, before anybody asks what is wrong
_KNOWN_S = 3.0  # for which an answer holds
_TOGETHER_S = 0.005  # messages that go together take no longer than this on the planned link
_PASSING = (Reason.UNREACHABLE, Reason.LATE, Reason.CLOSED)


class Link:
    """Sends messages to one neighbour.

    Args:
        identity: of this device.
        name: of the neighbour.
        address: where it listens.
        terms: of the fleet.
        rate_bps: of the link, as planned; None if it does not matter.
    """

    def __init__(
        self,
        identity: Identity,
        name: str,
        address: Address,
        terms: Terms,
        rate_bps: float | None = None,
    ) -> None:
        self._identity, self._name, self._address, self._terms = identity, name, address, terms
        self._channel = open_channel(identity, name, address)
        method = self._channel.stream_stream(EXCHANGE)
        together = PACKET_BYTES if rate_bps is None else int(rate_bps / 8 * _TOGETHER_S)
        self._lanes = {
            lane: Lane(
                lambda: method(wait_for_ready=True), greeting(terms, lane), together=together
            )
            for lane in LANES
        }
        self._asked: asyncio.Task[TransportError | None] | None = None
        self._asked_at = 0.0

    async def send(self, message: Message, within_s: float) -> None:
        """Deliver a message.

        Raises:
            TransportError: it was not acknowledged in time, or was refused.
        """
        frame = encode(message, self._terms)
        lane = self._lanes[LANES[bool(frame.payload)]]
        one = lane.put(frame)
        try:
            async with asyncio.timeout(within_s):
                await (one.done if lane.ready else self._patiently(lane, one))
        except TimeoutError:
            raise self._late(lane, within_s) from None
        finally:
            one.done.cancel()  # nobody waits any more: nothing is sent again

    async def _patiently(self, lane: Lane, one: Waiting) -> None:
        """Wait for a neighbour that is not connected, unless it is clear that it never will be."""
        await asyncio.wait({one.done}, timeout=_GRACE_S)
        while not one.done.done() and not lane.ready:
            trouble = await self._trouble()
            if trouble is not None and trouble.reason not in _PASSING and not lane.ready:
                raise trouble
            await asyncio.wait({one.done}, timeout=_KNOWN_S)
        await one.done

    async def _trouble(self) -> TransportError | None:
        """Why the neighbour is not connected, asked at most every few seconds."""
        loop = asyncio.get_running_loop()
        if self._asked is None or (self._asked.done() and loop.time() > self._asked_at + _KNOWN_S):
            self._asked_at = loop.time()
            self._asked = loop.create_task(diagnose(self._identity, self._name, self._address))
        return await asyncio.shield(self._asked)

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
        for lane in self._lanes.values():
            await lane.close()
        await self._channel.close()
