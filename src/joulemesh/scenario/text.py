"""A scenario as text: refusals in one line, and TOML that reads back as the same scenario."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from joulemesh.base.errors import ScenarioError, UnitError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario.given import exists
from joulemesh.scenario.sections import COLUMNS, SECTIONS, Budget, Devices, Network
from joulemesh.tables import read_table

if TYPE_CHECKING:
    from joulemesh.scenario.scenario import Scenario

_MOST_COLUMNS = 12


def check_links(network: Network) -> None:
    """Refuse a topology that is neither a name nor a file, and gains that do not fit its links."""
    name, gains = network.topology, network.gains
    links = 0 if isinstance(name, str) else len(name)
    if gains is not None and not isinstance(gains, str) and len(gains) != links:
        raise ScenarioError(
            f"network.gains lists {len(gains)} gains for {links} listed links of network.topology; "
            "list one for each, or name a CSV file (i,j,gain)",
            field="network.gains",
        )
    if links or name in TOPOLOGIES or (exists(Path(name)) and Path(name).is_file()):
        return
    known = TOPOLOGIES.names()
    close = difflib.get_close_matches(name[:60], known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(known)}"
    raise ScenarioError(
        f"network.topology: {_short(name)} is neither a topology nor a file; {hint} "
        "(--load FILE.py adds your own)",
        field="network.topology",
    )


def check_table(devices: Devices, budget: Budget) -> None:
    """Refuse a device table of which nothing is used: its figures would be ignored in silence."""
    if devices.table is None:
        return
    columns = read_table(devices.table)
    known = COLUMNS
    if columns.keys() & {*taken_columns(devices, budget), *known, "energy_j"}:
        return  # a field that was given wins over its column
    found = ", ".join(f"{name!r:.40}" for name in list(columns)[:_MOST_COLUMNS])
    raise ScenarioError(
        f"{devices.table} has no known column, only {found}; "
        f"known columns: {', '.join(known)} and energy_j; rename a column, or name it in a field",
        field="devices.table",
    )


def taken_columns(devices: Devices, budget: Budget) -> set[str]:
    """Names of columns that fields take, if the table has them."""
    own = devices.model_dump(include=set(COLUMNS))
    fields = [*own.values(), *(devices.power_range_w or ()), budget.energy_j]
    return {value for value in fields if isinstance(value, str)}


def refusal_of(error: ValidationError, scenario: type[BaseModel]) -> ScenarioError:
    """What is wrong with the first field."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    field = ".".join(str(part) for part in first["loc"][:2])
    return ScenarioError(_one_line(error, scenario), code=getattr(cause, "code", ""), field=field)


def _one_line(error: ValidationError, scenario: type[BaseModel]) -> str:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    field = ".".join(where)
    if first["type"] == "extra_forbidden":
        section = SECTIONS.get(where[0]) if len(where) > 1 else scenario
        known = list(section.model_fields) if section else []
        close = difflib.get_close_matches(where[-1], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(known)}"
        return f"{field}: unknown field; {hint}"
    others = error.error_count() - 1
    more = f"; {others} more error{'s' if others > 1 else ''}" if others else ""
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UnitError):  # it begins with what was given
        return f"{field} = {cause}{more}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:] if message.startswith("Input") else message
    message = message if len(message) <= 300 else message[:297] + "..."
    got = "" if ", not " in message else f" (got {_short(first['input'])})"
    return f"{field}: {message}{got}{more}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_HEAD = """\
# A Joulemesh scenario. What stands behind a # comes from a default, the device table or a profile;
# `joulemesh plan` names what is assumed. Remove the # to give a value of your own."""


def to_toml(scenario: Scenario, comments: bool) -> str:
    """The whole scenario as TOML; with comments, only what is given or has no default counts."""
    if comments:
        return _commented(scenario)
    lines = [f"seed = {scenario.seed}"]
    for name, section in SECTIONS.items():
        values = getattr(scenario, name)
        pairs = [(field, getattr(values, field)) for field in section.model_fields]
        if name == "network" and _radio_gave_way(scenario):
            pairs = [(field, value) for field, value in pairs if field != "profile"]
        given = [f"{field} = {toml_value(value)}" for field, value in pairs if value is not None]
        lines += ["", f"[{name}]", *given]
    return "\n".join(lines) + "\n"


def _radio_gave_way(scenario: Scenario) -> bool:
    """Does nobody name the radio, and both ends pay, so that its receive power is left out?

    Named in the file it would bring that power back.
    """
    assumed = scenario.origin("network.profile").kind == "assumed"
    return assumed and scenario.plan.pays == "both-ends"


def _commented(scenario: Scenario) -> str:
    given, default = scenario.given, type(scenario)()
    seed = _entry("seed", scenario.seed, live="seed" in given or scenario.seed != 0)
    lines = [_HEAD, "", f"{seed:<36} # determines the world and every random draw"]
    for name, section in SECTIONS.items():
        values, defaults = getattr(scenario, name), getattr(default, name)
        lines += ["", f"[{name}]    # {(section.__doc__ or '').strip()}"]
        for field, info in section.model_fields.items():
            value, full = getattr(values, field), f"{name}.{field}"
            preset = scenario.origin(full).kind == "preset" and value != getattr(defaults, field)
            entry = _entry(field, value, live=full in given or preset)
            lines.append(f"{entry:<36} # {info.description}")
    return "\n".join(lines) + "\n"


def _entry(field: str, value: Any, *, live: bool) -> str:
    """A field and its value, as a comment unless it is live."""
    if value is None:
        return f"# {field} ="
    return f"{'' if live else '# '}{field} = {toml_value(value)}"


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, BaseModel):
        return toml_value(value.model_dump(exclude_defaults=True))
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return repr(value)
