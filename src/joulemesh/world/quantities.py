"""Per-device quantities as a scenario gives them, and the random streams that they draw from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import unit_of
from joulemesh.scenario import Budget, Scenario
from joulemesh.tables import number_column, read_table

__all__ = ["resolve", "stream"]

FloatArray = NDArray[np.float64]

# A purpose's place in this list is part of its seed: add new ones at the end.
_PURPOSES = (
    "cpu_hz",
    "cycles_per_sample",
    "capacitance",
    "transmit_power_w",
    "samples",
    "energy_j",
    "positions",
    "shadowing",
    "fading",
    "links",
    "x_m",
    "y_m",
    "loss",
    "idle_w",
    "send_j_per_bit",
    "receive_j_per_bit",
    "step_s",
    "step_j",
    "overhead_s",
    "harvest_w",
    "capacity_j",
    "receive_power_w",
    "message_j",
)


def stream(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """An independent random stream for one purpose of one scenario."""
    return np.random.default_rng([seed, _PURPOSES.index(purpose), *index])


def resolve(scenario: Scenario, field: str, value: object, *, minimum: float = 0.0) -> FloatArray:
    """A per-device quantity as float64 [N], whichever way the scenario gives it."""
    count = scenario.devices.count
    name = f"budget.{field}" if field in Budget.model_fields else f"devices.{field}"
    if isinstance(value, str):
        return _column(scenario, name, value, minimum)
    if isinstance(value, dict):
        value = value["values"]
    elif isinstance(value, tuple) and len(value) == 2:
        return stream(scenario.seed, field).uniform(value[0], value[1], count)
    if isinstance(value, tuple):
        if len(value) != count:
            raise ScenarioError(
                f"{name} lists {len(value)} values for {count} devices; "
                "give one number per device, one number, or [low, high]"
            )
        return np.array(value, np.float64)
    return np.broadcast_to(np.array(value, np.float64), count)


def _column(scenario: Scenario, field: str, name: str, minimum: float) -> FloatArray:
    table = scenario.devices.table
    if table is None:
        raise ScenarioError(
            f"{field} = {name!r} names a column, but there is no devices.table; "
            "write a number (the unit is in the field's name), a text with a unit, or give a table"
        )
    columns = read_table(table)
    if name not in columns:
        raise ScenarioError(
            f"{field} = {name!r}: {table} has no column {name!r}, only {', '.join(columns)}; "
            "add it or name another"
        )
    values = number_column(columns, name, table, unit_of(field))
    if not (values > minimum).all():
        row = int(np.argmin(values > minimum))
        raise ScenarioError(
            f"{table}, row {row + 2}, column {name!r}: {values[row]:g} must be above {minimum:g}"
        )
    return values
