"""`joulemesh deploy add` and `retire`: devices that come to a running fleet, or leave it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument

if TYPE_CHECKING:
    from joulemesh.deploy.messages import FleetRoster

__all__ = ["add", "retire"]

_NAME = typer.Argument(metavar="NAME", help="Which device.")


def add(fleet: FleetArgument, name: Annotated[str, _NAME]) -> None:
    """Let a device take a spare place of a running fleet (`deploy init --spares`).

    Its request is signed first, as any device's. The roster with it is signed by the fleet's
    authority and handed to one device that answers; the others get it from each other. At the next
    boundary of two iterations they take the newcomer in, give it the parameters and plan again.
    """
    from joulemesh.deploy.fleet.roster import add_device

    roster = add_device(fleet, name)
    taken = _handed(fleet, roster, f"joulemesh deploy add {fleet} {name}")
    say(f"added {name}: {taken} has roster {roster.number} and passes it on")
    say(f"on {name}, unless it runs already: joulemesh node run {name}")


def retire(fleet: FleetArgument, name: Annotated[str, _NAME]) -> None:
    """Let a device leave a running fleet for good, at the next boundary of two iterations.

    It keeps its model, and ends; the others plan again without it. It is not taken in again, though
    its certificate still counts: for a device that was lost or stolen there is `deploy revoke`.
    """
    from joulemesh.deploy.fleet.roster import retire_device

    roster = retire_device(fleet, name)
    taken = _handed(fleet, roster, f"joulemesh deploy retire {fleet} {name}")
    say(f"retired {name}: {taken} has roster {roster.number} and passes it on")


def _handed(fleet: Path, roster: FleetRoster, again: str) -> str:
    """The device that has taken a roster.

    Raises:
        ScenarioError: none has, or it has a newer one.
    """
    from joulemesh.base.errors import ScenarioError
    from joulemesh.deploy.operator.operator import Operator
    from joulemesh.deploy.transport import TransportError

    try:
        name, newest = asyncio.run(Operator.load(fleet).enrol(roster))
    except TransportError as error:
        raise ScenarioError(
            f"roster {roster.number} is signed, and no device has taken it ({error.detail}); when "
            f"one runs, say again: {again}"
        ) from None
    if newest > roster.number:
        raise ScenarioError(
            f"{name} has roster {newest}, and {fleet} only {roster.number}: this is an older copy "
            "of the fleet's folder; use the newest one"
        )
    return name
