"""Carry out `joulemesh run`: begin or resume a run, show how far it is and what came of it."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import typer

from joulemesh.cli.common import read_scenario
from joulemesh.printable import say

if TYPE_CHECKING:
    from joulemesh.results.result import Result
    from joulemesh.results.result_worlds import WorldsResult
    from joulemesh.runs.tracking import Tracker
    from joulemesh.scenario import Scenario
    from joulemesh.views.publication.printing import Printing

__all__ = ["Order", "carry_out"]


class _RunOptions(TypedDict):
    """Those of `joulemesh.run` that a command names."""

    seeds: int | list[int]
    method: str | None
    equal: str | None
    resume: bool
    deterministic: bool
    target: float | None
    on_metrics: Tracker | None


@dataclass(frozen=True)
class Before:
    """How a run was started that is to be resumed."""

    scenario: str
    origins: dict[str, str]
    seeds: int | list[int]
    deterministic: bool
    finished: bool
    worlds: int | None = None
    method: str | None = None
    equal: str | None = None

    @classmethod
    def of(cls, text: str) -> Before | None:
        return cls(**json_format.loads(text)) if text else None


@dataclass(frozen=True)
class Order:
    """What is asked for, whoever carries it out."""

    file: Path | None
    preset: str | None
    changes: list[str] | None
    load: list[Path] | None
    out: Path | None
    seeds: int | None
    worlds: int | None
    method: str | None
    equal: str | None
    resume: bool
    deterministic: bool | None
    track: tuple[str, ...]
    target: float | None
    json: bool
    printing: Printing | None = None


def carry_out(
    order: Order,
    *,
    leads: bool = True,
    told: Callable[[Callable[[], str]], str] = lambda action: action(),
) -> None:
    """Run, or go on with a run.

    Args:
        order: what is asked for.
        leads: whether this process writes; of several, one does.
        told: does something on the process that writes, and tells all what came of it.
    """
    from joulemesh.results.result_worlds import WorldsResult
    from joulemesh.runs.folder import RunFolder, free_folder
    from joulemesh.runs.over_worlds import over_worlds
    from joulemesh.runs.worlds_folder import Asked, WorldsFolder

    name = order.file.stem if order.file is not None else order.preset or "default"
    out = order.out or free_folder(Path("runs"), name)
    folder, several = RunFolder(out), WorldsFolder(out)
    before = None
    if order.resume:
        before = Before.of(told(several.as_left)) or Before.of(told(folder.as_left))
    scenario, seeds, deterministic = _wanted(order, before)
    method, equal = order.method, order.equal
    if before is not None:
        method, equal = method or before.method, equal or before.equal
    worlds = order.worlds or (before.worlds if before is not None else None) or 1
    if before is not None and before.finished and worlds == 1:
        asked = {"deterministic": deterministic, "method": method, "equal": equal}
        told(lambda: folder.require_same(scenario, seeds, **asked))
        if leads:
            say(f"the run in {out} is finished; nothing to do", err=order.json)
            if order.json:
                typer.echo(json_format.dumps(folder.result()))
        return

    def train(mine: Scenario, place: Path, world: str = "") -> Result:
        count = seeds if isinstance(seeds, int) else len(seeds)
        quiet = order.json or not leads
        with _tracker(order.track if leads else (), place, mine, count, world) as log:
            return _with_progress(
                mine,
                place,
                quiet=quiet,
                seeds=seeds,
                method=method,
                equal=equal,
                resume=order.resume,
                deterministic=deterministic,
                target=order.target,
                on_metrics=log,
            )

    def one_of_several(k: int, mine: Scenario, place: Path | None) -> Result:
        assert place is not None
        if leads and not order.json:
            say(f"world {k + 1} of {worlds} (seed {mine.seed})", err=True)
        return train(mine, place, place.name)

    result: Result | WorldsResult
    try:
        if worlds > 1 or (before is not None and before.worlds is not None):
            wanted = Asked(scenario, worlds, seeds, deterministic, method, equal)
            result = over_worlds(wanted, one_of_several, out=out, resume=order.resume)
        else:
            result = train(scenario, out)
    except KeyboardInterrupt:
        if leads and not (RunFolder(out).started or several.started):  # looked at anew
            raise
        if leads:
            own = "".join(f"--load {path} " for path in order.load or [])
            again = f"`joulemesh run {own}--out {out} --resume`"
            say(f"stopped; {again} goes on from here", err=True)
        raise typer.Exit(130) from None
    if leads:
        _draw(out, order.printing)
        _show(result, out, json=order.json)
    if isinstance(result, WorldsResult) and not result.results:
        if leads:
            say("error: none of the worlds could run; the reasons are above", err=True)
        raise typer.Exit(2)


def _wanted(order: Order, before: Before | None) -> tuple[Scenario, int | list[int], bool]:
    """Scenario, seeds and whether kernels are deterministic: as given, or as a run was begun."""
    from joulemesh.scenario import Origin, Scenario

    if before is None or order.file is not None or order.changes:
        scenario = read_scenario(order.file, order.preset, order.changes)
    else:
        origins = {name: Origin.parse(text) for name, text in before.origins.items()}
        scenario = Scenario.from_json(before.scenario).with_origins(origins)
    seeds: int | list[int] = order.seeds or 1
    deterministic = bool(order.deterministic)
    if before is not None:
        seeds = before.seeds if order.seeds is None else order.seeds
        deterministic = before.deterministic if order.deterministic is None else deterministic
    return scenario, seeds, deterministic


def _show(result: Result | WorldsResult, out: Path, *, json: bool) -> None:
    """Print the outcome, and where it is kept."""
    from joulemesh.results.result_worlds import WorldsResult
    from joulemesh.views.run.console import show_result, show_worlds
    from joulemesh.views.terminal import open_console

    if json:
        typer.echo(json_format.dumps(result.summary()))
    elif isinstance(result, WorldsResult):
        show_worlds(result, open_console())
        say(f"kept in {out}; the table is {out / 'summary.csv'}")
    else:
        show_result(result, open_console())
        say(f"kept in {out}; the report is {out / 'report.html'}")


def _draw(out: Path, printing: Printing | None) -> None:
    """Draw the run for a paper, if that is asked for."""
    if printing is None:
        return
    from joulemesh.runs.paper import write_run_paper

    write_run_paper(out, printing)


def _tracker(
    asked: tuple[str, ...], folder: Path, scenario: Scenario, seeds: int, world: str
) -> AbstractContextManager[Tracker | None]:
    """Whatever else logs the curves of the run in a folder."""
    if not asked:
        return nullcontext()
    from joulemesh.runs.tracking import Tracked, open_trackers

    return open_trackers(asked, Tracked(folder, scenario, seeds, world)) or nullcontext()


def _with_progress(
    scenario: Scenario, out: Path, *, quiet: bool, **options: Unpack[_RunOptions]
) -> Result:
    """Run, and say on standard error what is being done: iteration, accuracy, joules, time left."""
    from joulemesh.runs.progress import Progress as Step
    from joulemesh.runs.run import run as simulate
    from joulemesh.views.progress import Display, facts

    latest: list[tuple[float, list[str]]] = []
    with Display(quiet=quiet) as display:

        def show(step: Step) -> None:
            known = facts(
                step.completed,
                step.iterations,
                accuracy=step.accuracy,
                score=step.score,
                energy_j=step.energy_j,
                seconds_left=step.seconds_left,
            )
            latest[:] = [(step.completed / step.iterations, known)]
            display.step("training", *latest[0])

        def tell_stage(stage: str) -> None:
            if stage.startswith("note: "):
                display.stage(stage)
            elif latest and stage != "writing":
                display.step(stage, *latest[0])
            else:
                display.stage(f"writing {out}" if stage == "writing" else stage)

        return simulate(scenario, out=out, **options, on_progress=show, on_stage=tell_stage)
