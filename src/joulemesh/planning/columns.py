"""The columns of a plan's ledger: joules for computing, transmitting, receiving and waiting."""

from __future__ import annotations

__all__ = ["COLUMNS", "GAINED", "LEDGER", "Ledgered", "ledger_of", "spent_on"]

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.ledger import Ledger, alike, charge, slowest_s, total_of
from joulemesh.planning.account import Account
from joulemesh.planning.ground import Ground
from joulemesh.planning.timeline import Timeline

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COLUMNS = ("compute_total_j", "transmit_total_j", "receive_total_j", "idle_total_j")
"""What each device's joules go on; together they are ``spent_j``."""

LEDGER = (
    "energy_budget_j",
    "compute_total_j",
    "exchange_total_j",
    *COLUMNS[1:],
    "spent_j",
    "margin_j",
)
"""The columns of a table of devices; ``exchange_total_j`` is transmitting and receiving."""

GAINED = ("harvested_total_j", "spilled_total_j")
"""Further columns of such a table, where batteries are recharged."""


def spent_on(account: Account) -> dict[str, FloatArray]:
    """What devices spend on what, in the columns that a table needs, by their headers; each [N].

    Sending and receiving are one column where receiving is free, and rest is none where it is.

    >>> import joulemesh
    >>> list(spent_on(joulemesh.plan(joulemesh.Scenario.preset("adaptive"))))
    ['training', 'exchange']
    """
    columns = {"training": account.compute_total_j}
    if account.receive_total_j.any():
        columns |= {"transmit": account.transmit_total_j, "receive": account.receive_total_j}
    else:
        columns["exchange"] = account.exchange_total_j
    if account.idle_total_j.any():
        columns["idle"] = account.idle_total_j
    return columns


def ledger_of(account: object) -> tuple[str, ...]:
    """The columns of a table of devices: `LEDGER`, and `GAINED` where batteries are recharged.

    >>> import joulemesh
    >>> ledger_of(joulemesh.plan(joulemesh.Scenario.preset("adaptive"))) == LEDGER
    True
    """
    return (*LEDGER, *GAINED) if getattr(account, "harvests", False) else LEDGER


