"""Completing what is given: figures from the device table, and from profiles of devices and radios.

Of two statements about a field the later one wins, whether it gives a figure, a table with such a
column or a profile that has it. Within one file or call a figure beats the profile, and a figure
beside a column is refused, because either choice would hide a mistake.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from joulemesh.base.errors import ScenarioError, UnitError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario.given import ASSUMED, Layer, Origin, Said, exists, latest
from joulemesh.scenario.profiles import DEVICE_FIELDS, DEVICES, device, radio
from joulemesh.scenario.sections import COLUMNS, SECTIONS, Budget, Devices, Network
from joulemesh.tables import read_table

if TYPE_CHECKING:
    from joulemesh.scenario.scenario import Scenario

_STEP = ("devices.step_s", "devices.step_j")
_PROCESSOR = ("devices.cycles_per_sample", "devices.cpu_hz", "devices.capacitance")
_LINKS = "network.links"
_AIR = (
    "network.gains",
    "network.path_loss",
    "network.path_loss_exponent",
    "network.path_loss_reference_db",
    "network.shadowing_db",
    "network.fading",
    "network.rician_k_db",
    "network.nakagami_m",
    "network.bandwidth_hz",
    "network.noise_dbm_per_hz",
    "network.max_rate_bps",
)
_FRAMING = ("network.packet_bits", "network.header_bits", "network.packet_s", "plan.message_s")
_RECEIVING = ("devices.receive_j_per_bit", "devices.receive_power_w")
REPLACED = ("devices.profile", *_PROCESSOR, "network.profile", *_AIR)
"""Fields that only model what a step's figures and the links' rates say."""

_MOST_SOURCES = 3


def take_measured(said: dict[str, Said]) -> None:
    """Let measured figures take the place of modelled ones that nobody gave."""
    step = [name for name in _STEP if _value(said, name) is not None]
    if len(step) == 1:
        other = _STEP[1 - _STEP.index(step[0])]
        raise ScenarioError(
            f"{step[0]} is given and {other} is not; give both (joulemesh calibrate measures them)"
        )
    if step:
        _give_way(said, "devices.step_s and devices.step_j", "devices.profile", _PROCESSOR)
    links = _value(said, _LINKS)
    if links is not None:
        _give_way(said, f"network.links = {links!r}", "network.profile", _AIR)
        for name in _FRAMING:  # a measured rate is that of the payload
            if name in said and said[name].origin.kind == "profile":
                del said[name]
        said["network.profile"] = Said(None, said[_LINKS].rank, said[_LINKS].origin)
        _take_topology(said, said[_LINKS])
    _take_receiving(said)
    _name_sources(said)


def _take_receiving(said: dict[str, Said]) -> None:
    """Let a price of a received bit take the place of a profile's power; refuse both.

    Where both ends pay the sender's joules, the power of a radio that nobody names gives way, too.
    """
    price, power = (said.get(name) for name in _RECEIVING)
    if power is None or power.value is None:
        return
    if price is not None and price.value is not None:
        if power.origin.kind != "profile":
            raise ScenarioError(
                f"{_RECEIVING[0]} and {_RECEIVING[1]} are two prices of the same; give either"
            )
        del said[_RECEIVING[1]]
        return
    by_physics = "both-ends" if _value(said, "plan.physics") == "paper" else "transmitter"
    both_ends = (_value(said, "plan.accounting") or by_physics) == "both-ends"
    if both_ends and power.origin.kind == "profile" and "network.profile" not in said:
        del said[_RECEIVING[1]]


def _value(said: dict[str, Said], name: str) -> Any:
    return said[name].value if name in said else None


def _give_way(said: dict[str, Said], measured: str, profile: str, names: tuple[str, ...]) -> None:
    """Drop what only a preset or a default says; refuse what was given, or is a profile's."""
    if _value(said, profile) is not None and said[profile].origin.kind != "preset":
        raise ScenarioError(
            f"{measured} would be beside {profile} = {said[profile].value!r:.60}, whose figures "
            "they replace; give either"
        )
    said.pop(profile, None)
    for name in names:
        one = said.get(name)
        if one is None:
            continue
        section, _, field = name.partition(".")
        default = SECTIONS[section].model_fields[field].default
        value = tuple(one.value) if isinstance(one.value, list) else one.value
        if one.origin.kind not in ("preset", "profile") and value != default:
            raise ScenarioError(
                f"{name} = {one.value!r:.60} ({one.origin}) would be ignored beside {measured}; "
                "give either what is modelled or what is measured"
            )
        del said[name]


def _take_topology(said: dict[str, Said], links: Said) -> None:
    """Without a topology of the user's own, the file of the links is the topology."""
    mine = said.get("network.topology")
    if mine is None or mine.origin.kind == "preset":
        origin = Origin("table", Path(str(links.value)).name)
        said["network.topology"] = Said(links.value, links.rank, origin)


