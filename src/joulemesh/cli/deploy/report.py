"""`joulemesh deploy report`: what a fleet did, beside what was planned and simulated."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.cli.common import JsonOption, LoadOption, load_files
from joulemesh.printable import say

if TYPE_CHECKING:
    from joulemesh.runs.deployment import Reported

__all__ = ["report"]


def report(
    fleet: Annotated[Path, typer.Argument(metavar="FLEET", help="The fleet's folder.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder to write to; the fleet's by default.")
    ] = None,
    journals: Annotated[
        Path | None,
        typer.Option(
            "--journals", help="A folder with the devices' journals: NAME/journal.jsonl for each."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run folder of the same scenario, to draw its curve."),
    ] = None,
    no_simulate: Annotated[
        bool,
        typer.Option("--no-simulate", help="Leave out the simulated curve, unless --run is given."),
    ] = False,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Write report.html, receipt.json and receipt.csv of a fleet, whether it has finished or not.

    Journals are looked for in FLEET/journals/NAME, where you copied them, and in
    FLEET/devices/NAME/run, where devices on this machine write them.
    """
    from joulemesh.runs.deployment import report_of_fleet

    load_files(load)
    made = report_of_fleet(fleet, out, journals=journals, run=run, simulate=not no_simulate)
    if json:
        say(json_format.dumps(_record(made)))
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    say(made.sentence)
    say(f"wrote {made.page}, {made.page.with_name('receipt.json')} and receipt.csv")


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
