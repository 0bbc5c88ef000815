"""`joulemesh compare`: which method reaches what accuracy for how many joules and seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common

if TYPE_CHECKING:
    from joulemesh.study.compare import Progress as Step
    from joulemesh.views.progress import Display

__all__ = ["compare"]

_METHODS = "spread,adaptive,fixed:3,inverse,gossip-learning,balanced,pens,d-psgd"


def compare(
    file: common.FileArgument = None,
    methods: common.MethodsOption = _METHODS,
    equal: common.EqualOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Repetitions, all in one program.")
    ] = 5,
    worlds: common.WorldsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for tables, figures and the report.")
    ] = None,
    target: common.TargetOption = None,
    tune_lr: common.TuneRateOption = False,
    lr_grid: common.RatesOption = None,
    tune_seeds: Annotated[
        int, typer.Option("--tune-seeds", min=1, help="Seeds on which learning rates are tried.")
    ] = 2,
    cache: common.CacheOption = None,
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="METHOD",
            help="What table.tex tests the others against; the best of each column unless given.",
        ),
    ] = None,
    load: common.LoadOption = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    json: common.JsonOption = False,
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
    scenario = common.read_scenario(file, preset, changes, load)
    paper = {"formats": formats, "width": width, "baseline": baseline}
    _check_paper(methods, out, **paper)
    from joulemesh.metrics import reported, score_metric
    from joulemesh.study.compare import compare as study
    from joulemesh.views.comparison import show_comparison
    from joulemesh.views.progress import Display

    score = score_metric(reported(scenario.training).score).label
    with common.stoppable(), Display(quiet=json) as display:
        found = study(
            scenario,
            methods,
            equal,
            seeds,
            worlds=worlds or 1,
            target=target,
            tune_lr=lr_grid if lr_grid is not None else tune_lr,
            tune_seeds=tune_seeds,
            cache=cache,
            on_progress=_shown(display, score, seeds, tune_seeds),
            on_stage=display.stage,
        )
        if out is not None:
            display.stage(f"writing {out}")
            found.save(out, code=load or [], **paper)
    common.show(found, show_comparison, json=json)
    if out is not None and not json:
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


def _shown(display: Display, score: str, seeds: int, tune_seeds: int) -> Callable[[Step], None]:
    """Say on standard error what is being done: a line for each method."""
    from joulemesh.views.progress import Pace, facts

    pace, accuracy = Pace(), math.nan

    def known(step: Step) -> list[str]:
        if not step.iterations:
            return ["cannot run"]
        if step.cached == (seeds if step.rate is None else tune_seeds):
            return ["kept from before"]
        if step.completed == 0:
            return ["compiling"]
        name = f"{step.method} {step.rate} {step.world}"
        return facts(
            step.completed,
            step.iterations,
            accuracy=accuracy,
            score=score,
            energy_j=step.energy_j,
            seconds_left=pace.left_s(name, step.completed, step.iterations),
        )

    def show(step: Step) -> None:
        nonlocal accuracy
        if math.isfinite(step.accuracy) or step.completed == 0:
            accuracy = step.accuracy
        world = f" (world {step.world + 1} of {step.worlds})" if step.worlds > 1 else ""
        tried = "" if step.rate is None else f" at learning rate {step.rate:g}"
        share = step.completed / step.iterations if step.iterations else 1.0
        words = f"{step.position + 1}/{step.methods} {step.method}{tried}{world}"
        display.step(words, share, known(step), name=f"{step.method}{tried}")

    return show
