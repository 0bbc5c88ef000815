"""How long a method runs: equal iterations, equal batteries, or equal time."""

from __future__ import annotations

__all__ = ["cut", "notes_on", "run_length", "stop_notes"]

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.methods.base import Ledger
from joulemesh.planning.budget import at_least
from joulemesh.planning.exact import exact_sum, within
from joulemesh.units import duration, energy

if TYPE_CHECKING:
    from joulemesh.methods.setting import Setting

_BLOCK = 64  # iterations priced at first; then twice as many each time
_MOST = 1_000_000
_ROUNDING = 1e-12  # of a clock or a sum that is itself rounded; no budget is exceeded by it


def run_length(setting: Setting, name: str, prices: Callable[[int, int], Ledger]) -> Ledger:
    """Price as many iterations as the method may run.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        prices: the ledger of iterations start..stop−1; one row if all are alike.

    Returns:
        The ledger of the n iterations.

    Raises:
        InfeasibleError: not even the first can be paid.
    """
    if setting.equal == "iterations":
        ledger = prices(0, setting.iterations)
        return ledger if ledger.iterations > 1 else ledger.tiled(setting.iterations)
    ledger = prices(0, _BLOCK)
    if ledger.iterations == 1:
        ledger = ledger.tiled(max(1, _alike(setting, ledger)))
    else:
        while _payable(setting, ledger) == ledger.iterations <= _MOST:
            ledger = ledger.then(prices(ledger.iterations, 2 * ledger.iterations))
    if ledger.iterations > _MOST:
        what = "budget.energy_j" if setting.equal == "batteries" else "plan.iterations"
        raise ScenarioError(
            f"the budget pays for more than {_MOST} iterations of {name}, more than are simulated: "
            f"lower {what}"
        )
    return cut(setting, name, ledger)


def cut(setting: Setting, name: str, ledger: Ledger) -> Ledger:
    """Keep the iterations that the equal budget pays for.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        ledger: of more iterations, or of as many.

    Raises:
        InfeasibleError: not even the first can be paid.
    """
    if setting.equal == "iterations":
        return ledger
    n = _payable(setting, ledger)
    if n == 0:
        _refuse(setting, name, ledger)
    return ledger.first(n)


def _alike(setting: Setting, one: Ledger) -> int:
    """How many iterations, all alike, the budget may pay for, or one more."""
    if setting.equal == "batteries":
        ratio = float(np.min(setting.battery_j / one.energy_j[0]))
    else:
        ratio = setting.clock_s / float(one.latency_s[0])
    return _MOST + 1 if ratio > _MOST else min(int(ratio) + 1, _MOST)


def _payable(setting: Setting, ledger: Ledger) -> int:
    """How many of the iterations the budget pays for."""
    if setting.equal == "time":
        late = np.cumsum(ledger.latency_s) > setting.clock_s * (1 + _ROUNDING)
        return int(np.argmax(late)) if late.any() else ledger.iterations
    over = (np.cumsum(ledger.energy_j, axis=0) > setting.battery_j).any(axis=1)
    n = int(np.argmax(over)) + 1 if over.any() else ledger.iterations
    # That sum is rounded; the exact one decides.
    while n and not within(setting.battery_j, *exact_sum(ledger.energy_j[:n])).all():
        n -= 1
    return n


def _refuse(setting: Setting, name: str, one: Ledger) -> None:
    if setting.equal == "time":
        raise InfeasibleError(
            f"one iteration of {name} takes {duration(one.latency_s[0], digits=6)}, but the "
            f"adaptive plan, whose clock is shared, takes {duration(setting.clock_s, digits=6)} in "
            "all: raise plan.iterations",
            constraint="time",
        )
    device = int(np.argmax(one.energy_j[0] / setting.battery_j))
    need = float(one.energy_j[0, device])
    raise InfeasibleError(
        f"device {device} cannot pay for one iteration of {name} from its battery of "
        f"{energy(setting.battery_j[device], digits=6)}: computing takes "
        f"{energy(one.compute_j[0, device], digits=6)} and the exchange "
        f"{energy(one.exchange_j[0, device], digits=6)}; raise budget.energy_j to at least "
        f"{at_least(need)}",
        device=device,
        constraint="energy",
    )


def stop_notes(setting: Setting, ledger: Ledger) -> tuple[str, ...]:
    """Why a plan ends, if on equal batteries it is none of these that ends it.

    Args:
        setting: has the batteries.
        ledger: of the whole plan. A battery ends it if it could not pay for one more iteration
            like the last.
    """
    left_j = setting.battery_j - ledger.spent_j
    if setting.equal != "batteries" or (left_j < ledger.energy_j[-1]).any():
        return ()
    share = float(left_j.sum() / setting.battery_j.sum())
    return (
        f"stops because the {ledger.iterations} iterations of its plan are over, not at a battery: "
        f"{100 * share:.3g} % of the joules are left; raise plan.iterations or the time "
        "of [budget] to use more",
    )


def notes_on(setting: Setting, ledger: Ledger, *, at_most: bool = False) -> tuple[str, ...]:
    """What a reader should know of a ledger: missed deadlines, overdrawn batteries.

    Args:
        setting: has the budgets.
        ledger: of the whole run.
        at_most: the ledger is an upper bound.
    """
    notes = []
    most = "at most " if at_most else ""
    if setting.deadline_s is not None and (late := ledger.latency_s > setting.deadline_s).any():
        notes.append(
            f"{most}{int(late.sum())} of {ledger.iterations} iterations exceed the deadline of "
            f"{duration(setting.deadline_s)} (the longest takes {duration(ledger.latency_s.max())})"
        )
    taken_s = float(ledger.latency_s.sum())
    if setting.total_s is not None and taken_s > setting.total_s * (1 + _ROUNDING):
        notes.append(
            f"takes {most}{duration(taken_s)}, more than the total time of "
            f"{duration(setting.total_s)}"
        )
    short_j = ledger.spent_j - setting.battery_j
    over = short_j > setting.battery_j * _ROUNDING
    if over.any():
        device = int(np.argmax(short_j))
        notes.append(
            f"overdraws {most}{int(over.sum())} of {setting.devices} batteries "
            f"(device {device} by {energy(short_j[device])})"
        )
    return tuple(notes)
