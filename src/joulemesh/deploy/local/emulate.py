"""A fleet on one Linux machine whose links carry what the plan says, and no more.

Each device is a process in a network namespace of its own, each link of the graph a pair of virtual
Ethernet interfaces, and a token bucket (``tc tbf``) at either end lets no more through than the
plan's rate of that direction. Interfaces live inside the namespaces only, so nothing on the machine
itself changes. A small shell process removes the namespaces, and with them everything, as soon as
the process that made them closes a pipe, or ends in any way, ``kill -9`` included.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from types import TracebackType

import numpy as np

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import JOURNAL, JOURNAL_LINE, open_bounded, parse_json
from joulemesh.base.units import duration, si
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import RUN, LocalFleet
from joulemesh.deploy.record.history import History, read_history
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan

PREFIX = "joulemesh"
_NAME = re.compile(rf"{PREFIX}-(\d+)-(\d+)-\d+-\d+")  # process, its start, network, device
_NUMBERS = itertools.count()  # of the networks that this process makes
_KEPT = Path("/run/netns")  # where `ip netns` keeps the names
_FIRST = int(IPv4Address("10.213.0.0"))  # of addresses that nobody outside the namespaces sees
_MOST_DEVICES = 60_000
_FRAME_BYTES = 1514
_BURST_S = 0.002  # a longer one would let short messages through at no cost
_QUEUE_S = 0.1  # bytes that wait at a link, in seconds of its rate: more would delay signs of life
_LEAST_QUEUE_BYTES = 64 * 1024

# Waits until its input ends, then ends what still runs in the namespaces, and removes them.
_REMOVE = """
cat >/dev/null
for name in "$@"; do
    for process in $(ip netns pids "$name" 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
    ip netns delete "$name" 2>/dev/null
done
"""


@dataclass(frozen=True)
class LinkRate:
    """A link and what it carries each way."""

    ends: tuple[int, int]  # its devices, the lower first
    forward_bps: float  # from the lower to the higher
    backward_bps: float  # from the higher to the lower

    def rate_bps(self, sender: int) -> float:
        return self.forward_bps if sender == self.ends[0] else self.backward_bps


def links_of(ground: Ground, slow_down: float = 1.0) -> tuple[LinkRate, ...]:
    """Every link of the graph with its rates; under fading, with those of the forecast."""
    # They are rates of payload: headers and channel access of the plan's radio are left out of
    # them.
    if not slow_down > 0:
        raise ScenarioError(f"links cannot be slowed down by a factor of {slow_down:g}; give 1 up")
    rows = zip(ground.world.graph.edges.tolist(), *ground.forecast.payload_bps(), strict=True)
    return tuple(
        LinkRate((i, j), there / slow_down, back / slow_down)
        if i < j
        else LinkRate((j, i), back / slow_down, there / slow_down)
        for (i, j), there, back in rows
    )


def why_not() -> str:
    """Why namespaces cannot be made here, in one line; empty where they can."""
    # A namespace with a limited link is made and removed again: nothing else tells for sure.
    if sys.platform != "linux":
        return f"network namespaces are a matter of Linux, and this is {sys.platform}"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"the command {tool!r} is missing; install iproute2"
    if os.geteuid() != 0:
        return f"only root may make network namespaces, and this is user {os.geteuid()}; use sudo"
    try:
        with Namespaces(2, [LinkRate((0, 1), 1e6, 1e6)]):
            return ""
    except JoulemeshError as error:
        return str(error)


class Namespaces:
    """Namespaces of all devices, and their links; use it in a ``with`` statement."""

    def __init__(self, devices: int, links: Iterable[LinkRate]) -> None:
        if devices > _MOST_DEVICES:
            raise ScenarioError(f"{devices} devices are more than {_MOST_DEVICES} namespaces")
        own = f"{PREFIX}-{os.getpid()}-{_started(os.getpid())}-{next(_NUMBERS)}"
        self.names = tuple(f"{own}-{device}" for device in range(devices))
        self.links = tuple(links)
        self._remover: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Namespaces:
        remove_left_overs()
        self._remover = subprocess.Popen(
            ["sh", "-c", _REMOVE, "sh", *self.names],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        try:
            _batch(["ip"], [f"netns add {name}" for name in self.names])
            _batch(["ip"], [self._pair(link) for link in self.links])
            for device, name in enumerate(self.names):
                mine = [one for one in self.links if device in one.ends]
                _batch(["ip", "-n", name], ["link set lo up", *self._interfaces(device, mine)])
                _batch(["tc", "-n", name], [_bucket(device, one) for one in mine])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._remover is not None:
            self._remover.communicate()  # closes its input
            self._remover = None

    def address(self, device: int) -> str:
        """A device's address, which its neighbours reach over their own link with it."""
        return str(IPv4Address(_FIRST + 1 + device))

    def command(self, device: int, command: Sequence[str]) -> list[str]:
        """The command that runs another one in a device's namespace, as the same process."""
        return ["ip", "netns", "exec", self.names[device], *command]

    def _pair(self, link: LinkRate) -> str:
        i, j = link.ends
        ends = (f"to{j} netns {self.names[i]}", f"to{i} netns {self.names[j]}")
        return f"link add name {ends[0]} type veth peer name {ends[1]}"

    def _interfaces(self, device: int, mine: list[LinkRate]) -> Iterable[str]:
        for link in mine:
            other = sum(link.ends) - device
            ends = f"{self.address(device)} peer {self.address(other)}/32"
            yield f"address add {ends} dev to{other}"
            yield f"link set to{other} up"


def _bucket(device: int, link: LinkRate) -> str:
    rate_bps, other = link.rate_bps(device), sum(link.ends) - device
    burst = max(2 * _FRAME_BYTES, int(rate_bps / 8 * _BURST_S))
    queue = burst + max(_LEAST_QUEUE_BYTES, int(rate_bps / 8 * _QUEUE_S))
    limits = f"rate {max(8, round(rate_bps))}bit burst {burst}b limit {queue}b"
    return f"qdisc add dev to{other} root tbf {limits}"


def _batch(tool: list[str], lines: Sequence[str]) -> None:
    if not lines:
        return
    said = subprocess.run(
        [*tool, "-batch", "-"], input="\n".join(lines), text=True, capture_output=True
    )
    if said.returncode:
        words = " ".join(said.stderr.split())[:200]
        raise JoulemeshError(f"{' '.join(tool)} was refused: {words}; emulation needs full root")


def remove_left_overs() -> list[str]:
    """Remove the namespaces of processes that are gone; gives their names."""
    found = [_NAME.fullmatch(path.name) for path in _KEPT.glob(f"{PREFIX}-*")]
    gone = [one[0] for one in found if one and _started(int(one[1])) != int(one[2])]
    if gone:
        subprocess.run(["sh", "-c", _REMOVE, "sh", *gone], stdin=subprocess.DEVNULL, check=False)
    return gone


def _started(process: int) -> int:
    """When a process was started, in ticks since the machine was; −1 if there is none."""
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        return -1 if fields[0] == "Z" else int(fields[19])
    return -1


# A message whose link takes less than this is a matter of the processes, not of the link.
_HANDLING_S = 0.02


@contextmanager
def emulated(
    folder: Path,
    fleet: Fleet,
    plan: Plan,
    slow_down: float = 1.0,
    code: Sequence[Path] = (),
    learner: str | None = None,
    restarts: int = 5,
) -> Iterator[LocalFleet]:
    check_emulation()
    with Namespaces(len(fleet.names), links_of(plan.ground, slow_down)) as network:
        addresses = [network.address(device) for device in range(len(fleet.names))]
        yield LocalFleet(folder, fleet, plan, code, learner, restarts, addresses, network.command)


def check_emulation() -> None:
    reason = why_not()
    if reason:
        raise JoulemeshError(f"links cannot be emulated here: {reason}")


def too_fast(plan: Plan, slow_down: float = 1.0) -> str:
    """Why an emulation would measure this machine rather than the links; empty if it would not."""
    route = next((one for one in map(plan.route, range(1, plan.iterations + 1)) if one), None)
    if route is None:
        return ""
    seconds = route.seconds(plan.ground.forecast) / route.chunks * slow_down
    fastest = int(np.argmin(seconds))
    message_s, bits = float(seconds[fastest]), float(route.bits[fastest] / route.chunks)
    if message_s >= _HANDLING_S:
        return ""
    factor = math.ceil(_HANDLING_S / message_s * slow_down)
    larger = f"set plan.message_s={_HANDLING_S * 1000:g}ms, or " if route.chunks > 1 else ""
    return (
        f"a message of {si(bits / 8, 'B')} takes {duration(message_s)} at "
        f"{si(bits / message_s, 'bit/s')}, less than processes of this machine need to handle one; "
        f"{larger}add --slow-down {factor} to measure the links"
    )


@dataclass(frozen=True)
class Measured:
    """What a fleet on one machine measured, beside its plan."""

    # by iteration: from when the last device had trained to when the last had finished, and the
    # plan's seconds
    exchange_s: Mapping[int, tuple[float, float]]
    # by (sender, receiver): bits of payload per second until they are acknowledged, as a share of
    # the rate of the link; the median over the iterations
    goodput: Mapping[tuple[int, int], float]

    @property
    def ratio(self) -> float:
        """Median of the measured seconds of an exchange over the planned ones; NaN without any."""
        ratios = [took / planned for took, planned in self.exchange_s.values() if planned > 0]
        return float(np.median(ratios)) if ratios else math.nan


def measured(folder: Path, fleet: Fleet, plan: Plan, slow_down: float = 1.0) -> Measured:
    histories = [
        read_history(folder / DEVICES / name / RUN, device, name)
        for device, name in enumerate(fleet.names)
    ]
    rates = {link.ends: link for link in links_of(plan.ground, slow_down)}
    shares: dict[tuple[int, int], list[float]] = defaultdict(list)
    for device, name in enumerate(fleet.names):
        for to, bits, seconds in _sent(folder / DEVICES / name / RUN):
            shares[device, to].append(bits / seconds / _rate(rates, device, to))
    goodput = {link: float(np.median(shares[link])) for link in sorted(shares)}
    return Measured(_exchanges(histories, plan, slow_down), goodput)


def _sent(run: Path) -> Iterator[tuple[int, float, float]]:
    """(neighbour, bits, seconds) of what a device sent, for every iteration."""
    for path in journals_in(run):
        with open_bounded(path, JOURNAL.now) as file:
            while line := file.readline(JOURNAL_LINE.now):
                with suppress(ValueError, TypeError, LookupError, AttributeError):  # cut short
                    for to, (payload, seconds, _) in parse_json(line).get("sent", {}).items():
                        if seconds > 0:
                            yield int(to), 8.0 * payload, float(seconds)


def _exchanges(
    histories: Sequence[History], plan: Plan, slow_down: float
) -> dict[int, tuple[float, float]]:
    ends: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for one in histories:
        finished, took = one.column("at"), one.column("exchange_s")
        for t, end, begun in zip(one.iterations.tolist(), finished, finished - took, strict=True):
            ends[t].append((begun, end))
    return {
        t: (
            max(end for _, end in ends[t]) - max(begun for begun, _ in ends[t]),
            float(plan.exchange_s[t - 1]) * slow_down,
        )
        for t in sorted(ends)
        if len(ends[t]) == len(histories) and plan.route(t) is not None
    }


def _rate(links: Mapping[tuple[int, int], LinkRate], sender: int, receiver: int) -> float:
    return links[min(sender, receiver), max(sender, receiver)].rate_bps(sender)