def _name_sources(said: dict[str, Said]) -> None:
    """Say of figures from a table how they were measured, if the table says so."""
    table = _value(said, "devices.table")
    if not isinstance(table, str):
        return
    columns = read_table(table)
    for name, one in said.items():
        if one.origin.kind != "table" or not isinstance(one.value, str):
            continue
        cells = [cell for cell in columns.get(f"{one.value}_source", ()) if cell]
        if cells:
            unlike = list(dict.fromkeys(cells))
            more = ", …" if len(unlike) > _MOST_SOURCES else ""
            words = f"{Path(table).name}: {', '.join(unlike[:_MOST_SOURCES])}{more}"
            said[name] = Said(one.value, one.rank, Origin("measured", words))


_MOST_NAMES = 3
_BEFORE_ALL = -1  # rank of the radio that is assumed
_PLACE = "network.area_m"  # of the profile only where nobody gives it: no radio moves devices


def completed(layers: Sequence[Layer]) -> dict[str, Said]:
    """What holds for each field once the table and the profiles have filled theirs."""
    said = latest(layers)
    _take_table(said)
    _take_profiles(said)
    _take_time(said)
    take_measured(said)
    return said


def _take_time(said: dict[str, Said]) -> None:
    """Let a preset's deadline give way to a total time that is given; one of the user's stays."""
    deadline, total = said.get("budget.deadline_s"), said.get("budget.total_s")
    if deadline is None or total is None or total.value is None:
        return
    if deadline.origin.kind == "preset" and deadline.rank < total.rank:
        said["budget.deadline_s"] = Said(None, total.rank, total.origin)


def own_statements(layers: Sequence[Layer], said: Mapping[str, Said]) -> tuple[Layer, ...]:
    """The layers without what merely repeats the table or a profile named beside it.

    A scenario that was written out whole repeats their figures; another table or profile, given
    later, must be free to replace them.
    """
    return tuple(
        Layer(
            layer.origin,
            {
                name: value
                for name, value in layer.fields.items()
                if name not in said or said[name].rank != rank or not _repeats(name, said[name])
            },
        )
        for rank, layer in enumerate(layers)
    )


def _repeats(name: str, one: Said) -> bool:
    """Would the field hold this value even if nobody had given it?"""
    own_column = one.value == name.partition(".")[2] or name == "devices.count"
    of_table = one.origin.kind in ("table", "measured")
    return (of_table and own_column) or one.origin.kind == "profile"


def _take_table(said: dict[str, Said]) -> None:
    """Take the number of devices, and fields that bear a column's name, from the device table."""
    table = said.get("devices.table")
    if table is None or not isinstance(table.value, str):
        return
    columns = read_table(table.value)
    rows = len(next(iter(columns.values())))
    origin = Origin("table", Path(table.value).name)
    refusal = "devices.count is {} but " + f"{table.value} has {rows} rows; leave devices.count out"
    given = said.get("devices.count")
    # A preset's count gives way to the rows; one of the user's own, also an earlier one, does not.
    if given is not None and given.origin.kind == "given" and given.value != rows:
        raise ScenarioError(refusal.format(f"{given.value!r:.60}"))
    counted = Said(rows, table.rank, origin)
    _take_count(said, counted, refusal)
    if said["devices.count"].rank == table.rank:  # given beside the table, it only repeats its rows
        said["devices.count"] = counted
    own = [f"devices.{field}" for field in COLUMNS]
    for name in (*own, "budget.energy_j"):
        field, mine = name.partition(".")[2], said.get(name)
        later = mine is not None and mine.rank > table.rank
        if field in columns and not later:
            if mine is not None and mine.rank == table.rank and mine.value != field:
                raise ScenarioError(
                    f"{field} is given both in the scenario and as a column of {table.value}; "
                    f'write {field} = "{field}" to take the column, or drop the column'
                )
            said[name] = Said(field, table.rank, origin)
        elif mine is not None and isinstance(mine.value, str) and mine.value in columns:
            said[name] = Said(mine.value, mine.rank, origin)
        elif mine is not None and mine.value == field and mine.rank < table.rank:
            del said[name]  # a column of the table before this one


def _take_count(said: dict[str, Said], counted: Said, refusal: str) -> None:
    """Take the number of devices from rows or names, unless another number is given with them."""
    mine = said.get("devices.count")
    if mine is None or mine.rank < counted.rank:
        said["devices.count"] = counted
    elif mine.value != counted.value:
        raise ScenarioError(refusal.format(f"{mine.value!r:.60}"))


