"""What is done with results: `joulemesh report`, `cite`, `verify`."""

from __future__ import annotations

__all__ = ["cite", "report", "verify"]

import dataclasses
import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write it; report.html in the folder.")
    ] = None,
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    load: common.LoadOption = None,
) -> None:
    """Write the HTML report of a run, finished or not.

    `--format` or `--width` draw its curves and its plan for a paper in place of that, in the folder
    `paper` of the run, beside `methods.txt` (the setting in words) and `references.bib`.
    """
    from joulemesh.study.paper import report_of_folder
    from joulemesh.views.printing import Printing

    common.load_files(load)
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


def cite(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A folder of run, compare, tune or sweep; or a scenario's file."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a .bib file in place of printing.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """Print BibTeX entries of every method, data set, scheme and profile that was used.

    Joulemesh and the paper that it implements are among them. What has no publication, or one that
    is not recorded, is named in a comment.
    """
    from joulemesh.study.paper import references, used_in

    common.load_files(load)
    used = used_in(path)
    if json:
        rows = [
            {"what": one.what, "citations": [dataclasses.asdict(each) for each in one.citations]}
            for one in used
        ]
        typer.echo(json_format.dumps(rows))
        return
    text = references(used)
    if out is None:
        say(text.rstrip("\n"), lines=True)
    else:
        common.write_text(out, text, force=force)
        say(f"wrote {out}")


_MOST_LINES = 100


def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A run or study folder.")],
    json: common.JsonOption = False,
) -> None:
    """Check every file of a run or comparison against the digests in its manifest.

    Exit code 0 if all are intact, 2 if one is damaged or missing; nothing is changed.
    """
    from joulemesh.base.files import verified

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
