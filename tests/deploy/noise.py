"""A device that is bombarded with random frames while it talks to a neighbour.

``python -m tests.deploy.noise FRAMES SEED`` prints, as JSON, what came of it: frames, refusals by
reason, messages of the honest neighbour, and how much the process has grown. A quarter of the
frames are bytes for the port, a quarter are bytes inside TLS from a holder of a good certificate, a
quarter are greetings and calls, and a quarter are packets after a good greeting. Whoever throws
them is a process of its own: what that one needs for it is its own affair.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import ssl
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.messages import Beat
from joulemesh.deploy.transport import Address, TransportError
from joulemesh.deploy.transport.connection import Endpoint, Kind, client_context
from joulemesh.deploy.wire import greeting
from tests.deploy.neighbours import HOME, TERMS, identity, pair

_AT_ONCE = 8
_HELLO = greeting(TERMS)
_TEXTS = (_HELLO, b'{"kind":"part","bytes":100,"body":{"view":0,"iteration":1,"step":2}}')


def resident_bytes() -> int:
    """What the process takes of the machine's memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def frame(draw: random.Random) -> bytes:
    """Random bytes, or something right with random bytes in it."""
    kind = draw.randrange(4)
    if kind == 0:
        return draw.randbytes(draw.randrange(1, 2000))
    if kind == 1:
        return draw.randbytes(draw.choice((5, 70_000)))
    text = bytearray(draw.choice(_TEXTS))
    for _ in range(draw.randrange(1, 6)):
        text[draw.randrange(len(text))] = draw.randrange(256)
    if kind == 2:
        return bytes(text)
    length = draw.choice((len(text), len(text), draw.randrange(2**32)))
    return bytes([draw.randrange(4)]) + length.to_bytes(4, "big") + bytes(text)


async def at_the_port(port: int, draw: random.Random, context: ssl.SSLContext | None) -> None:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(5):
            name = "birch" if context else None
            reader, writer = await asyncio.open_connection(
                HOME, port, ssl=context, server_hostname=name
            )
            try:
                preface = b"\x00\x00\x00\x40\x02" if context else b"\x16\x03\x01"
                writer.write(draw.choice((b"", preface)) + frame(draw))
                writer.write_eof() if writer.can_write_eof() else await writer.drain()
                await asyncio.wait_for(reader.read(100), 0.2)
            finally:
                writer.transport.abort()


async def inside(to: Endpoint, frames: list[tuple[Kind, bytes]]) -> None:
    with suppress(OSError, TransportError, TimeoutError):
        async with asyncio.timeout(5):
            connection = await to.connect()
            try:
                for kind, content in frames:
                    connection.write(kind, content)
                while True:
                    await asyncio.wait_for(connection.receive(), 0.2)
            finally:
                connection.abort()


async def bombard(port: int, frames: int, seed: int, by: Identity | None = None) -> None:
    """Throw so many frames at a port, a few at a time."""
    by = by or identity("cedar")
    to = Endpoint(by, "birch", Address(HOME, port))
    context = client_context(by)
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        async with turn:
            if number % 4 == 0:
                await at_the_port(port, draw, None)
            elif number % 4 == 1:
                await at_the_port(port, draw, context)
            elif number % 4 == 2:
                await inside(to, [(draw.choice((Kind.GREETING, Kind.CALL)), frame(draw))])
            else:
                kinds = (Kind.PARTS, Kind.CONTROL, Kind.PARTS, Kind.TAKEN)
                noise = [(draw.choice(kinds), frame(draw)) for _ in range(2)]
                await inside(to, [(Kind.GREETING, _HELLO), *noise])

    for start in range(0, frames, 100):
        await asyncio.gather(*(one(number) for number in range(start, min(start + 100, frames))))


async def bombarded(port: int, frames: int, seed: int, folder: Path) -> None:
    """Let another process throw them, as the device whose identity lies in a folder."""
    words = [str(word) for word in (frames, seed, port, folder)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __spec__.name, *words)
    assert await process.wait() == 0


async def main(frames: int, seed: int) -> None:
    """Bombard a device, and print what came of it."""
    async with pair() as (honest, other):
        sent = 0

        async def talk() -> None:
            nonlocal sent
            while True:
                await honest.transport.send(1, Beat(1, 0, sent, "training"), 5)
                sent += 1
                await asyncio.sleep(0.02)

        talking = asyncio.create_task(talk())
        with tempfile.TemporaryDirectory() as place:
            identity("cedar").save(Path(place, "cedar"))
            # Whatever is loaded at first use comes before the measuring.
            await bombarded(other.port, min(frames, 200), seed + 1, Path(place, "cedar"))
            before = resident_bytes()
            await bombarded(other.port, frames, seed, Path(place, "cedar"))
        grown = resident_bytes() - before
        alive = not talking.done()
        talking.cancel()
        said = {
            "frames": frames,
            "refused": {str(why): many for why, many in other.transport.refusals.items()},
            "reports": len(other.refusals),
            "honest": sent,
            "undisturbed": alive and len([one for one in other.inbox if one[0] == 0]) >= sent,
            "taken from the noisy one": len([one for one in other.inbox if one[0] == 2]),
            "grown_mb": round(grown / 1e6, 2),
        }
        print(json.dumps(said))


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3:]:
        asyncio.run(bombard(int(sys.argv[3]), count, first, Identity.load(Path(sys.argv[4]))))
    else:
        asyncio.run(main(count, first))
