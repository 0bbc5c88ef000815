"""`joulemesh sweep`: methods compared at every combination of some fields' values."""

from __future__ import annotations

import json as json_format
import math
import time
from collections.abc import Iterator, Sequence
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
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.scenario.varied import Combination
    from joulemesh.study.sweep import Outlook, Progress
    from joulemesh.study.sweep_result import Sweep

__all__ = ["sweep"]

_METHODS = "spread,adaptive,fixed:3"
_MOST_REASONS = 12  # of a method, in as many combinations


def sweep(
    file: FileArgument = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="SECTION.FIELD=VALUES",
            help="Values of one field, with commas; 10:50:10 is a range by steps, 0.01:1:x10 one "
            "by factors; repeatable.",
            autocompletion=completion.varied,
        ),
    ] = None,
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
            help="What is equal for all methods of a combination: batteries, time, budget (both) "
            "or iterations. Unless given: budget where there is a budget.total_s, otherwise "
            "batteries.",
            autocompletion=completion.equalities,
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Repetitions, the same in every combination.")
    ] = 5,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A folder for tables, figure and report; sweeps/NAME."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", help="Accuracy to reach; 95 % of each combination's best."),
    ] = None,
    tune_lr: Annotated[
        bool,
        typer.Option("--tune-lr", help="Give each method its own learning rate, as in compare."),
    ] = False,
    lr_grid: Annotated[
        str | None,
        typer.Option(
            "--lr-grid", help="The learning rates to try, with commas; implies --tune-lr."
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Where runs are kept; the user's cache folder.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the combinations and what they take; train nothing."),
    ] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="SECTION.FIELD=TEXT",
            help="What the figure and table.tex call a varied field; repeatable.",
        ),
    ] = None,
    formats: FormatOption = None,
    width: WidthOption = None,
    load: LoadOption = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Compare methods at every combination of some fields' values.

    Every combination is a comparison on equal terms, with the same seeds in all of them. Runs are
    kept: the same command after a stop computes only what is missing, and so does one with another
    value, method or seed. A combination that has no plan is a row that says why.
    """
    scenario = read_scenario(file, preset, changes, load)
    options: dict[str, Any] = {"target": target, "cache": cache}
    options["tune_lr"] = lr_grid if lr_grid is not None else tune_lr
    asked = (_fields(vary), methods, equal, seeds, _labels(label))
    if dry_run:
        _look_ahead(scenario, *asked, json=json, **options)
        return
    place = out or Path("sweeps", file.stem if file is not None else preset or "default")
    try:
        options |= {"formats": formats, "width": width}
        found = _with_progress(scenario, *asked, quiet=json, out=place, code=load or [], **options)
    except KeyboardInterrupt:
        say("stopped; the same command goes on from the runs that are kept", err=True)
        raise typer.Exit(130) from None
    if json:
        typer.echo(json_format.dumps(found.summary()))
    else:
        from joulemesh.views.tables import show_sweep
        from joulemesh.views.terminal import open_console

        show_sweep(found, open_console())
        say(f"kept in {place}; the report is {place / 'report.html'}")
    if not found.ran:
        say("error: none of the methods could run in any combination", err=True)
        raise typer.Exit(2)


def _fields(vary: Sequence[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in vary or []:
        name, equals, values = text.partition("=")
        if not equals:
            raise ScenarioError(f"--vary {text}: write --vary section.field=value,value")
        if name.strip() in found:
            raise ScenarioError(f"--vary {name.strip()} is given twice: put all values into one")
        found[name.strip()] = values
    if not found:
        raise ScenarioError("nothing is varied: give --vary section.field=value,value")
    return found


def _labels(given: Sequence[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, label = text.partition("=")
        if not equals:
            raise ScenarioError(f'--label {text}: write --label section.field="what it is"')
        found[name.strip()] = label.strip()
    return found


def _with_progress(
    scenario: Scenario,
    vary: dict[str, str],
    methods: str,
    equal: str | None,
    seeds: int,
    labels: dict[str, str],
    *,
    quiet: bool,
    **options: Any,
) -> Sweep:
    """Sweep and keep, and say on standard error what is being done, and how much is left."""
    from joulemesh.study.sweep import sweep as study
    from joulemesh.views.progress import Display, Pace

    pace, parts = Pace(), 1_000_000
    with Display(quiet=quiet) as display:
        total = 0

        def plan(one: Combination) -> None:
            display.stage(f"planning combination {one.number + 1}")

        def know(asked: Sweep, ahead: Sequence[Outlook]) -> None:
            nonlocal total
            total = sum(one.missing for one in ahead)
            kept = sum(one.runs for one in ahead) - total
            if not quiet:
                for line in _infeasible(asked, ahead, most=1):
                    say(line, err=True)
            display.stage(f"{total:,} runs to train, {kept:,} kept from before")

        def show(step: Progress) -> None:
            from joulemesh.base.units import duration

            said = [f"combination {step.position + 1} of {step.combinations}", step.step.method]
            left_s = pace.left_s("sweep", round(parts * step.share), parts)
            if math.isfinite(left_s) and step.share < 1:
                said.append(f"{duration(float(math.ceil(left_s)))} left")
            if math.isfinite(step.step.accuracy):
                said.append(f"accuracy {step.step.accuracy:.3f}")
            display.step("training", step.share if total else 1.0, said, name="sweep")

        return study(
            scenario,
            vary,
            methods,
            equal,
            seeds,
            labels=labels,
            on_plan=plan,
            on_outlook=know,
            on_progress=show,
            **options,
        )


def _look_ahead(
    scenario: Scenario,
    vary: dict[str, str],
    methods: str,
    equal: str | None,
    seeds: int,
    labels: dict[str, str],
    *,
    json: bool,
    **options: Any,
) -> None:
    """Say what a sweep will take."""
    begun = time.perf_counter()  # before JAX is loaded, as the sweep will
    from joulemesh.study.sweep import ask, outlooks, seconds_left, timed
    from joulemesh.views.progress import Display

    with Display(quiet=json) as display:
        asked = ask(scenario, vary, methods, equal, seeds, labels)
        ahead = outlooks(
            asked,
            lambda one: display.stage(f"planning combination {one.number + 1}"),
            **options,
        )
        planned_s = time.perf_counter() - begun  # the sweep plans again
        display.stage("timing a little of it")
        left_s = seconds_left(ahead, timed(asked, ahead, **options))
    missing = sum(one.missing for one in ahead)
    left_s += planned_s if missing else 0.0
    if json:
        typer.echo(json_format.dumps(_outlook_record(asked, ahead, left_s)))
        return
    from joulemesh.base.units import duration
    from joulemesh.views.tables import show_outlook
    from joulemesh.views.terminal import open_console

    show_outlook(asked.varied, [(one.combination.at, _takes(one)) for one in ahead], open_console())
    for line in _infeasible(asked, ahead):
        say(line)
    parts = {"combination": asked.combinations, "method": asked.methods, "seed": asked.seeds}
    counts = [
        f"{len(them):,} {name}{'' if len(them) == 1 else 's'}" for name, them in parts.items()
    ]
    times = f"{' × '.join(counts)}: {asked.count:,} runs, {missing:,} to train"
    say(f"{times}; about {duration(float(math.ceil(left_s)))}" if missing else times)


def _infeasible(asked: Sweep, ahead: Sequence[Outlook], most: int = _MOST_REASONS) -> Iterator[str]:
    """Which methods cannot run in which combinations, and why."""
    from joulemesh.views.tables import words_of

    for method in asked.methods:
        found = [one for one in ahead if method in one.infeasible and not one.refused]
        if found:
            where = f"{len(found):,} of {len(ahead):,} combinations"
            yield f"{method} cannot run in {where}:"
        for one in found[:most]:
            at = zip(asked.varied, one.combination.at, strict=True)
            fields = ", ".join(f"{field.name} {words_of(field, k)}" for field, k in at)
            yield f"  {fields}: {one.infeasible[method]}"
        if len(found) > most:
            yield f"  and in {len(found) - most:,} more"


def _takes(one: Outlook) -> list[str]:
    if one.refused:
        return ["–", "–", "–", one.reason]
    without = f"without {', '.join(one.infeasible)}" if one.infeasible else ""
    return [f"{one.runs:,}", f"{one.missing:,}", f"{one.steps:,}", without]


def _outlook_record(asked: Sweep, ahead: Sequence[Outlook], left_s: float) -> dict[str, Any]:
    each = [
        {
            "fields": {f.name: f.plain[k] for f, k in zip(asked.varied, at, strict=True)},
            "runs": one.runs,
            "to_train": one.missing,
            "device_steps": one.steps,
            "reason": one.reason,
            "infeasible": dict(one.infeasible),
        }
        for one in ahead
        for at in [one.combination.at]
    ]
    missing = sum(one.missing for one in ahead)
    return {"runs": asked.count, "to_train": missing, "seconds": left_s, "combinations": each}
