"""`joulemesh reproduce`: the paper, figure by figure, with verdicts."""

from __future__ import annotations

import json as json_format
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.cli import completion
from joulemesh.cli.common import FormatOption, JsonOption, WidthOption
from joulemesh.errors import ScenarioError
from joulemesh.printable import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from joulemesh.reproduce.folder import OnStep
    from joulemesh.reproduce.runner import Step
    from joulemesh.views.progress import Display
    from joulemesh.views.publication.printing import Printing

__all__ = ["reproduce"]


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
    from joulemesh.reproduce import FIGURES
    from joulemesh.reproduce.folder import redraw_folder
    from joulemesh.reproduce.folder import reproduce as redo
    from joulemesh.views.publication.printing import Printing

    printing = Printing.asked(formats, width)
    if figure != "all" and figure not in FIGURES:
        raise ScenarioError(f"{figure!r} is not redone here: use {', '.join(FIGURES)} or all")
    if redraw:
        _redraw(out, printing, quick=quick, json=json)
        return
    if not quick and not json:
        say("the full size is meant for a GPU; --quick takes minutes on a CPU", err=True)
    try:
        with _progress(quiet=json) as show:
            made = redo(
                FIGURES if figure == "all" else (figure,),
                quick=quick,
                seeds=seeds,
                out=out,
                data_dir=data_dir,
                cache=cache,
                command=_command(figure, quick, seeds),
                on_step=show,
            )
    except KeyboardInterrupt:
        say("stopped; the same command goes on with what is missing", err=True)
        raise typer.Exit(130) from None
    if printing is not None:
        redraw_folder(made.folder, printing)
    if json:
        typer.echo(json_format.dumps(made.summary()))
    else:
        from joulemesh.reproduce.verdicts import show_claims
        from joulemesh.views.terminal import open_console

        mine = [row for row in made.claims if row["figure"] in made.outcomes]
        show_claims(mine, open_console())
        say(f"results are in {made.folder}; begin with {made.folder / 'README.md'}")
    for name, why in made.failures.items():
        say(f"error: {name} was not redone: {why}", err=True)
    if made.failures:
        raise typer.Exit(2)


def _redraw(out: Path | None, printing: Printing | None, *, quick: bool, json: bool) -> None:
    from joulemesh.reproduce.folder import redraw_folder

    place = out or Path("reproduction-quick" if quick else "reproduction")
    made = redraw_folder(place, printing)
    if json:
        typer.echo(json_format.dumps(made.summary()))
    else:
        say(f"figures and {made.folder / 'README.md'} are drawn and written again")


def _command(figure: str, quick: bool, seeds: int | None) -> str:
    """The command, without what belongs to the machine."""
    words = ["joulemesh reproduce", figure]
    words += ["--quick"] if quick else []
    words += [f"--seeds {seeds}"] if seeds is not None else []
    return " ".join(words)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[OnStep]:
    """Say on standard error what is being done: figure, curve, iteration, accuracy, joules."""
    from joulemesh.views.progress import Display, Pace, facts

    pace = Pace()
    begun: list[str] = []
    with Display(quiet=quiet) as display:

        def show(name: str, step: Step | None) -> None:
            if name not in begun:
                _tick(begun, display)
                begun.append(name)
            if step is None:
                display.step(name, 0.0, ["loading data and planning"], name=name)
                return
            known = ["compiling"]
            if step.completed:
                known = facts(
                    step.completed,
                    step.iterations,
                    accuracy=step.accuracy,
                    energy_j=step.energy_j,
                    seconds_left=pace.left_s(
                        f"{name} {step.label}", step.completed, step.iterations
                    ),
                )
            display.step(
                f"{name} {step.position + 1}/{step.curves} {step.label}",
                (step.position + step.completed / max(step.iterations, 1)) / step.curves,
                known,
                name=name,
            )

        yield show
        _tick(begun, display)


def _tick(begun: list[str], display: Display) -> None:
    """Show the figure before as done, with its claims and pictures."""
    if begun:
        display.step(begun[-1], 1.0, ["done"], name=begun[-1])
