"""`joulemesh deploy local` and `emulate`: all devices as processes of this machine."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from joulemesh.base.errors import say
from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.deploy.local.local import LocalFleet
    from joulemesh.planning.plan import Plan
    from joulemesh.scenario import Scenario

_INCOMPLETE, _INTERRUPTED = 3, 130
_EQUAL = 1e-5  # in float32, where sums are made in another order
_START_S = 10.0  # of each device, where all share a few cores


def _packed(
    scenario: Scenario,
    folder: Path,
    *,
    patience: str,
    on_failure: Literal["go-on", "stop"],
    code: Sequence[Path] | None,
    slow_down: float = 1.0,
) -> tuple[Fleet, Plan]:
    from joulemesh.base.units import parse
    from joulemesh.deploy.local.local import open_fleet
    from joulemesh.deploy.view import Settings
    from joulemesh.planning.static import plan

    usual = Settings()
    settings = replace(
        usual,
        patience_s=parse(patience, "s"),
        on_failure=on_failure,
        slack=usual.slack * slow_down,  # deadlines of messages count in the plan's seconds
        starting_s=max(usual.starting_s, _START_S * scenario.devices.count),
    )
    made = plan(scenario)
    fleet, there = open_fleet(folder, made, settings=settings, code=code or ())
    say(f"{'goes on with' if there else 'packed'} {folder}: {made!r}", err=True)
    return fleet, made


def _carry_out(running: LocalFleet, *, report: bool, as_json: bool, more: Any = None) -> None:
    from joulemesh.views.fleet import FleetDisplay

    begun = time.monotonic()
    with FleetDisplay(quiet=as_json) as display:
        running.run(display.show)
    outcome = _outcome(running, time.monotonic() - begun)
    if report and any(one["iteration"] for one in outcome["devices"]):
        outcome.update(_reported(running))
    if more is not None:
        outcome.update(more(not as_json))
    if as_json:
        print(json.dumps(outcome, allow_nan=False))
    else:
        _tell(outcome, running)
    if not running.complete:
        raise typer.Exit(_INTERRUPTED if running.supervisor.stopping else _INCOMPLETE)


def _outcome(running: LocalFleet, seconds: float) -> dict[str, Any]:
    standings = running.standings()
    states = [process.state for process in running.processes]
    return {
        "folder": str(running.folder),
        "complete": running.complete,
        "seconds": round(seconds, 3),
        "charged_j": sum(one.spent_j for one in standings),
        "planned_j": float(running.plan.spent_j.sum()),
        "planned_s": running.plan.time_s,
        "iteration_s": _pace(running),
        "restarts": sum(process.restarts for process in running.processes),
        "devices": [
            {**asdict(one), "process": state} for one, state in zip(standings, states, strict=True)
        ],
    }


def _pace(running: LocalFleet) -> dict[str, float | None]:
    from joulemesh.deploy.record.receipt import mean_iteration_s, planned

    both = mean_iteration_s(running.histories(), planned(running.plan))
    found = dict(zip(("planned", "measured"), both, strict=True))
    found["ratio"] = found["measured"] / found["planned"] if found["planned"] else math.nan
    return {name: one if math.isfinite(one) else None for name, one in found.items()}


def _reported(running: LocalFleet) -> dict[str, Any]:
    from joulemesh.deploy.local.local import largest_difference
    from joulemesh.study.deployment import SIMULATED, report_of_fleet

    folder = running.folder
    made = report_of_fleet(folder, simulate=running.learner is None)
    model = folder / SIMULATED / "model.safetensors"
    apart = largest_difference(folder, running.fleet, model) if model.is_file() else None
    return {
        "report": str(made.page),
        "sentence": made.sentence,
        "notes": list(made.notes),
        "largest_difference": apart,
    }


def _tell(outcome: dict[str, Any], running: LocalFleet) -> None:
    from joulemesh.base.units import duration, energy

    charged, planned = outcome["charged_j"], outcome["planned_j"]
    say(
        f"{energy(charged)} charged, {energy(planned)} planned; "
        f"the devices ran for {duration(outcome['seconds'])} here, their start included, and "
        f"{duration(outcome['planned_s'])} on the plan's clock"
    )
    pace = outcome["iteration_s"]
    if pace["ratio"] is not None:
        say(
            f"a mean iteration took {duration(pace['measured'])} here and "
            f"{duration(pace['planned'])} on the plan's clock: {pace['ratio']:.3g} times"
        )
    apart = outcome.get("largest_difference")
    if apart is not None:
        equal = "equal" if apart <= _EQUAL else "not equal"
        say(f"mean parameters {equal} to the simulated ones: the largest difference is {apart:.1e}")
    if "report" in outcome:
        for words in (outcome["sentence"], *outcome["notes"], f"wrote {outcome['report']}"):
            say(words)
    for one in running.processes:
        if one.state in ("lost", "refused", "ended"):
            say(f"{one.job.name}: {one.last_words()} (see {one.job.log})", err=True)
    if not outcome["complete"]:
        again = shlex.join(["joulemesh", *sys.argv[1:]])
        say(f"stopped before the end; to go on: {again}", err=True)


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
    from joulemesh.deploy.local.local import LocalFleet, churn_of, steadfast

    asked = read_scenario(file, preset, changes, load)
    scenario, trace = steadfast(asked), churn_of(asked)
    folder = out or Path(f"{preset or 'default' if file is None else file.stem}-local")
    fleet, plan = _packed(scenario, folder, patience=patience, on_failure=on_failure, code=load)
    running = LocalFleet(folder, fleet, plan, load or (), learner, restarts, trace=trace)
    _carry_out(running, report=report, as_json=as_json)


def emulate(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    learner: LearnerOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The fleet's folder; NAME-emulated by default.")
    ] = None,
    slow_down: Annotated[
        float,
        typer.Option(
            "--slow-down",
            min=1.0,
            metavar="FACTOR",
            help="Divide the rates of all links, which this machine may be too slow for.",
        ),
    ] = 1.0,
    patience: PatienceOption = "10 s",
    on_failure: FailureOption = "go-on",
    restarts: RestartsOption = 5,
    report: ReportOption = True,
    as_json: JsonOption = False,
) -> None:
    """Carry out a plan on this Linux machine, with links that carry the plan's rates (needs root).

    Each device is a process in its own network namespace, and each link is limited by a token
    bucket in both directions. Everything is removed at the end. Ctrl-C stops all devices; the same
    command goes on where they stopped.
    """
    from joulemesh.deploy.local.emulate import check_emulation, emulated, too_fast

    check_emulation()
    scenario = read_scenario(file, preset, changes, load)
    folder = out or Path(f"{preset or 'default' if file is None else file.stem}-emulated")
    fleet, plan = _packed(
        scenario, folder, patience=patience, on_failure=on_failure, code=load, slow_down=slow_down
    )
    note = too_fast(plan, slow_down)
    if note:
        say(f"note: {note}", err=True)
    with emulated(folder, fleet, plan, slow_down, load or (), learner, restarts) as running:
        _carry_out(
            running,
            report=report,
            as_json=as_json,
            more=lambda shown: _measured(running, slow_down, shown=shown),
        )


def _measured(running: LocalFleet, slow_down: float, *, shown: bool) -> dict[str, Any]:
    from joulemesh.deploy.local.emulate import measured

    found = measured(running.folder, running.fleet, running.plan, slow_down)
    names = running.fleet.names
    if shown and found.exchange_s:
        say(
            f"an exchange took {found.ratio:.2f} times its planned seconds (median of "
            f"{len(found.exchange_s):,})"
        )
    if shown and found.goodput:
        one, other = min(found.goodput, key=lambda link: found.goodput[link])
        say(
            f"messages arrived at {found.goodput[one, other]:.0%} of the rate of their link at the "
            f"least ({names[one]} to {names[other]})"
        )
    return {
        "slow_down": slow_down,
        "exchange_ratio": found.ratio if found.exchange_s else None,
        "exchange_s": {str(t): pair for t, pair in found.exchange_s.items()},
        "goodput": [
            {"from": names[one], "to": names[other], "share": share}
            for (one, other), share in found.goodput.items()
        ],
    }
