"""Per-device quantities as a scenario gives them: values, limits, intervals, and random streams.

Beside a column ``step_s`` of a table, ``step_s_low`` and ``step_s_high`` are the ends of its 95 %
interval and ``step_s_source`` says how it was measured. ``plan.safety`` = p plans with the upper
quantile of every such figure (the lower one of a rate): with K figures that have an interval, the
one that each exceeds with probability (1 − p)/K. No two need be independent for all K to stay
below theirs with probability p, and then no joule and no second is more than planned
(docs/explanation/safety.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import unit_of
from joulemesh.scenario import Budget, Scenario
from joulemesh.tables import number_column, read_table

FloatArray = NDArray[np.float64]

# A purpose's place in this list is part of its seed; those that came later have the checksum of
# their name.
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
    known = purpose in _PURPOSES
    number = _PURPOSES.index(purpose) if known else zlib.crc32(purpose.encode())
    return np.random.default_rng([seed, number, *index])


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


# Products of a few figures within these stay finite, and none of them is lost to zero.
LEAST, MOST = 1e-100, 1e100


def usable(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which figures can be computed with: neither zero, infinite nor nearly so."""
    return np.asarray((values > LEAST) & (values < MOST))


def require_usable(values: NDArray[np.float64], what: str, fields: str) -> None:
    """Refuse a device's figure that cannot be computed with."""
    fine = usable(values)
    if not fine.all():
        device = int(np.argmin(fine))
        raise ScenarioError(
            f"{{device}} has {what.format('{has}')}, beyond {{least}} to {{most}}; "
            f"correct {fields}",
            device=device,
            figures={"has": values[device], "least": LEAST, "most": MOST},
        )


DEVICE_FIGURES = (
    "step_s",
    "step_j",
    "idle_w",
    "send_j_per_bit",
    "receive_j_per_bit",
    "overhead_s",
)
"""Fields of ``devices`` that a plan only grows dearer with."""
LINK_FIGURES = ("rate_bps", "energy_j_per_bit", "receive_j_per_bit")
"""Columns of ``network.links`` that have a price."""

_NORMAL_95 = 1.959963984540054  # half the width of a 95 % interval, in standard deviations


def z_value(safety: float, figures: int) -> float:
    """Standard deviations above the mean at which K figures are taken."""
    from scipy.special import ndtri  # takes long to import

    return float(ndtri(1 - (1 - safety) / max(1, figures)))


def deviation(
    columns: Mapping[str, Sequence[str]], name: str, values: FloatArray, path: str
) -> FloatArray | None:
    """Standard deviations of a column's figures, 0 where no interval is given; None without any."""
    ends = [f"{name}_low", f"{name}_high"]
    present = [end for end in ends if end in columns]
    if not present:
        return None
    if len(present) == 1:
        missing = ends[1 - ends.index(present[0])]
        raise ScenarioError(f"{path} has a column {present[0]!r} and no {missing!r}; add it")
    unit = unit_of(name)
    low, high = (_or_nan(columns, end, path, unit) for end in ends)
    known = np.isfinite(low) & np.isfinite(high)
    wrong = (np.isfinite(low) != np.isfinite(high)) | (known & ((low > values) | (high < values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ScenarioError(
            f"{path}, row {row + 2}: the interval {low[row]:.6g} to {high[row]:.6g} must hold "
            f"{name} = {values[row]:.6g}; correct it, or leave both cells empty"
        )
    return np.where(known, (high - low) / (2 * _NORMAL_95), 0.0)


def _or_nan(
    columns: Mapping[str, Sequence[str]], name: str, path: str, unit: str | None
) -> FloatArray:
    """A column whose cells may be empty."""
    filled = [cell != "" for cell in columns[name]]
    cells = [cell if there else "0" for cell, there in zip(columns[name], filled, strict=True)]
    return np.where(filled, number_column({name: cells}, name, path, unit), np.nan)


def widest(spread: FloatArray, values: FloatArray) -> float | None:
    """Half the widest 95 % interval, as a share of its figure; None if there is none."""
    known = (spread > 0) & (values > 0)
    if not known.any():
        return None
    return float(_NORMAL_95 * np.max(spread[known] / values[known]))


@dataclass(frozen=True)
class Intervals:
    """The intervals of a scenario's measured figures, and the quantile that its plan takes.

    Attributes:
        scenario: what was asked.
    """

    scenario: Scenario

    @cached_property
    def table(self) -> dict[str, list[str]]:
        """Columns of ``devices.table``."""
        path = self.scenario.devices.table
        return {} if path is None else read_table(path)

    @cached_property
    def links(self) -> dict[str, list[str]]:
        """Columns of ``network.links``."""
        path = self.scenario.network.links
        return {} if path is None else read_table(path)

    @cached_property
    def figures(self) -> int:
        """Number K of figures that have an interval."""
        return count_intervals(self.scenario, self.table, self.links)

    @cached_property
    def shift(self) -> float:
        """Standard deviations above the mean at which figures are taken; 0 without safety."""
        safety = self.scenario.plan.safety
        return 0.0 if safety is None else z_value(safety, self.figures)

    def require_some(self) -> None:
        """Refuse ``plan.safety`` where no figure has an interval."""
        safety = self.scenario.plan.safety
        if safety is not None and not self.figures:
            raise ScenarioError(
                f"plan.safety = {safety:g} needs figures with an interval, and none has one: give "
                "columns such as step_s_low and step_s_high in devices.table or network.links "
                "(joulemesh calibrate writes them), or leave plan.safety out",
                field="plan.safety",
            )

    def of_device(self, field: str, values: FloatArray) -> FloatArray | None:
        """Standard deviations [N] of a per-device figure; None where it has no interval."""
        column, path = getattr(self.scenario.devices, field), self.scenario.devices.table
        if not isinstance(column, str) or path is None:
            return None
        return deviation(self.table, column, values, path)

    def widest_of_links(self) -> float | None:
        """Half the widest interval of a link's rate, as a share of it; None without any."""
        path = self.scenario.network.links
        if path is None or "rate_bps" not in self.links:
            return None
        values = number_column(self.links, "rate_bps", path, unit_of("rate_bps"))
        spread = deviation(self.links, "rate_bps", values, path)
        return None if spread is None else widest(spread, values)

    def safe(self, field: str, values: FloatArray) -> FloatArray:
        """A per-device figure [N] as it is planned with: its mean, or its upper quantile."""
        if not self.shift:
            return values
        spread = self.of_device(field, values)
        return values if spread is None else np.asarray(values + self.shift * spread)


def count_intervals(
    scenario: Scenario, table: Mapping[str, Sequence[str]], links: Mapping[str, Sequence[str]]
) -> int:
    """Number of figures of a scenario that have an interval."""
    names = [getattr(scenario.devices, field) for field in DEVICE_FIGURES]
    found = [table.get(f"{name}_low", ()) for name in names if isinstance(name, str)]
    found += [links.get(f"{name}_low", ()) for name in LINK_FIGURES]
    return sum(cell != "" for column in found for cell in column)
