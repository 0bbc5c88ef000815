"""`joulemesh deploy check`, `status`, `collect` and `report`: what the operator asks of a fleet."""

from __future__ import annotations

import asyncio
import dataclasses
import json as json_format
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli.common import FleetArgument, JsonOption, LoadOption, load_files

if TYPE_CHECKING:
    from joulemesh.deploy.operator.operator import Operator
    from joulemesh.study.deployment import Reported


def check(
    fleet: FleetArgument,
    no_rate: Annotated[
        bool,
        typer.Option(
            "--no-rate",
            help="Measure no rates: the timed transfers cost energy, which no meter counts.",
        ),
    ] = False,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Probe every device and every link: reachable, certificate, clock, version, rate.

    The devices must be running (`joulemesh node run`). Each is asked from here, and probes its
    neighbours itself. The exit code is 1 if something is wrong.
    """
    from joulemesh.deploy.fleet.pack import medium_notes
    from joulemesh.deploy.operator.operator import Operator

    load_files(load)
    operator = Operator.load(fleet)
    operator.fleet.check_code(tuple(load or ()))
    planned = _planned_bps(operator)
    count = len(operator.hosts)
    asked: list[str] = []

    def done(name: str) -> None:
        asked.append(name)
        if not json:
            say(f"{name} has probed its neighbours ({len(asked)} of {count})", err=True)

    found = asyncio.run(operator.check(planned, rate=not no_rate, done=done))
    if json:
        typer.echo(json_format.dumps([dataclasses.asdict(one) for one in found]))
    else:
        from joulemesh.views.fleet import show_check
        from joulemesh.views.terminal import open_console

        show_check(found, open_console())
        for note in medium_notes(operator.fleet.ground().scenario):
            say(f"note: {note}")
    if any(one.trouble for one in found):
        raise typer.Exit(1)


def _planned_bps(operator: Operator) -> Callable[[str, str], float | None]:
    """The rate from one device to another by the plan; None where it sends nothing there."""
    from joulemesh.planning.static import plan_of

    plan = plan_of(operator.fleet.ground())
    route, fleet = plan.timeline.route, operator.fleet
    there_bps, back_bps = plan.ground.forecast.payload_bps()
    rates: dict[tuple[str, str], float] = {}
    for k in set(route.link_index.tolist()):
        i, j = (fleet.names[one] for one in plan.world.graph.edges[k].tolist())
        rates[i, j], rates[j, i] = float(there_bps[k]), float(back_bps[k])
    return lambda here, there: rates.get((here, there))


def status(
    fleet: FleetArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it until all devices have ended, or Ctrl-C.")
    ] = False,
    every: Annotated[str, typer.Option(help="How often --watch asks.")] = "2 s",
    collect: Annotated[
        bool,
        typer.Option("--collect", help="Copy the journals here, for `joulemesh deploy report`."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Ask every device how it stands: iteration, joules and seconds against the plan.

    Nothing is changed by it. The exit code is 1 if no device answers.
    """
    from joulemesh.base.units import parse
    from joulemesh.deploy.operator.operator import Operator

    operator, every_s = Operator.load(fleet), max(0.1, parse(every, "s"))
    if watch and not json:
        up = asyncio.run(_watch(operator, every_s, collect))
    else:
        up = asyncio.run(_once(operator, collect, json))
    if not up:
        raise typer.Exit(1)


async def _once(operator: Operator, collect: bool, json: bool) -> bool:
    standings = await operator.standings()
    if json:
        typer.echo(json_format.dumps([dataclasses.asdict(one) for one in standings]))
    else:
        from joulemesh.views.fleet import show_status
        from joulemesh.views.terminal import open_console

        show_status(standings, open_console())
    if collect:
        await _collect(operator)
    return any(one.phase for one in standings)


async def _watch(operator: Operator, every_s: float, collect: bool) -> bool:
    """Show how the fleet stands until nobody answers any more."""
    from joulemesh.views.fleet import FleetDisplay

    seen = False
    with FleetDisplay(every_s=every_s) as display:
        while True:
            standings = await operator.standings()
            display.show(standings)
            up = any(one.phase not in ("", "ended") for one in standings)
            seen = seen or up
            if collect:
                await operator.collect()  # while they run: whoever ends answers no more
            if not up:
                return seen
            await asyncio.sleep(every_s)


async def _collect(operator: Operator) -> None:
    from joulemesh.deploy.operator.operator import JOURNALS

    failed = await operator.collect()
    say(f"copied the journals of {len(operator.hosts) - len(failed)} devices", err=True)
    for name, reason in failed.items():
        say(f"note: {name}: {reason}", err=True)
    say(f"they are in {operator.folder / JOURNALS}", err=True)


def collect(
    fleet: FleetArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="A new folder; FLEET/model by default."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy journals and models from all devices that answer, and write the fleet's model.

    Devices answer while they run, for some minutes after their end if a neighbour may come late
    (`node run --linger` sets how long), and when they are started again. FLEET/model then holds
    model.safetensors, config.json and a card, README.md, with the lines that load it. Where devices
    hold different parameters it is the mean over those that are furthest, and the card says so.
    """
    from joulemesh.deploy.operator.operator import Operator
    from joulemesh.study.export_fleet import export_fleet

    operator = Operator.load(fleet)
    failed = asyncio.run(operator.collect(models=True))
    for name, reason in failed.items():
        say(f"note: {name}: {reason}", err=True)
    place = out or fleet / "model"
    if out is None and place.is_dir():
        shutil.rmtree(place)  # of an earlier call
    made = export_fleet(fleet, place)
    if json:
        record = {"folder": str(made.folder), "iteration": made.iteration, "failed": failed}
        typer.echo(
            json_format.dumps({**record, "devices": made.devices, "notes": list(made.notes)})
        )
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    same = "hold the same model" if len(made.devices) > 1 and made.alike else "gave it"
    say(
        f"{len(made.devices)} of {len(operator.hosts)} devices {same}, after iteration "
        f"{made.iteration}; wrote {made.folder}: model.safetensors, config.json, README.md"
    )


def report(
    fleet: FleetArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder to write to; the fleet's by default.")
    ] = None,
    journals: Annotated[
        Path | None,
        typer.Option(
            "--journals", help="A folder with the devices' journals: NAME/journal.jsonl for each."
        ),
    ] = None,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="First copy the journals of devices that are running."),
    ] = False,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run folder of the same scenario, to draw its curve."),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Simulate what happened, with the same views, in place of a run without failures.",
        ),
    ] = False,
    no_simulate: Annotated[
        bool,
        typer.Option("--no-simulate", help="Leave out the simulated curve, unless --run is given."),
    ] = False,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Write report.html, receipt.json and receipt.csv of a fleet, whether it has finished or not.

    Journals are looked for in FLEET/journals/NAME, where `--collect` and you copy them, and in
    FLEET/devices/NAME/run, where devices on this machine write them.
    """
    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.study.deployment import report_of_fleet

    load_files(load)
    Fleet.load(fleet).check_code(tuple(load or ()))
    if collect:
        _collect_first(fleet)
    if replay and (run is not None or no_simulate):
        raise ScenarioError("--replay simulates by itself; leave out --run and --no-simulate")
    made = report_of_fleet(
        fleet, out, journals=journals, run=run, simulate=not no_simulate, replay=replay
    )
    if json:
        say(json_format.dumps(_record(made)))
        return
    for note in made.notes:
        say(f"note: {note}", err=True)
    say(made.sentence)
    say(f"wrote {made.page}, {made.page.with_name('receipt.json')} and receipt.csv")


def _collect_first(fleet: Path) -> None:
    import asyncio

    from joulemesh.deploy.device.journal import journals_in
    from joulemesh.deploy.operator.operator import JOURNALS, Operator

    failed = asyncio.run(Operator.load(fleet).collect())
    for name, reason in failed.items():
        if not journals_in(fleet / JOURNALS / name):  # otherwise it was copied before
            say(f"note: {name}: {reason}", err=True)


def _record(made: Reported) -> dict[str, Any]:
    whole = json_format.loads(made.receipt.to_json())
    kept = ("device", "name", "battery_j", "meter", "spent_j", "missing_iterations", "totals")
    return {
        "report": str(made.page),
        "summary": made.sentence,
        "notes": list(made.notes),
        "sources": whole["sources"],
        "devices": [{key: one[key] for key in kept} for one in whole["devices"]],
    }
