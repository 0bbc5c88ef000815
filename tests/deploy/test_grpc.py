"""Neighbours over gRPC: what is sent arrives, or the sender hears in time why not."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from joulemesh.deploy.messages import Beat, Flood, Leave, Part
from joulemesh.deploy.transport import Address, Reason, Roster, TransportError
from joulemesh.deploy.transport.grpc import GrpcTransport
from tests.deploy.neighbours import (
    HOME,
    NAMES,
    TERMS,
    device,
    free_port,
    identity,
    pair,
    started,
)

BEAT = Beat(1, 0, 3, "training", ((1, 2),))


def part(step: int, numbers: int = 250) -> Part:
    return Part(0, 1, step, np.full(numbers, step, np.float32))


def test_messages_arrive_with_their_sender() -> None:
    async def talk() -> None:
        async with pair() as (one, other):
            await one.transport.send(1, BEAT, 5)
            await other.transport.send(0, Flood(1, 1, 1, Leave(0, "empty")), 5)
            await one.transport.send(1, part(7, 300_000), 5)
            assert other.inbox[0] == (0, BEAT)
            assert one.inbox == [(1, Flood(1, 1, 1, Leave(0, "empty")))]
            sender, long = other.inbox[1]
            assert isinstance(long, Part)
            assert (sender, long.step) == (0, 7)
            assert np.array_equal(long.payload, np.full(300_000, 7, np.float32))
            assert not one.refusals + other.refusals

    asyncio.run(talk())


def test_what_waits_for_a_neighbour_goes_together_and_in_order() -> None:
    async def talk() -> None:
        async with pair() as (one, other):
            sends = [one.transport.send(1, part(step), 5) for step in range(200)]
            await asyncio.gather(*sends)
            steps = [said.step for _, said in other.inbox if isinstance(said, Part)]
            assert steps == list(range(200))

    asyncio.run(talk())


def test_a_neighbour_that_starts_late_gets_what_waits_for_it() -> None:
    async def talk() -> None:
        ports = free_port(), free_port()
        one = device(0, {1: ports[1]}, listen=ports[0])
        other = device(1, {0: ports[0]}, listen=ports[1])
        async with started(one):
            waiting = asyncio.create_task(one.transport.send(1, BEAT, 10))
            await asyncio.sleep(0.7)
            async with started(other):
                began = time.monotonic()
                await waiting
                assert time.monotonic() - began < 2.5
                assert other.inbox == [(0, BEAT)]

    asyncio.run(talk())


def test_a_neighbour_that_was_started_again_is_reached_within_seconds() -> None:
    async def talk() -> None:
        ports = free_port(), free_port()
        one = device(0, {1: ports[1]}, listen=ports[0])
        async with started(one):
            for _ in range(2):
                other = device(1, {0: ports[0]}, listen=ports[1])
                async with started(other):
                    began = time.monotonic()
                    await one.transport.send(1, BEAT, 5)
                    assert time.monotonic() - began < 2.5
                    assert other.inbox == [(0, BEAT)]

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (Address(HOME, 1), Reason.UNREACHABLE),
        (Address("no-such-device.invalid", 7400), Reason.NAME_NOT_FOUND),
    ],
)
def test_a_neighbour_that_cannot_be_reached_is_said_so(address: Address, reason: Reason) -> None:
    async def talk() -> None:
        roster = Roster(0, NAMES, {1: address})
        alone = GrpcTransport(identity("ash"), roster, TERMS, Address(HOME, 0))
        await alone.start(lambda *_: None)
        try:
            with pytest.raises(TransportError) as caught:
                await alone.send(1, BEAT, 1.0)
            assert caught.value.reason is reason
            assert address.host in str(caught.value)
        finally:
            await alone.close()

    asyncio.run(talk())


def test_a_port_that_is_taken_is_refused_in_a_line() -> None:
    async def talk() -> None:
        one = device(0, {})
        async with started(one):
            with pytest.raises(TransportError, match=r"cannot listen on .* in use; correct hosts"):
                async with started(device(1, {}, listen=one.port)):
                    pass

    asyncio.run(talk())
