"""`joulemesh compare`: which method reaches what accuracy for how many joules and seconds."""

from __future__ import annotations

import json as json_format
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError
from joulemesh.base.printable import say
from joulemesh.cli import completion
from joulemesh.cli.common import (
    FileArgument,
    FormatOption,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    WidthOption,
    WorldsOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.study.compare import Progress as Step
    from joulemesh.study.comparison import Comparison
    from joulemesh.views.progress import Pace

__all__ = ["compare"]

_METHODS = "spread,adaptive,fixed:3,inverse,gossip-learning,balanced,pens,d-psgd"


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
        str | None,
        typer.Option(
            "--equal",
            help="What is equal for all: batteries, time, budget (both) or iterations. "
            "Unless given: budget where the scenario has budget.total_s, otherwise batteries.",
            autocompletion=completion.equalities,
        ),
    ] = None,
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
    tune_lr: Annotated[
        bool,
        typer.Option(
            "--tune-lr",
            help="Give each method its own learning rate: the best of a quarter to eight times the "
            "scenario's, tried on seeds that the result does not use.",
        ),
    ] = False,
    lr_grid: Annotated[
        str | None,
        typer.Option(
            "--lr-grid", help="The learning rates to try, with commas; implies --tune-lr."
        ),
    ] = None,
    tune_seeds: Annotated[
        int, typer.Option("--tune-seeds", min=1, help="Seeds on which learning rates are tried.")
    ] = 2,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where runs are kept; the user's cache folder.")
    ] = None,
    formats: FormatOption = None,
    width: WidthOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="METHOD",
            help="What table.tex tests the others against; the best of each column unless given.",
        ),
    ] = None,
    load: LoadOption = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Compare methods on the same devices, data and seeds, on equal terms.

    `--worlds K` compares in K worlds that differ in all that is drawn from the scenario's seed;
    intervals are then over worlds, and differences are paired by world.

    `--tune-lr` gives each method its own learning rate. All are tried at the same rates on the same
    seeds, which the result does not use; the highest final accuracy of the mean model decides.

    Runs are kept: another method or seed computes only what is new, and a comparison that was
    stopped goes on when it is asked for again. A method that cannot run is a row that says why.

    The folder of `--out` has what a paper needs: figures (`--format`, `--width`), `table.tex` with
    intervals and significance, `methods.txt` with the setting in words, and `references.bib`.
    """
    scenario = read_scenario(file, preset, changes, load)
    paper = {"formats": formats, "width": width, "baseline": baseline}
    _check_paper(methods, out, **paper)
    try:
        found = _with_progress(
            scenario,
            methods,
            equal,
            seeds,
            out,
            code=load or [],
            worlds=worlds or 1,
            target=target,
            tune_lr=lr_grid if lr_grid is not None else tune_lr,
            tune_seeds=tune_seeds,
            cache=cache,
            quiet=json,
            paper=paper,
        )
    except KeyboardInterrupt:
        say("stopped; the same command goes on from the runs that are kept", err=True)
        raise typer.Exit(130) from None
    if json:
        typer.echo(json_format.dumps(found.summary()))
    else:
        from joulemesh.views.tables import show_comparison
        from joulemesh.views.terminal import open_console

        show_comparison(found, open_console())
        if out is not None:
            say(f"kept in {out}; the report is {out / 'report.html'}")
    if not any(entry.ran for entry in found.entries):
        for entry in found.entries:
            say(f"{entry.name}: {entry.remarks[0]}", err=True)
        say("error: none of the methods could run; the reasons are above", err=True)
        raise typer.Exit(2)


def _check_paper(
    methods: str, out: Path | None, formats: str | None, width: str | None, baseline: str | None
) -> None:
    """Refuse what the folder cannot be written with before anything is trained."""
    from joulemesh.methods import split
    from joulemesh.views.printing import Printing

    Printing.asked(formats, width)
    given = {"--format": formats, "--width": width, "--baseline": baseline}
    named = next((option for option, value in given.items() if value is not None), None)
    if named is not None and out is None:
        raise ScenarioError(f"{named} needs --out, the folder that figures and tables go to")
    listed = split(methods.replace(";", ","))
    if baseline is not None and baseline not in listed:
        raise ScenarioError(
            f"--baseline {baseline} is not compared: name one of {', '.join(listed)}"
        )


def _with_progress(
    scenario: Scenario,
    methods: str,
    equal: str | None,
    seeds: int,
    out: Path | None,
    *,
    code: list[Path],
    quiet: bool,
    paper: dict[str, str | None],
    **options: Any,
) -> Comparison:
    """Compare and keep, and say on standard error what is being done: a line for each method."""
    from joulemesh.metrics import reported, score_metric
    from joulemesh.study.compare import compare as study
    from joulemesh.views.progress import Display, Pace

    score = score_metric(reported(scenario.training).score).label
    pace, accuracy = Pace(), math.nan
    with Display(quiet=quiet) as display:

        def show(step: Step) -> None:
            nonlocal accuracy
            if math.isfinite(step.accuracy) or step.completed == 0:
                accuracy = step.accuracy
            world = f" (world {step.world + 1} of {step.worlds})" if step.worlds > 1 else ""
            tried = "" if step.rate is None else f" at learning rate {step.rate:g}"
            times = seeds if step.rate is None else options["tune_seeds"]
            display.step(
                f"{step.position + 1}/{step.methods} {step.method}{tried}{world}",
                step.completed / step.iterations if step.iterations else 1.0,
                _facts(replace(step, accuracy=accuracy), times, pace, score),
                name=f"{step.method}{tried}",
            )

        found = study(
            scenario,
            methods,
            equal,
            seeds,
            on_progress=show,
            on_stage=display.stage,
            **options,
        )
        if out is not None:
            display.stage(f"writing {out}")
            found.save(out, code=code, **paper)
    return found


def _facts(step: Step, seeds: int, pace: Pace, score: str) -> list[str]:
    """What to say of a method; the score is in words."""
    from joulemesh.views.progress import facts

    if not step.iterations:
        return ["cannot run"]
    if step.cached == seeds:
        return ["kept from before"]
    if step.completed == 0:
        return ["compiling"]
    return facts(
        step.completed,
        step.iterations,
        accuracy=step.accuracy,
        score=score,
        energy_j=step.energy_j,
        seconds_left=pace.left_s(
            f"{step.method} {step.rate} {step.world}", step.completed, step.iterations
        ),
    )
