"""How long a method runs: equal iterations, equal batteries, equal time, or an equal budget."""

from __future__ import annotations

__all__ = ["cut", "notes_on", "payable", "refusal", "run_length", "stop_notes"]

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from joulemesh.errors import Edit, InfeasibleError, ScenarioError, called
from joulemesh.ledger import Ledger
from joulemesh.methods.base import FloatArray
from joulemesh.planning.budget import at_least
from joulemesh.tolerance import affordable, left_of, within
from joulemesh.units import counted, duration, energy

if TYPE_CHECKING:
    from joulemesh.methods.setting import Setting

_BLOCK = 64  # iterations priced at first; then twice as many each time
_MOST = 1_000_000


def run_length(
    setting: Setting,
    name: str,
    prices: Callable[[int, int], Ledger],
    last: Callable[[int], Ledger] | None = None,
) -> Ledger:
    """Price as many iterations as the method may run.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        prices: the ledger of iterations start..stop−1; one row if all are alike.
        last: the ledger of iteration t (from 0) if it is the last one, for a method that ends
            otherwise than it goes on: its price is reserved.

    Returns:
        The ledger of the n iterations.

    Raises:
        InfeasibleError: not even the first can be paid.
    """
    if setting.equal == "iterations":
        ledger = prices(0, setting.iterations)
        whole = ledger if ledger.iterations > 1 else ledger.tiled(setting.iterations)
        return whole if last is None else _ended(whole, setting.iterations, last)
    ledger = prices(0, _BLOCK)
    if ledger.iterations == 1:
        ledger = ledger.tiled(max(1, _alike(setting, ledger)))
    else:
        while payable(setting, ledger) == ledger.iterations <= _MOST:
            ledger = ledger.then(prices(ledger.iterations, 2 * ledger.iterations))
    if ledger.iterations > _MOST:
        what = "plan.iterations" if setting.equal == "time" else "budget.energy_j"
        raise ScenarioError(
            f"the budget pays for more than {_MOST} iterations of {name}, more than are simulated: "
            f"lower {what}"
        )
    return cut(setting, name, ledger) if last is None else _reserved(setting, name, ledger, last)


def cut(setting: Setting, name: str, ledger: Ledger, battery_j: FloatArray | None = None) -> Ledger:
    """Keep the iterations that the equal budget pays for.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        ledger: of more iterations, or of as many.
        battery_j: [N], if batteries have more than the setting's, because they are recharged.

    Raises:
        InfeasibleError: not even the first can be paid.
    """
    if setting.equal == "iterations":
        return ledger
    n = payable(setting, ledger, battery_j)
    if n == 0:
        raise refusal(setting, name, ledger)
    return ledger[:n]


def _ended(ledger: Ledger, n: int, last: Callable[[int], Ledger]) -> Ledger:
    """The first n iterations, of which the last is another."""
    end = last(n - 1)
    return end if n == 1 else ledger[: n - 1].then(end)


def _reserved(setting: Setting, name: str, ledger: Ledger, last: Callable[[int], Ledger]) -> Ledger:
    """As many iterations as leave enough for the last one."""
    most = min(payable(setting, ledger) + 1, ledger.iterations)
    end, before = last(most - 1), ledger[: most - 1]
    fits = np.ones(most, bool)
    if setting.limits_time:
        seconds = np.append(0.0, np.cumsum(before.seconds)) + end.seconds[0]
        fits &= within(setting.limit_s, seconds)
    if setting.limits_energy:
        joules = np.cumsum(before.energy_j, axis=0)
        joules = np.concatenate([np.zeros((1, setting.devices)), joules]) + end.energy_j[0]
        fits &= within(setting.battery_j, joules).all(axis=1)
    # Under fading the end has another price: what is taken is checked.
    for n in range(max(1, int(fits.sum())), 0, -1):
        found = _ended(ledger, n, last)
        if payable(setting, found) == n:
            return found
    raise refusal(setting, name, _ended(ledger, 1, last))


def _alike(setting: Setting, one: Ledger) -> int:
    """How many iterations, all alike, the budget pays for."""
    ratios = []
    if setting.limits_energy:
        ratios.append(int(affordable(setting.battery_j, one.energy_j[0]).min()))
    if setting.limits_time:
        ratios.append(int(affordable(setting.limit_s, one.seconds[0])))
    return min(*ratios, _MOST + 1)


