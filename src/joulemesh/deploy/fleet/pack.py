"""The folders of a fleet: the operator's, with the authority, and one for each device.

The operator's folder has ``fleet.json``, ``plan.npz``, ``inputs/``, ``hosts.csv`` to fill in, the
certificate authority, the folder ``operator`` with the certificate for check and status, and
``devices/NAME`` with what this device alone needs.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.base.files import (
    FLEET,
    make_folder,
    read_bounded,
    read_json,
    sha256_of,
    write_bytes,
    write_text,
)
from joulemesh.data.load import device_names
from joulemesh.deploy.codec import Record, read_claim, write_record
from joulemesh.deploy.device.continuation import require_peers
from joulemesh.deploy.fleet.certificates import (
    AUTHORITY,
    CERTIFICATE,
    REVOKED,
    Authority,
    Identity,
    IdentityError,
    authorise,
    check_name,
    make_identity,
    read_pem,
    revoke,
    write_pem,
)
from joulemesh.deploy.fleet.fleet import (
    FILE,
    HOSTS,
    SOURCES,
    Fleet,
    Host,
    Input,
    Sizes,
    hosts_text,
    numbered_names,
    read_hosts,
    task_of,
    write_hosts,
)
from joulemesh.deploy.messages import NO_ROSTER, FleetRoster, signed_text
from joulemesh.deploy.transport import Address
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan, digest_of
from joulemesh.planning.walk import Continuation
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import INPUTS, input_files, with_files
from joulemesh.scenario.sections import FILES

_SUFFIX = re.compile(r"[^A-Za-z0-9.]")
_DATA = "training."  # samples stay where they are: every device has its own


def check_deployable(plan: Plan) -> None:
    devices = plan.scenario.devices
    leaving = any(first > 1 for _, first in devices.leave)  # the others are spare places
    for name in ("availability", "leave", "harvest_w", "capacity_j", "positions"):
        if leaving if name == "leave" else getattr(devices, name) not in (None, ()):
            raise ScenarioError(
                f"devices.{name} is for simulation: in the field devices themselves come, go, move "
                "and recharge; leave it out (`joulemesh deploy local` follows availability)"
            )
    _require_full_clock(plan)
    require_peers(Continuation.of_plan(plan))


def _require_full_clock(plan: Plan) -> None:
    """Refuse a plan that counts on slower processors; the continuations of others never do."""
    if plan.ground.clock == "full":
        return
    slow_j = plan.compute_total_j.sum()
    full_j = (plan.rounds * plan.ground.world.devices.round_energy_j).sum()
    raise ScenarioError(
        f'plan.clock = "{plan.ground.clock}" plans {slow_j:.4g} J for training, which takes '
        f"{full_j:.4g} J at full speed: nodes do not set the clocks of processors, so "
        "that a fleet would spend more than planned, and batteries may run out before its end",
        field="plan.clock",
        remedies=[(Edit("plan.clock", "full"),)],
    )


def roster_names(plan: Plan) -> tuple[str, ...]:
    names, count = device_names(plan.scenario), plan.scenario.devices.count
    table = plan.scenario.devices.table
    if not names:
        return numbered_names(count)
    for device, name in enumerate(names):
        try:
            check_name(name)
        except IdentityError as error:
            raise ScenarioError(f"{table}, device {device}: {error}") from None
    return names


def portable(plan: Plan) -> tuple[Scenario, str, dict[str, tuple[str, Path]]]:
    """A plan's scenario with names of its files that hold on every device."""
    named = {
        field: (f"{field.replace('.', '-')}{_SUFFIX.sub('', path.suffix)}", path)
        for field, path in input_files(plan.scenario).items()
        if not field.startswith(_DATA)
    }
    inside = {field: f"{INPUTS}/{name}" for field, (name, _) in named.items()}
    # Samples and code do not travel, and neither do their places on this machine.
    inside |= {field: Path(path).name for field, path in sources(plan.scenario).items()}
    inside.pop("training.data_dir", None)
    stated = with_files(plan.scenario, inside)
    if stated.training.data_dir is not None:
        training = stated.training.model_copy(update={"data_dir": None})
        stated = stated.model_copy(update={"training": training})
    return stated, digest_of(replace(plan, ground=replace(plan.ground, scenario=stated))), named


def sources(scenario: Scenario) -> dict[str, str]:
    """Files and folders that stay where they are: samples, and the user's own code; by field."""
    found = {
        field: str(path.absolute())
        for field, path in input_files(scenario).items()
        if field.startswith(_DATA)
    }
    folder = FILES["training.dataset"].path_in(scenario.training.dataset)
    if folder is not None and "training.dataset" not in found and Path(folder).exists():
        found["training.dataset"] = str(Path(folder).absolute())  # a folder of shards
    if scenario.training.data_dir is not None:
        found["training.data_dir"] = scenario.training.data_dir
    return found


def own_model_file(scenario: Scenario) -> Path | None:
    return input_files(scenario).get("training.model")


