"""Two devices on this machine, without a limit: `python -m benchmarks.deploy_loopback`.

Goodput of single messages, and the processor's time per small message at the sender's end, where
messages come one at a time and where twenty wait at once.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT
from joulemesh.deploy.fleet.certificates import Authority, Identity, make_identity
from joulemesh.deploy.messages import Message, Part
from joulemesh.deploy.transport import Address, Roster
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms

HOME = "127.0.0.1"
NAMES = ("ash", "birch")
SIZES_MB = (0.3, 1.0, 5.0, 20.0)
REPEATS = 5
SMALL = 2000
TERMS = Terms("loopback", "plan", 5_000_000)


def transport(device: int, folder: Path, ports: tuple[int, int]) -> TcpTransport:
    """One of the two devices."""
    other = 1 - device
    roster = Roster(device, NAMES, {other: Address(HOME, ports[other])})
    identity = Identity.load(folder / NAMES[device])
    return TcpTransport(identity, roster, TERMS, Address(HOME, ports[device]))


async def receive(folder: Path, ports: tuple[int, int]) -> None:
    """Take messages until the process is ended."""

    def forget(_: int, __: Message) -> None:
        pass

    await transport(1, folder, ports).start(forget)
    await asyncio.Event().wait()


async def send(folder: Path, ports: tuple[int, int]) -> list[dict[str, Any]]:
    """Send messages, and measure."""
    own, rows = transport(0, folder, ports), []
    await own.send(1, _part(100), 30)
    for size_mb in SIZES_MB:
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            await own.send(1, _part(int(size_mb * 250_000)), 60)
            taken.append(time.perf_counter() - began)
        rows.append({"size_mb": size_mb, "mb_per_s": size_mb / float(np.median(taken))})
    for at_once in (1, 20):
        began = _processor_s()
        for _ in range(SMALL // at_once):
            await asyncio.gather(*(own.send(1, _part(250), 30) for _ in range(at_once)))
        each_us = (_processor_s() - began) / SMALL * 1e6
        rows.append({"size_mb": 0.001, "at_once": at_once, "sender_us": each_us})
    await own.close()
    return rows


def _part(numbers: int) -> Part:
    return Part(0, 1, 1, np.zeros(numbers, np.float32))


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def _receiver(folder: Path, ports: tuple[int, int]) -> Iterator[None]:
    words = [sys.executable, "-m", "benchmarks.deploy_loopback", str(folder), *map(str, ports)]
    process = subprocess.Popen(words, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOME, 0))
        return int(taken.getsockname()[1])


def measure(place: Path) -> list[dict[str, Any]]:
    """Measure with two processes whose identities are kept in a folder."""
    fleet, ports = Authority.make("loopback"), (_free_port(), _free_port())
    for name in NAMES:
        make_identity(fleet, name).save(place / name)
    with _receiver(place, ports):
        return asyncio.run(send(place, ports))


def main() -> None:
    """Measure and print; or, with a folder and two ports, be the receiver."""
    if len(sys.argv) > 1:
        folder, one, other = sys.argv[1:]
        asyncio.run(receive(Path(folder), (int(one), int(other))))
    with tempfile.TemporaryDirectory() as place:
        for row in measure(Path(place)):
            print(", ".join(f"{name} {figure:,.4g}" for name, figure in row.items()))


if __name__ == "__main__":
    main()
