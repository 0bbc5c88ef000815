"""A copy of what a run was made from, so that its folder can travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.files import make_folder, write_bytes
from joulemesh.files.manifest import sha256_of
from joulemesh.scenario import Scenario
from joulemesh.scenario.inputs import input_files, with_files

__all__ = ["FOLDER", "asked", "keep_inputs", "portable"]

FOLDER = "inputs"
# Larger files stay where they are; their digest is recorded.
_MOST_BYTES = 64 * 2**20


def _digest(field: str, path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise ScenarioError(
            f"{field}: cannot read {path}: {error.strerror}; make it readable"
        ) from None


def asked(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain values, with the contents of its files in place of their paths."""
    names = {field: _digest(field, path) for field, path in input_files(scenario).items()}
    values = with_files(scenario, names).model_dump(mode="json")
    values["training"].pop("data_dir")  # where the data lie does not matter; the data do
    return values


def _copies(scenario: Scenario) -> dict[str, tuple[Path, str]]:
    """The files that are copied, by field: where they are, and their relative names."""
    return {
        field: (path, f"{FOLDER}/{field.replace('.', '-')}{path.suffix}")
        for field, path in input_files(scenario).items()
        if path.stat().st_size <= _MOST_BYTES
    }


def portable(scenario: Scenario) -> Scenario:
    """The scenario with its files' names relative to a folder that holds copies of them.

    Files over 64 MiB are not copied and keep their names.
    """
    names = {field: name for field, (_, name) in _copies(scenario).items()}
    return with_files(scenario, names)


def keep_inputs(scenario: Scenario, folder: Path) -> list[str]:
    """Copy the files that a scenario names into a folder.

    Args:
        scenario: what was asked.
        folder: of the run or study.

    Returns:
        The relative names of the copies.
    """
    copies = _copies(scenario)
    if copies:
        make_folder(folder / FOLDER)
    for path, name in copies.values():
        write_bytes(folder / name, path.read_bytes())
    return [name for _, name in copies.values()]