def own_files(scenario: Scenario, loaded: Sequence[Path]) -> tuple[Path, ...]:
    """The user's own files that every device needs: those loaded, and that of the model."""
    model = own_model_file(scenario)
    known = {path.resolve() for path in loaded}
    return (*loaded, *([model] if model is not None and model.resolve() not in known else []))


def medium_notes(scenario: Scenario) -> tuple[str, ...]:
    found = []
    if scenario.network.medium == "shared":
        found.append(
            'network.medium = "shared": devices do not keep to slots; the radio itself decides who '
            "is on the air, and the plan's seconds of an exchange are what good slots would take"
        )
    if scenario.network.broadcast:
        found.append(
            "network.broadcast = true: the bytes go to each neighbour by unicast; modelled joules "
            "are those of the plan, one broadcast for all of them, and a meter of the machine "
            "counts what the unicasts really take"
        )
    return tuple(found)


DEVICES, OPERATOR, ORDERS, PLAN = "devices", "operator", "orders.json", "plan.npz"


@dataclass(frozen=True)
class PlanPart(Record):
    """What a device has to know of the plan before it makes that itself."""

    plan: str  # its digest
    device: int  # number of the device
    iterations: int
    battery_j: float  # joules that the device may spend in all
    deadline_s: float | None  # seconds that an iteration may take; None without a limit

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return read_claim(cls, read_json(path, FLEET.now))
        except (OSError, ValueError) as error:
            raise ScenarioError(f"{path} cannot be read ({error}); copy the folder again") from None


@dataclass(frozen=True)
class DevicePack:
    """What one device needs to take part."""

    folder: Path
    fleet: Fleet  # what all devices know
    device: int
    part: PlanPart
    hosts: dict[int, Host]  # where it and its neighbours are reached, by number

    @property
    def name(self) -> str:
        return self.fleet.names[self.device]

    @property
    def neighbours(self) -> tuple[int, ...]:
        return self.fleet.neighbours(self.device)

    @property
    def identity(self) -> Identity:
        return Identity.load(self.folder)

    @property
    def listens_on(self) -> Address:
        """All of the machine's addresses, or its own only if nobody else can reach that."""
        mine = self.hosts[self.device]
        everywhere = "::" if ":" in mine.address else "0.0.0.0"
        return Address(mine.address if mine.is_here else everywhere, mine.port)

    @classmethod
    def load(cls, folder: Path) -> Self:
        fleet = Fleet.load(folder)
        mine = PlanPart.load(folder / ORDERS)
        if mine.plan != fleet.digest:
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
            label_distance=work.label_distance,
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
    fleet, authority = Fleet.load(folder), Authority.load(folder)
    deadline_s = None if plan.deadline_s is None else float(plan.deadline_s)
    for device, name in enumerate(fleet.names):
        home = make_folder(folder / DEVICES / name)
        part = PlanPart(
            fleet.digest, device, plan.iterations, float(plan.energy_budget_j[device]), deadline_s
        )
        write_text(home / ORDERS, write_record(part) + "\n")
        if with_keys:
            make_identity(authority, name, days=days).save(home)
    refresh(folder)


def fleet_hosts(folder: Path, fleet: Fleet) -> dict[str, Host]:
    return read_hosts(folder / HOSTS, fleet.names)


def refresh(folder: Path) -> None:
    fleet = Fleet.load(folder)
    hosts = fleet_hosts(folder, fleet)
    for name in fleet.names:
        write_files(folder / DEVICES / name, device_files(folder, fleet, hosts, name))


def device_files(
    folder: Path, fleet: Fleet, hosts: Mapping[str, Host], name: str
) -> dict[str, bytes]:
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


def revoke_devices(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Put the certificates of devices on the fleet's list, and the list into devices' folders."""
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


ROSTER = "roster.json"


def read_roster(folder: Path) -> FleetRoster:
    path = folder / ROSTER
    if not path.exists():
        return NO_ROSTER
    try:
        return read_claim(FleetRoster, read_json(path, FLEET.now))
    except ValueError as error:
        raise ScenarioError(f"{path} is damaged ({error}); restore it from a copy") from None


def add_device(folder: Path, name: str) -> FleetRoster:
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
    return _signed_roster(folder, fleet, before, replace(before, added=_with(before.added, device)))


def retire_device(folder: Path, name: str) -> FleetRoster:
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
    return _signed_roster(
        folder, fleet, before, replace(before, retired=_with(before.retired, device))
    )


def _with(devices: tuple[int, ...], device: int) -> tuple[int, ...]:
    return tuple(sorted({*devices, device}))


def _signed_roster(
    folder: Path, fleet: Fleet, before: FleetRoster, after: FleetRoster
) -> FleetRoster:
    """The roster with the next number; the one before if nothing is new."""
    if after == before:
        return before
    after = replace(after, number=before.number + 1, signature="")
    about, key = f"{fleet.id} {fleet.digest}", Authority.load(folder).key
    after = replace(after, signature=authorise(key, about, signed_text(after)))
    write_text(folder / ROSTER, write_record(after) + "\n")
    return after
