"""What commands share: which scenario is meant, and writing files whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base import files
from joulemesh.base.errors import ScenarioError, say
from joulemesh.base.optional import run_file
from joulemesh.base.units import is_quantity
from joulemesh.cli import completion
from joulemesh.scenario import PRESETS, Scenario, profile_notes
from joulemesh.scenario.given import input_notes
from joulemesh.scenario.varied import typed_value
from joulemesh.tables import is_number, read_table

if TYPE_CHECKING:
    from rich.console import Console

    from joulemesh.views.printing import Printing

INTERRUPTED = 130  # exit code of a command that Ctrl-C stopped

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A scenario (TOML or JSON); without one, the default."),
]
FleetArgument = Annotated[
    Path, typer.Argument(metavar="FLEET", help="The folder that `joulemesh deploy init` made.")
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help=f"A scenario by name, without a FILE: {', '.join(PRESETS[:-1])} or {PRESETS[-1]}.",
        autocompletion=completion.presets,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.FIELD=VALUE",
        help="Change one field; repeatable.",
        autocompletion=completion.settings,
    ),
]
LoadOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--load", help="A Python file that registers methods, schemes, models, …; repeatable."
    ),
]
WorldsOption = Annotated[
    int | None,
    typer.Option(
        "--worlds",
        min=1,
        help="Redraw placement, batteries and channel so many times; intervals are over worlds.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMATS",
        help="Figures as pdf, svg, pgf or png; several with commas.",
        autocompletion=completion.figure_formats,
    ),
]
WidthOption = Annotated[
    str | None,
    typer.Option(
        "--width",
        metavar="WIDTH",
        help="Figures for a paper's column: ieee, ieee-wide, acm, acm-wide, or inches.",
        autocompletion=completion.figure_widths,
    ),
]
MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods",
        help="Methods, with commas; parameters follow a colon (joulemesh methods).",
        autocompletion=completion.compared_methods,
    ),
]
EqualOption = Annotated[
    str | None,
    typer.Option(
        "--equal",
        help="What is equal for all methods: batteries, time, budget (both) or iterations. "
        "Unless given: budget where the scenario has budget.total_s, otherwise batteries.",
        autocompletion=completion.equalities,
    ),
]
TargetOption = Annotated[
    float | None,
    typer.Option("--target", help="Accuracy to reach; 95 % of the best unless given."),
]
TuneRateOption = Annotated[
    bool,
    typer.Option(
        "--tune-lr",
        help="Give each method its own learning rate: the best of a quarter to eight times the "
        "scenario's, tried on seeds that the result does not use.",
    ),
]
RatesOption = Annotated[
    str | None,
    typer.Option("--lr-grid", help="The learning rates to try, with commas; implies --tune-lr."),
]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Where runs are kept; the user's cache folder.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@contextmanager
def stoppable(more: str = "") -> Iterator[None]:
    """Say how to go on after Ctrl-C, and end with its exit code."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped; the same command {more}goes on from the runs that are kept", err=True)
        raise typer.Exit(INTERRUPTED) from None


def show(found: Any, printed: Callable[[Any, Console], None], *, json: bool) -> None:
    """Print what was found, as JSON or for a reader."""
    if json:
        typer.echo(dumps(found.summary()))
        return
    from joulemesh.views.terminal import open_console

    printed(found, open_console())


def printing(
    formats: str | None, width: str | None, place: Path | None, needs: str = "the figure goes to"
) -> Printing | None:
    """The figures that are asked for; what cannot be drawn is refused before anything is done."""
    from joulemesh.views.printing import Printing

    asked = Printing.asked(formats, width)
    if asked is not None and place is None:
        raise ScenarioError(f"--format and --width need --out, the folder that {needs}")
    return asked


def load_files(paths: list[Path] | None) -> None:
    """Run the user's own files, which register what a scenario or a comparison may name."""
    for path in paths or []:
        run_file(path, f"--load {path}")


def read_scenario(
    file: Path | None,
    preset: str | None,
    changes: list[str] | None = None,
    load: list[Path] | None = None,
) -> Scenario:
    """The scenario that a command's arguments name, after running the user's own files."""
    load_files(load)
    if file is not None and preset is not None:
        raise ScenarioError(
            f"{file} and --preset {preset} are two scenarios; leave one out, or change fields of "
            "one with --set"
        )
    scenario = Scenario.preset(preset or "default") if file is None else Scenario.load(file)
    if changes:
        scenario = scenario.override(
            dict(field_and_value(text) for text in changes), source="--set"
        )
    kept = [] if file is None else input_notes(file.parent, scenario)
    other = profile_notes(scenario)
    for note in [*kept, *other, *_table_notes(scenario)]:
        say(f"note: {note}", err=True)
    return scenario


def _table_notes(scenario: Scenario) -> Iterator[str]:
    """Columns of figures that no field takes: a misspelt name would else go unnoticed."""
    table = scenario.devices.table
    if table is None:
        return
    fields = [*scenario.devices.model_dump().values(), scenario.budget.energy_j]
    taken = {value for value in fields if isinstance(value, str)}
    for name, cells in read_table(table).items():
        beside = name.removesuffix("_low").removesuffix("_high")  # the ends of an interval
        if not {name, beside} & taken and all(
            is_number(cell) or is_quantity(cell) for cell in cells
        ):
            yield f"column {name!r} of {table} is not used; no field has or takes this name"


def field_and_value(text: str, option: str = "--set") -> tuple[str, Any]:
    """The field and the value that an option names."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ScenarioError(f"{option} {text}: write {option} section.field=value")
    return name.strip(), typed_value(value)


def write_text(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file whole or not at all; an existing one only if told so."""
    if path.exists() and not force:
        raise ScenarioError(f"{path} exists; choose another name or add --force")
    files.write_text(path, text)


def pasted_text(path: Path) -> str:
    """The text of a file; for ``-``, the standard input up to the line that ends a block."""
    # Whoever pastes a block need not know how to end the input.
    from joulemesh.base.files import FLEET, read_bounded

    if path != Path("-"):
        try:
            return read_bounded(path, FLEET.now).decode("utf-8", "replace")
        except OSError as error:
            raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    lines, size = [], 0
    for line in sys.stdin:
        lines.append(line)
        size += len(line)
        if "-----END JOULEMESH" in line:
            break
        if size > FLEET.now:
            raise ScenarioError(f"more than {FLEET} came without the end of a block; paste it only")
    return "".join(lines)