def _take_profiles(said: dict[str, Said]) -> None:
    """Take figures that are not given from the profiles that are named."""
    hardware, air = said.get("devices.profile"), said.get("network.profile")
    if hardware is not None:
        table = said["devices.table"].value if "devices.table" in said else None
        names = _names(hardware.value, table)
        if isinstance(hardware.value, list | tuple) and names:
            _take_count(
                said,
                Said(len(names), hardware.rank, hardware.origin),
                f"devices.profile lists {len(names)} names for " + "{} devices; "
                "give one name per device, or one name for all",
            )
        origin = Origin("profile", _listed([name for name, _ in names]))
        for field, figure in _hardware_figures(hardware.value, table).items():
            _take_figure(said, f"devices.{field}", Said(figure, hardware.rank, origin))
    links = said.get("network.links")
    if links is None or links.value is None:  # measured links need no radio
        if air is None:  # nobody names one: whatever is given comes after the default's figures
            air = Said(Network.model_fields["profile"].default, _BEFORE_ALL, ASSUMED)
        elif air.value is None:  # no radio: what is given, over ideal links
            said["network.profile"] = Said("ideal", air.rank, air.origin)
    if air is not None and isinstance(air.value, str):
        origin = Origin("profile", air.value)
        for name, figure in _radio_figures(air.value).items():
            _take_figure(said, name, Said(figure, air.rank, origin))


def _take_figure(said: dict[str, Said], name: str, profile: Said) -> None:
    """Take a profile's figure, unless another is given with it or later."""
    mine, named = said.get(name), profile.rank != _BEFORE_ALL
    earlier = mine is not None and mine.rank < profile.rank
    if name == _PLACE:
        earlier = False
    if mine is None or earlier or (named and _same(name, mine.value, profile.value)):
        said[name] = profile


def _same(name: str, value: Any, figure: Any) -> bool:
    """Do two values of a field mean the same? ``[1, 2, 3]`` is ``{"values": [1, 2, 3]}``."""
    section, _, field = name.partition(".")
    try:
        one, other = (
            getattr(SECTIONS[section](**{field: item}), field) for item in (value, figure)
        )
    except ValidationError:  # refused later, with all that is wrong
        return False
    return bool(one == other)


def _names(value: Any, table: Any) -> list[tuple[str, str]]:
    """The profiles that a name, a column of names or a list of names gives, each with its place."""
    if isinstance(value, str):
        columns = read_table(table) if isinstance(table, str) and value not in DEVICES else {}
        if value not in columns:
            return [(value, "devices.profile")]
        cells = enumerate(columns[value], start=2)
        return [(name, f"{table}, row {row}, column {value!r}") for row, name in cells]
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return [(name, f"devices.profile[{k}]") for k, name in enumerate(value)]
    return []


def _hardware_figures(value: Any, table: Any) -> dict[str, Any]:
    """Fields of ``devices`` that a name, a column of names, or a list of names gives."""
    names = _names(value, table)
    found = [device(name, where).devices for name, where in names]
    if len(found) == 1 and names[0][1] == "devices.profile":
        return dict(found[0])
    return {field: {"values": [one[field] for one in found]} for field in DEVICE_FIELDS if found}


def _radio_figures(name: str) -> dict[str, Any]:
    """Fields that a radio's profile gives, by their full names."""
    known = radio(name)
    return {
        f"{section}.{field}": figure
        for section in ("devices", "network", "plan")
        for field, figure in getattr(known, section).items()
    }


def _listed(names: Sequence[str]) -> str:
    """The different names, the first few of many."""
    unlike = list(dict.fromkeys(names))
    return ", ".join(unlike[:_MOST_NAMES]) + (", …" if len(unlike) > _MOST_NAMES else "")


def profile_notes(scenario: Scenario) -> list[str]:
    """One line for each figure of a profile that the user names and a given field overrules."""
    devices, network = scenario.devices, scenario.network
    figures: dict[str, Any] = {
        f"devices.{field}": getattr(Devices(**{field: figure}), field)
        for field, figure in _hardware_figures(devices.profile, devices.table).items()
    }
    if network.profile is not None and scenario.origin("network.profile").kind == "given":
        figures |= _radio_figures(network.profile)
        figures.pop(_PLACE, None)
    sections = {"devices": devices, "network": network, "plan": scenario.plan}
    notes = []
    for name, figure in figures.items():
        section, _, field = name.partition(".")
        mine = getattr(sections[section], field)
        replaced = name == "devices.receive_power_w" and devices.receive_j_per_bit is not None
        if mine is None and replaced:
            name, mine = "devices.receive_j_per_bit", devices.receive_j_per_bit
        if mine != figure:
            notes.append(
                f"{name} is given as {_brief(mine)}, so the profile's {_brief(figure)} is not used"
            )
    return notes


def _brief(value: Any) -> str:
    if isinstance(value, int | float):
        return f"{value:.3g}"
    return repr(value) if isinstance(value, str) else "a list"


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
