"""`joulemesh reproduce`: the paper, figure by figure, with verdicts."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.cli import completion
from joulemesh.cli.common import FormatOption, JsonOption, WidthOption

__all__ = ["publication", "reproduce"]

_PAPER = Path("publications", "yan-li-2024")
_PACKAGE = "yan_li_2024"


def publication() -> Any:
    """The package that redoes the paper, of the checkout that this is or that one stands in.

    Raises:
        ScenarioError: neither holds it.
    """
    for root in (Path(joulemesh.__file__).parents[2], Path.cwd()):
        if (root / _PAPER / _PACKAGE).is_dir():
            if str(root / _PAPER) not in sys.path:
                sys.path.insert(0, str(root / _PAPER))
            return import_module(_PACKAGE)
    raise ScenarioError(
        f"{_PAPER.as_posix()} comes with the sources, not with the installed package: unpack the "
        f"source distribution (pip download --no-deps --no-binary joulemesh joulemesh) and call "
        f"joulemesh reproduce in its folder"
    )


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="PART",
            help="table1, fig4, fig5, fig6, fig7, fig8, fig9 or all.",
            autocompletion=completion.figures,
        ),
    ] = "all",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Digits and few devices: minutes on a CPU, a smoke test."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Repetitions: 5, or 2 with --quick, unless given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the results: reproduction, or reproduction-quick."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder with the published files of the data sets."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder for cached runs (default: the user cache)."),
    ] = None,
    redraw: Annotated[
        bool,
        typer.Option("--redraw", help="Only draw figures and page again, from --out's numbers."),
    ] = False,
    formats: FormatOption = None,
    width: WidthOption = None,
    json: JsonOption = False,
) -> None:
    """Redo the paper's tables and figures, and say of each of its sentences whether it holds.

    Every run is kept: interrupted and called again, it computes only what is missing. Figures whose
    data are not available are left out, and the exit code is then 2.

    `--format` and `--width` draw the figures for a paper too, in the folder `paper` of the results;
    with `--redraw` from the numbers of an earlier run.
    """
    from joulemesh.views.printing import Printing

    printing = Printing.asked(formats, width)
    publication()
    import_module(f"{_PACKAGE}.command").command(
        figure,
        quick=quick,
        seeds=seeds,
        out=out,
        data_dir=data_dir,
        cache=cache,
        redraw=redraw,
        printing=printing,
        json=json,
    )