def payable(setting: Setting, ledger: Ledger, battery_j: FloatArray | None = None) -> int:
    """How many of the iterations the budget pays for: the batteries, the clock, or both.

    Args:
        setting: says what is equal, and the budgets.
        ledger: of the iterations.
        battery_j: [N], if batteries have more than the setting's.
    """
    held_j = setting.battery_j if battery_j is None else battery_j
    n = ledger.iterations
    if setting.limits_time:
        n = _paid(np.array([setting.limit_s]), ledger.seconds[:, None])
    return _paid(held_j, ledger.energy_j[:n]) if setting.limits_energy else n


def _paid(budget: FloatArray, costs: FloatArray) -> int:
    """How many rows of the costs [n, N] the budgets [N] pay for."""
    over = ~within(budget, np.cumsum(costs, axis=0)).all(axis=1)
    return int(np.argmax(over)) if over.any() else len(costs)


def refusal(setting: Setting, name: str, one: Ledger) -> InfeasibleError:
    """Why not even one iteration can be paid.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        one: the ledger of its first iteration.
    """
    if setting.limits_time and one.seconds[0] > setting.limit_s:
        return InfeasibleError(
            "one iteration of {method} takes {needs_s}, but {limit}",
            code="time",
            figures={
                "method": name,
                "needs_s": one.seconds[0],
                "limit": setting.limit_words,
                "has_s": setting.limit_s,
            },
        )
    device = int(np.argmax(one.energy_j[0] / setting.battery_j))
    need = float(one.energy_j[0, device])
    return InfeasibleError(
        "{device} cannot pay for one iteration of {method} from its battery of {has_j}: computing "
        "takes {compute_j} and the exchange {exchange_j}",
        code="energy",
        device=device,
        figures={
            "method": name,
            "has_j": setting.battery_j[device],
            "needs_j": need,
            "compute_j": one.compute_j[0, device],
            "exchange_j": one.exchange_j[0, device],
        },
        remedies=[(Edit("budget.energy_j", at_least(need), "raise"),)],
    )


def stop_notes(
    setting: Setting, ledger: Ledger, battery_j: FloatArray | None = None
) -> tuple[str, ...]:
    """Why a plan ends, if it is none of the equal budgets that ends it.

    Args:
        setting: has the batteries and the clock.
        ledger: of the whole plan. A battery ends it if it could not pay for one more iteration
            like the last; on an equal budget, so does the clock.
        battery_j: [N], if batteries have more than the setting's.
    """
    held_j = setting.battery_j if battery_j is None else battery_j
    left_j = held_j - ledger.spent_j
    left_s = setting.limit_s - float(ledger.seconds.sum()) if setting.limits_time else 0.0
    late = setting.limits_time and left_s < ledger.seconds[-1]
    if not setting.limits_energy or late or (left_j < ledger.energy_j[-1]).any():
        return ()
    share = float(left_j.sum() / held_j.sum())
    time = f" and {duration(left_s)}" if setting.limits_time else ""
    return (
        f"stops because its plan of {counted(ledger.iterations, 'iteration')} is over, not at a "
        "battery: "
        f"{100 * share:.3g} % of the joules{time} are left; raise plan.iterations or the time of "
        "[budget] to use more",
    )


def notes_on(
    setting: Setting,
    ledger: Ledger,
    *,
    at_most: bool = False,
    battery_j: FloatArray | None = None,
) -> tuple[str, ...]:
    """What a reader should know of a ledger: missed deadlines, overdrawn batteries.

    Args:
        setting: has the budgets.
        ledger: of the whole run.
        at_most: the ledger is an upper bound.
        battery_j: [N], if batteries have more than the setting's.
    """
    held_j = setting.battery_j if battery_j is None else battery_j
    notes = []
    most = "at most " if at_most else ""
    if (
        setting.deadline_s is not None
        and (late := ~within(setting.deadline_s, ledger.seconds)).any()
    ):
        notes.append(
            f"{most}{int(late.sum())} of {ledger.iterations} iterations exceed the deadline of "
            f"{duration(setting.deadline_s)} (the longest takes {duration(ledger.seconds.max())})"
        )
    taken_s = float(ledger.seconds.sum())
    if setting.total_s is not None and not within(setting.total_s, taken_s):
        notes.append(
            f"takes {most}{duration(taken_s)}, more than the total time of "
            f"{duration(setting.total_s)}"
        )
    short_j = -left_of(held_j, ledger.spent_j)
    over = short_j > 0
    if over.any():
        device = int(np.argmax(short_j))
        notes.append(
            f"overdraws {most}{int(over.sum())} of {setting.devices} batteries "
            f"({called(device, setting.ground.names)} by {energy(short_j[device])})"
        )
    return tuple(notes)
