"""Pages that this machine serves: `joulemesh studio`, `watch`."""

from __future__ import annotations

__all__ = ["studio", "watch"]

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.errors import say
from joulemesh.cli import common

if TYPE_CHECKING:
    from joulemesh.views.deployment import Curve


def studio(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="Where to listen; 0: any that is free."),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    json: common.JsonOption = False,
) -> None:
    """Plan on a web page: change a field, drag a device, and see the plan at once.

    The page is served on this machine only (127.0.0.1), to whoever has the address that is
    printed. With --json nothing is served: all that the page would show is printed.
    """
    scenario = common.read_scenario(file, preset, changes, load)
    if json:
        from json import dumps

        from joulemesh.studio.document import document

        typer.echo(dumps(document(scenario)))
        return
    from joulemesh.studio.app import serve

    def ready(address: str) -> None:
        say(f"studio at {address}")
        say("Ctrl-C ends it.", err=True)
        if browser:
            from webbrowser import open as open_page

            open_page(address)

    serve(scenario, path=file, port=port, load=load or [], ready=ready, wait=_until_interrupted)


def watch(
    fleet: common.FleetArgument,
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Listen here on 127.0.0.1; 0 takes any free port."),
    ] = 0,
    run: Annotated[
        Path | None,
        typer.Option("--run", help="A run folder of the same scenario, to draw its curve."),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Simulate the scenario first, to draw its curve."),
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """Watch a fleet at work: who is up, joules and seconds against the plan, links, accuracy.

    The fleet is not affected. The page is served on this machine only (127.0.0.1), to whoever has
    the printed address. Devices are polled twice a second; those that do not answer are marked.
    `deploy local` fleets can be watched while they run. With --json nothing is served: the
    content of the page is printed.
    """
    from joulemesh.deploy.fleet.fleet import Fleet

    common.load_files(load)
    Fleet.load(fleet).check_code(tuple(load or ()))
    curve, notes = _curve(fleet, run, simulate)
    if json:
        _print(fleet, curve, notes)
        return
    from joulemesh.studio.watching import watch_fleet

    def ready(address: str) -> None:
        say(f"fleet at {address}")
        say("Ctrl-C ends it; the fleet goes on.", err=True)
        if browser:
            webbrowser.open(address)

    watch_fleet(fleet, port=port, curve=curve, notes=notes, ready=ready, wait=_until_interrupted)


def _curve(fleet: Path, run: Path | None, simulate: bool) -> tuple[Curve | None, list[str]]:
    """The simulated curve: of a run, of one that `deploy report` left, or of one carried out."""
    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.planning.static import plan_of
    from joulemesh.study.deployment import SIMULATED, simulated_curve

    kept = fleet / SIMULATED
    if run is None and not simulate:
        if not kept.is_dir():
            return None, ["No simulated curve: give --run FOLDER, or --simulate."]
        run = kept
    return simulated_curve(fleet, plan_of(Fleet.load(fleet).ground()), run, simulate=simulate)


def _print(fleet: Path, curve: Curve | None, notes: list[str]) -> None:
    import time
    from json import dumps

    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.studio.watching import Document, FleetSource

    document = Document(Fleet.load(fleet), curve, notes)
    with FleetSource(fleet) as source:
        while not all(one.asked for one in source.look()):
            time.sleep(0.05)
        typer.echo(dumps(document.made(source.look())))


def _until_interrupted() -> None:
    import signal
    import threading

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    try:
        while not ended.wait(1.0):
            pass
    except KeyboardInterrupt:
        pass
