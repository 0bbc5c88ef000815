"""`joulemesh deploy sign`: certificates for the devices that ask for them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument

__all__ = ["sign"]


def sign(
    fleet: FleetArgument,
    requests: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REQUEST",
            help="What `joulemesh node enroll` printed, in files; - is stdin. Or the name of a "
            "device that was signed before, whose neighbours have moved.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write each answer to NAME.txt in this folder; else printed."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Sign also for a device that lost its first key.")
    ] = False,
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="Days for which the certificates are valid.")
    ] = 365,
) -> None:
    """Answer devices that want to take part: certificate, orders and neighbours, in one block.

    Requests may be signed together or one by one: a device that does not know the address of a
    neighbour waits until that one connects. Without requests, the devices' folders in the fleet's
    folder are brought up to date with hosts.csv.
    """
    from joulemesh.base.errors import ScenarioError
    from joulemesh.cli.common import pasted_text
    from joulemesh.deploy.fleet.enroll import answer_again, read_request
    from joulemesh.deploy.fleet.enroll import sign as answer
    from joulemesh.deploy.fleet.pack import refresh

    if not requests:
        refresh(fleet)
        say(f"brought the folders in {fleet / 'devices'} up to date with {fleet / 'hosts.csv'}")
        return
    if len(requests) > 1 and out is None:
        raise ScenarioError(
            f"{len(requests)} requests have {len(requests)} answers; add --out DIR for them"
        )
    known = [str(path) for path in requests if not path.is_file() and _is_device(fleet, path)]
    read = [read_request(pasted_text(path)) for path in requests if str(path) not in known]
    blocks = answer(fleet, read, again=again, days=days) if read else {}
    blocks |= {name: answer_again(fleet, name) for name in known}
    if out is None:
        sys.stdout.write("".join(f"{block}\n" for block in blocks.values()))
        say("paste this on the device: joulemesh node enroll NAME --accept -", err=True)
        return
    from joulemesh.base.files import make_folder, write_text

    make_folder(out)
    for name, block in blocks.items():
        write_text(out / f"{name}.txt", f"{block}\n")
        say(f"wrote {out / name}.txt; on {name}: joulemesh node enroll {name} --accept {name}.txt")


def _is_device(fleet: Path, path: Path) -> bool:
    """Is it the name of a device, not of a file?"""
    return len(path.parts) == 1 and (fleet / "devices" / path.name).is_dir()
