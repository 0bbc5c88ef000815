"""`joulemesh deploy report`: what a fleet did, beside what was planned and simulated."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError
from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument, JsonOption, LoadOption, load_files

if TYPE_CHECKING:
    from joulemesh.study.deployment import Reported

__all__ = ["report"]


def report(
    fleet: FleetArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder to write to; the fleet's by default.")
    ] = None,
    journals: Annotated[
        Path | None,
        typer.Option(
            "--journals", help="A folder with the devices' journals: NAME/journal.jsonl for each."
        ),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="First copy the journals of devices that are running."),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run folder of the same scenario, to draw its curve."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Simulate what happened, with the same views, in place of a run without failures.",
        ),
    ] = False,
    no_simulate: Annotated[
        bool,
        typer.Option("--no-simulate", help="Leave out the simulated curve, unless --run is given."),
    ] = False,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Write report.html, receipt.json and receipt.csv of a fleet, whether it has finished or not.

    Journals are looked for in FLEET/journals/NAME, where `--collect` and you copy them, and in
    FLEET/devices/NAME/run, where devices on this machine write them.
    """
    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.study.deployment import report_of_fleet

    load_files(load)
    Fleet.load(fleet).check_code(tuple(load or ()))
    if collect:
        _collect(fleet)
    if replay and (run is not None or no_simulate):
        raise ScenarioError("--replay simulates by itself; leave out --run and --no-simulate")
    made = report_of_fleet(
        fleet, out, journals=journals, run=run, simulate=not no_simulate, replay=replay
    )
    if json:
        say(json_format.dumps(_record(made)))
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    say(made.sentence)
    say(f"wrote {made.page}, {made.page.with_name('receipt.json')} and receipt.csv")


def _collect(fleet: Path) -> None:
    """Copy what running devices have written; those that do not answer are named."""
    import asyncio

    from joulemesh.deploy.device.journal import journals_in
    from joulemesh.deploy.operator.operator import JOURNALS, Operator

    failed = asyncio.run(Operator.load(fleet).collect())
    for name, reason in failed.items():
        if not journals_in(fleet / JOURNALS / name):  # otherwise it was copied before
            say(f"note: {name}: {reason}", err=True)


def _record(made: Reported) -> dict[str, Any]:
    """Totals of each device; the receipt has them by iteration."""
    whole = json_format.loads(made.receipt.to_json())
    kept = ("device", "name", "battery_j", "meter", "spent_j", "missing_iterations", "totals")
    return {
        "report": str(made.page),
        "summary": made.sentence,
        "notes": list(made.notes),
        "sources": whole["sources"],
        "devices": [{key: one[key] for key in kept} for one in whole["devices"]],
    }
