"""Completing what the user has given: paths, the device table, profiles of devices and radios."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.profiles import DEVICE_FIELDS, DEVICES, RADIO_FIELDS, device, radio
from joulemesh.scenario.sections import TOPOLOGIES, Devices, Network, Section
from joulemesh.tables import read_table

__all__ = [
    "absolute_paths",
    "exists",
    "forget_profiles",
    "forget_table",
    "profile_notes",
    "with_profiles",
    "with_table_rows",
]

_PATHS = {
    "devices": ("table",),
    "network": ("topology", "gains"),
    "training": ("dataset", "data_dir"),
}


def absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make paths of files that lie beside the scenario's file independent of where one stands."""
    for section, fields in _PATHS.items():
        table = values.get(section)
        if not isinstance(table, dict):
            continue
        for field in fields:
            value = table.get(field)
            if not isinstance(value, str) or value in TOPOLOGIES:
                continue
            if field == "dataset" and not value.endswith(".npz"):
                continue  # a name, even if a folder beside the scenario is called after it
            if exists(folder / value):
                table[field] = str((folder / value).resolve())
    return values


def exists(path: Path) -> bool:
    """Is there such a file or folder?"""
    try:
        return path.exists()
    except OSError:  # a name too long for a file is no file
        return False


def with_table_rows(values: dict[str, Any]) -> dict[str, Any]:
    """Take the number of devices, and fields that are not given, from the device table."""
    devices, budget = (_as_dict(values.get(name)) for name in ("devices", "budget"))
    if devices is None or not isinstance(devices.get("table"), str):
        return values
    columns = read_table(devices["table"])
    rows = len(next(iter(columns.values())))
    if devices.setdefault("count", rows) != rows:
        raise ScenarioError(
            f"devices.count is {devices['count']!r:.60} but {devices['table']} has {rows} rows; "
            "leave devices.count out"
        )
    named = {field: devices for field in Devices.model_fields if field not in ("count", "table")}
    if budget is not None:
        named["energy_j"] = budget
    for field, section in named.items():
        if field in columns and section.setdefault(field, field) != field:
            raise ScenarioError(
                f"{field} is given both in the scenario and as a column of {devices['table']}; "
                f'write {field} = "{field}" to take the column, or drop the column'
            )
    return {**values, "devices": devices, **({} if budget is None else {"budget": budget})}


def _as_dict(section: Any) -> dict[str, Any] | None:
    """A copy of a section's values, however it is given; None for what is no section."""
    if isinstance(section, Section):
        return section.model_dump(exclude_unset=True)
    return dict(section or {}) if section is None or isinstance(section, Mapping) else None


def forget_table(values: dict[str, Any]) -> None:
    """Drop what `with_table_rows` took from the device table, so that another can replace it."""
    values["devices"].pop("count", None)
    for section in ("devices", "budget"):
        given = values.get(section, {})
        values[section] = {field: value for field, value in given.items() if field != value}


def with_profiles(values: dict[str, Any]) -> dict[str, Any]:
    """Take figures that are not given from the profiles that are named."""
    devices, network = (_as_dict(values.get(name)) for name in ("devices", "network"))
    if devices is None or network is None:
        return values  # no sections: the validation says so
    hardware, air = devices.get("profile"), network.get("profile")
    listed = len(hardware) if isinstance(hardware, list | tuple) else 0
    if listed and devices.setdefault("count", listed) != listed:
        raise ScenarioError(
            f"devices.profile lists {listed} names for {devices['count']} devices; "
            "give one name per device, or one name for all"
        )
    for field, figure in _hardware_figures(hardware, devices.get("table")).items():
        devices.setdefault(field, figure)
    if isinstance(air, str):
        known = radio(air)
        network = {**known.network, **network}
        devices = {**known.devices, **devices}
    changed = {"devices": devices} if hardware is not None or air is not None else {}
    return {**values, **changed, **({"network": network} if air is not None else {})}


def _hardware_figures(said: Any, table: Any) -> dict[str, Any]:
    """Fields of ``devices`` that a name, a column of names, or a list of names gives."""
    if isinstance(said, str):
        columns = read_table(table) if isinstance(table, str) and said not in DEVICES else {}
        if said not in columns:
            return dict(device(said).devices)
        names = columns[said]
        places = [f"{table}, row {row}, column {said!r}" for row in range(2, len(names) + 2)]
    elif isinstance(said, list | tuple) and all(isinstance(name, str) for name in said):
        names, places = list(said), [f"devices.profile[{k}]" for k in range(len(said))]
    else:
        return {}
    found = [device(name, where).devices for name, where in zip(names, places, strict=True)]
    return {field: {"values": [one[field] for one in found]} for field in DEVICE_FIELDS}


def _unused(devices: Devices, network: Network) -> dict[str, tuple[Any, Any]]:
    """Fields that differ from what the profiles say: the value, and the profile's."""
    figures: dict[str, Any] = {
        f"devices.{field}": getattr(Devices(**{field: figure}), field)
        for field, figure in _hardware_figures(devices.profile, devices.table).items()
    }
    if network.profile is not None:
        known = radio(network.profile)
        figures |= {f"devices.{field}": figure for field, figure in known.devices.items()}
        figures |= {f"network.{field}": figure for field, figure in known.network.items()}
    sections = {"devices": devices, "network": network}
    pairs = {name: (_value(sections, name), figure) for name, figure in figures.items()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _value(sections: Mapping[str, Section], name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(sections[section], field)


def profile_notes(devices: Devices, network: Network) -> list[str]:
    """One line for each figure of a profile that a given field overrules.

    >>> profile_notes(Devices(profile="raspberry-pi-4", cpu_hz=1e9, capacitance=1e-27), Network())
    ["devices.cpu_hz is given as 1e+09, so the profile's 1.8e+09 is not used",
     "devices.capacitance is given as 1e-27, so the profile's 1.23e-27 is not used"]
    """
    return [
        f"{name} is given as {_brief(mine)}, so the profile's {_brief(other)} is not used"
        for name, (mine, other) in _unused(devices, network).items()
    ]


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return repr(value) if isinstance(value, str) else "a list"


def forget_profiles(
    values: dict[str, Any], changes: Mapping[str, Any], devices: Devices, network: Network
) -> None:
    """Drop figures of profiles that ``changes`` replace: what is said last wins."""
    given = values.get("devices", {})
    if "devices.profile" in changes:
        _drop(given, DEVICE_FIELDS)
    elif "devices.table" in changes and devices.profile is not None:
        kept = _unused(devices, network)
        _drop(given, [field for field in DEVICE_FIELDS if f"devices.{field}" not in kept])
    if "network.profile" in changes:
        _drop(given, ("transmit_power_w",))
        _drop(values.get("network", {}), RADIO_FIELDS)


def _drop(section: dict[str, Any], fields: Any) -> None:
    for field in fields:
        section.pop(field, None)
