"""One change to a scenario that might help its plan."""

from __future__ import annotations

__all__ = ["BUDGET", "FACTOR", "ONE_DEVICE", "SETTING", "Trial", "up", "with_field"]

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario

FloatArray = NDArray[np.float64]

FACTOR = 4.0
"""How far a budget is raised at most."""

SETTING, ONE_DEVICE, BUDGET = range(3)  # what a change costs: nothing, one device, all of them


@dataclass(frozen=True, eq=False)
class Trial:
    """One change.

    Attributes:
        field: of the scenario.
        value: to set it to; for the batteries of all devices, the factor by which they grow.
        words: what changes, to follow "with".
        cost: `SETTING`, `ONE_DEVICE` or `BUDGET`.
        scenario: with the change, except for batteries.
        battery_j: float64 [N]: the batteries.
    """

    field: str
    value: Any
    words: str
    cost: int
    scenario: Scenario
    battery_j: FloatArray


def with_field(scenario: Scenario, name: str, value: Any) -> Scenario:
    """A scenario with one field changed to a value that is known to be valid."""
    section, _, field = name.partition(".")
    values = getattr(scenario, section).model_copy(update={field: value})
    return scenario.model_copy(update={section: values})


def up(value: float, digits: int = 2) -> float:
    """A figure with few digits that is not below the value.

    >>> up(0.1234), up(0.12), up(398.0), up(9.96)
    (0.13, 0.12, 400.0, 10.0)
    """
    rounded = float(f"{value:.{digits}g}")
    if rounded >= value:
        return rounded
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{rounded + step:.{digits}g}")
