"""The folders of a fleet: the operator's, with the authority, and one for each device.

The operator's folder has ``fleet.json``, ``plan.npz``, ``inputs/``, ``hosts.csv`` to fill in, the
certificate authority, the folder ``operator`` with the certificate for check and status, and
``devices/NAME`` with what this device alone needs.
"""

from __future__ import annotations

__all__ = [
    "DEVICES",
    "OPERATOR",
    "ORDERS",
    "DevicePack",
    "device_files",
    "fleet_hosts",
    "make_fleet",
    "refresh",
    "write_files",
]

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from joulemesh.base.bounded import FLEET, read_bounded
from joulemesh.base.checksums import sha256_of
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, write_bytes, write_text
from joulemesh.deploy.fleet.deployable import (
    check_deployable,
    own_files,
    portable,
    roster_names,
    sources,
)
from joulemesh.deploy.fleet.fleet import FILE, SOURCES, Fleet, Input, Settings, Sizes
from joulemesh.deploy.fleet.hosts import HOSTS, Host, hosts_text, read_hosts, write_hosts
from joulemesh.deploy.fleet.identity import (
    AUTHORITY,
    CERTIFICATE,
    Authority,
    Identity,
    make_identity,
)
from joulemesh.deploy.fleet.revocation import REVOKED
from joulemesh.deploy.fleet.task import task_of
from joulemesh.deploy.transport import Address
from joulemesh.planning.orders import Orders, orders
from joulemesh.planning.plan import Plan
from joulemesh.scenario.given import INPUTS

DEVICES, OPERATOR, ORDERS, PLAN = "devices", "operator", "orders.json", "plan.npz"


