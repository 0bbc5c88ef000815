"""A fleet on one Linux machine whose links carry what the plan says, and no more.

Each device is a process in a network namespace of its own; see `namespaces`. What a fleet measured
is set beside what its plan says: one machine has one clock, so the beginning and the end of an
exchange are known exactly.
"""

from __future__ import annotations

__all__ = ["Measured", "check_emulation", "emulated", "measured", "too_fast"]

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from joulemesh.base.bounded import JOURNAL, JOURNAL_LINE, open_bounded, parse_json
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.units import duration, si
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import RUN, LocalFleet
from joulemesh.deploy.local.namespaces import LinkRate, Namespaces, links_of, why_not
from joulemesh.deploy.record.history import History, read_history
from joulemesh.planning.plan import Plan

# A message whose link takes less than this is a matter of the processes, not of the link.
_HANDLING_S = 0.02


@contextmanager
def emulated(
    folder: Path,
    fleet: Fleet,
    plan: Plan,
    *,
    slow_down: float = 1.0,
    code: Sequence[Path] = (),
    learner: str | None = None,
    restarts: int = 5,
) -> Iterator[LocalFleet]:
    """A fleet in namespaces, which are removed at the end.

    Args:
        folder: of the fleet.
        fleet: what it holds.
        plan: what it carries out.
        slow_down: links carry the plan's rates divided by it.
        code: the user's own files, which each process loads.
        learner: the user's own learner (``FILE.py:NAME``) in the place of the scenario's.
        restarts: how often one device is started again after a crash.

    Raises:
        JoulemeshError: this system makes no namespaces; the reason in one line.
    """
    check_emulation()
    with Namespaces(len(fleet.names), links_of(plan.ground, slow_down)) as network:
        addresses = [network.address(device) for device in range(len(fleet.names))]
        yield LocalFleet(folder, fleet, plan, code, learner, restarts, addresses, network.command)


def check_emulation() -> None:
    """Refuse where the system makes no namespaces.

    Raises:
        JoulemeshError: the reason, in one line.
    """
    reason = why_not()
    if reason:
        raise JoulemeshError(f"links cannot be emulated here: {reason}")


def too_fast(plan: Plan, slow_down: float = 1.0) -> str:
    """Why an emulation would measure this machine rather than the links; empty if it would not.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> print(too_fast(plan))
    a message of 19.2 kB takes 376 µs at 409 Mbit/s, less than processes of this machine need to
    handle one; add --slow-down 54 to measure the links
    >>> too_fast(plan, 60.0)
    ''
    """
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
    """What a fleet on one machine measured, beside its plan.

    Attributes:
        exchange_s: by iteration: from when the last device had trained to when the last had
            finished, and the plan's seconds.
        goodput: by (sender, receiver): bits of payload per second until they are acknowledged, as
            a share of the rate of the link; the median over the iterations.
    """

    exchange_s: Mapping[int, tuple[float, float]]
    goodput: Mapping[tuple[int, int], float]

    @property
    def ratio(self) -> float:
        """Median of the measured seconds of an exchange over the planned ones; NaN without any.

        >>> Measured({1: (1.1, 1.0), 2: (1.2, 1.0), 3: (9.0, 1.0)}, {}).ratio
        1.2
        """
        ratios = [took / planned for took, planned in self.exchange_s.values() if planned > 0]
        return float(np.median(ratios)) if ratios else math.nan


def measured(folder: Path, fleet: Fleet, plan: Plan, slow_down: float = 1.0) -> Measured:
    """What the journals of a fleet on this machine say, beside its plan.

    Args:
        folder: of the fleet.
        fleet: what it holds.
        plan: what it carried out.
        slow_down: the factor by which the links were slower than the plan's.
    """
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
    """Measured and planned seconds of the exchanges that all devices took part in."""
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
