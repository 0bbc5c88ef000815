"""`joulemesh sweep`: methods compared at every combination of some fields' values."""

from __future__ import annotations

import json as json_format
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common, completion

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.scenario.varied import Combination
    from joulemesh.study.sweep import Outlook, Progress
    from joulemesh.study.sweep_result import Sweep
    from joulemesh.views.progress import Display

__all__ = ["sweep"]

_METHODS = "spread,adaptive,fixed:3"
_MOST_REASONS = 12  # of a method, in as many combinations


def sweep(
    file: common.FileArgument = None,
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
    methods: common.MethodsOption = _METHODS,
    equal: common.EqualOption = None,
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
    tune_lr: common.TuneRateOption = False,
    lr_grid: common.RatesOption = None,
    cache: common.CacheOption = None,
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
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    load: common.LoadOption = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    json: common.JsonOption = False,
) -> None:
    """Compare methods at every combination of some fields' values.

    Every combination is a comparison on equal terms, with the same seeds in all of them. Runs are
    kept: the same command after a stop computes only what is missing, and so does one with another
    value, method or seed. A combination that has no plan is a row that says why.
    """
    scenario = common.read_scenario(file, preset, changes, load)
    options: dict[str, Any] = {"target": target, "cache": cache}
    options["tune_lr"] = lr_grid if lr_grid is not None else tune_lr
    fields = _pairs(vary, "--vary", "value,value", once=True)
    if not fields:
        raise ScenarioError("nothing is varied: give --vary section.field=value,value")
    asked = (scenario, fields, methods, equal, seeds)
    labels = _pairs(label, "--label", '"what it is"')
    if dry_run:
        _look_ahead(asked, labels, json=json, **options)
        return
    from joulemesh.study.sweep import sweep as study
    from joulemesh.views.progress import Display
    from joulemesh.views.sweep import show_sweep

    place = out or Path("sweeps", file.stem if file is not None else preset or "default")
    options |= {"formats": formats, "width": width, "labels": labels, "code": load or []}
    with common.stoppable(), Display(quiet=json) as display:
        options |= _listeners(display, quiet=json)
        found = study(*asked, out=place, **options)
    common.show(found, show_sweep, json=json)
    if not json:
        say(f"kept in {place}; the report is {place / 'report.html'}")
    if not found.ran:
        say("error: none of the methods could run in any combination", err=True)
        raise typer.Exit(2)


def _pairs(
    given: Sequence[str] | None, option: str, example: str, *, once: bool = False
) -> dict[str, str]:
    """Texts by field."""
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ScenarioError(f"{option} {text}: write {option} section.field={example}")
        if once and name in found:
            raise ScenarioError(f"{option} {name} is given twice: put all values into one")
        found[name] = value if once else value.strip()
    return found


def _listeners(display: Display, *, quiet: bool) -> dict[str, Callable[..., None]]:
    """Say on standard error what is being done, and how much is left."""
    from joulemesh.base.units import duration
    from joulemesh.views.progress import Pace

    pace, parts, total = Pace(), 1_000_000, 0

    def know(asked: Sweep, ahead: Sequence[Outlook]) -> None:
        nonlocal total
        total = sum(one.missing for one in ahead)
        kept = sum(one.runs for one in ahead) - total
        if not quiet:
            for line in _infeasible(asked, ahead, most=1):
                say(line, err=True)
        display.stage(f"{total:,} runs to train, {kept:,} kept from before")

    def show(step: Progress) -> None:
        said = [f"combination {step.position + 1} of {step.combinations}", step.step.method]
        left_s = pace.left_s("sweep", round(parts * step.share), parts)
        if math.isfinite(left_s) and step.share < 1:
            said.append(f"{duration(float(math.ceil(left_s)))} left")
        if math.isfinite(step.step.accuracy):
            said.append(f"accuracy {step.step.accuracy:.3f}")
        display.step("training", step.share if total else 1.0, said, name="sweep")

    return {"on_plan": _planning(display), "on_outlook": know, "on_progress": show}


def _planning(display: Display) -> Callable[[Combination], None]:
    return lambda one: display.stage(f"planning combination {one.number + 1}")


def _look_ahead(
    asked: tuple[Scenario, dict[str, str], str, str | None, int],
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
        what = ask(*asked, labels)
        ahead = outlooks(what, _planning(display), **options)
        planned_s = time.perf_counter() - begun  # the sweep plans again
        display.stage("timing a little of it")
        left_s = seconds_left(ahead, timed(what, ahead, **options))
    missing = sum(one.missing for one in ahead)
    left_s += planned_s if missing else 0.0
    if json:
        typer.echo(json_format.dumps(_outlook_record(what, ahead, left_s)))
        return
    from joulemesh.base.units import duration
    from joulemesh.views.sweep import show_outlook
    from joulemesh.views.terminal import open_console

    show_outlook(what.varied, [(one.combination.at, _takes(one)) for one in ahead], open_console())
    for line in _infeasible(what, ahead):
        say(line)
    parts = {"combination": what.combinations, "method": what.methods, "seed": what.seeds}
    counts = [
        f"{len(them):,} {name}{'' if len(them) == 1 else 's'}" for name, them in parts.items()
    ]
    times = f"{' × '.join(counts)}: {what.count:,} runs, {missing:,} to train"
    say(f"{times}; about {duration(float(math.ceil(left_s)))}" if missing else times)


def _infeasible(asked: Sweep, ahead: Sequence[Outlook], most: int = _MOST_REASONS) -> Iterator[str]:
    """Which methods cannot run in which combinations, and why."""
    from joulemesh.views.sweep import words_of

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
