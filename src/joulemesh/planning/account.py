"""What a run costs, whoever prices it: the one seam between a run and its joules and seconds.

A `Plan` satisfies `Account` as it is; a method that is run by itself has a `MethodAccount`.
"""

from __future__ import annotations

__all__ = ["Account"]

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.figures import Figure
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FloatArray = NDArray[np.float64]


class Account(Protocol):
    """Rounds, joules and seconds of a run of n iterations on N devices."""

    @property
    def scenario(self) -> Scenario:
        """What was asked."""

    @property
    def work(self) -> Workload:
        """Size of the model and of a round."""

    @property
    def iterations(self) -> int:
        """Number n of iterations."""

    @property
    def rounds(self) -> NDArray[Any]:
        """Integers [n, N]: local rounds."""

    @property
    def active(self) -> NDArray[np.bool_]:
        """bool [n, N]: who takes part."""

    @property
    def exchanged(self) -> NDArray[np.bool_]:
        """bool [n]: False where the exchange is skipped."""

    @property
    def iteration_j(self) -> FloatArray:
        """float64 [n], or [n, seeds] where they depend on the training: joules of all devices."""

    @property
    def latency_s(self) -> FloatArray:
        """float64 [n], or [n, seeds] where they depend on the training: seconds each takes."""

    @property
    def energy_budget_j(self) -> FloatArray:
        """float64 [N]: the batteries."""

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: what the batteries hold at the start, and what they gain on the way."""

    @property
    def deadline_s(self) -> float | None:
        """Seconds allowed to each iteration; None where only their sum is limited."""

    @property
    def total_s(self) -> float | None:
        """Seconds allowed to all iterations together; None without such a limit."""

    @property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""

    @property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""

    @property
    def transmit_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on sending."""

    @property
    def receive_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on receiving."""

    @property
    def idle_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends at rest."""

    @property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all."""

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each."""

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names; empty without any."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of the scenario that decide it, each with its origin."""


def _is_an_account(plan: Plan) -> Account:
    """Checked by mypy."""
    return plan
