"""The files that a scenario names, so that they can be kept with what was made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import RECORD as RECORD_LIMIT
from joulemesh.files.manifest import sha256_of
from joulemesh.scenario.given import FILES, INPUTS, file_named, path_in, renamed

if TYPE_CHECKING:
    from joulemesh.scenario.scenario import Scenario

__all__ = ["FOLDER", "RECORD", "input_files", "input_notes", "with_files"]

FOLDER = INPUTS
RECORD = f"{INPUTS}/inputs.json"


def input_files(scenario: Scenario) -> dict[str, Path]:
    """The files named by a scenario, by field.

    >>> from joulemesh.scenario import Scenario
    >>> input_files(Scenario())
    {}
    """
    found: dict[str, Path] = {}
    for section, fields in FILES.items():
        for field in fields:
            path = file_named(field, getattr(getattr(scenario, section), field))
            if path is not None:
                found[f"{section}.{field}"] = path
    return found


def with_files(scenario: Scenario, names: Mapping[str, str]) -> Scenario:
    """The same scenario with other names for its files, which need not exist (yet).

    Args:
        scenario: what was asked.
        names: new ones, by field.
    """
    for name, value in names.items():
        section, _, field = name.partition(".")
        values = getattr(scenario, section)
        old = getattr(values, field)
        path = path_in(field, old)
        text = value if path is None else renamed(old, path, value)
        scenario = scenario.model_copy(update={section: values.model_copy(update={field: text})})
    return scenario


def input_notes(folder: Path, scenario: Scenario) -> Iterator[str]:
    """What is not as it was when the folder of a scenario was written, a line each.

    Args:
        folder: that the scenario was read from; only that of a run or a comparison has a record.
        scenario: with all changes to it.

    Raises:
        ScenarioError: a file is missing; it was too large to be kept with the others.
    """
    record: Any = None
    with suppress(OSError, ValueError):
        record = read_json(folder / RECORD, RECORD_LIMIT.now)
    if not isinstance(record, dict):
        return
    now = input_files(scenario)
    for field, known in record.get("files", {}).items():
        if field in now:
            yield from _changed(field, known, now[field])
        elif _still_means(scenario, field, known):
            raise ScenarioError(
                f"{field}: {known['name']} ({known['bytes']:,} bytes, SHA-256 "
                f"{known.get('sha256', 'unknown')}) is not here, and was too large to be kept: put "
                f"it into {folder / FOLDER}, or name it with --set {field}=FILE"
            )
    if record.get("own_model"):
        yield (
            f"{folder} was made with a model of the user's own, which is not kept; this trains "
            f"training.model = {scenario.training.model!r}"
        )


def _changed(field: str, known: Mapping[str, Any], path: Path) -> Iterator[str]:
    kept = Path(known["kept"] or known["name"]).name
    if path.name != kept or "sha256" not in known:
        return  # another file on purpose
    if path.stat().st_size != known["bytes"] or sha256_of(path) != known["sha256"]:
        yield f"{field}: {path} has changed since the scenario was kept with it"


def _still_means(scenario: Scenario, field: str, known: Mapping[str, Any]) -> bool:
    """Does the scenario still name the file that was recorded?"""
    section, _, name = field.partition(".")
    value = getattr(getattr(scenario, section, None), name, None)
    path = path_in(name, value)
    return path is not None and Path(path).name == known["name"]
