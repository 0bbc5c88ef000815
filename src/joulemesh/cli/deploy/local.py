"""`joulemesh deploy local`: all devices as processes of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

__all__ = ["local"]

OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="The fleet's folder; NAME-local by default."),
]
PatienceOption = Annotated[
    str, typer.Option(help="How long a device may be silent before it is suspected.")
]
FailureOption = Annotated[
    Literal["go-on", "stop"],
    typer.Option(help="Go on without devices that fail, or stop at the first failure."),
]
LearnerOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:NAME", help="Train your own object on every device; nothing is simulated."
    ),
]
RestartsOption = Annotated[
    int, typer.Option(min=0, help="How often a device that crashed is started again.")
]
ReportOption = Annotated[
    bool, typer.Option("--report/--no-report", help="Simulate the plan and write report.html.")
]


def local(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    learner: LearnerOption = None,
    out: OutOption = None,
    patience: PatienceOption = "10 s",
    on_failure: FailureOption = "go-on",
    restarts: RestartsOption = 5,
    report: ReportOption = True,
    as_json: JsonOption = False,
) -> None:
    """Carry out a plan with one process per device on this machine, and report on it.

    The processes talk to each other as devices in the field do: over TLS, each with its own
    certificate. Ctrl-C stops them all; the same command goes on where they stopped. With
    devices.availability, processes are stopped and started as the table says.
    """
    from joulemesh.cli.deploy.carrying import Wanted, carry_out
    from joulemesh.deploy.local.churn import churn_of, steadfast
    from joulemesh.deploy.local.local import LocalFleet

    asked = read_scenario(file, preset, changes, load)
    scenario, trace = steadfast(asked), churn_of(asked)
    folder = out or Path(f"{preset or 'default' if file is None else file.stem}-local")
    wanted = Wanted.of(scenario, folder, patience=patience, on_failure=on_failure, code=load or ())
    carry_out(
        wanted,
        LocalFleet(folder, wanted.fleet, wanted.plan, wanted.code, learner, restarts, trace=trace),
        report=report,
        as_json=as_json,
    )
