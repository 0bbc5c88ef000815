"""`joulemesh run`: train on all devices as the plan says."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common, completion
from joulemesh.study.request import Progress, RunRequest

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.study.folder import RunFolder
    from joulemesh.study.result import Result, WorldsResult
    from joulemesh.study.tracking import Tracker
    from joulemesh.training.jax.distributed import Group
    from joulemesh.views.printing import Printing
    from joulemesh.views.progress import Display

__all__ = ["run"]

_SEVERAL = "Several processes"


Told = Callable[[Callable[[], str]], str]


@dataclass(frozen=True)
class _Command:
    given: dict[str, Any]  # fields of the request by name, None where an option is not given
    named: Callable[[], Scenario]  # the scenario that is named
    anew: bool  # is one named, so that a resumed run's own is not taken?
    loads: str  # options that load the user's files, for a command to be shown
    track: tuple[str, ...]  # what else logs the curves
    json: bool  # print the result as JSON, and nothing else
    printing: Printing | None  # of the figures for a paper, if they are asked for

    def carry_out(self, *, leads: bool = True, told: Told = lambda action: action()) -> None:
        from joulemesh.study.folder import RunFolder
        from joulemesh.study.result import WorldsResult
        from joulemesh.study.run import WorldsFolder, left_in, over_worlds

        out: Path = self.given["out"]
        text = told(lambda: left_in(out)) if self.given["resume"] else ""
        left = RunRequest.from_text(text) if text else None
        scenario = self.named() if left is None or self.anew else left.scenario
        request = RunRequest.of(**self.given | {"scenario": scenario}).resumed(left)
        if request.worlds == 1 and (left is None or left.worlds is None):
            request = request.having(worlds=None)
        folder = RunFolder(out)
        single = request.resume and request.worlds is None
        if single and told(lambda: "yes" if folder.finished else ""):
            self._finished(folder, request, leads, told)
            return

        def one_of_several(k: int, own: RunRequest) -> Result:
            assert own.out is not None
            if leads and not self.json:
                words = f"world {k + 1} of {request.worlds} (seed {own.scenario.seed})"
                say(words, err=True)
            return self._train(own, leads, own.out.name)

        result: Result | WorldsResult
        try:
            if request.worlds is None:
                result = self._train(request, leads)
            else:
                result = over_worlds(request, one_of_several)
        except KeyboardInterrupt:
            if leads and not (RunFolder(out).started or WorldsFolder(out).started):  # looked anew
                raise
            if leads:
                again = f"`joulemesh run {self.loads}--out {out} --resume`"
                say(f"stopped; {again} goes on from here", err=True)
            raise typer.Exit(130) from None
        if leads:
            _draw(out, self.printing)
            _show(result, out, json=self.json)
        if isinstance(result, WorldsResult) and not result.results:
            if leads:
                say("error: none of the worlds could run; the reasons are above", err=True)
            raise typer.Exit(2)

    def _finished(self, folder: RunFolder, request: RunRequest, leads: bool, told: Told) -> None:
        """Say that there is nothing to do, unless something else is asked for."""
        told(lambda: folder.require_same(request))
        if leads:
            say(f"the run in {folder.path} is finished; nothing to do", err=self.json)
            if self.json:
                typer.echo(json_format.dumps(folder.result()))

    def _train(self, request: RunRequest, leads: bool, world: str = "") -> Result:
        """Carry out one request, with its progress shown and its curves logged."""
        from joulemesh.study.run import carry_out
        from joulemesh.views.progress import Display

        assert request.out is not None
        quiet = self.json or not leads
        with (
            _tracker(self.track if leads else (), request, world) as log,
            Display(quiet=quiet) as display,
        ):
            return carry_out(_shown(request.having(on_metrics=log), display))


def run(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A new folder for the run; runs/NAME-001 and so on by default."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Repetitions, all in one program (default: 1)."),
    ] = None,
    worlds: common.WorldsOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="Run this method in place of the plan, such as fixed:3 or d-psgd "
            "(joulemesh methods lists them).",
            autocompletion=completion.compared_methods,
        ),
    ] = None,
    equal: Annotated[
        str | None,
        typer.Option(
            "--equal",
            help="How long --method runs, as in compare: batteries, time, budget (the default "
            "where there is a total time) or iterations.",
            autocompletion=completion.equalities,
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
        Path | None,
        typer.Option("--tensorboard", help="The same as --track tensorboard:FOLDER."),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            "--track",
            metavar="NAME[:WHERE]",
            help="Also log the curves with tensorboard[:FOLDER], mlflow[:URI] or wandb[:PROJECT]; "
            "repeatable. A resumed run goes on where it was logged.",
            autocompletion=completion.trackers,
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            help="Report joules and seconds to this accuracy; 95 % of the final unless given.",
        ),
    ] = None,
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
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
    json: common.JsonOption = False,
) -> None:
    """Train on all devices as the plan says; accuracy against iterations, joules and seconds.

    `--method NAME` runs another method instead, with everything that a run has: checkpoints,
    `--resume`, metrics, ledger and report.

    Ctrl-C stops at the next safe moment with everything saved; `--resume` goes on from there and
    ends with the same bits.

    `--worlds K` runs in K worlds that differ in all that is drawn from the scenario's seed, in a
    folder for each, and ends with means and 95 % intervals over worlds.

    `--format` or `--width` draw curves and plan for a paper too, in the folder `paper` of the run;
    `joulemesh report` does so later.

    Several processes (`--hosts auto`, or `--coordinator`, `--processes` and `--process-id`) share
    the devices; all get the same scenario, process 0 writes, and a run may be resumed on another
    number of them.
    """
    given = {name: value for name, value in locals().items() if name in RunRequest.model_fields}
    if resume and out is None:
        raise typer.BadParameter("--resume needs --out DIR")
    from joulemesh.study.folder import free_folder
    from joulemesh.study.runs import check_target
    from joulemesh.training.jax.distributed import Group

    check_target(target)
    common.load_files(load)
    if out is None:
        name = file.stem if file is not None else preset or "default"
        given["out"] = free_folder(Path("runs"), name)
    command = _Command(
        given,
        partial(common.read_scenario, file, preset, changes),
        anew=file is not None or bool(changes),
        loads="".join(f"--load {path} " for path in load or []),
        track=(*([f"tensorboard:{tensorboard}"] if tensorboard else []), *(track or [])),
        json=json,
        printing=_figures(formats, width, worlds),
    )
    group = Group.asked(hosts, coordinator, processes, process_id, join_timeout)
    if group is not None:
        _together(group, command, out)
    command.carry_out()


def _show(result: Result | WorldsResult, out: Path, *, json: bool) -> None:
    from joulemesh.study.result import WorldsResult
    from joulemesh.views.console import show_result, show_worlds
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
    if printing is None:
        return
    from joulemesh.study.paper import write_run_paper

    write_run_paper(out, printing)


def _tracker(
    asked: tuple[str, ...], request: RunRequest, world: str
) -> AbstractContextManager[Tracker | None]:
    """Whatever else logs the curves of the run in a folder."""
    if not asked:
        return nullcontext()
    from joulemesh.study.tracking import Tracked, open_trackers

    seeds = request.seeds
    count = seeds if isinstance(seeds, int) else len(seeds)
    assert request.out is not None
    tracked = Tracked(request.out, request.scenario, count, world)
    return open_trackers(asked, tracked)


def _shown(request: RunRequest, display: Display) -> RunRequest:
    """The request, which says on standard error what is being done, and how far it has come."""
    from joulemesh.views.progress import facts

    latest: list[tuple[float, list[str]]] = []

    def show(step: Progress) -> None:
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
            display.stage(f"writing {request.out}" if stage == "writing" else stage)

    return request.having(on_progress=show, on_stage=tell_stage)


def _figures(formats: str | None, width: str | None, worlds: int | None) -> Printing | None:
    """The figures that are asked for; refused before anything is trained."""
    from joulemesh.views.printing import Printing

    asked = Printing.asked(formats, width)
    if asked is not None and (worlds or 1) > 1:
        raise ScenarioError(
            "--format and --width draw one run: leave --worlds out, or draw one of the worlds "
            "later with joulemesh report OUT/WORLD --format"
        )
    return asked


def _together(group: Group, command: _Command, out: Path | None) -> NoReturn:
    """Be one of several processes; a child does the work, so that every end has clear words."""
    from joulemesh.training.jax.distributed import start, stop, supervise

    if not command.given["resume"]:
        command.named()  # a bad one need not meet the others
    folder = f"--out {out} " if out is not None else ""
    resume = f"`joulemesh run {command.loads}{folder}--resume` goes on from the last checkpoint"
    child = supervise(group, resume)
    from joulemesh.cli.main import tell
    from joulemesh.training import hosts

    def lost(words: str) -> None:
        child.leave(2, words)
        os._exit(2)

    code, words = 0, ""
    try:
        with hosts.losses_named():
            where = (group.coordinator, group.processes, group.process_id)
            start(*where, timeout_s=group.timeout_s, on_lost=lost)
            child.joined()
            command.carry_out(leads=hosts.leads(), told=hosts.on_leader)
    except hosts.HostLostError as error:
        code, words = 1, f"{error}; {resume}"
    except typer.Exit as end:
        code = end.exit_code
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        code = 2
        if not tell(error):
            code = 1
            sys.excepthook(*sys.exc_info())
    child.leave(code, words)
    if code != 1:
        stop()
    os._exit(code)
