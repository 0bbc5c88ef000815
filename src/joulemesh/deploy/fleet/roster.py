"""The operator's part of the roster: devices that come to a running fleet, or leave it for good."""

from __future__ import annotations

__all__ = ["ROSTER", "add_device", "read_roster", "retire_device"]

import json
from dataclasses import replace
from pathlib import Path

from joulemesh.base.bounded import FLEET, read_json
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.deploy.fields import read_record, record_of
from joulemesh.deploy.fleet.credential import authorise
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.identity import CERTIFICATE, Authority
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.messages import NO_ROSTER, FleetRoster
from joulemesh.deploy.signing import signed_text

ROSTER = "roster.json"


def read_roster(folder: Path) -> FleetRoster:
    """The newest roster in a fleet's folder; number 0 if there is none yet.

    Raises:
        ScenarioError: the file is damaged.
    """
    path = folder / ROSTER
    if not path.exists():
        return NO_ROSTER
    try:
        return read_record(FleetRoster, read_json(path, FLEET.now))
    except ValueError as error:
        raise ScenarioError(f"{path} is damaged ({error}); restore it from a copy") from None


def add_device(folder: Path, name: str) -> FleetRoster:
    """The roster in which a spare place is taken, signed and kept in the fleet's folder.

    Raises:
        ScenarioError: there is no such place, or its device has no certificate yet.

    >>> import joulemesh, tempfile
    >>> from joulemesh.deploy.fleet.pack import make_fleet
    >>> plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 3, "leave": [[2, 1]]}))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = Path(place, "fleet")
    ...     fleet = make_fleet(folder, plan, with_keys=True)
    ...     added, retired = add_device(folder, "device-2"), retire_device(folder, "device-1")
    >>> fleet.spares, added.number, added.added, retired.number, retired.added, retired.retired
    ((2,), 1, (2,), 2, (2,), (1,))
    """
    fleet, before = Fleet.load(folder), read_roster(folder)
    device = fleet.number(name)
    if device in before.retired:
        raise ScenarioError(f"{name} is retired, and its run has ended for good; add another place")
    if device not in fleet.spares:
        free = [fleet.names[one] for one in fleet.spares if one not in before.added]
        raise ScenarioError(
            f"{name} belongs to the fleet from its start; places to add a device to: "
            f"{', '.join(free) or 'none (joulemesh deploy init --spares N keeps some)'}"
        )
    if not (folder / DEVICES / name / CERTIFICATE).exists():
        raise ScenarioError(
            f"{name} has no certificate yet; sign its request first: joulemesh node enroll {name} "
            f"there, joulemesh deploy sign {folder} REQUEST here"
        )
    return _signed(folder, fleet, before, replace(before, added=_with(before.added, device)))


def retire_device(folder: Path, name: str) -> FleetRoster:
    """The roster in which a device leaves for good, signed and kept in the fleet's folder.

    Raises:
        ScenarioError: there is no such device, or fewer than two would be left.
    """
    fleet, before = Fleet.load(folder), read_roster(folder)
    device = fleet.number(name)
    if device in fleet.spares and device not in before.added:
        raise ScenarioError(f"{name} is a spare place that no device has taken: nothing to retire")
    gone = set(fleet.spares).difference(before.added).union(before.retired, (device,))
    if len(fleet.names) - len(gone) < 2:
        raise ScenarioError(
            f"without {name} fewer than two devices are left, and none exchanges with another; "
            "stop their nodes to end the run"
        )
    return _signed(folder, fleet, before, replace(before, retired=_with(before.retired, device)))


def _with(devices: tuple[int, ...], device: int) -> tuple[int, ...]:
    return tuple(sorted({*devices, device}))


def _signed(folder: Path, fleet: Fleet, before: FleetRoster, after: FleetRoster) -> FleetRoster:
    """The roster with the next number; the one before if nothing is new."""
    if after == before:
        return before
    after = replace(after, number=before.number + 1, signature="")
    about, key = f"{fleet.id} {fleet.digest}", Authority.load(folder).key
    after = replace(after, signature=authorise(key, about, signed_text(after)))
    write_text(folder / ROSTER, json.dumps(record_of(after)) + "\n")
    return after
