"""`joulemesh verify`: is every file of a folder what it was when it was written?"""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import JsonOption

__all__ = ["verify"]

_MOST_LINES = 100


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run or study folder.")],
    json: JsonOption = False,
) -> None:
    """Check every file of a run or comparison against the digests in its manifest.

    Exit code 0 if all are intact, 2 if one is damaged or missing; nothing is changed.
    """
    from joulemesh.base.checksums import verified

    found = verified(folder)
    if json:
        typer.echo(json_format.dumps(found.record()))
    else:
        for name in found.strangers:
            say(f"not part of it: {name}")
        if found.intact:
            say(f"{folder} is intact: {found.files} files in {found.commits} commits")
        lines = found.lines()
        if len(lines) > _MOST_LINES:
            more = len(lines) - _MOST_LINES
            lines = [*lines[:_MOST_LINES], f"{more:,} more files are damaged; --json names all"]
        for line in lines:
            say(f"error: {line}", err=True)
    if not found.intact:
        raise typer.Exit(2)
