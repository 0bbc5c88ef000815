"""`joulemesh run`: train on all devices as the plan says."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypedDict, Unpack

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    WorldsOption,
    load_files,
    read_scenario,
)
from joulemesh.cli.failure import tell
from joulemesh.printable import say

if TYPE_CHECKING:
    from joulemesh.runs.result import Result
    from joulemesh.runs.tensorboard import TensorBoard
    from joulemesh.runs.worlds import WorldsResult
    from joulemesh.scenario import Scenario
    from joulemesh.training.jax.distributed.supervise import Group

__all__ = ["run"]

_SEVERAL = "Several processes"


class _RunOptions(TypedDict):
    """Those of `joulemesh.run` that a command names."""

    seeds: int | list[int]
    method: str | None
    equal: str | None
    resume: bool
    deterministic: bool
    target: float | None
    on_metrics: TensorBoard | None


@dataclass(frozen=True)
class _Before:
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
    def of(cls, text: str) -> _Before | None:
        return cls(**json_format.loads(text)) if text else None


@dataclass(frozen=True)
class _Order:
    """What is asked for, whoever carries it out."""

    file: Path | None
    preset: str
    changes: list[str] | None
    load: list[Path] | None
    out: Path | None
    seeds: int | None
    worlds: int | None
    method: str | None
    equal: str | None
    resume: bool
    deterministic: bool | None
    tensorboard: Path | None
    target: float | None
    json: bool


def run(
    file: FileArgument = None,
    preset: PresetOption = "default",
    changes: SetOption = None,
    load: LoadOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the run; runs/NAME-001 and so on by default."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Repetitions, all in one program (default: 1)."),
    ] = None,
    worlds: WorldsOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="Run this method in place of the plan, such as fixed:3 or d-psgd "
            "(joulemesh methods lists them).",
        ),
    ] = None,
    equal: Annotated[
        str | None,
        typer.Option(
            "--equal",
            help="How long --method runs, as in compare: batteries (default), time or iterations.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, if there is one.")
    ] = False,
    deterministic: Annotated[
        bool | None,
        typer.Option("--deterministic", help="Ask XLA for deterministic kernels."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", help="Also log the curves to this folder.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            help="Report joules and seconds to this accuracy; 95 % of the final unless given.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "--hosts",
            metavar="auto",
            help="Train on all processes that Slurm, Kubernetes or Open MPI has started.",
            rich_help_panel=_SEVERAL,
        ),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            "--coordinator",
            metavar="HOST:PORT",
            help="Train on several processes; where process 0 runs, with a free port.",
            rich_help_panel=_SEVERAL,
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", help="How many processes.", rich_help_panel=_SEVERAL),
    ] = None,
    process_id: Annotated[
        int | None,
        typer.Option(
            "--process-id", help="Which of them this is, from 0.", rich_help_panel=_SEVERAL
        ),
    ] = None,
    join_timeout: Annotated[
        int,
        typer.Option(
            "--join-timeout", help="Seconds to wait for the others.", rich_help_panel=_SEVERAL
        ),
    ] = 300,
    json: JsonOption = False,
) -> None:
    """Train on all devices as the plan says; accuracy against iterations, joules and seconds.

    `--method NAME` runs another method instead, with everything that a run has: checkpoints,
    `--resume`, metrics, ledger and report.

    Ctrl-C stops at the next safe moment with everything saved; `--resume` goes on from there and
    ends with the same bits.

    `--worlds K` runs in K worlds that differ in all that is drawn from the scenario's seed, in a
    folder for each, and ends with means and 95 % intervals over worlds.

    Several processes (`--hosts auto`, or `--coordinator`, `--processes` and `--process-id`) share
    the devices; all get the same scenario, process 0 writes, and a run may be resumed on another
    number of them.
    """
    from joulemesh.studies.target import check_target
    from joulemesh.training.jax.distributed.supervise import Group

    if resume and out is None:
        raise typer.BadParameter("--resume needs --out DIR")
    check_target(target)
    load_files(load)
    order = _Order(
        file=file,
        preset=preset,
        changes=changes,
        load=load,
        out=out,
        seeds=seeds,
        worlds=worlds,
        method=method,
        equal=equal,
        resume=resume,
        deterministic=deterministic,
        tensorboard=tensorboard,
        target=target,
        json=json,
    )
    group = Group.asked(hosts, coordinator, processes, process_id, join_timeout)
    if group is not None:
        _together(group, order)
    _carry_out(order)


def _together(group: Group, order: _Order) -> NoReturn:
    """Be one of several processes; a child does the work, so that every end has clear words."""
    from joulemesh.training.jax.distributed.supervise import supervise

    if not order.resume:
        read_scenario(order.file, order.preset, order.changes)  # a bad one need not meet the others
    own = "".join(f"--load {path} " for path in order.load or [])
    folder = f"--out {order.out} " if order.out is not None else ""
    resume = f"`joulemesh run {own}{folder}--resume` goes on from the last checkpoint"
    child = supervise(group, resume)
    from joulemesh.training.jax.distributed import hosts, join

    def lost(words: str) -> None:
        say(f"error: {words}", err=True)
        child.leave(2)
        os._exit(2)

    code = 0
    try:
        with hosts.losses_named():
            where = (group.coordinator, group.processes, group.process_id)
            join.start(*where, timeout_s=group.timeout_s, on_lost=lost)
            child.joined()
            _carry_out(order, leads=hosts.leads(), told=hosts.on_leader)
    except hosts.HostLostError as error:
        code = 1
        say(f"error: {error}; {resume}", err=True)
    except typer.Exit as end:
        code = end.exit_code
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = 2
        if not tell(error):
            code = 1
            sys.excepthook(*sys.exc_info())
    child.leave(code)
    if code != 1:
        join.stop()
    os._exit(code)


def _carry_out(
    order: _Order,
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
    from joulemesh.runs.folder import RunFolder, free_folder
    from joulemesh.runs.worlds import WorldsResult, over_worlds
    from joulemesh.runs.worlds_folder import Asked, WorldsFolder

    name = order.file.stem if order.file is not None else order.preset
    out = order.out or free_folder(Path("runs"), name)
    folder, several = RunFolder(out), WorldsFolder(out)
    before = None
    if order.resume:
        before = _Before.of(told(several.as_left)) or _Before.of(told(folder.as_left))
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

    def train(mine: Scenario, place: Path, log_folder: Path | None) -> Result:
        count = seeds if isinstance(seeds, int) else len(seeds)
        quiet = order.json or not leads
        with _logger(log_folder if leads else None, count) as log:
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
        return train(mine, place, order.tensorboard and order.tensorboard / place.name)

    result: Result | WorldsResult
    try:
        if worlds > 1 or (before is not None and before.worlds is not None):
            wanted = Asked(scenario, worlds, seeds, deterministic, method, equal)
            result = over_worlds(wanted, one_of_several, out=out, resume=order.resume)
        else:
            result = train(scenario, out, order.tensorboard)
    except KeyboardInterrupt:
        if leads and not (folder.started or several.started):
            raise
        if leads:
            own = "".join(f"--load {path} " for path in order.load or [])
            again = f"`joulemesh run {own}--out {out} --resume`"
            say(f"stopped; {again} goes on from here", err=True)
        raise typer.Exit(130) from None
    if leads:
        _show(result, out, json=order.json)
    if isinstance(result, WorldsResult) and not result.results:
        if leads:
            say("error: none of the worlds could run; the reasons are above", err=True)
        raise typer.Exit(2)


def _wanted(order: _Order, before: _Before | None) -> tuple[Scenario, int | list[int], bool]:
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
    from joulemesh.runs.worlds import WorldsResult
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


def _logger(folder: Path | None, seeds: int) -> AbstractContextManager[TensorBoard | None]:
    if folder is None:
        return nullcontext()
    from joulemesh.runs.tensorboard import TensorBoard

    return TensorBoard(folder, seeds=seeds)


def _with_progress(
    scenario: Scenario, out: Path, *, quiet: bool, **options: Unpack[_RunOptions]
) -> Result:
    """Run, and say on standard error what is being done: iteration, accuracy, joules, time left."""
    from joulemesh.runs.result import Progress as Step
    from joulemesh.runs.run import run as simulate
    from joulemesh.views.progress import Display, facts

    latest: list[tuple[float, list[str]]] = []
    with Display(quiet=quiet) as display:

        def show(step: Step) -> None:
            known = facts(
                step.completed,
                step.iterations,
                accuracy=step.accuracy,
                energy_j=step.energy_j,
                seconds_left=step.seconds_left,
            )
            latest[:] = [(step.completed / step.iterations, known)]
            display.step("training", *latest[0])

        def tell_stage(stage: str) -> None:
            if latest and stage != "writing":
                display.step(stage, *latest[0])
            else:
                display.stage(f"writing {out}" if stage == "writing" else stage)

        return simulate(scenario, out=out, **options, on_progress=show, on_stage=tell_stage)
