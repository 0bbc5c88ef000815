"""`joulemesh new`: a project that runs as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say

__all__ = ["new"]


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
) -> None:
    """Lay out a project: a scenario, a device table, data and a model of your own, and a README.

    It runs as it stands; put your own devices, data and model in the place of the invented ones.
    """
    from joulemesh.templates import lay_out

    made = lay_out(folder)
    say(f"wrote {', '.join(path.name for path in made)} in {folder}; now:")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"{there}python data.py && joulemesh plan scenario.toml")
