"""`joulemesh init`: a commented scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import PresetOption, SetOption, read_scenario, write_text

__all__ = ["init"]


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    preset: PresetOption = None,
    changes: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a scenario file in which every field is explained."""
    from joulemesh.planning.notes import figures
    from joulemesh.scenario.varied import value_of

    scenario = read_scenario(None, preset, changes)
    # Figures that decide the plan are given in the file, as far as no profile or table gives them.
    names = [one.name for one in figures(scenario) if one.origin.kind in ("assumed", "preset")]
    figure = {name: value_of(scenario, name) for name in names}
    scenario = scenario.override({k: value for k, value in figure.items() if value is not None})
    write_text(file, scenario.to_toml(comments=True), force=force)
    say(f"wrote {file}; now: joulemesh plan {file}")
