"""The account of a method that is run by itself: what `Plan` is to a planned run."""

from __future__ import annotations

__all__ = ["MethodAccount", "account_of"]

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.load import device_names
from joulemesh.errors import ScenarioError
from joulemesh.ledger import Ledger
from joulemesh.methods.base import Contender, FloatArray
from joulemesh.methods.setting import Setting
from joulemesh.planning.account import Account
from joulemesh.planning.columns import COLUMNS
from joulemesh.planning.figures import Figure, figures
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario
from joulemesh.tolerance import left_of


@dataclass(frozen=True, eq=False)
class MethodAccount:
    """The account of a method that is run by itself.

    Attributes:
        method: as the user wrote it, for instance ``"fixed:3"``.
        equal: what decides how long it runs: ``"batteries"``, ``"time"``, ``"budget"`` or
            ``"iterations"``.
        scenario: what was asked.
        work: size of the model and of a round.
        rounds: integers [n, N].
        active: bool [n, N].
        exchanged: bool [n].
        iteration_j: float64 [m], or [m, seeds] where it depends on the training: of the m
            iterations that are priced, all of them once training is over.
        latency_s: float64 [m], or [m, seeds].
        energy_budget_j: float64 [N].
        compute_total_j: float64 [N], mean over seeds.
        transmit_total_j: float64 [N], mean over seeds.
        receive_total_j: float64 [N], mean over seeds.
        idle_total_j: float64 [N], mean over seeds.
        bits: float64 [m], mean over seeds: bits on the air.
        server_j: float64 [m], mean over seeds: joules that no battery pays.
        notes: what a reader should know, one line each.

    >>> setting = Setting(Scenario.preset("adaptive"), "batteries")
    >>> from joulemesh.methods import build
    >>> account = account_of(setting, build("fixed:3", setting))
    >>> bool(np.isclose(account.iteration_j.sum(), account.spent_j.sum()))
    True
    """

    method: str
    equal: str
    scenario: Scenario = field(repr=False)
    work: Workload = field(repr=False)
    rounds: NDArray[Any] = field(repr=False)
    active: NDArray[np.bool_] = field(repr=False)
    exchanged: NDArray[np.bool_] = field(repr=False)
    iteration_j: FloatArray = field(repr=False)
    latency_s: FloatArray = field(repr=False)
    energy_budget_j: FloatArray = field(repr=False)
    compute_total_j: FloatArray = field(repr=False)
    transmit_total_j: FloatArray = field(repr=False)
    receive_total_j: FloatArray = field(repr=False)
    idle_total_j: FloatArray = field(repr=False)
    bits: FloatArray = field(repr=False)
    server_j: FloatArray = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def iterations(self) -> int:
        """Number n of iterations."""
        return len(self.rounds)

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: the batteries, which such a method does not recharge."""
        return self.energy_budget_j

    @property
    def deadline_s(self) -> float | None:
        """Seconds allowed to each iteration, if any; a method may exceed them: a note says so."""
        return self.scenario.budget.deadline_s

    @property
    def total_s(self) -> float | None:
        """Seconds allowed to the whole training, if any; a method may exceed them as well."""
        return self.scenario.budget.total_s

    @property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""
        return self.transmit_total_j + self.receive_total_j

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all: the sum of the four columns."""
        return np.asarray(np.sum([getattr(self, name) for name in COLUMNS], axis=0))

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries; negative where they are overdrawn."""
        return left_of(self.energy_budget_j, self.spent_j)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names; empty without any."""
        with suppress(ScenarioError):
            return tuple(device_names(self.scenario))
        return ()

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of the scenario that decide it, each with its origin."""
        return figures(self.scenario)


def account_of(
    setting: Setting, contender: Contender, ledgers: Sequence[Ledger] = ()
) -> MethodAccount:
    """The account of a method.

    Args:
        setting: its terms.
        contender: the method.
        ledgers: one for each seed, of what was sent so far; what is reserved unless given.
    """
    known = tuple(ledgers) or (contender.reserve,)
    schedule = contender.schedule
    energy = [ledger.energy_j.sum(axis=1) for ledger in known]
    clock = [ledger.seconds for ledger in known]
    columns = np.mean([ledger.columns_j for ledger in known], axis=0)
    return MethodAccount(
        contender.name,
        setting.equal,
        setting.scenario,
        setting.work,
        rounds=schedule.rounds,
        active=schedule.active,
        exchanged=schedule.exchanged,
        iteration_j=np.stack(energy, axis=1) if ledgers else energy[0],
        latency_s=np.stack(clock, axis=1) if ledgers else clock[0],
        energy_budget_j=contender.battery_j,
        **dict(zip(COLUMNS, columns, strict=True)),
        bits=np.mean([ledger.bits for ledger in known], axis=0),
        server_j=np.mean([ledger.server_j for ledger in known], axis=0),
        notes=contender.notes,
    )


def _is_an_account(account: MethodAccount) -> Account:
    """Checked by mypy."""
    return account