@dataclass(frozen=True)
class DevicePack:
    """What one device needs to take part.

    Attributes:
        folder: of the device.
        fleet: what all devices know.
        device: its number.
        orders: its part of the plan.
        hosts: where it and its neighbours are reached, by number.
    """

    folder: Path
    fleet: Fleet
    device: int
    orders: Orders
    hosts: dict[int, Host]

    @property
    def name(self) -> str:
        """What the device is called."""
        return self.fleet.names[self.device]

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The devices that it may talk to."""
        return self.fleet.neighbours(self.device)

    @property
    def identity(self) -> Identity:
        """Its key and certificate.

        Raises:
            IdentityError: a file is missing, or they do not belong together.
        """
        return Identity.load(self.folder)

    @property
    def listens_on(self) -> Address:
        """All of the machine's addresses, or its own only if nobody else can reach that."""
        mine = self.hosts[self.device]
        everywhere = "::" if ":" in mine.address else "0.0.0.0"
        return Address(mine.address if mine.is_here else everywhere, mine.port)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a device's folder, and check that its parts belong together.

        Raises:
            ScenarioError: a file is missing, damaged, or of another fleet or device.
        """
        fleet = Fleet.load(folder)
        mine = Orders.load(folder / ORDERS)
        if mine.plan != fleet.digest or mine.devices != len(fleet.names):
            raise ScenarioError(
                f"{folder / ORDERS} is of another plan than {folder / FILE}; copy the folder again"
            )
        if not 0 <= mine.device < len(fleet.names):
            raise ScenarioError(f"{folder / ORDERS} is of no device of the fleet; copy it again")
        near = (mine.device, *fleet.neighbours(mine.device))
        hosts = read_hosts(folder / HOSTS, [fleet.names[one] for one in near])
        return cls(folder, fleet, mine.device, mine, {one: hosts[fleet.names[one]] for one in near})


def make_fleet(
    folder: Path,
    plan: Plan,
    *,
    hosts: Mapping[str, Host] | None = None,
    with_keys: bool = False,
    settings: Settings | None = None,
    code: Sequence[Path] = (),
    days: float = 365,
) -> Fleet:
    """Make the folder of a fleet, whole or not at all.

    Args:
        folder: a new one, or an empty one.
        plan: that the fleet carries out.
        hosts: where devices are reached, by name; those missing are left to fill in.
        with_keys: make every device's key here, too; for a lab, where one machine may know all.
        settings: how devices treat each other.
        code: the user's own files that were loaded before planning.
        days: for which certificates are valid.

    Returns:
        The fleet, read back.

    Raises:
        ScenarioError: the folder is not empty or cannot be written, or the plan cannot be deployed.

    >>> import joulemesh, tempfile
    >>> plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 3}))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     fleet = make_fleet(Path(place, "fleet"), plan, with_keys=True)
    ...     mine = DevicePack.load(Path(place, "fleet", "devices", "device-1"))
    ...     mine.name, mine.neighbours, mine.hosts[0].port, mine.identity.bearer.name
    ('device-1', (0, 2), 7100, 'device-1')
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScenarioError(f"{folder} exists and is not empty; choose another place")
    check_deployable(plan)
    names = roster_names(plan)
    unknown = next((name for name in hosts or {} if name not in names), None)
    if unknown is not None:
        raise ScenarioError(f"the fleet has no device {unknown!r:.80}; correct the hosts")
    fleet, inputs = _described(plan, names, settings or Settings(), code)
    make_folder(folder.parent)
    draft = folder.parent / f".{folder.name[:80]}.{secrets.token_hex(8)}.part"
    try:
        _lay_out(draft, fleet, plan, inputs, days)
        write_hosts(draft / HOSTS, [(hosts or {}).get(name, Host(name)) for name in names])
        _devices(draft, plan, with_keys=with_keys, days=days)
        if folder.exists():
            folder.rmdir()
        os.rename(draft, folder)
    except OSError as error:
        raise ScenarioError(
            f"cannot make the folder {folder}: {error.strerror}; choose another place"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Fleet.load(folder)


def _described(
    plan: Plan, names: tuple[str, ...], settings: Settings, code: Sequence[Path]
) -> tuple[Fleet, dict[str, Path]]:
    """The record of a fleet, and the files that travel with it by their new names."""
    stated, digest, inputs = portable(plan)
    work = plan.work
    fleet = Fleet(
        id=secrets.token_hex(8),
        digest=digest,
        names=names,
        links=tuple(sorted((min(link), max(link)) for link in plan.world.graph.edges.tolist())),
        settings=settings,
        task=task_of(plan.scenario),
        code={path.name: sha256_of(path) for path in own_files(plan.scenario, code)},
        inputs={
            field: Input(name=name, sha256=sha256_of(path))
            for field, (name, path) in inputs.items()
        },
        stated=stated.model_dump(mode="json"),
        origins={name: str(origin) for name, origin in plan.scenario.origins().items()},
        sizes=Sizes(
            parameters=work.parameters,
            model_bits=work.model_bits,
            round_samples=tuple(work.round_samples.tolist()),
            operations=work.operations,
        ),
    )
    return fleet, dict(inputs.values())


def _lay_out(folder: Path, fleet: Fleet, plan: Plan, inputs: dict[str, Path], days: float) -> None:
    make_folder(folder)
    if inputs:
        make_folder(folder / INPUTS)
    for name, path in inputs.items():
        write_bytes(folder / INPUTS / name, read_bounded(path, FLEET.now))
    write_text(folder / FILE, fleet.to_json())
    if places := sources(plan.scenario):
        write_text(folder / SOURCES, json.dumps(places, indent=1) + "\n")
    plan.save(folder / PLAN)
    authority = Authority.make(fleet.id)
    authority.save(folder)
    make_identity(authority, OPERATOR, role="operator", days=days).save(folder / OPERATOR)


def _devices(folder: Path, plan: Plan, *, with_keys: bool, days: float) -> None:
    """Write the folder of each device."""
    fleet, authority = Fleet.load(folder), Authority.load(folder)
    digest = fleet.digest
    for device, name in enumerate(fleet.names):
        home = make_folder(folder / DEVICES / name)
        mine = orders(plan, device, digest)
        mine.save(home / ORDERS)
        if with_keys:
            make_identity(authority, name, days=days).save(home)
    refresh(folder)


def fleet_hosts(folder: Path, fleet: Fleet) -> dict[str, Host]:
    """Where the devices of a fleet are reached, by name; addresses may be missing."""
    return read_hosts(folder / HOSTS, fleet.names)


def refresh(folder: Path) -> None:
    """Bring every device's folder up to date with ``hosts.csv``.

    Raises:
        ScenarioError: ``hosts.csv`` or another file is malformed.
    """
    fleet = Fleet.load(folder)
    hosts = fleet_hosts(folder, fleet)
    for name in fleet.names:
        write_files(folder / DEVICES / name, device_files(folder, fleet, hosts, name))


def device_files(
    folder: Path, fleet: Fleet, hosts: Mapping[str, Host], name: str
) -> dict[str, bytes]:
    """What a device needs, apart from its key: bytes by relative name.

    Args:
        folder: of the fleet.
        fleet: read from it.
        hosts: of all devices, by name.
        name: of the device.
    """
    device = fleet.number(name)
    home = folder / DEVICES / name
    near = [fleet.names[one] for one in (device, *fleet.neighbours(device))]
    made = {
        ORDERS: read_bounded(home / ORDERS, FLEET.now),
        HOSTS: hosts_text(hosts[one] for one in near).encode(),
        AUTHORITY: read_bounded(folder / AUTHORITY, FLEET.now),
    }
    for one in fleet.inputs.values():
        path = f"{INPUTS}/{one.name}"
        made[path] = read_bounded(folder / path, FLEET.now)
    if (folder / REVOKED).exists():
        made[REVOKED] = read_bounded(folder / REVOKED, FLEET.now)
    if (home / CERTIFICATE).exists():
        made[CERTIFICATE] = read_bounded(home / CERTIFICATE, FLEET.now)
    made[FILE] = read_bounded(folder / FILE, FLEET.now)  # last: a folder without it is refused
    return made


def write_files(folder: Path, content: Mapping[str, bytes]) -> None:
    """Write files into a folder, each whole, where they are not there already."""
    make_folder(folder)
    for name, data in content.items():
        path = folder / name
        make_folder(path.parent)
        if not (
            path.is_file()
            and path.stat().st_size == len(data)
            and read_bounded(path, len(data)) == data
        ):
            write_bytes(path, data)
