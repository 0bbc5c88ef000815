"""`joulemesh deploy init`, `sign`, `add`, `retire` and `revoke`: a fleet's folder and members."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from joulemesh.base.errors import say
from joulemesh.cli import completion
from joulemesh.cli.common import (
    FileArgument,
    FleetArgument,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.deploy.messages import FleetRoster
    from joulemesh.scenario import Scenario


def init(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    out: Annotated[
        Path, typer.Option("--out", help="The fleet's folder: a new one, or an empty one.")
    ] = Path("fleet"),
    hosts: Annotated[
        Path | None,
        typer.Option("--hosts", help="Names, addresses and ports, if they are known already."),
    ] = None,
    with_keys: Annotated[
        bool,
        typer.Option(
            "--with-keys", help="Make every device's key here too: for a lab, without node enroll."
        ),
    ] = False,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            help="Deploy this method in place of the plan, if it is not for simulation only.",
            autocompletion=completion.compared_methods,
        ),
    ] = None,
    patience: Annotated[
        str, typer.Option(help="How long a device may be silent before it is suspected.")
    ] = "10 s",
    on_failure: Annotated[
        Literal["go-on", "stop"],
        typer.Option(help="Go on without devices that fail, or stop at the first failure."),
    ] = "go-on",
    quorum: Annotated[
        Literal["majority", "one"],
        typer.Option(
            help="Who must agree to go on without a device: a majority, or, of two devices, one. "
            "Risk: where only the link between the two is broken, each goes on by itself, and they "
            "end with two models."
        ),
    ] = "majority",
    reserve: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.5,
            help="Share of each battery that plans made after a fault leave alone.",
        ),
    ] = 0.01,
    spares: Annotated[
        int,
        typer.Option(
            min=0,
            help="Keep the places of the scenario's last N devices free, for `deploy add`; they "
            "are planned as absent until then.",
        ),
    ] = 0,
    days: Annotated[
        int, typer.Option(min=1, max=3650, help="Days for which certificates are valid.")
    ] = 365,
) -> None:
    """Plan a scenario and pack it for real devices: orders, hosts.csv to fill in, an authority.

    The folder holds the key of the fleet's certificate authority: keep it on your machine. Then
    fill in hosts.csv, and let each device ask for its certificate with `joulemesh node enroll`.
    """
    from joulemesh.base.errors import ScenarioError
    from joulemesh.base.units import parse
    from joulemesh.deploy.fleet.pack import make_fleet, medium_notes
    from joulemesh.deploy.view import Settings

    patience_s = parse(patience, "s")
    if not 0.1 <= patience_s <= 86400:
        raise ScenarioError(f"--patience {patience}: give between 0.1 s and 1 day")
    settings = Settings(
        patience_s=patience_s, on_failure=on_failure, quorum=quorum, reserve=reserve
    )
    scenario = _with_spares(read_scenario(file, preset, changes, load), spares)
    plan = _planned(scenario, method)
    known = None if hosts is None else _hosts(hosts, plan)
    fleet = make_fleet(
        out,
        plan,
        hosts=known,
        with_keys=with_keys,
        settings=settings,
        code=load or (),
        days=days,
    )
    say(f"wrote {out}: fleet {fleet.id} of {len(fleet.names)} devices; {plan!r}")
    if fleet.spares:
        free = ", ".join(fleet.names[one] for one in fleet.spares)
        say(f"places kept free for joulemesh deploy add: {free}")
    if plan.world.packets is not None:
        say(
            "network.packet_error: the plan has expected joules and seconds; transports send lost "
            "packets again until they arrive, so that no message is lost as in a simulated run"
        )
    for note in medium_notes(plan.scenario):
        say(f"note: {note}")
    _next(out, filled=known is not None, with_keys=with_keys)


def _with_spares(scenario: Scenario, spares: int) -> Scenario:
    from joulemesh.base.errors import ScenarioError

    count = scenario.devices.count
    if spares and count - spares < 2:
        raise ScenarioError(
            f"--spares {spares} of {count} devices leaves fewer than two to start with; those that "
            "come later belong to the scenario, too: give it more devices"
        )
    if spares and scenario.devices.leave:
        raise ScenarioError("give --spares or devices.leave, not both")
    leave = [[device, 1] for device in range(count - spares, count)]
    return scenario.override({"devices.leave": leave}) if spares else scenario


def _planned(scenario: Any, method: str | None) -> Any:
    """The plan, or that of a method which has one that devices can make again."""
    from joulemesh.planning.static import plan

    if method is None:
        return plan(scenario)
    from joulemesh.base.errors import ScenarioError
    from joulemesh.methods import build

    made = build(method, scenario)
    if made.plan is None or not made.deployable:
        raise ScenarioError(f"{method} is for simulation only: {made.simulation_only}")
    return made.plan.planned


def _hosts(path: Path, plan: Any) -> Any:
    from joulemesh.deploy.fleet.fleet import read_hosts
    from joulemesh.deploy.fleet.pack import roster_names

    return read_hosts(path, roster_names(plan))


def _next(out: Path, *, filled: bool, with_keys: bool) -> None:
    place = shlex.quote(str(out))
    if not filled:
        say(f"now fill in {out / 'hosts.csv'}")
    if with_keys:
        if not filled:
            say(f"then: joulemesh deploy sign {place}")
        say(f"copy each folder of {out / 'devices'} to its device; there: joulemesh node run NAME/")
    else:
        say("on each device: joulemesh node enroll NAME > request.txt")
        say(f"here, for each: joulemesh deploy sign {place} request.txt")


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
    return len(path.parts) == 1 and (fleet / "devices" / path.name).is_dir()


_NAME = typer.Argument(metavar="NAME", help="Which device.")


def add(fleet: FleetArgument, name: Annotated[str, _NAME]) -> None:
    """Let a device take a spare place of a running fleet (`deploy init --spares`).

    Its request is signed first, as any device's. The roster with it is signed by the fleet's
    authority and handed to one device that answers; the others get it from each other. At the next
    boundary of two iterations they take the newcomer in, give it the parameters and plan again.
    """
    from joulemesh.deploy.fleet.pack import add_device

    roster = add_device(fleet, name)
    taken = _handed(fleet, roster, f"joulemesh deploy add {fleet} {name}")
    say(f"added {name}: {taken} has roster {roster.number} and passes it on")
    say(f"on {name}, unless it runs already: joulemesh node run {name}")


def retire(fleet: FleetArgument, name: Annotated[str, _NAME]) -> None:
    """Let a device leave a running fleet for good, at the next boundary of two iterations.

    It keeps its model, and ends; the others plan again without it. It is not taken in again, though
    its certificate still counts: for a device that was lost or stolen there is `deploy revoke`.
    """
    from joulemesh.deploy.fleet.pack import retire_device

    roster = retire_device(fleet, name)
    taken = _handed(fleet, roster, f"joulemesh deploy retire {fleet} {name}")
    say(f"retired {name}: {taken} has roster {roster.number} and passes it on")


def _handed(fleet: Path, roster: FleetRoster, again: str) -> str:
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
    from joulemesh.deploy.fleet.pack import revoke_devices

    near = revoke_devices(fleet, names)
    say(f"revoked {', '.join(names)}: the list is in {fleet / 'revoked.pem'}")
    if near:
        say(
            f"bring it to {', '.join(near)} by joulemesh deploy sign {fleet} NAME, and start "
            "their nodes again"
        )
