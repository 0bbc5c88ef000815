"""Devices of a local fleet that come and go as ``devices.availability`` says.

The fleet knows nothing of the table: its processes are stopped and started again, and it copes with
that as with any device that disappears or comes back. Times in iterations count those that any
device has committed; times in seconds count from the moment at which all devices had started.
"""

from __future__ import annotations

__all__ = ["Churn", "churn_of", "steadfast"]

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.local.supervisor import Supervisor
from joulemesh.deploy.operator.standing import Standing
from joulemesh.scenario import Scenario
from joulemesh.world.timed import Timed
from joulemesh.world.traces import read_availability

_SIMULATED_ONLY = ("harvest_w", "capacity_j", "positions")


def steadfast(scenario: Scenario) -> Scenario:
    """The scenario as a fleet is to carry it out, in which everybody is there.

    Raises:
        ScenarioError: it says of its devices what only a simulation can do.

    >>> steadfast(Scenario()) == Scenario()
    True
    """
    for name in _SIMULATED_ONLY:
        if getattr(scenario.devices, name) is not None:
            raise ScenarioError(
                f"devices.{name} is for simulation: what a deployed device holds and where it is, "
                "its own meter and radio tell; leave it out"
            )
    if scenario.devices.availability is None:
        return scenario
    return scenario.override({"devices.availability": None})


def churn_of(scenario: Scenario) -> Timed | None:
    """Who is there when; None if everybody always is.

    Raises:
        ScenarioError: the table cannot be read, or it leaves fewer than two devices in an
            iteration: a fleet counts iterations, so that none would follow.

    >>> churn_of(Scenario()) is None
    True
    """
    if scenario.devices.availability is None:
        return None
    trace = read_availability(scenario)
    for t in [] if trace.seconds else trace.changes.tolist():
        there = int(trace.at(t).sum())
        if there < 2:
            raise ScenarioError(
                f"{trace.path} leaves {there} of {scenario.devices.count} devices in iteration "
                f"{t:g}: a fleet would wait for ever; keep two of them, or give seconds (time_s)"
            )
    return trace


@dataclass
class Churn:
    """Stops and starts the processes of a fleet.

    Journals tell of iterations up to a second late, so that a fast fleet may be far beyond a time
    of the table before it is known to have come there. No change is left out for that: the next
    one comes when the fleet has gone on with the one before.

    Attributes:
        trace: who is there when.
        supervisor: of the processes, by device.
        now: seconds of a clock.
    """

    trace: Timed
    supervisor: Supervisor
    now: Callable[[], float] = time.monotonic
    _begun: float | None = field(default=None, init=False)
    _stage: float = field(default=0.0, init=False)  # the time of the table that is carried out
    _since: int | None = field(default=None, init=False)  # iterations when it had been

    def look(self, standings: Sequence[Standing]) -> None:
        """See how far the fleet has come, and who is to be there then."""
        if self._begun is None:
            if not all(one.known or one.over for one in self.supervisor.processes):
                return  # a fleet begins with everybody
            self._begun, self._stage = self.now(), self.trace.start
        committed = max((one.iteration for one in standings), default=0)
        if self.trace.seconds:
            self._stage = self.now() - self._begun
        else:
            self._go_on(committed)
        for device, here in enumerate(self._present):
            if here:
                self.supervisor.bring_back(device)
            else:
                self.supervisor.send_away(device)

    @property
    def _present(self) -> list[bool]:
        return [bool(here > 0) for here in self.trace.at(self._stage)[:, 0]]

    def _go_on(self, committed: int) -> None:
        """Turn to the next change, if the fleet is there and has gone on since the last."""
        if self._since is None and self._done():
            self._since = committed
        following = self.trace.next_change(self._stage)
        reached = self.trace.when(committed, 0.0) >= following
        if reached and self._since is not None and committed > self._since:
            self._stage, self._since = following, None

    def _done(self) -> bool:
        """Are those there who are to be, and the others away?"""
        processes = self.supervisor.processes
        return all(
            process.state in (("running",) if here else ("away",)) or process.state == "done"
            for process, here in zip(processes, self._present, strict=True)
        )

    def expects(self) -> bool:
        """Will somebody come back, though nobody is there now?"""
        if self._begun is None or not self.trace.seconds:
            return False
        away = any(process.state == "away" for process in self.supervisor.processes)
        later = self.trace.changes[-1] >= self.now() - self._begun
        return away and (bool(later) or self.trace.end == "repeat")
