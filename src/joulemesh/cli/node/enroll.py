"""`joulemesh node enroll`: a device asks to take part in a fleet, and takes up the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.printable import say

__all__ = ["enroll"]


def enroll(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the fleet calls this device.")],
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="FILE", help="Take up the answer; - to paste it."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The device's folder; NAME unless given.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Where neighbours reach this device; else its address in the network."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port to listen on.")] = 7100,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make another key although there is one.")
    ] = False,
) -> None:
    """Make this device's key, and print the block of text that the fleet's operator signs.

    The key stays in the device's folder. The operator answers with another block, which
    `--accept` takes up: the certificate, the device's orders, and where its neighbours are.
    """
    home = folder or Path(name)
    if accept is None:
        _ask(home, name, address, port, anew)
    else:
        _accept(home, name, accept)


def _ask(home: Path, name: str, address: str | None, port: int, anew: bool) -> None:
    from joulemesh.deploy.fleet.enroll import ask
    from joulemesh.deploy.fleet.hosts import checked_host, own_address
    from joulemesh.errors import ScenarioError

    where = own_address() if address is None else address
    if not where:
        raise ScenarioError(
            "this machine has no default route, so that its address in the network is not known; "
            "add --address with the host name or the IP address at which neighbours reach it"
        )
    block = ask(home, checked_host("--address", name, where, str(port)), anew=anew)
    typer.echo(block)
    say(f"the key is in {home}; sign this on your machine: joulemesh deploy sign FLEET -", err=True)
    say(f"and bring the answer here: joulemesh node enroll {name} --accept -", err=True)


def _accept(home: Path, name: str, answer: Path) -> None:
    from joulemesh.cli.blocks import pasted_text
    from joulemesh.deploy.fleet.enroll import accept

    if answer == Path("-"):
        say("paste the answer of `joulemesh deploy sign`:", err=True)
    mine = accept(home, pasted_text(answer), name)
    fault = mine.identity.bearer.fault()
    if fault is not None:
        say(f"note: {fault}", err=True)
    near = ", ".join(mine.fleet.names[one] for one in mine.neighbours)
    say(f"{name} is device {mine.device} of fleet {mine.fleet.id}; its neighbours are {near}")
    say(f"now: joulemesh node run {home}")
