"""The files that a scenario names, so that they can be kept with what was made from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from joulemesh.scenario.given import FILES, file_named, path_in

if TYPE_CHECKING:
    from joulemesh.scenario.scenario import Scenario

__all__ = ["input_files", "with_files"]


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
        text = value if path is None else old.removesuffix(path) + value
        scenario = scenario.model_copy(update={section: values.model_copy(update={field: text})})
    return scenario
