"""`joulemesh report`: the HTML page of a run, made again from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.errors import ScenarioError
from joulemesh.base.printable import say
from joulemesh.cli.common import FormatOption, LoadOption, WidthOption, load_files

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write it; report.html in the folder.")
    ] = None,
    formats: FormatOption = None,
    width: WidthOption = None,
    load: LoadOption = None,
) -> None:
    """Write the HTML report of a run, finished or not.

    `--format` or `--width` draw its curves and its plan for a paper in place of that, in the folder
    `paper` of the run, beside `methods.txt` (the setting in words) and `references.bib`.
    """
    from joulemesh.study.report import report_of_folder
    from joulemesh.views.printing import Printing

    load_files(load)
    printing = Printing.asked(formats, width)
    if printing is not None:
        from joulemesh.study.paper import write_run_paper

        if out is not None:
            raise ScenarioError("--out is for report.html; figures go to the folder paper of a run")
        for path in write_run_paper(folder, printing):
            say(f"wrote {path}")
        return
    target = out or folder / "report.html"
    report_of_folder(folder, target)
    say(f"wrote {target}")
