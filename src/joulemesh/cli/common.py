"""What commands share: which scenario is meant, and writing files whole or not at all."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from joulemesh import files
from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario, profile_notes
from joulemesh.tables import read_table

__all__ = ["FileArgument", "JsonOption", "PresetOption", "SetOption", "read_scenario", "write_text"]

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A scenario (TOML or JSON); else the preset."),
]
PresetOption = Annotated[
    str, typer.Option("--preset", help="A scenario by name: default, paper, narrowband.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.FIELD=VALUE", help="Change one field; repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def read_scenario(file: Path | None, preset: str, changes: list[str] | None) -> Scenario:
    """The scenario that a command's arguments name."""
    scenario = Scenario.preset(preset) if file is None else Scenario.load(file)
    if changes:
        scenario = scenario.override(dict(_change(text) for text in changes), source="--set")
    for note in [*profile_notes(scenario.devices, scenario.network), *_table_notes(scenario)]:
        print(f"note: {note}", file=sys.stderr)
    return scenario


def _table_notes(scenario: Scenario) -> Iterator[str]:
    """Columns of figures that no field takes: a misspelt name would else go unnoticed."""
    table = scenario.devices.table
    if table is None:
        return
    fields = [*scenario.devices.model_dump().values(), scenario.budget.energy_j]
    taken = {value for value in fields if isinstance(value, str)}
    for name, cells in read_table(table).items():
        if name not in taken and all(map(_is_number, cells)):
            yield f"column {name!r} of {table} is not used; no field has or takes this name"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ScenarioError(f"--set {text}: write --set section.field=value")
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value.strip()  # a bare word is text


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file whole or not at all; an existing one only if told so."""
    if path.exists() and not force:
        raise ScenarioError(f"{path} exists; choose another name or add --force")
    files.write_text(path, text)
