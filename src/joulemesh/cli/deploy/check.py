"""`joulemesh deploy check`: every device and every link of a fleet, looked at."""

from __future__ import annotations

import asyncio
import dataclasses
import json as json_format
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument, JsonOption, LoadOption, load_files

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator

__all__ = ["check"]


def check(
    fleet: FleetArgument,
    no_rate: Annotated[
        bool,
        typer.Option(
            "--no-rate",
            help="Measure no rates: the timed transfers cost energy, which no meter counts.",
        ),
    ] = False,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Probe every device and every link: reachable, certificate, clock, version, rate.

    The devices must be running (`joulemesh node run`). Each is asked from here, and probes its
    neighbours itself. The exit code is 1 if something is wrong.
    """
    from joulemesh.deploy.fleet.medium import medium_notes
    from joulemesh.deploy.operator.operator import Operator

    load_files(load)
    operator = Operator.load(fleet)
    operator.fleet.check_code(tuple(load or ()))
    planned = _planned_bps(operator)
    count = len(operator.hosts)
    asked: list[str] = []

    def done(name: str) -> None:
        asked.append(name)
        if not json:
            say(f"{name} has probed its neighbours ({len(asked)} of {count})", err=True)

    found = asyncio.run(operator.check(planned, rate=not no_rate, done=done))
    if json:
        typer.echo(json_format.dumps([dataclasses.asdict(one) for one in found]))
    else:
        from joulemesh.views.deployment.tables import show_check
        from joulemesh.views.terminal import open_console

        show_check(found, open_console())
        for note in medium_notes(operator.fleet.ground().scenario):
            say(f"note: {note}")
    if any(one.trouble for one in found):
        raise typer.Exit(1)


def _planned_bps(operator: Operator) -> Callable[[str, str], float | None]:
    """The rate from one device to another by the plan; None where it sends nothing there."""
    from joulemesh.planning.static import plan_of

    plan = plan_of(operator.fleet.ground())
    route, fleet = plan.timeline.route, operator.fleet
    there_bps, back_bps = plan.ground.forecast.payload_bps()
    rates: dict[tuple[str, str], float] = {}
    for k in set(route.link_index.tolist()):
        i, j = (fleet.names[one] for one in plan.world.graph.edges[k].tolist())
        rates[i, j], rates[j, i] = float(there_bps[k]), float(back_bps[k])
    return lambda here, there: rates.get((here, there))
