"""`joulemesh deploy emulate`: devices in network namespaces, with links at the plan's rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)
from joulemesh.cli.deploy.local import (
    FailureOption,
    LearnerOption,
    PatienceOption,
    ReportOption,
    RestartsOption,
)

if TYPE_CHECKING:
    from joulemesh.cli.deploy.carrying import Wanted

__all__ = ["emulate"]


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
    from joulemesh.cli.deploy.carrying import Wanted, carry_out
    from joulemesh.deploy.local.emulate import check_emulation, emulated, too_fast

    check_emulation()
    scenario = read_scenario(file, preset, changes, load)
    folder = out or Path(f"{preset or 'default' if file is None else file.stem}-emulated")
    wanted = Wanted.of(
        scenario,
        folder,
        patience=patience,
        on_failure=on_failure,
        code=load or (),
        slow_down=slow_down,
    )
    note = too_fast(wanted.plan, slow_down)
    if note:
        say(f"note: {note}", err=True)
    with emulated(
        folder,
        wanted.fleet,
        wanted.plan,
        slow_down=slow_down,
        code=wanted.code,
        learner=learner,
        restarts=restarts,
    ) as running:
        carry_out(
            wanted,
            running,
            report=report,
            as_json=as_json,
            more=lambda shown: _measured(wanted, slow_down, shown=shown),
        )


def _measured(wanted: Wanted, slow_down: float, *, shown: bool) -> dict[str, Any]:
    """Measured exchanges and links beside the plan's."""
    from joulemesh.deploy.local.emulate import measured

    found = measured(wanted.folder, wanted.fleet, wanted.plan, slow_down)
    names = wanted.fleet.names
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
