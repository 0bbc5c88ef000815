"""Save what a page shows into the user's own file, of which everything else stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.exceptions

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.scenario import Scenario
from joulemesh.scenario.complete import toml_value
from joulemesh.scenario.given import renamed
from joulemesh.scenario.scenario import field_names
from joulemesh.scenario.sections import FILES


def rewritten(text: str, scenario: Scenario, folder: Path) -> str:
    """The text of a scenario's file, changed where the scenario is another now."""
    whole = _relative(scenario.to_toml(comments=True), scenario, folder)
    for candidate in (_patched(text, scenario, folder), whole):
        if candidate is not None and _reads_as(candidate, scenario, folder):
            return candidate
    plain = scenario.to_toml()
    if not _reads_as(plain, scenario, folder):
        raise ScenarioError(
            "the scenario cannot be written as a file that gives the same plan; it names "
            "something that exists in this program only"
        )
    return plain


def _reads_as(text: str, scenario: Scenario, folder: Path) -> bool:
    try:
        return Scenario.from_toml(text, folder) == scenario
    except ScenarioError:
        return False


def _patched(text: str, scenario: Scenario, folder: Path) -> str | None:
    """The old text with changed statements; None without one, or where it cannot be read."""
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.TOMLKitError:
        return None
    if not text.strip():
        return None
    missing = _to_say(scenario)
    for name in ["seed", *field_names()]:
        section, _, field = name.rpartition(".")
        place: Any = document.get(section, {}) if section else document
        if field not in place:
            continue
        missing.discard(name)
        if _still_holds(name, place[field], scenario, folder):
            continue
        if _value(scenario, name) is None:
            del place[field]
        else:
            place[field] = _item(name, scenario, folder)
    for name in sorted(missing):
        section, _, field = name.rpartition(".")
        if section and section not in document:
            document[section] = tomlkit.table()
        place = document[section] if section else document
        place[field] = _item(name, scenario, folder)
    return tomlkit.dumps(document)


def _item(name: str, scenario: Scenario, folder: Path) -> Any:
    """A field's value as a file in a folder writes it."""
    value = _value(scenario, name)
    path = FILES[name].path_in(value) if name in FILES else None
    if path is not None:
        value = renamed(value, path, _near(path, folder))
    return tomlkit.parse(f"value = {toml_value(value)}").item("value")


def _still_holds(name: str, item: Any, scenario: Scenario, folder: Path) -> bool:
    """Whether an old statement means what the scenario has now: then it stays as it was written."""
    section, _, field = name.rpartition(".")
    alone = {section: {field: item.unwrap()}} if section else {field: item.unwrap()}
    try:
        read = Scenario.from_toml(tomlkit.dumps(alone), folder)
    except ScenarioError:  # alone it may contradict a default
        return False
    return bool(_value(read, name) == _value(scenario, name))


def _to_say(scenario: Scenario) -> set[str]:
    """Fields that a file has to say: all that its defaults, table and profiles do not."""
    bare, needed = Scenario(), set[str]()
    for name, origin in scenario.origins().items():
        derived = origin.kind in ("table", "profile", "measured")
        value = _value(scenario, name)
        # TOML has no word for None: it follows from another statement, which `_reads_as` checks.
        if not derived and value is not None and value != _value(bare, name):
            needed.add(name)
    return needed


def _value(scenario: Scenario, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(getattr(scenario, section), field) if field else scenario.seed


def _near(path: str, folder: Path) -> str:
    """A path as a file in a folder would write it: relative where it lies below."""
    try:
        return Path(path).resolve().relative_to(folder.resolve()).as_posix()
    except (ValueError, OSError):
        return path


def _relative(text: str, scenario: Scenario, folder: Path) -> str:
    for name, file in FILES.items():
        value, field = _value(scenario, name), name.rpartition(".")[2]
        path = file.path_in(value)
        if path is not None and Path(path).is_absolute():
            new = renamed(value, path, _near(path, folder))
            text = text.replace(f"{field} = {toml_value(value)}", f"{field} = {toml_value(new)}")
    return text


class ExistsError(ScenarioError):
    """There is such a file, and nobody has said that it may be replaced."""


def save_scenario(
    scenario: Scenario, path: str | Path, *, tables: Path, replace: bool = False
) -> list[Path]:
    """Write a scenario, and beside it the device table where that was pasted or edited."""
    place = Path(path).expanduser()
    if place.suffix != ".toml":
        raise ScenarioError(f"{place.name or place} is not the name of a scenario; write NAME.toml")
    table = scenario.devices.table
    own = table is not None and Path(table).parent == tables
    beside = place.with_name(f"{place.stem}-devices.csv")
    written = [place, beside] if own else [place]
    there = [one for one in written if one.exists()]
    if there and not replace:
        names = " and ".join(str(one) for one in there)
        raise ExistsError(f"{names} exists; say that it may be replaced, or choose another name")
    before = _text_of(place) if place.exists() else ""
    if not own:
        write_text(place, rewritten(before, scenario, place.parent))
        return written
    text = Path(str(table)).read_bytes().decode()
    write_text(beside, text)
    kept = scenario.override({"devices.table": str(beside.resolve())})
    write_text(place, rewritten(before, kept, place.parent))
    return written


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ScenarioError(f"{path} cannot be replaced: {why}; choose another name") from None
