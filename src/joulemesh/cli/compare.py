"""`joulemesh compare`: which method reaches what accuracy for how many joules and seconds."""

from __future__ import annotations

import json as json_format
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.cli import completion
from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    WorldsOption,
    read_scenario,
)
from joulemesh.own_code import run_file

if TYPE_CHECKING:
    from joulemesh.runs.compare import Comparison
    from joulemesh.studies.compare import Progress as Step

__all__ = ["compare"]

_METHODS = "adaptive,fixed:3,inverse,gossip-learning,balanced,pens,d-psgd"


def compare(
    file: FileArgument = None,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            help="Methods, with commas; parameters follow a colon (joulemesh methods).",
            autocompletion=completion.compared_methods,
        ),
    ] = _METHODS,
    equal: Annotated[
        str,
        typer.Option(
            "--equal",
            help="What is equal for all: batteries, time or iterations.",
            autocompletion=completion.equalities,
        ),
    ] = "batteries",
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Repetitions, all in one program.")
    ] = 5,
    worlds: WorldsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for tables, figures and the report.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", help="Accuracy to reach; 95 % of the best unless given."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where runs are kept; the user's cache folder.")
    ] = None,
    load: LoadOption = None,
    preset: PresetOption = "default",
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Compare methods on the same devices, data and seeds, on equal terms.

    `--worlds K` compares in K worlds that differ in all that is drawn from the scenario's seed;
    intervals are then over worlds, and differences are paired by world.

    Runs are kept: another method or seed computes only what is new, and a comparison that was
    stopped goes on when it is asked for again. A method that cannot run is a row that says why.
    """
    scenario = read_scenario(file, preset, changes)
    for path in load or []:
        run_file(path, f"--load {path}")
    try:
        found = _with_progress(
            scenario,
            methods,
            equal,
            seeds,
            worlds=worlds or 1,
            target=target,
            cache=cache,
            quiet=json,
        )
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the runs that are kept", file=sys.stderr)
        raise typer.Exit(130) from None
    if out is not None:
        found.save(out, code=load or [])
    if json:
        typer.echo(json_format.dumps(found.summary()))
    else:
        from joulemesh.views.comparison_table import show_comparison
        from joulemesh.views.terminal import open_console

        show_comparison(found, open_console())
        if out is not None:
            typer.echo(f"kept in {out}; the report is {out / 'report.html'}")
    if not any(entry.ran for entry in found.entries):
        print("error: none of the methods could run; the reasons are above", file=sys.stderr)
        raise typer.Exit(2)


def _with_progress(
    scenario: Any, methods: str, equal: str, seeds: int, *, quiet: bool, **options: Any
) -> Comparison:
    """Compare with one live line per method on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    from joulemesh.runs.compare import compare as study

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} iterations{task.fields[news]}"),
        TimeElapsedColumn(),
    )
    bars = Progress(*columns, console=Console(stderr=True), disable=quiet)
    tasks: dict[str, TaskID] = {}

    def show(step: Step) -> None:
        if step.method not in tasks:
            bars.start()  # not before: a refusal is one line, without an empty one above it
            tasks[step.method] = bars.add_task(step.method, total=1, news="")
        world = f" (world {step.world + 1} of {step.worlds})" if step.worlds > 1 else ""
        bars.update(
            tasks[step.method],
            description=f"{step.method}{world}",
            total=max(step.iterations, 1),
            completed=step.completed if step.iterations else 1,
        )
        news = _news(step, seeds)
        if news is not None:
            bars.update(tasks[step.method], news=news)

    try:
        return study(scenario, methods, equal, seeds, on_progress=show, **options)
    finally:
        if tasks:
            bars.stop()


def _news(step: Step, seeds: int) -> str | None:
    """What to say behind the bar; None to leave what is there."""
    if not step.iterations:
        return ", cannot run"
    if step.cached == seeds:
        return ", kept from before"
    if step.completed == 0:
        return ", compiling"
    return None if math.isnan(step.accuracy) else f", accuracy {step.accuracy:.3f}"
