"""`joulemesh deploy init`: the folder of a fleet, made from a plan."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from joulemesh.base.printable import say
from joulemesh.cli import completion
from joulemesh.cli.common import (
    FileArgument,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario

__all__ = ["init"]


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
    from joulemesh.deploy.fleet.medium import medium_notes
    from joulemesh.deploy.fleet.pack import make_fleet
    from joulemesh.deploy.settings import Settings

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
    """The scenario whose last devices leave before the first iteration."""
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
    from joulemesh.deploy.fleet.deployable import roster_names
    from joulemesh.deploy.fleet.hosts import read_hosts

    return read_hosts(path, roster_names(plan))


def _next(out: Path, *, filled: bool, with_keys: bool) -> None:
    """What to do now."""
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
