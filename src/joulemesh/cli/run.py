"""`joulemesh run`: train on all devices as the plan says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from joulemesh.cli import completion
from joulemesh.cli.carry_out import Order, carry_out
from joulemesh.cli.common import (
    FileArgument,
    FormatOption,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    WidthOption,
    WorldsOption,
    load_files,
    read_scenario,
)
from joulemesh.cli.failure import tell
from joulemesh.errors import ScenarioError

if TYPE_CHECKING:
    from joulemesh.training.jax.distributed.supervise import Group
    from joulemesh.views.publication.printing import Printing

__all__ = ["run"]

_SEVERAL = "Several processes"


def run(
    file: FileArgument = None,
    preset: PresetOption = None,
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
    formats: FormatOption = None,
    width: WidthOption = None,
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

    `--format` or `--width` draw curves and plan for a paper too, in the folder `paper` of the run;
    `joulemesh report` does so later.

    Several processes (`--hosts auto`, or `--coordinator`, `--processes` and `--process-id`) share
    the devices; all get the same scenario, process 0 writes, and a run may be resumed on another
    number of them.
    """
    from joulemesh.results.target import check_target
    from joulemesh.training.jax.distributed.supervise import Group

    if resume and out is None:
        raise typer.BadParameter("--resume needs --out DIR")
    check_target(target)
    load_files(load)
    order = Order(
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
        track=(*([f"tensorboard:{tensorboard}"] if tensorboard else []), *(track or [])),
        target=target,
        json=json,
        printing=_figures(formats, width, worlds),
    )
    group = Group.asked(hosts, coordinator, processes, process_id, join_timeout)
    if group is not None:
        _together(group, order)
    carry_out(order)


def _figures(formats: str | None, width: str | None, worlds: int | None) -> Printing | None:
    """The figures that are asked for; refused before anything is trained."""
    from joulemesh.views.publication.printing import Printing

    asked = Printing.asked(formats, width)
    if asked is not None and (worlds or 1) > 1:
        raise ScenarioError(
            "--format and --width draw one run: leave --worlds out, or draw one of the worlds "
            "later with joulemesh report OUT/WORLD --format"
        )
    return asked


def _together(group: Group, order: Order) -> NoReturn:
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
        child.leave(2, words)
        os._exit(2)

    code, words = 0, ""
    try:
        with hosts.losses_named():
            where = (group.coordinator, group.processes, group.process_id)
            join.start(*where, timeout_s=group.timeout_s, on_lost=lost)
            child.joined()
            carry_out(order, leads=hosts.leads(), told=hosts.on_leader)
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
        join.stop()
    os._exit(code)
