"""Save what a page shows into the user's own file, of which everything else stays as it is."""

from __future__ import annotations

__all__ = ["ExistsError", "rewritten", "save_scenario"]

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import renamed
from joulemesh.scenario.sections import FILES, SECTIONS
from joulemesh.scenario.text import toml_value

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario


_HEADER = re.compile(r"\s*\[\s*([A-Za-z_]+)\s*\]\s*(#.*)?$")
_STATEMENT = re.compile(r"\s*([A-Za-z_]+)\s*=")


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
    from joulemesh.scenario import Scenario as Read

    try:
        return Read.from_toml(text, folder) == scenario
    except ScenarioError:
        return False


def _patched(text: str, scenario: Scenario, folder: Path) -> str | None:
    """The old text with changed statements; None without one, or where it cannot be read."""
    if not text.strip():
        return None
    try:
        tomllib.loads(text)
    except ValueError:
        return None
    missing = _to_say(scenario)
    lines: list[str] = []
    ends: dict[str, int] = {"": 0}  # where each section's last statement ends, in `lines`
    for section, field, own in _statements(text.splitlines()):
        name = f"{section}.{field}" if section else str(field)
        if field is not None and (name == "seed" or field in _known(section)):
            own = _line(name, own, scenario, folder)
            missing.discard(name)
        lines += own
        if field is not None or section not in ends:
            ends[section] = len(lines)
    for section in reversed([*SECTIONS, ""]):
        new = [_entry(name, scenario, folder) for name in sorted(missing) if _in(name, section)]
        if not new:
            continue
        if section in ends:
            lines[ends[section] : ends[section]] = new
            continue
        lines += ["", f"[{section}]", *new]
    return "\n".join(lines) + "\n"


def _in(name: str, section: str) -> bool:
    return name.rpartition(".")[0] == section


def _known(section: str) -> Any:
    return SECTIONS[section].model_fields if section in SECTIONS else ()


def _to_say(scenario: Scenario) -> set[str]:
    """Fields that a file has to say: all that its defaults, table and profiles do not."""
    from joulemesh.scenario import Scenario as Read

    bare, needed = Read(), set()
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


def _statements(lines: list[str]) -> Iterator[tuple[str, str | None, list[str]]]:
    """Section, field (None for other lines) and lines of each statement of a TOML text."""
    section, k = "", 0
    while k < len(lines):
        header, statement = _HEADER.match(lines[k]), _STATEMENT.match(lines[k])
        if header:
            section = header[1]
            yield section, None, [lines[k]]
            k += 1
        elif statement and not lines[k].lstrip().startswith("#"):
            stop = _end(lines, k)
            yield section, statement[1], lines[k:stop]
            k = stop
        else:
            yield f"#{section}", None, [lines[k]]
            k += 1


def _end(lines: list[str], start: int) -> int:
    """Where a statement that may go over several lines ends."""
    for stop in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("\n".join(lines[start:stop]))
        except ValueError:
            continue
        return stop
    return start + 1


def _line(name: str, own: list[str], scenario: Scenario, folder: Path) -> list[str]:
    """A statement's lines: as they were if their value still holds, otherwise a new one."""
    from joulemesh.scenario import Scenario as Read

    field, now = name.rpartition(".")[2], _value(scenario, name)
    head = "" if name == "seed" else f"[{name.partition('.')[0]}]\n"
    try:
        if _value(Read.from_toml(head + "\n".join(own), folder), name) == now:
            return own
    except ScenarioError:  # alone it may contradict a default
        pass
    if now is None:
        return [f"# {own[0].lstrip()}"] if len(own) == 1 else []
    comment = _comment(own[0]) if len(own) == 1 else ""
    indent = own[0][: len(own[0]) - len(own[0].lstrip())]
    return [f"{indent}{_entry(f'{name}', scenario, folder)}{comment}"] if field else own


def _comment(line: str) -> str:
    """What follows a statement's value in its line."""
    for place in range(len(line)):
        if line[place] != "#":
            continue
        try:
            tomllib.loads(line[:place])
        except ValueError:
            continue
        bare = line[:place].rstrip()
        return line[len(bare) :]
    return ""


def _entry(name: str, scenario: Scenario, folder: Path) -> str:
    field = name.rpartition(".")[2]
    value = _value(scenario, name)
    path = FILES[name].path_in(value) if name in FILES else None
    if path is not None:
        value = renamed(value, path, _near(path, folder))
    return f"{field} = {toml_value(value)}"


def _near(path: str, folder: Path) -> str:
    """A path as a file in a folder would write it: relative where it lies below."""
    try:
        return Path(path).resolve().relative_to(folder.resolve()).as_posix()
    except (ValueError, OSError):
        return path


def _relative(text: str, scenario: Scenario, folder: Path) -> str:
    """A whole text with paths relative to its folder."""
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
    """The text of a file that is to be replaced."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ScenarioError(f"{path} cannot be replaced: {why}; choose another name") from None
