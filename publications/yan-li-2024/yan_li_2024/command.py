"""What `joulemesh reproduce` does: figures redone or redrawn, with progress and verdicts."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.views.printing import Printing
from joulemesh.views.progress import Display, Pace, facts
from joulemesh.views.terminal import open_console
from yan_li_2024 import FIGURES, folder
from yan_li_2024.verdicts import show_claims

if TYPE_CHECKING:
    from yan_li_2024.folder import OnStep
    from yan_li_2024.runner import Step

__all__ = ["command"]


def command(
    figure: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: Path | None = None,
    data_dir: Path | None = None,
    cache: Path | None = None,
    redraw: bool = False,
    printing: Printing | None = None,
    json: bool = False,
) -> None:
    """Carry out the command, whose options these are.

    Raises:
        ScenarioError: a figure that is not redone here.
        typer.Exit: with 130 after an interrupt, with 2 where figures are missing.
    """
    if figure != "all" and figure not in FIGURES:
        raise ScenarioError(f"{figure!r} is not redone here: use {', '.join(FIGURES)} or all")
    if redraw:
        _redraw(out, printing, quick=quick, json=json)
        return
    if not quick and not json:
        say("the full size is meant for a GPU; --quick takes minutes on a CPU", err=True)
    try:
        with _progress(quiet=json) as show:
            made = folder.reproduce(
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
        folder.redraw_folder(made.folder, printing)
    if json:
        typer.echo(json_format.dumps(made.summary()))
    else:
        mine = [row for row in made.claims if row["figure"] in made.outcomes]
        show_claims(mine, open_console())
        say(f"results are in {made.folder}; begin with {made.folder / 'README.md'}")
    for name, why in made.failures.items():
        say(f"error: {name} was not redone: {why}", err=True)
    if made.failures:
        raise typer.Exit(2)


def _redraw(out: Path | None, printing: Printing | None, *, quick: bool, json: bool) -> None:
    place = out or Path("reproduction-quick" if quick else "reproduction")
    made = folder.redraw_folder(place, printing)
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