class Ledgered:
    """What a plan costs, by its ground and its timeline; `Plan` inherits it."""

    ground: Ground
    timeline: Timeline

    @cached_property
    def ledger(self) -> Ledger:
        """What every iteration costs."""
        devices, timeline = self.ground.world.devices, self.timeline
        made = charge(devices, timeline.rounds, timeline.exchange, who=timeline.active)
        if devices.idle_w is None or timeline.awake_s is None:
            return made
        return replace(made, idle_j=devices.idle_w * timeline.awake_s)

    @property
    def compute_j(self) -> FloatArray:
        """float64 [n, N]: joules of local training."""
        return np.asarray(self.timeline.rounds * self.ground.world.devices.round_energy_j)

    @property
    def exchange_j(self) -> FloatArray:
        """float64 [n, N]: joules of the exchanges, sending and receiving."""
        return self.timeline.exchange.exchange_j

    @property
    def transmit_j(self) -> FloatArray:
        """float64 [n, N]: what of these is for sending."""
        return self.timeline.exchange.transmit_j

    @property
    def receive_j(self) -> FloatArray:
        """float64 [n, N]: what of these is for receiving."""
        return self.timeline.exchange.receive_j

    @property
    def exchange_s(self) -> FloatArray:
        """float64 [n]: seconds of the exchanges."""
        return self.timeline.exchange.seconds

    @cached_property
    def latency_s(self) -> FloatArray:
        """float64 [n]: seconds of each iteration, training and exchange."""
        round_s = self.ground.world.devices.round_latency_s
        return np.asarray(slowest_s(self.timeline.rounds, round_s) + self.exchange_s)

    def idle_j(self, row: int) -> FloatArray:
        """float64 [N]: joules at rest of an iteration (from 0), of those who take part in it."""
        idle_w = self.ground.world.devices.idle_w
        if idle_w is None:
            return np.zeros(self.timeline.rounds.shape[1])
        if self.timeline.awake_s is not None:
            return np.asarray(idle_w * self.timeline.awake_s[row])
        return np.where(self.timeline.active[row], idle_w * self.latency_s[row], 0.0)

    @cached_property
    def iteration_j(self) -> FloatArray:
        """float64 [n]: joules of each iteration of all devices, at rest included."""
        round_j = self.ground.world.devices.round_energy_j
        training = np.array([rounds @ round_j for rounds in self.timeline.rounds])
        exchange = self.exchange_j[:1] if alike(self.exchange_j) else self.exchange_j
        working = np.asarray(training + exchange.sum(axis=1))
        if self.ground.world.devices.idle_w is None:
            return working
        return np.asarray(working + [self.idle_j(row).sum() for row in range(len(working))])

    @cached_property
    def time_s(self) -> float:
        """Seconds of all iterations together."""
        return float(self.latency_s.sum())

    # Of the whole plan --------------------------------------------------------------------------

    @cached_property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""
        return total_of(self.exchange_j)

    @property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""
        return np.asarray(self._columns[0])

    @property
    def transmit_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on sending."""
        return np.asarray(self._columns[1])

    @property
    def receive_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on receiving; 0 where it is free."""
        return np.asarray(self._columns[2])

    @property
    def idle_total_j(self) -> FloatArray:
        """float64 [N]: joules at rest, in the iterations in which a device takes part."""
        return np.asarray(self._columns[3])

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all: the sum of the four columns."""
        return np.asarray(self._columns.sum(axis=0))

    @cached_property
    def _columns(self) -> FloatArray:
        """float64 [4, N]: what `COLUMNS` name."""
        devices, timeline = self.ground.world.devices, self.timeline
        compute = timeline.rounds.sum(axis=0) * devices.round_energy_j
        sent, heard = (total_of(part) for part in (self.transmit_j, self.receive_j))
        idle = np.zeros_like(compute) if devices.idle_w is None else devices.idle_w * self._rest_s
        return np.stack([compute, sent, heard, idle])

    # What batteries gain -------------------------------------------------------------------------

    @property
    def harvests(self) -> bool:
        """Do batteries gain anything on the way?"""
        return self.timeline.spilled_j is not None

    @property
    def harvested_j(self) -> FloatArray:
        """float64 [n, N]: joules that each iteration brings, spilled ones included."""
        return np.asarray(self.timeline.exchange.harvested_j + self.spilled_j)

    @property
    def spilled_j(self) -> FloatArray:
        """float64 [n, N]: what of these a full battery has no room for."""
        spilled = self.timeline.spilled_j
        return np.broadcast_to(0.0, self.timeline.rounds.shape) if spilled is None else spilled

    @property
    def harvested_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device harvests, spilled ones included."""
        return total_of(self.harvested_j)

    @property
    def spilled_total_j(self) -> FloatArray:
        """float64 [N]: joules harvested that each battery has no room for."""
        return total_of(self.spilled_j)

    @cached_property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: what each battery holds at the start, and all that it gains."""
        held = self.ground.world.devices.energy_budget_j
        return np.asarray(held + total_of(self.timeline.exchange.harvested_j))

    @property
    def _rest_s(self) -> FloatArray:
        """float64 [N]: seconds of the iterations in which each device takes part."""
        if self.timeline.awake_s is not None:
            return np.asarray(self.timeline.awake_s.sum(axis=0))
        seconds = np.zeros(self.timeline.rounds.shape[1])
        if self.timeline.active.all():
            return np.asarray(seconds + self.latency_s.sum())
        for active, taken_s in zip(self.timeline.active, self.latency_s.tolist(), strict=True):
            seconds[active] += taken_s
        return seconds
