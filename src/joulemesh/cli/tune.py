"""`joulemesh tune`: the best plan for a scenario's budgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.study.search import Space
    from joulemesh.study.tune import MakeTuner, Progress
    from joulemesh.views.progress import Display

__all__ = ["tune"]


def tune(
    file: common.FileArgument = None,
    objective: Annotated[
        str,
        typer.Option(
            "--objective", help="What is to be best: score, energy-to:0.8 or time-to:0.8."
        ),
    ] = "score",
    space: Annotated[
        Path | None,
        typer.Option("--space", help="A TOML file: a scenario's fields with lists of values."),
    ] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="SECTION.FIELD=[…]",
            help="Values of one field, in place of the space's; repeatable.",
        ),
    ] = None,
    candidates: Annotated[
        int, typer.Option("--candidates", min=2, help="Plans to be trained, at most.")
    ] = 45,
    search: Annotated[
        str,
        typer.Option("--search", help="How to search: halving, or optuna (an optional package)."),
    ] = "halving",
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="With --search optuna: plans to be trained.")
    ] = 20,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Fresh seeds that report the winner.")
    ] = 5,
    search_seeds: Annotated[
        int, typer.Option("--search-seeds", min=1, help="Seeds that judge the candidates.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A folder for table, winning scenario and report."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the tuning that was begun in --out.")
    ] = False,
    cache: common.CacheOption = None,
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    load: common.LoadOption = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Find the best plan for the budgets: scheme, rounds, iterations, learning rate.

    Every candidate is priced exactly by planning it. Those that the budgets pay for are trained by
    successive halving: all with a tenth of the joules and seconds, the best third with a third, and
    the best of these with the whole. The winner is reported at fresh seeds and on test samples
    that no choice was made by, beside the scenario as it is.

    Runs are kept: a tuning that was stopped goes on when it is asked for again.

    `--format` or `--width` draw the candidates in the folder of `--out`, for a paper.
    """
    if resume and out is None:
        say("error: --resume needs --out, the folder of the tuning", err=True)
        raise typer.Exit(2)
    drawn = common.printing(formats, width, out)
    scenario = common.read_scenario(file, preset, changes, load)
    from joulemesh.study.tune import tune as study
    from joulemesh.views.progress import Display
    from joulemesh.views.tuning import show_tuning

    more = "with --resume " if out is not None else ""
    with common.stoppable(more), Display(quiet=json) as display:
        found = study(
            scenario,
            _space(scenario, space, tried),
            objective,
            candidates=candidates,
            seeds=seeds,
            search_seeds=search_seeds,
            out=out,
            resume=resume,
            cache=cache,
            code=load or [],
            tuner=_tuner(search, trials, scenario.seed),
            on_progress=_shown(display),
            on_stage=display.stage,
        )
    if drawn and out is not None:
        found.save_figure(out, formats=formats, width=width)
    common.show(found, show_tuning, json=json)
    if out is not None and not json:
        say(f"kept in {out}; the winning scenario is {out / 'best.toml'}")


def _space(scenario: Scenario, path: Path | None, tried: list[str] | None) -> Space:
    from joulemesh.study.search import Space

    made = Space.default(scenario) if path is None else Space.load(path)
    return made.with_axes(dict(common.field_and_value(text, "--try") for text in tried or []))


def _tuner(search: str, trials: int, seed: int) -> MakeTuner | None:
    """What decides which candidates are tried; None for successive halving."""
    if search == "halving":
        return None
    if search != "optuna":
        raise ScenarioError(f"--search {search[:60]!r} is unknown: use halving or optuna")
    from joulemesh.study.adapters import optuna_tuner

    return optuna_tuner(trials, seed)


def _shown(display: Display) -> Callable[[Progress], None]:
    """Say on standard error what is being done, what is left and the best so far."""
    from joulemesh.base.units import duration
    from joulemesh.views.progress import Pace

    pace, parts = Pace(), 10_000

    def show(step: Progress) -> None:
        said = [f"{step.position} of {step.count}"] if step.count > 1 else []
        left_s = pace.left_s("tune", round(parts * step.share), parts)
        if left_s == left_s and step.share < 1:
            said.append(f"{duration(float(round(left_s)))} left")
        if step.best:
            said.append(f"best {step.best}")
        display.step(step.stage, step.share, said, name="tune")

    return show
