"""`joulemesh deploy status`: who is up, and how far the fleet has come."""

from __future__ import annotations

import asyncio
import dataclasses
import json as json_format
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument, JsonOption

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator

__all__ = ["status"]


def status(
    fleet: FleetArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it until all devices have ended, or Ctrl-C.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often --watch asks.")] = "2 s",
    collect: Annotated[
        bool,
        typer.Option("--collect", help="Copy the journals here, for `joulemesh deploy report`."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Ask every device how it stands: iteration, joules and seconds against the plan.

    Nothing is changed by it. The exit code is 1 if no device answers.
    """
    from joulemesh.base.units import parse
    from joulemesh.deploy.operator.operator import Operator

    operator, every_s = Operator.load(fleet), max(0.1, parse(every, "s"))
    if watch and not json:
        up = asyncio.run(_watch(operator, every_s, collect))
    else:
        up = asyncio.run(_once(operator, collect, json))
    if not up:
        raise typer.Exit(1)


async def _once(operator: Operator, collect: bool, json: bool) -> bool:
    standings = await operator.standings()
    if json:
        typer.echo(json_format.dumps([dataclasses.asdict(one) for one in standings]))
    else:
        from joulemesh.views.deployment.tables import show_status
        from joulemesh.views.terminal import open_console

        show_status(standings, open_console())
    if collect:
        await _collect(operator)
    return any(one.phase for one in standings)


async def _watch(operator: Operator, every_s: float, collect: bool) -> bool:
    """Show how the fleet stands until nobody answers any more."""
    from joulemesh.views.deployment.tables import FleetDisplay

    seen = False
    with FleetDisplay(every_s=every_s) as display:
        while True:
            standings = await operator.standings()
            display.show(standings)
            up = any(one.phase not in ("", "ended") for one in standings)
            seen = seen or up
            if collect:
                await operator.collect()  # while they run: whoever ends answers no more
            if not up:
                return seen
            await asyncio.sleep(every_s)


async def _collect(operator: Operator) -> None:
    from joulemesh.deploy.operator.operator import JOURNALS

    failed = await operator.collect()
    say(f"copied the journals of {len(operator.hosts) - len(failed)} devices", err=True)
    for name, reason in failed.items():
        say(f"note: {name}: {reason}", err=True)
    say(f"they are in {operator.folder / JOURNALS}", err=True)
