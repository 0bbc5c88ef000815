"""What is given of a scenario, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import read_json, sha256_of
from joulemesh.scenario.sections import FILES, SECTIONS, Section

if TYPE_CHECKING:
    from joulemesh.scenario.scenario import Scenario


Kind = Literal["given", "preset", "table", "measured", "profile", "assumed"]

# How each origin is written, in the order in which text is recognised.
_WORDS: dict[Kind, str] = {
    "given": "given",
    "preset": "preset {}",
    "profile": "from profile {}",
    "table": "from {}",
    "measured": "measured, {}",
    "assumed": "assumed",
}


@dataclass(frozen=True)
class Origin:
    """Where a field's value comes from.

    Attributes:
        kind: ``"given"`` by the user; taken from a ``"preset"``, from the device ``"table"`` or
            from a ``"profile"``; ``"measured"``: from a table that says how; or ``"assumed"``:
            nobody gave it, so it has its default.
        source: the file, the option, the preset or the profile; empty if it has no name.
    """

    kind: Kind
    source: str = ""

    def __str__(self) -> str:
        """In a few words."""
        if self.kind == "given" and self.source:
            way = "by" if self.source.startswith("--") else "in"
            return f"given {way} {self.source}"
        return _WORDS[self.kind].format(self.source)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """The origin that a text names."""
        for kind, words in _WORDS.items():
            start = words.removesuffix("{}")
            if text.startswith(start):
                source = text.removeprefix(start)
                if kind == "given":
                    source = source.removeprefix(" in ").removeprefix(" by ")
                return cls(kind, source)
        return ASSUMED


GIVEN = Origin("given")
ASSUMED = Origin("assumed")


INPUTS = "inputs"  # of a run's folder: copies of what it was made from


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
    """A scenario's values, section by section, as one mapping by full names."""
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
    """Statements as the validation takes them: a mapping for each section."""
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
    for name, file in FILES.items():
        section, _, field = name.partition(".")
        table = values.get(section)
        value: Any = table.get(field) if isinstance(table, dict) else None
        path = file.path_in(value)
        if path is None:
            continue
        # A file that was too large to be kept with a run may have been put beside the others.
        places = (folder / path, folder / INPUTS / Path(path).name)
        found = next((place for place in places if exists(place)), None)
        if found is not None:
            values[section][field] = renamed(value, path, str(found.resolve()))
    return values


def renamed(value: str, path: str, new: str) -> str:
    """A field's value with another path in it."""
    before, _, after = value.rpartition(path)
    return f"{before}{new}{after}"


def file_named(name: str, value: Any) -> Path | None:
    """The file that a field's value names, if it does name one that exists."""
    text = FILES[name].path_in(value)
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


FOLDER = INPUTS
RECORD = f"{INPUTS}/inputs.json"


def input_files(scenario: Scenario) -> dict[str, Path]:
    """The files named by a scenario, by field."""
    found: dict[str, Path] = {}
    for name, file in FILES.items():
        section, _, field = name.partition(".")
        path = file_named(name, getattr(getattr(scenario, section), field))
        if path is not None and file.kept:
            found[name] = path
    return found


def with_files(scenario: Scenario, names: Mapping[str, str]) -> Scenario:
    """The same scenario with other names for its files, which need not exist (yet)."""
    for name, value in names.items():
        section, _, field = name.partition(".")
        values = getattr(scenario, section)
        old = getattr(values, field)
        path = FILES[name].path_in(old)
        text = value if path is None else renamed(old, path, value)
        scenario = scenario.model_copy(update={section: values.model_copy(update={field: text})})
    return scenario


def input_notes(folder: Path, scenario: Scenario) -> Iterator[str]:
    """What is not as it was when the folder of a scenario was written, a line each."""
    record: Any = None
    with suppress(OSError, ValueError):
        record = read_json(folder / RECORD)
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
    path = FILES[field].path_in(value) if field in FILES else None
    return path is not None and Path(path).name == known["name"]
