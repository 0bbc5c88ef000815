"""Namespaces and limited links; skipped, with the reason, where the system refuses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.deploy.local import emulate as module
from joulemesh.deploy.local.emulate import (
    LinkRate,
    Namespaces,
    links_of,
    remove_left_overs,
    why_not,
)
from joulemesh.planning.ground import Ground
from joulemesh.scenario import Scenario

_REFUSAL = why_not()
root = pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL)

LINKS = [LinkRate((0, 1), 8e6, 40e6), LinkRate((1, 2), 16e6, 16e6)]
SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as listening:
    print("ready", flush=True)
    connection, peer = listening.accept()
    print(peer[0], flush=True)
    with connection, connection.makefile("rb") as incoming:
        incoming.read(int(sys.argv[2]))
        connection.sendall(b"!")
"""
CLIENT = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000), timeout=5) as connection:
    begun = time.perf_counter()
    connection.sendall(bytes(int(sys.argv[2])))
    connection.recv(1)
    print(time.perf_counter() - begun)
"""


def kept(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if Path("/run/netns", name).exists()]


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    with Namespaces(3, LINKS) as made:
        yield made
    assert not kept(made.names)


def seconds(network: Namespaces, sender: int, receiver: int, size: int) -> float:
    """Of sending so many bytes, until they are acknowledged."""
    where = [network.address(receiver), str(size)]
    server = subprocess.Popen(
        network.command(receiver, [sys.executable, "-c", SERVER, *where]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    sent = subprocess.run(
        network.command(sender, [sys.executable, "-c", CLIENT, *where]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert server.communicate()[0].strip() == network.address(sender)
    return float(sent.stdout)


@root
@pytest.mark.parametrize(("sender", "receiver", "rate_bps"), [(0, 1, 8e6), (1, 0, 40e6)])
def test_a_link_carries_its_rate_each_way(
    network: Namespaces, sender: int, receiver: int, rate_bps: float
) -> None:
    size = 300_000
    share = 8 * size / seconds(network, sender, receiver, size) / rate_bps
    assert 0.85 < share < 1.05


@root
def test_a_device_reaches_its_neighbours_only(network: Namespaces) -> None:
    """Devices 0 and 2 have no link, and nothing passes messages on for them."""
    for source, target, reached in ((0, 1, True), (0, 2, False)):
        script = CLIENT.replace("timeout=5", "timeout=1")
        said = subprocess.run(
            network.command(source, [sys.executable, "-c", script, network.address(target), "1"]),
            capture_output=True,
            text=True,
        )
        refused = "ConnectionRefusedError" in said.stderr  # reached, but nobody listens
        assert refused == reached, said.stderr


@root
def test_namespaces_are_removed_after_a_kill() -> None:
    """And what still runs in them ends."""
    script = (
        "import subprocess, time\n"
        "from joulemesh.deploy.local.emulate import *\n"
        "with Namespaces(2, [LinkRate((0, 1), 1e6, 1e6)]) as made:\n"
        "    sleeper = subprocess.Popen(made.command(0, ['sleep', '600']))\n"
        "    print(sleeper.pid, *made.names, flush=True)\n"
        "    time.sleep(600)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    sleeper, *names = maker.stdout.readline().split()
    assert kept(tuple(names)) == names
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    until = time.monotonic() + 10
    while (kept(tuple(names)) or _runs(sleeper)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not kept(tuple(names))
    assert not _runs(sleeper)


def _runs(process: str) -> bool:
    try:
        stat = Path("/proc", process, "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@root
def test_left_overs_are_removed_and_others_are_not() -> None:
    """A process number that was given again is another process."""
    old = f"{module.PREFIX}-{os.getpid()}-1-0-0"
    foreign = f"{module.PREFIX}-of-somebody"
    for name in (old, foreign):
        subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with Namespaces(1, []) as mine:
            assert kept((old, foreign, *mine.names)) == [foreign, *mine.names]
            assert remove_left_overs() == []
    finally:
        subprocess.run(["ip", "netns", "delete", foreign], check=True)


@root
def test_what_the_system_refuses_is_said_and_leaves_nothing() -> None:
    twice = Namespaces(2, [LINKS[0], LINKS[0]])
    with pytest.raises(JoulemeshError, match=r"^ip was refused: .*File exists.*$"):
        twice.__enter__()
    assert not kept(twice.names)


def test_why_not_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "this is darwin" in why_not()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "install iproute2" in why_not()
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "user 1000; use sudo" in why_not()


def test_rates_are_those_of_the_plan_divided_by_the_factor() -> None:
    powers = [0.1, 1.0, 1.0, 1.0]  # so that the two ways of a link differ
    ground = Ground.of(
        Scenario(devices={"count": 4, "transmit_power_w": powers}, network={"profile": "ideal"})
    )
    costs = ground.forecast
    for link, ends, there, back in zip(
        links_of(ground, 4.0),
        ground.world.graph.edges.tolist(),
        costs.forward_s,
        costs.backward_s,
        strict=True,
    ):
        assert link.rate_bps(ends[0]) == pytest.approx(0.25 / there)
        assert link.rate_bps(ends[1]) == pytest.approx(0.25 / back)
    with pytest.raises(ScenarioError, match="factor of 0"):
        links_of(ground, 0.0)
