"""Links limited to a rate: goodput of messages, and seconds of exchanges beside the plan's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh
from benchmarks.common import ROOT, progress
from joulemesh.deploy.fleet.certificates import Authority, Identity, make_identity
from joulemesh.deploy.local.emulate import LinkRate, Namespaces, emulated, links_of, measured
from joulemesh.deploy.local.local import open_fleet
from joulemesh.deploy.messages import Part
from joulemesh.deploy.transport import Address, Roster
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.view import Settings
from joulemesh.deploy.wire import Terms

RATES_MBPS = (5.0, 20.0, 50.0)
SIZES_MB = (0.3, 1.0, 5.0, 20.0)
ITERATIONS = 5
PORT = 7100

# Six devices: a ring with a chord, each link with a rate of its own.
TOPOLOGY = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4))
LINKS_MBPS = (5.0, 50.0, 20.0, 10.0, 35.0, 15.0, 25.0)

HANDLING_S = 0.02
"""What processes of a machine like this one need to handle a message, at the most."""

# Scheme, layers (parameters of 0.3 MB and of 4.3 MB) and ``plan.message_s``. Messages of the last
# two cases take the processes longer than the links.
CASES: tuple[tuple[str, tuple[int, ...], float], ...] = (
    ("tree", (1000,), HANDLING_S),
    ("tree-chunked", (1000,), HANDLING_S),
    ("ring", (1000,), HANDLING_S),
    ("ring-chunked", (1000,), HANDLING_S),
    ("gossip", (1000,), HANDLING_S),
    ("metropolis", (1000,), HANDLING_S),
    ("tree", (1000, 1000), HANDLING_S),
    ("tree-chunked", (1000, 1000), HANDLING_S),
    ("ring-chunked", (1000, 1000), HANDLING_S),
    ("tree-chunked", (1000,), 0.0),
    ("tree-chunked", (1000, 1000), 0.0),
)


def scenario(
    scheme: str,
    hidden: Sequence[int],
    rates_mbps: Sequence[float] = LINKS_MBPS,
    message_s: float = HANDLING_S,
) -> joulemesh.Scenario:
    """Six devices whose links have given rates, with batteries and deadlines that do not bind."""
    bandwidth_hz, noise_w_per_hz = 5e6, 10 ** (-174 / 10) / 1000
    snr = np.exp2(np.array(rates_mbps) * 1e6 / bandwidth_hz) - 1
    return joulemesh.Scenario(
        devices={"count": 6, "transmit_power_w": 1.0},
        network={
            "profile": "ideal",
            "topology": [list(link) for link in TOPOLOGY],
            "gains": (snr * bandwidth_hz * noise_w_per_hz).tolist(),
            "bandwidth_hz": bandwidth_hz,
        },
        budget={"energy_j": 1e6, "deadline_s": 600.0},
        plan={
            "iterations": ITERATIONS,
            "rounds": "fixed",
            "fixed_rounds": 1,
            "aggregation": scheme,
            "message_s": message_s,
        },
        training={"model": "mlp", "hidden": list(hidden), "eval_every": ITERATIONS},
    )


def measure_exchanges(place: Path) -> list[dict[str, Any]]:
    """Whole exchanges of six devices in namespaces."""
    return [
        exchanged(place / str(number), scheme, hidden, message_s)
        for number, (scheme, hidden, message_s) in enumerate(CASES)
    ]


def exchanged(
    folder: Path, scheme: str, hidden: Sequence[int], message_s: float = HANDLING_S
) -> dict[str, Any]:
    """The exchanges of one scheme with one model, beside the plan's."""
    progress(f"exchanges: {scheme}, layers of {', '.join(map(str, hidden))}")
    plan = joulemesh.plan(scenario(scheme, hidden, message_s=message_s))
    route = plan.route(1)
    assert route is not None
    shortest_s = float(route.seconds(plan.ground.forecast).min()) / route.chunks
    fleet, _ = open_fleet(folder, plan, settings=Settings(patience_s=20.0))
    with emulated(folder, fleet, plan) as running:
        running.run(lambda standings: None)
        if not running.complete:
            raise RuntimeError(f"{scheme}: {[one.last_words() for one in running.processes]}")
    found = measured(folder, fleet, plan)
    took, planned = zip(*found.exchange_s.values(), strict=True)
    rates = [link.forward_bps for link in links_of(plan.ground)]
    return {
        "scheme": scheme,
        "megabytes": plan.work.model_bits / 8e6,
        "slowest_mbps": float(min(rates)) / 1e6,
        "fastest_mbps": float(max(rates)) / 1e6,
        "shortest_s": shortest_s,
        "planned_s": float(np.median(planned)),
        "measured_s": float(np.median(took)),
        "ratio": found.ratio,
        "goodput": min(found.goodput.values()),
    }


def measure_links(place: Path) -> list[dict[str, Any]]:
    """Single messages between two processes, each in its namespace."""
    authority = Authority.make("links")
    for device in range(2):
        make_identity(authority, f"d{device}").save(place / str(device))
    found = []
    for rate_mbps in RATES_MBPS:
        progress(f"links: {rate_mbps:g} Mbit/s")
        with Namespaces(2, [LinkRate((0, 1), rate_mbps * 1e6, rate_mbps * 1e6)]) as network:
            for megabytes, seconds in _sent(network, place).items():
                goodput = 8 * megabytes / seconds / rate_mbps
                row = {"rate_mbps": rate_mbps, "megabytes": megabytes, "seconds": seconds}
                found.append({**row, "goodput": goodput})
    return found


def _sent(network: Namespaces, place: Path) -> dict[float, float]:
    """Seconds of a message of each size, from the first byte to its acknowledgement."""

    def started(device: int) -> subprocess.Popen[bytes]:
        words = [str(place / str(device)), str(device), network.address(1 - device)]
        command = [sys.executable, "-m", "benchmarks.deploy_links", *words]
        return subprocess.Popen(
            network.command(device, command),
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            cwd=ROOT,
        )

    with started(1) as receiver, started(0) as sender:
        taken = json.loads(sender.communicate()[0])
        receiver.communicate()  # ends it
    return {float(size): seconds for size, seconds in taken.items()}


async def _device(folder: Path, device: int, other: str) -> None:
    """One end of a link: device 0 sends, device 1 receives until its input ends."""
    terms = Terms("links", "plan", int(max(SIZES_MB) * 1e6 / 4))
    roster = Roster(device, ("d0", "d1"), {1 - device: Address(other, PORT)})
    listen = Address("0.0.0.0", PORT)
    transport = TcpTransport(Identity.load(folder), roster, terms, listen)
    await transport.start(lambda sender, message: None)
    if device:
        await asyncio.to_thread(sys.stdin.read)
    else:
        taken = {}
        await transport.send(1, Part(0, 1, 0, np.zeros(1, np.float32)), 60.0)  # connects
        for size in SIZES_MB:
            payload = np.random.default_rng(0).random(int(size * 1e6 / 4), np.float32)
            begun = time.perf_counter()
            await transport.send(1, Part(0, 1, 0, payload), 120.0)
            taken[size] = time.perf_counter() - begun
        print(json.dumps(taken), flush=True)
    await transport.close()


if __name__ == "__main__":
    asyncio.run(_device(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
