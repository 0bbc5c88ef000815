"""`joulemesh deploy revoke`: certificates of devices that were lost."""

from __future__ import annotations

from typing import Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import FleetArgument

__all__ = ["revoke"]


def revoke(
    fleet: FleetArgument,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Whose certificates shall not count."),
    ],
) -> None:
    """Let the certificates of devices count no more: after a theft, or before signing anew.

    The list is in FLEET/revoked.pem, signed by the fleet's authority. A device heeds it from the
    next start of its node on, once `joulemesh deploy sign FLEET NAME` has brought it there.
    """
    from joulemesh.deploy.fleet.revoking import revoke_devices

    near = revoke_devices(fleet, names)
    say(f"revoked {', '.join(names)}: the list is in {fleet / 'revoked.pem'}")
    if near:
        say(
            f"bring it to {', '.join(near)} by joulemesh deploy sign {fleet} NAME, and start "
            "their nodes again"
        )
