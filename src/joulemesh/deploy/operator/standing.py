"""How a fleet stands, and what one end of a link finds out about the other."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, replace

from joulemesh._version import __version__
from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.fleet.hosts import Host
from joulemesh.deploy.links.transfers import LEAST_LIMIT, Hello, push
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.gate import Caller, calling


@dataclass(frozen=True)
class Standing:
    """How one device stands at the moment."""

    device: int
    name: str  # what the roster calls it
    phase: str = ""  # what it is doing, in a word of `messages.Phase`; empty if it does not answer
    view: int = 0  # the newest view that it has installed
    iteration: int = 0  # the last that it has committed
    iterations: int = 0  # how many the plan has
    spent_j: float = 0.0  # joules metered so far
    planned_j: float = 0.0  # joules that the plan gives it up to ``iteration``
    battery_j: float = 0.0  # joules that it may spend in all
    elapsed_s: float = 0.0  # seconds since it began
    planned_s: float = 0.0  # seconds that the plan takes up to ``iteration``
    waiting: tuple[str, ...] = ()  # names of the devices for whose messages it waits
    accuracy: float | None = None  # the last that it measured; None if it has measured none
    trouble: str = ""  # why nothing is known of it, or what it complains of
    # (of how many iterations since its start, how many took longer than the deadline)
    late: tuple[int, int] = (0, 0)
    worst: float = 0.0  # how many times the deadline the longest of them took


@dataclass(frozen=True)
class Probe:
    """What was found on the way from one device to another."""

    here: str  # name of the device, or of the laptop, that probed
    there: str  # name of the device that was probed
    address: str  # its host and port
    reachable: bool
    # what was found of its certificate: "valid until 2027-11-16", or why it was refused; empty if
    # it was not seen
    certificate: str = ""
    clock_s: float | None = None  # by how many seconds its clock is ahead; None if it is not known
    version: str = ""  # of Joulemesh there; empty if it is not known
    rate_bps: float | None = None  # bits per second that were measured; None if they were not
    # bits per second by the plan; None where the plan does not use the link
    planned_bps: float | None = None
    trouble: str = ""  # what is wrong, and what to do about it; empty if nothing is


_WARM_UP = 256 * 1024  # after which a connection has found its speed
_LONGEST_S = 60.0
_CLOCK_S = 5.0  # by which a clock may be off without a word
_EXPIRES = dt.timedelta(days=14)
_SILENT = (Reason.NAME_NOT_FOUND, Reason.UNREACHABLE, Reason.LATE)


async def probe(
    identity: Identity, here: str, host: Host, plan: str, *, payload_bytes: int = 0
) -> Probe:
    found = Probe(here, host.name, str(host), reachable=False)
    if not host.address:
        return replace(found, address="", trouble="hosts.csv has no address for it; fill it in")
    try:
        with calling(identity, host) as caller:
            return await _asked(caller, found, plan, min(payload_bytes, LEAST_LIMIT))
    except TransportError as fault:
        silent = fault.reason in _SILENT
        shown = "" if silent or "certificate" not in fault.reason else str(fault.reason)
        return replace(found, reachable=not silent, certificate=shown, trouble=str(fault))


async def _asked(caller: Caller, found: Probe, plan: str, payload_bytes: int) -> Probe:
    await push(caller, 0)  # which connects
    begun, told_at = time.monotonic(), time.time()
    hello = await push(caller, 0)
    trip_s = time.monotonic() - begun
    until = dt.datetime.fromtimestamp(min(max(hello.until, 0.0), 4e9), dt.UTC)
    found = replace(
        found,
        reachable=True,
        certificate=f"valid until {until:%Y-%m-%d}",
        clock_s=hello.at - (told_at + trip_s / 2),
        version=hello.version[:40],
        trouble=_trouble(hello, plan, hello.at - told_at, until),
    )
    if not payload_bytes:
        return found
    await push(caller, min(_WARM_UP, payload_bytes), _LONGEST_S)
    begun = time.monotonic()
    answer = await push(caller, payload_bytes, _LONGEST_S)
    taken_s = max(time.monotonic() - begun - trip_s, 1e-6)
    return replace(found, rate_bps=8 * answer.taken / taken_s)


def _trouble(hello: Hello, plan: str, off_s: float, until: dt.datetime) -> str:
    if hello.version != __version__:
        return f"it has Joulemesh {hello.version[:40]}, here is {__version__}; install one of them"
    if hello.plan != plan:
        return "it carries out another plan; enroll it again"
    if abs(off_s) > _CLOCK_S:
        return f"its clock is off by {abs(off_s):.0f} s; set the clocks (chrony, ntp)"
    left = until - dt.datetime.now(dt.UTC)
    if left < _EXPIRES:
        return f"its certificate expires in {left.days} days; sign its request again"
    return ""
