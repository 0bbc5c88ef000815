"""Pages that are made, not written: the command line, the scenario's fields

The documentation's build puts them into the site (`on_config` and `on_files` are hooks of MkDocs),
so that they cannot differ from the program.
"""

from __future__ import annotations

__all__ = ["PAGES", "cli_page", "commands", "on_config", "on_files", "scenario_page"]

import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import typer

from joulemesh.cli.main import app
from joulemesh.scenario import PRESETS, SECTIONS, Scenario
from joulemesh.views.markdown import Markdown, code, escape, table

_CLI_HEAD = """\
# Command line

Every command takes `--help`; those that print results take `--json`. A refusal is one line on
standard error and exit code 2, an interrupted run 130. The shell
[completes commands, options and values](../how-to/completion.md) with Tab, `joulemesh --version`
says the version, and `python -m joulemesh` is the same as `joulemesh`.
"""

_SCENARIO_HEAD = """\
# Scenario file

One TOML (or JSON) file, validated before anything happens; an unknown field or a value of the wrong
kind is refused in one line. `joulemesh init FILE` writes one with all of this in it as comments,
`joulemesh schema` prints the JSON Schema for editors, and `--set section.field=value` changes one
field on the command line. Paths are relative to the file.

A field's name ends in its **unit**, and a plain number is in that unit. A text may give another:
`"100 Wh"`, `"3.6 kJ"`, `"250 ms"`, `"1 h 30 min"`, `"2 GHz"`, `"10 Mbit/s"`, `"0.5 km"`,
`"23 dBm"`; so may an entry of a list, a cell of the device table, and
`--set budget.energy_j="100 Wh"`. Case matters (mJ, MJ). A text of the wrong kind is refused. Files
that Joulemesh writes hold plain numbers.

A **quantity** is a property of each device: one number for all; `[low, high]`, a range drawn from
the seed; a longer list, one value for each device; `{ values = [a, b] }` for two devices' own
values; or the name of a column of `devices.table`. A column that bears a field's own name fills
that field.
"""


def _help(text: str | None) -> Markdown:
    """A help text of the command line, which is Markdown, in one line."""
    return Markdown(" ".join((text or "").split()).replace("|", "\\|"))


def _default(value: object) -> str:
    return "" if value in (None, False) else code(f"{value}")


def _options(kind: str, rows: list[tuple[str, ...]]) -> str:
    """A table of arguments or options; without its last column if nothing has a default."""
    columns = 3 if any(row[2] for row in rows) else 2
    return table((kind, "meaning", "default")[:columns], [row[:columns] for row in rows])


def _command_lines(name: str, command: Any) -> Iterator[str]:
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if not one.opts[0].startswith("-")]
    options = [one for one in shown if one.opts[0].startswith("-") and one.name != "help"]
    label = {one.name: (one.metavar or one.name).strip("[]").upper() for one in arguments}
    usage = " ".join(
        label[one.name] if one.required else f"[{label[one.name]}]" for one in arguments
    )
    yield f"## `joulemesh {name}` {{ #{name.replace(' ', '-')} }}"
    yield from ("", command.help, "")
    yield from ("```text", f"joulemesh {name} {usage} [OPTIONS]".replace("  ", " "), "```", "")
    if arguments:
        rows: list[tuple[str, ...]]
        rows = [(code(label[x.name]), _help(x.help), _default(x.default)) for x in arguments]
        yield from (_options("argument", rows), "")
    panels: dict[str, list[tuple[str, ...]]] = {}
    for one in options:
        value = "" if getattr(one, "is_flag", False) else f" {one.metavar or one.name.upper()}"
        row = (code(f"{one.opts[0]}{value}"), _help(one.help), _default(one.default))
        panels.setdefault(getattr(one, "rich_help_panel", None) or "", []).append(row)
    for panel, lines in panels.items():
        if panel:
            yield from (f"**{escape(panel)}**", "")
        yield from (_options("option", lines), "")
    examples = re.findall(r"^- `(.+)`$", command.epilog or "", re.MULTILINE)
    if examples:
        yield from ("```console", *(f"$ {line}" for line in examples), "```", "")


