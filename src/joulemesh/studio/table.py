"""The devices as a table: a row for each, columns to edit, and what the plan gives them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.base.units import is_quantity, parse, unit_of
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.scenario.sections import COLUMNS as OF_TABLE
from joulemesh.scenario.sections import Budget, Devices
from joulemesh.tables import read_table, table_of
from joulemesh.world.quantities import resolve
from joulemesh.world.topology import build_graph

FloatArray = NDArray[np.float64]

COLUMNS = tuple(name for name in OF_TABLE if name not in ("profile", "x_m", "y_m"))
"""Fields of the section ``devices`` that a column may give, places apart."""
PLACED = (*COLUMNS, "x_m", "y_m", "energy_j")
"""All columns of figures."""
MOST_ROWS = 5_000
"""Of the table that the page shows."""
_USUAL = ("x_m", "y_m", "energy_j", "cpu_hz", "cycles_per_sample", "transmit_power_w")


def device_table(
    scenario: Scenario, ground: Ground | None, plan: Plan | None = None
) -> dict[str, Any]:
    """One row for each device."""
    columns: list[dict[str, Any]] = []
    cells: list[list[Any]] = []

    def add(name: str, values: Sequence[Any], *, unit: str = "", edits: bool = True) -> None:
        columns.append({"name": name, "unit": unit, "edits": edits})
        cells.append(list(values[:MOST_ROWS]))

    table = {} if scenario.devices.table is None else read_table(scenario.devices.table)
    for name in ("name", "profile"):
        if name in table:
            add(name, table[name])
    for name in (*_USUAL, *(name for name in COLUMNS if name not in _USUAL)):
        values = _figures_of(scenario, ground, name)
        if values is not None:
            add(name, values, unit=unit_of(name) or "")
    if plan is not None:
        add("rounds", plan.rounds.sum(axis=0).tolist(), edits=False)
        add("spent", _short(plan.spent_j), unit="J", edits=False)
        add("left", _short(plan.margin_j), unit="J", edits=False)
        add("what binds", plan.binding.tolist(), edits=False)
    return {"columns": columns, "cells": cells, "of": scenario.devices.count}


def _figures_of(scenario: Scenario, ground: Ground | None, name: str) -> list[float] | None:
    """A column's figures; None for one that is neither usual nor given."""
    if name in ("x_m", "y_m"):
        if ground is None:
            return None
        return _listed(np.round(ground.world.graph.positions_m[:, int(name == "y_m")], 6))
    value = _given(scenario, name)
    if value is None or (isinstance(value, str) and not _is_column(scenario, value)):
        return None  # the word "partition", or the path of a trace
    try:
        return _short(resolve(scenario, name, value))
    except ScenarioError:
        return None


def _given(scenario: Scenario, column: str) -> Any:
    section = scenario.budget if column == "energy_j" else scenario.devices
    return getattr(section, column)


def _is_column(scenario: Scenario, name: str) -> bool:
    return scenario.devices.table is not None and name in read_table(scenario.devices.table)


def _listed(values: FloatArray) -> list[float]:
    found: list[float] = values.tolist()
    return found


def _short(values: FloatArray) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]


def with_cells(
    scenario: Scenario, changes: Mapping[str, Mapping[int, str | float]], folder: Path
) -> Scenario:
    """The scenario with some cells of its devices changed."""
    count = scenario.devices.count
    for column, cells in changes.items():
        if column not in (*PLACED, "name", "profile"):
            raise ScenarioError(f"{column[:40]!r} is not a column that can be edited")
        wrong = next((device for device in cells if not 0 <= device < count), None)
        if wrong is not None:
            raise ScenarioError(f"device {wrong} is not one of 0..{count - 1}")
    if scenario.devices.table is None:
        return _with_lists(scenario, changes)
    rows = read_table(scenario.devices.table)
    for column, cells in changes.items():
        if column not in rows:
            rows[column] = [_plain(value) for value in _all_figures(scenario, column)]
        for device, cell in cells.items():
            rows[column][device] = str(cell).strip()
    return _with_rows(scenario, rows, folder)


