"""The columns of a plan's ledger: joules for computing, transmitting, receiving and waiting.

Each device's columns add up to what it spends, as one correctly rounded sum, and to no more than
its battery.
"""

from __future__ import annotations

__all__ = ["COLUMNS", "GAINED", "LEDGER", "Ledgered", "ledger_of", "settled", "spent_on"]

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.account import Account
from joulemesh.planning.ground import Ground
from joulemesh.planning.sums import joules_exactly, seconds_taken
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

_TRANSMIT = 1
_SLIGHT = 1e-6  # of a sum: a column so small is not the one that rounding is taken from


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


def settled(
    columns: FloatArray, battery_j: FloatArray, exactly: Callable[[int], float]
) -> tuple[FloatArray, FloatArray]:
    """Columns [4, N] and their sums [N], of which rounding puts none above a battery.

    Args:
        columns: each rounded by itself.
        battery_j: [N].
        exactly: what a device spends, rounded once; no more than its battery.

    >>> columns, battery = np.array([[0.1], [0.2], [0.0], [0.0]]), np.array([0.3])
    >>> fixed, spent = settled(columns, battery, lambda device: 0.3)
    >>> spent.tolist(), bool((fixed.sum(axis=0) == spent).all())
    ([0.3], True)
    """
    if not columns[2:].any():
        spent = columns[0] + columns[1]
    else:
        spent = np.array([math.fsum(each) for each in columns.T.tolist()])
    over = np.flatnonzero(spent > battery_j)
    if not len(over):
        return columns, spent
    columns, spent = columns.copy(), spent.copy()
    for device in over.tolist():
        own = columns[:, device]
        goal = exactly(device)
        if goal > battery_j[device]:  # a plan that was read from a file and changed
            continue
        largest = _TRANSMIT if own[_TRANSMIT] > _SLIGHT * goal else int(np.argmax(own))
        others = [-value for k, value in enumerate(own.tolist()) if k != largest]
        own[largest] = math.fsum((goal, *others))
        while math.fsum(own.tolist()) > battery_j[device]:
            own[largest] = math.nextafter(own[largest], 0.0)
        spent[device] = math.fsum(own.tolist())
    return columns, spent


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

    @property
    def compute_j(self) -> FloatArray:
        """float64 [n, N]: joules of local training."""
        return np.asarray(self.timeline.rounds * self.ground.world.devices.round_energy_j)

    @property
    def exchange_j(self) -> FloatArray:
        """float64 [n, N] or [1, N]: joules of the exchanges, sending and receiving."""
        return self.timeline.exchange_j

    @property
    def receive_j(self) -> FloatArray:
        """float64 [n, N] or [1, N]: what of these is for receiving."""
        heard = self.timeline.receive_j
        return self._none if heard is None else heard

    @property
    def exchange_s(self) -> FloatArray:
        """float64 [n]: seconds of the exchanges."""
        return self.timeline.exchange_s

    @cached_property
    def latency_s(self) -> FloatArray:
        """float64 [n]: seconds of each iteration, training and exchange."""
        round_s = self.ground.world.devices.round_latency_s
        slowest = np.array([(rounds * round_s).max() for rounds in self.timeline.rounds])
        return np.asarray(slowest + self.exchange_s)

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
        working = np.asarray(training + self.exchange_j.sum(axis=1))
        if self.ground.world.devices.idle_w is None:
            return working
        return np.asarray(working + [self.idle_j(row).sum() for row in range(len(working))])

    @cached_property
    def time_s(self) -> float:
        """Seconds of all iterations together, never above the total that is allowed."""
        round_s = self.ground.world.devices.round_latency_s
        return seconds_taken(
            self.latency_s, self.ground.scenario.budget.total_s, self.timeline, round_s
        )

    # Of the whole plan --------------------------------------------------------------------------

    @cached_property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""
        return self._over_iterations(self.exchange_j)

    def _over_iterations(self, joules: FloatArray) -> FloatArray:
        repeat = len(self.timeline.rounds) if len(joules) == 1 else 1
        return np.asarray(joules.sum(axis=0) * repeat)

    @property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""
        return np.asarray(self._settled[0][0])

    @property
    def transmit_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on sending."""
        return np.asarray(self._settled[0][_TRANSMIT])

    @property
    def receive_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on receiving; 0 where it is free."""
        return np.asarray(self._settled[0][2])

    @property
    def idle_total_j(self) -> FloatArray:
        """float64 [N]: joules at rest, in the iterations in which a device takes part."""
        return np.asarray(self._settled[0][3])

    @property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all, never above its battery.

        The sum of the four columns (`COLUMNS`), correctly rounded.
        """
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[FloatArray, FloatArray]:
        devices, timeline = self.ground.world.devices, self.timeline
        compute = timeline.rounds.sum(axis=0) * devices.round_energy_j
        exchange, heard = self.exchange_total_j, self._over_iterations(self.receive_j)
        idle = np.zeros_like(compute) if devices.idle_w is None else devices.idle_w * self._rest_s
        columns = np.stack([compute, exchange - heard, heard, idle])
        return settled(
            columns,
            self.supplied_j,
            lambda device: joules_exactly(device, timeline, devices),
        )

    # What batteries gain -------------------------------------------------------------------------

    @property
    def harvests(self) -> bool:
        """Do batteries gain anything on the way?"""
        return self.timeline.stored_j is not None

    @property
    def harvested_j(self) -> FloatArray:
        """float64 [n, N] or [1, N]: joules that each iteration brings, spilled ones included."""
        stored = self.timeline.stored_j
        return self._none if stored is None else np.asarray(stored + self.spilled_j)

    @property
    def spilled_j(self) -> FloatArray:
        """float64 [n, N] or [1, N]: what of these a full battery has no room for."""
        spilled = self.timeline.spilled_j
        return self._none if spilled is None else spilled

    @property
    def _none(self) -> FloatArray:
        return np.zeros((1, self.timeline.rounds.shape[1]))

    @property
    def harvested_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device harvests, spilled ones included."""
        return self._over_iterations(self.harvested_j)

    @property
    def spilled_total_j(self) -> FloatArray:
        """float64 [N]: joules harvested that each battery has no room for."""
        return self._over_iterations(self.spilled_j)

    @cached_property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: what each battery holds at the start, and all that it gains."""
        held, stored = self.ground.world.devices.energy_budget_j, self.timeline.stored_j
        if stored is None:
            return held
        return np.array(
            [math.fsum(each) for each in np.concatenate([held[None], stored]).T.tolist()]
        )

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
