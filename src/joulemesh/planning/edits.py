"""Changes that a refusal or a plan advises, made in a scenario."""

from __future__ import annotations

__all__ = ["apply_edits", "changed", "soon_planned"]

from collections.abc import Iterable
from typing import Any

import numpy as np

from joulemesh.errors import Edit
from joulemesh.planning.ground import Ground
from joulemesh.scenario import Scenario
from joulemesh.world import build_world
from joulemesh.world.quantities import resolve

_MOST_ENTRIES = 500_000  # of rounds [n, N], in plans that are made to see what a change brings
_WALKED, _PER_WALKED = 2_000, 50  # entries that take as long as an iteration planned by itself
_UNKNOWN = 100  # iterations, where their number follows from the budgets


def apply_edits(scenario: Scenario, edits: Iterable[Edit]) -> Scenario:
    """The scenario with some changes made.

    A quantity of which devices have each their own is raised where it is too small, and stays where
    it is enough.

    >>> from joulemesh.scenario import Scenario
    >>> one = Scenario(devices={"count": 3}, budget={"energy_j": [1.0, 9.0, 2.0]})
    >>> apply_edits(one, [Edit("budget.energy_j", 4.0, "raise")]).budget.energy_j
    (4.0, 9.0, 4.0)
    """
    return scenario.override({edit.field: _value(scenario, edit) for edit in edits})


def _value(scenario: Scenario, edit: Edit) -> Any:
    section, _, field = edit.field.partition(".")
    now = getattr(getattr(scenario, section), field)
    alike = now is None or isinstance(now, bool | int | float)
    if edit.device is not None:
        values = resolve(scenario, field, now).copy()
        values[edit.device] = edit.value
        return {"values": values.tolist()}
    if edit.how == "scale":
        if isinstance(now, tuple):  # a range, or one for each device
            return [one * edit.value for one in now]
        values = now if alike else resolve(scenario, field, now)
        return values * edit.value if alike else {"values": (values * edit.value).tolist()}
    if edit.how == "raise" and now is not None:
        if alike:
            return max(now, edit.value)
        return {"values": np.maximum(resolve(scenario, field, now), edit.value).tolist()}
    return edit.value


def changed(ground: Ground, edits: Iterable[Edit]) -> Ground:
    """What a plan stands on once some changes are made that leave model and data as they are."""
    scenario = apply_edits(ground.scenario, edits)
    return Ground(scenario, ground.work, build_world(scenario, ground.work.round_samples))


def soon_planned(ground: Ground, iterations: int | None = None) -> bool:
    """Is it a matter of about a second to plan again, so that changes can be tried?

    Args:
        ground: what the plan stands on.
        iterations: how many, if that is known.
    """
    options = ground.scenario.plan
    wanted = options.iterations if isinstance(options.iterations, int) else _UNKNOWN
    each = count = ground.scenario.devices.count
    if ground.world.changes or options.on_depletion == "leave":
        each = _WALKED + _PER_WALKED * count
    return (iterations or wanted) * each <= _MOST_ENTRIES
