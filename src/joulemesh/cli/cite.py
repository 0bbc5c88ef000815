"""`joulemesh cite`: references of everything that a run or a comparison rests on."""

from __future__ import annotations

import dataclasses
import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import JsonOption, LoadOption, load_files, write_text

__all__ = ["cite"]


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
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Print BibTeX entries of every method, data set, scheme and profile that was used.

    Joulemesh and the paper that it implements are among them. What has no publication, or one that
    is not recorded, is named in a comment.
    """
    from joulemesh.study.cite import references, used_in

    load_files(load)
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
        write_text(out, text, force=force)
        say(f"wrote {out}")
