"""What the shell offers when the user presses Tab: names, fields of a scenario, and their values.

Each function takes what is typed so far and gives (candidate, explanation) pairs. Where there are
none, the shell completes names of files. Rooms are imported inside, as Tab must not wait for them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any

Candidates = list[tuple[str, str]]
Offer = Callable[[str], Candidates]

_WIDEST = 70


def _offer(room: str, pairs: Callable[[Any], Iterable[tuple[str, str]]]) -> Offer:
    """What a module lists, with explanations."""

    def offer(incomplete: str) -> Candidates:
        return _starting(pairs(import_module(f"joulemesh.{room}")), incomplete)

    return offer


presets = _offer("scenario", lambda room: ((name, "") for name in room.PRESETS))
trackers = _offer(
    "study.tracking", lambda room: ((name, text) for name, (text, _) in room.TRACKERS.items())
)
profile_names = _offer(
    "scenario.profiles", lambda room: ((one.name, one.summary) for one in room.profiles())
)
meters = _offer(
    "meters",
    lambda room: [
        ("auto", "the one that suits this machine"),
        *((one.name, one.description) for one in room.METERS),
    ],
)
# Explanations would have to load the methods.
method_names = _offer("methods", lambda room: ((name, "") for name in room.names()))
equalities = _offer("methods", lambda room: ((name, "") for name in room.EQUAL))
figure_widths = _offer(
    "views.printing", lambda room: ((name, f"{wide:.2f} in") for name, wide in room.WIDTHS.items())
)


def compared_methods(incomplete: str) -> Candidates:
    """A list of methods, with their parameters."""
    from joulemesh.methods import names, split

    before, comma, last = incomplete.rpartition(",")
    name, colon, typed = last.partition(":")
    if colon:
        return _starting(_parameters(before + comma + name + colon, name, typed), incomplete)
    found = [(before + comma + one, "") for one in names()]
    listed = split(before)
    if comma and ":" in listed[-1]:  # a comma also separates the parameters of one method
        name, _, given = listed[-1].partition(":")
        found += _parameters(before + comma, name, last, given)
    return _starting(found, incomplete)


def _parameters(head: str, name: str, typed: str, given: str = "") -> Candidates:
    """Parameters of a method that are not given, or the values of the one that is being typed."""
    from joulemesh.base.errors import ScenarioError
    from joulemesh.methods import lookup

    try:
        method = lookup(name)
    except ScenarioError:
        return []
    key, equals, _ = typed.partition("=")
    if equals and key in method.parameters:
        return [(f"{head}{key}={word}", "") for word in method.parameters[key].words]
    taken = {piece.partition("=")[0] for piece in given.split(",")}
    found = [(f"{head}{key}=", one.meaning) for key, one in method.listed if key not in taken]
    words = method.parameters[method.main].words if method.main and not given else ()
    return [*((head + word, "") for word in words), *found]


def figures(incomplete: str) -> Candidates:
    """Parts of the paper that can be redone."""
    from joulemesh.base.errors import ScenarioError
    from joulemesh.cli.studies import publication

    try:
        known = publication().FIGURES
    except ScenarioError:  # the sources are not at hand
        return []
    return _starting([(name, "") for name in (*known, "all")], incomplete)


def figure_formats(incomplete: str) -> Candidates:
    """What figures can be written as, behind those that are named already."""
    from joulemesh.views.printing import FORMATS

    before, comma, _ = incomplete.rpartition(",")
    named = before.split(",")
    rest = [(f"{before}{comma}{one}", "") for one in FORMATS if one not in named]
    return _starting(rest, incomplete)


def settings(incomplete: str) -> Candidates:
    """Fields of a scenario, and the values of the one that is being typed."""
    fields = _fields()
    name, equals, typed = incomplete.partition("=")
    if equals:
        return _starting(_values(name, typed, fields.get(name)), incomplete)
    found = _starting([(f"{name}=", one["description"]) for name, one in fields.items()], name)
    if len(found) == 1:  # with its values at once, so that the shell does not end the word
        (only, _), *_ = found
        field = only.removesuffix("=")
        return _starting(_values(field, "", fields[field]), name) or found
    return found


def varied(incomplete: str) -> Candidates:
    """Fields of a scenario, and the value after the last comma of the one that is being typed."""
    name, equals, typed = incomplete.partition("=")
    before, comma, last = typed.rpartition(",")
    head = f"{name}{equals}"
    return [
        (f"{head}{before}{comma}{value.removeprefix(head)}", words)
        for value, words in settings(head + last)
    ]


def _fields() -> dict[str, dict[str, Any]]:
    """The JSON Schema of every field, by its name with its section."""
    from joulemesh.scenario import SECTIONS

    found: dict[str, dict[str, Any]] = {
        "seed": {"description": "determines the world and every random draw"}
    }
    for section, kind in SECTIONS.items():
        for field, schema in kind.model_json_schema()["properties"].items():
            found[f"{section}.{field}"] = schema
    return found


def _values(name: str, typed: str, schema: dict[str, Any] | None) -> Candidates:
    """Values that a field may have: enumerated ones, files, its default, an example with a unit."""
    if schema is None:
        return []
    words = [*_named(name), *_enumerated(schema)]
    words = [word for word in words if not name.endswith(f".{word}")]  # a column of the table
    default = schema.get("default")
    if not words and isinstance(default, int | float | str):
        words = [f"{default:g}" if isinstance(default, float) else str(default)]
    words += [text.replace(" ", "") for text in _examples(schema)]
    pairs = [(f"{name}={word}", schema["description"]) for word in dict.fromkeys(words)]
    return [*pairs, *((f"{name}={value}", "file") for value in _files(name, typed))]


def _files(name: str, typed: str) -> Iterator[str]:
    """Values of a field that name files."""
    from joulemesh.scenario.sections import FILES

    if name not in FILES:
        return
    file = FILES[name]
    for head in file.heads:
        if typed.startswith(head):
            yield from (head + path for path in _paths(typed.removeprefix(head), file.ends))
        elif head.startswith(typed):
            yield head


def _named(name: str) -> tuple[str, ...]:
    """Names that are valid beside files and numbers, and so are not enumerated by the schema."""
    if name == "training.dataset":
        from joulemesh.data.reading import DATASETS

        return DATASETS
    return ()


def _enumerated(schema: Any) -> Iterator[str]:
    """All values that a schema lists, however deep."""
    if isinstance(schema, list):
        for part in schema:
            yield from _enumerated(part)
    elif isinstance(schema, dict):
        if schema.get("type") == "boolean":
            yield from ("true", "false")
        yield from (str(value) for value in schema.get("enum", ()))
        if isinstance(schema.get("const"), str):
            yield schema["const"]
        yield from _enumerated(schema.get("anyOf", []))


def _examples(schema: dict[str, Any]) -> Iterator[str]:
    for part in schema.get("anyOf", []):
        yield from part.get("examples", ())


def _paths(typed: str, ends: tuple[str, ...]) -> list[str]:
    """Files that end so, and folders to look into, beginning with what is typed."""
    folder, last = os.path.split(typed)
    try:
        inside = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    shown = [path for path in inside if path.name.startswith(last) and path.name[0] != "."]
    return [
        os.path.join(folder, path.name) + (os.sep if path.is_dir() else "")
        for path in shown
        if path.is_dir() or path.suffix in ends
    ]


def _starting(pairs: Iterable[tuple[str, str]], incomplete: str) -> Candidates:
    # Long explanations would be broken into lines, and those be taken for candidates.
    return [
        (value, shorten(words, _WIDEST, placeholder=" …"))
        for value, words in pairs
        if value.startswith(incomplete)
    ]


def in_bash(run: Callable[[], None]) -> None:
    """Complete for bash, which takes = and : for the ends of words.

    ``--set devices.profile=ras`` reaches the program as ``devices.profile``, ``=`` and ``ras``, and
    what it answers replaces only ``ras``. So words are joined first, and cut again afterwards.
    """
    words, current, head = joined(os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"]))
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(words), str(current)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        run()
    for line in printed.getvalue().splitlines():
        print(line.removeprefix(head))


def joined(text: str, current: int) -> tuple[list[str], int, str]:
    """Words of a command line as the user sees them."""
    pieces = text.split("\n" if "\n" in text else " ")[: current + 1]
    pieces += [""] * (current + 1 - len(pieces))
    words: list[str] = []
    for piece in pieces:
        broken = re.fullmatch("[=:]+", piece) or (words and words[-1][-1:] in ("=", ":"))
        if broken and len(words) > 1:
            words[-1] += piece
        else:
            words.append(piece)
    settled = re.match(".*[=:]", words[-1])
    return words, len(words) - 1, settled[0] if settled else ""
