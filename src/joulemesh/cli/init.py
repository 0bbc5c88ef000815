"""`joulemesh init`: a commented scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.cli.common import PresetOption, SetOption, read_scenario, write_text
from joulemesh.printable import say

__all__ = ["init"]


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    preset: PresetOption = None,
    changes: SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a scenario file in which every field is explained."""
    scenario = read_scenario(None, preset, changes)
    write_text(file, scenario.to_toml(comments=True), force=force)
    say(f"wrote {file}; now: joulemesh plan {file}")