def _with_lists(scenario: Scenario, changes: Mapping[str, Mapping[int, str | float]]) -> Scenario:
    fields: dict[str, Any] = {}
    for column, cells in changes.items():
        if column in ("name", "profile"):
            raise ScenarioError(f"a column {column!r} needs a device table; paste one with names")
        values: list[Any] = list(_all_figures(scenario, column))
        for device, cell in cells.items():
            values[device] = _figure(column, cell)
        fields[_field(column)] = {"values": values}
    if bool("devices.x_m" in fields) != bool("devices.y_m" in fields):
        other = "y_m" if "devices.x_m" in fields else "x_m"
        fields[f"devices.{other}"] = {"values": list(_all_figures(scenario, other))}
    return scenario.override(fields, source="the table")


def _field(column: str) -> str:
    return "budget.energy_j" if column == "energy_j" else f"devices.{column}"


def _figure(column: str, cell: str | float) -> float:
    unit = unit_of(column)
    text = str(cell).strip()
    if unit is not None and is_quantity(text):
        return parse(text, unit)
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f"{_field(column)}: {text[:40]!r} is not a number") from None


def _all_figures(scenario: Scenario, column: str) -> list[float]:
    if column in ("x_m", "y_m"):
        return _listed(build_graph(scenario).positions_m[:, int(column == "y_m")])
    value = _given(scenario, column)
    if value is None:
        raise ScenarioError(f"{_field(column)} is not given for all devices; give it in the form")
    return _listed(resolve(scenario, column, value))


def _plain(value: float) -> str:
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def with_table(scenario: Scenario, text: str, folder: Path, what: str = "the table") -> Scenario:
    """The scenario with the devices of a table: what was pasted, or a file's text."""
    return _with_rows(scenario, table_of(text.strip("\r\n") + "\n", what), folder)


def _with_rows(scenario: Scenario, rows: Mapping[str, list[str]], folder: Path) -> Scenario:
    known = [int(path.stem.rpartition("-")[2]) for path in folder.glob("devices-*.csv")]
    path = folder / f"devices-{max(known, default=0) + 1}.csv"
    write_text(path, table_text(rows))
    count = len(next(iter(rows.values())))
    taken = {_field(column): column for column in rows if column in (*PLACED, "profile")}
    fields = {"devices.table": str(path), "devices.count": count, **taken}
    return scenario.override({**_fitting(scenario, count), **fields}, source="the table")


def _fitting(scenario: Scenario, count: int) -> dict[str, Any]:
    """What another number of devices leaves no sense in: lists of the old length go."""
    if count == scenario.devices.count:
        return {}
    fields: dict[str, Any] = {}
    for column in PLACED:
        value = _given(scenario, column)
        listed = value["values"] if isinstance(value, dict) else value
        if isinstance(listed, tuple) and (len(listed) != 2 or listed is not value):
            section = Budget if column == "energy_j" else Devices
            fields[_field(column)] = section.model_fields[column].default
    leave = [pair for pair in scenario.devices.leave if pair[0] < count]
    gone = [link for link in scenario.network.without if max(link) < count]
    return fields | {"devices.leave": leave, "network.without": gone}


def folded(scenario: Scenario, folder: Path) -> Scenario:
    """The scenario with figures in its device table that were given in place of a column of it."""
    if scenario.devices.table is None:
        return scenario
    rows = read_table(scenario.devices.table)
    changed = {}
    for column in PLACED:
        value = _given(scenario, column)
        if column in rows and value is not None and not isinstance(value, str):
            changed[column] = [_plain(figure) for figure in resolve(scenario, column, value)]
    return _with_rows(scenario, {**rows, **changed}, folder) if changed else scenario


def table_text(rows: Mapping[str, Sequence[str]]) -> str:
    """Columns as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return text.getvalue()
