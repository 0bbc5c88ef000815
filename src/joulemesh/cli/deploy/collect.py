"""`joulemesh deploy collect`: the fleet's journals and its model, from the devices."""

from __future__ import annotations

import asyncio
import json as json_format
import shutil
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument, JsonOption

__all__ = ["collect"]


def collect(
    fleet: FleetArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="A new folder; FLEET/model by default."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy journals and models from all devices that answer, and write the fleet's model.

    Devices answer while they run, for some minutes after their end if a neighbour may come late
    (`node run --linger` sets how long), and when they are started again. FLEET/model then holds
    model.safetensors, config.json and a card, README.md, with the lines that load it. Where devices
    hold different parameters it is the mean over those that are furthest, and the card says so.
    """
    from joulemesh.deploy.operator.operator import Operator
    from joulemesh.study.export_fleet import export_fleet

    operator = Operator.load(fleet)
    failed = asyncio.run(operator.collect(models=True))
    for name, reason in failed.items():
        say(f"note: {name}: {reason}", err=True)
    place = out or fleet / "model"
    if out is None and place.is_dir():
        shutil.rmtree(place)  # of an earlier call
    made = export_fleet(fleet, place)
    if json:
        record = {"folder": str(made.folder), "iteration": made.iteration, "failed": failed}
        typer.echo(
            json_format.dumps({**record, "devices": made.devices, "notes": list(made.notes)})
        )
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    same = "hold the same model" if len(made.devices) > 1 and made.alike else "gave it"
    say(
        f"{len(made.devices)} of {len(operator.hosts)} devices {same}, after iteration "
        f"{made.iteration}; wrote {made.folder}: model.safetensors, config.json, README.md"
    )
