"""The operator's part of revoking: the list of a fleet, and who has to hear of it."""

from __future__ import annotations

__all__ = ["revoke_devices"]

from collections.abc import Sequence
from pathlib import Path

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.identity import CERTIFICATE, Authority
from joulemesh.deploy.fleet.pack import DEVICES, OPERATOR, refresh
from joulemesh.deploy.fleet.pem import read_pem, write_pem
from joulemesh.deploy.fleet.revocation import REVOKED, revoke


def revoke_devices(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Put the certificates of devices on the fleet's list, and the list into devices' folders.

    Args:
        folder: of the fleet.
        names: of the devices.

    Returns:
        The names of their neighbours, which must get the list.

    Raises:
        ScenarioError: a device is unknown, or has no certificate.
    """
    fleet, authority = Fleet.load(folder), Authority.load(folder)
    lost = [fleet.number(name) for name in names]
    issued = [folder / DEVICES / name / CERTIFICATE for name in names]
    for name, path in zip(names, issued, strict=True):
        if not path.exists():
            raise ScenarioError(f"{name} has no certificate to revoke; nothing needs to be done")
    before = read_pem(folder / REVOKED) if (folder / REVOKED).exists() else b""
    made = revoke(authority.key, authority.certificate, map(read_pem, issued), before)
    for place in (folder, folder / OPERATOR):
        write_pem(place / REVOKED, made)
    refresh(folder)
    near = {one for device in lost for one in fleet.neighbours(device)} - set(lost)
    return tuple(fleet.names[one] for one in sorted(near))
