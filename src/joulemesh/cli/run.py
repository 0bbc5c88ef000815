"""`joulemesh run`: train on all devices as the plan says."""

from __future__ import annotations

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    PresetOption,
    SetOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.runs.result import Result
    from joulemesh.scenario import Scenario

__all__ = ["run"]


def run(
    file: FileArgument = None,
    preset: PresetOption = "default",
    changes: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the run; runs/NAME-001 and so on by default."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Repetitions, all in one program.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Ask XLA for deterministic kernels.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train on all devices as the plan says; accuracy against iterations, joules and seconds.

    Ctrl-C stops at the next safe moment with everything saved; `--resume` goes on from there and
    ends with the same bits.

    Examples: `joulemesh run`, `joulemesh run fleet.toml --out runs/fleet --seeds 5`
    """
    from joulemesh.runs.folder import RunFolder, free_folder
    from joulemesh.runs.show import show_result

    if out is None:
        if resume:
            raise typer.BadParameter("--resume needs --out DIR")
        out = free_folder(Path("runs"), file.stem if file is not None else preset)
    folder = RunFolder(out)
    if resume and folder.finished:
        typer.echo(f"the run in {out} is finished; nothing to do", err=json)
        if json:
            typer.echo((out / "result.json").read_text("utf-8").replace("\n", ""))
        return
    if resume and folder.started and file is None and not changes:
        scenario = folder.scenario()
    else:
        scenario = read_scenario(file, preset, changes)
    try:
        result = _with_progress(scenario, out, seeds, resume, deterministic, quiet=json)
    except KeyboardInterrupt:
        if not folder.started:
            raise
        print(f"stopped; `joulemesh run --out {out} --resume` goes on from here", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        typer.echo(json_format.dumps(result.summary()))
        return
    from rich.console import Console

    show_result(result, Console())
    typer.echo(f"kept in {out}; the report is {out / 'report.html'}")


def _with_progress(
    scenario: Scenario, out: Path, seeds: int, resume: bool, deterministic: bool, *, quiet: bool
) -> Result:
    """Run with a live line on standard error: iteration, accuracy, joules, time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from joulemesh.runs.run import Progress as Step
    from joulemesh.runs.run import run as simulate
    from joulemesh.views.console import si

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} iterations{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bars:
        task = bars.add_task("compiling", total=1, news="")

        def show(step: Step) -> None:
            news = (
                f", accuracy {step.accuracy:.3f}, {si(step.energy_j, 'J')} spent, "
                f"{step.seconds_left:.0f} s left"
            )
            bars.update(
                task,
                description="training",
                total=step.iterations,
                completed=step.completed,
                news=news,
            )

        return simulate(
            scenario,
            out=out,
            seeds=seeds,
            resume=resume,
            deterministic=deterministic,
            on_progress=show,
        )
