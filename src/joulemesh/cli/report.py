"""`joulemesh report`: the HTML page of a run, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.cli.common import LoadOption, load_files
from joulemesh.printable import say

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write it; report.html in the folder.")
    ] = None,
    load: LoadOption = None,
) -> None:
    """Write the HTML report of a run, finished or not."""
    from joulemesh.runs.report import report_of_folder

    load_files(load)
    target = out or folder / "report.html"
    report_of_folder(folder, target)
    say(f"wrote {target}")
