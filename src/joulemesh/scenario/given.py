"""What the user has given, statement by statement, before anything is completed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario.origin import Origin
from joulemesh.scenario.sections import SECTIONS, Section

__all__ = [
    "FILES",
    "INPUTS",
    "Layer",
    "Said",
    "absolute_paths",
    "exists",
    "fields_of",
    "file_named",
    "is_trace",
    "latest",
    "nested",
    "path_in",
    "renamed",
]

INPUTS = "inputs"  # of a run's folder: copies of what it was made from

# Fields that may name a file.
FILES = {
    "devices": ("table", "availability", "harvest_w", "positions"),
    "network": ("topology", "gains", "fading", "links"),
    "training": ("dataset", "test_dataset", "model", "loss"),
}


@dataclass(frozen=True)
class Layer:
    """Fields that were given together: one file, one preset, one `override`.

    Attributes:
        origin: where they come from.
        fields: values by the field's full name, such as ``"devices.count"``.
    """

    origin: Origin
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Said:
    """The statement that holds for a field.

    Attributes:
        value: not validated yet.
        rank: number of its layer; of two statements the one with the higher rank wins.
        origin: where it comes from.
    """

    value: Any
    rank: int
    origin: Origin


def fields_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's values, section by section, as one mapping by full names.

    >>> fields_of({"seed": 3, "devices": {"count": 8, "cpu_hz": 1e9}})
    {'seed': 3, 'devices.count': 8, 'devices.cpu_hz': 1000000000.0}
    """
    fields: dict[str, Any] = {}
    for name, value in values.items():
        section = _as_dict(value) if name in SECTIONS else None
        if section is None:  # validation refuses what is not a section
            fields[name] = value
        else:
            fields |= {f"{name}.{field}": item for field, item in section.items()}
    return fields


def _as_dict(section: Any) -> dict[str, Any] | None:
    """A section's values, however it is given; None if it is not a section."""
    if isinstance(section, Section):
        return section.model_dump(exclude_unset=True)
    return dict(section or {}) if section is None or isinstance(section, Mapping) else None


def latest(layers: Iterable[Layer]) -> dict[str, Said]:
    """The last statement about each field."""
    return {
        name: Said(value, rank, layer.origin)
        for rank, layer in enumerate(layers)
        for name, value in layer.fields.items()
    }


def nested(said: Mapping[str, Said]) -> dict[str, Any]:
    """Statements as the validation takes them: a mapping for each section.

    >>> nested({"devices.count": Said(8, 0, Origin("given"))})
    {'devices': {'count': 8}}
    """
    values: dict[str, Any] = {}
    for name, one in said.items():
        section, dot, field = name.partition(".")
        if not dot:
            values[name] = one.value
        elif isinstance(values.setdefault(section, {}), dict):
            values[section][field] = one.value
        elif section not in SECTIONS:
            raise ScenarioError(f"{name}: {section!r} is not a section")
    return values


def absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve relative paths against the scenario file's folder, where such a file exists."""
    for section, fields in {**FILES, "training": (*FILES["training"], "data_dir")}.items():
        table = values.get(section)
        if not isinstance(table, dict):
            continue
        for field in fields:
            value: Any = table.get(field)
            path = path_in(field, value)
            if path is None:
                continue
            # A file that was too large to be kept with a run may have been put beside the others.
            places = (folder / path, folder / INPUTS / Path(path).name)
            found = next((place for place in places if exists(place)), None)
            if found is not None:
                table[field] = renamed(value, path, str(found.resolve()))
    return values


def renamed(value: str, path: str, new: str) -> str:
    """A field's value with another path in it.

    >>> renamed("trace:a.csv", "a.csv", "/b.csv"), renamed("m.py:Net", "m.py", "/n.py")
    ('trace:/b.csv', '/n.py:Net')
    """
    before, _, after = value.rpartition(path)
    return f"{before}{new}{after}"


def path_in(field: str, value: Any) -> str | None:
    """The path in a field's value, if it may name a file."""
    if not isinstance(value, str) or not value or value in TOPOLOGIES:
        return None
    if field in ("model", "loss"):  # a name, or FILE.py:NAME
        path, colon, _ = value.rpartition(":")
        return path if colon and path.endswith(".py") else None
    if field == "fading":  # MODEL, or MODEL:FILE
        return value.partition(":")[2] or None
    if field == "harvest_w":  # otherwise a column of the device table
        return value if is_trace(value) else None
    if field == "dataset" and value.startswith("folder:"):
        return value.removeprefix("folder:") or None
    # A data set's name stays one, even if a folder beside the scenario is called after it.
    return value if field != "dataset" or "." in Path(value).name else None


def is_trace(value: Any) -> bool:
    """Does a device's quantity name a CSV file, and not a column of the device table?

    >>> is_trace("sun.csv"), is_trace("harvest_w"), is_trace(0.5)
    (True, False, False)
    """
    return isinstance(value, str) and value.lower().endswith((".csv", ".tsv", ".txt"))


def file_named(field: str, value: Any) -> Path | None:
    """The file that a field's value names, if it does name one that exists."""
    text = path_in(field, value)
    if text is None:
        return None
    path = Path(text)
    return path if exists(path) and path.is_file() else None


def exists(path: Path) -> bool:
    """Is there such a file or folder?"""
    try:
        return path.exists()
    except OSError:  # too long for the name of a file
        return False