def cli_page() -> str:
    """The commands, as Markdown.

    >>> "## `joulemesh plan`" in cli_page()
    True
    """
    lines = [_CLI_HEAD]
    for name, command in commands().items():
        lines += _command_lines(name, command)
    return "\n".join(lines)


def commands() -> dict[str, Any]:
    """Every command by all of its words, those of groups too.

    >>> [name for name in commands() if name.startswith("p")]
    ['plan', 'profiles']
    """
    return _inside(typer.main.get_command(app), "")


def _inside(group: Any, before: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in group.commands.items():
        grouped = hasattr(one, "commands")
        found.update(_inside(one, f"{before}{name} ") if grouped else {before + name: one})
    return found


def _values(schema: dict[str, Any]) -> str:
    """What a field may be, from its JSON Schema, as Markdown."""
    if "const" in schema:
        return code(schema["const"])
    if len(schema.get("enum", ())) > 8:
        return "a [profile](cli.md#profiles)"
    if "enum" in schema:
        return ", ".join(code(f"{value}") for value in schema["enum"])
    kinds = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if {"array", "object", "number"} <= {one.get("type") for one in kinds}:
        return "quantity"
    if kinds:
        first, *others = (_values(one) for one in kinds)
        return " or ".join(
            [first, *(text.replace(f"list of {first}", "a list") for text in others)]
        )
    if schema.get("type") == "array":
        return f"list of {_values(schema.get('items', {}))}".replace(
            "list of list", "list of pairs"
        )
    if schema.get("type") == "string" and "examples" in schema:
        return f'`"{schema["examples"][0]}"`'
    words = {"integer": "whole number", "boolean": "`true`, `false`", "string": "text"}
    types = schema.get("type", "value")
    types = [types] if isinstance(types, str) else types
    kind = " or ".join(words.get(one, one) for one in types)
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    # Limits beyond 10^12 keep arithmetic exact and are nobody's concern.
    given = {key: schema[key] for key in limits if abs(schema.get(key, 1e13)) < 1e12}
    marks = [f"{limits[key]} {value:g}" for key, value in given.items()]
    return " ".join([kind, ", ".join(marks)]).strip()


def scenario_page() -> str:
    """The fields of a scenario, as Markdown.

    >>> "| `deadline_s` |" in scenario_page()
    True
    """
    schema, default = Scenario.model_json_schema(), Scenario()
    seed = "`seed` (0 unless given) determines the world and every random draw."
    lines = [_SCENARIO_HEAD, seed, ""]
    for name, section in SECTIONS.items():
        properties = schema["$defs"][section.__name__]["properties"]
        defaults = getattr(default, name).model_dump()
        lines += [f"## `[{name}]` {{ #{name} }}", "", escape((section.__doc__ or "").strip()), ""]
        rows = [
            (
                code(field),
                info.description or "",
                _toml(defaults[field]),
                Markdown(_values(properties[field])),
            )
            for field, info in section.model_fields.items()
        ]
        lines += [table(("field", "meaning", "default", "values"), rows), ""]
    lines += ["## Presets", "", "`--preset NAME`, or `Scenario.preset(name)`.", ""]
    for name in PRESETS:
        presets = resources.files("joulemesh.scenario") / "presets"
        text = (presets / f"{name}.toml").read_text("utf-8")
        lines += [f"### {name}", "", "```toml", text.rstrip(), "```", ""]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    """A default as it would stand in the file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, str):
        return code(f'"{value}"')
    if isinstance(value, tuple):
        return code(f"[{', '.join(f'{item:g}' for item in value)}]")
    return code(f"{value:g}" if value < 1e5 else f"{value:.3g}".replace("e+0", "e"))


PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": cli_page,
    "reference/scenario.md": scenario_page,
}


def on_config(config: Any) -> Any:
    """Leave out what nobody has made yet: `make mutate` writes its page."""

    def there(entry: Any) -> bool:
        return entry != {"Mutation testing": "mutation.md"} or made

    made = Path(config.docs_dir, "mutation.md").is_file()
    for part in config.nav:
        for name, entries in part.items():
            if isinstance(entries, list):
                part[name] = [entry for entry in entries if there(entry)]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Put the pages among the site's files."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files
