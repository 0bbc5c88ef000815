"""`joulemesh node`: one device of a fleet, on the device itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from joulemesh.base.errors import called, say
from joulemesh.cli.common import LoadOption, load_files, pasted_text

HELP = "Be one device of a fleet: make its key, train and exchange with its neighbours."
_EVERY_S = 5.0

# Kinds of journal lines that a user wants to see, and how they are said.
_TOLD: dict[str, Callable[[dict[str, Any]], str]] = {
    "view": lambda f: f"view {f.get('number')}: {len(f.get('members', ()))} devices take part",
    "suspected": lambda f: f"{f.get('device')} is suspected: {f.get('reason')}",
    "refused": lambda f: f"refused {f.get('sender')}: {f.get('reason')}",
    "left": lambda f: f"leaves: {f.get('reason')}",
    "meter": lambda f: f"joules are modelled while the meter cannot be read: {f.get('reason')}",
    "not-saved": lambda f: f"cannot save: {f.get('reason')}",
    "not-trained": lambda f: f"iteration {f.get('iteration')}: {f.get('reason')}",
    "not-evaluated": lambda f: f"iteration {f.get('iteration')}: {f.get('reason')}",
}


def enroll(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the fleet calls this device.")],
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="FILE", help="Take up the answer; - to paste it."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="The device's folder; NAME unless given.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Where neighbours reach this device; else its address in the network."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port to listen on.")] = 7100,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make another key although there is one.")
    ] = False,
) -> None:
    """Make this device's key, and print the block of text that the fleet's operator signs.

    The key stays in the device's folder. The operator answers with another block, which
    `--accept` takes up: the certificate, the device's orders, and where its neighbours are.
    """
    home = folder or Path(name)
    if accept is None:
        _ask(home, name, address, port, anew)
    else:
        _accept(home, name, accept)


def _ask(home: Path, name: str, address: str | None, port: int, anew: bool) -> None:
    from joulemesh.base.errors import ScenarioError
    from joulemesh.deploy.fleet.enroll import ask
    from joulemesh.deploy.fleet.fleet import checked_host, own_address

    where = own_address() if address is None else address
    if not where:
        raise ScenarioError(
            "this machine has no default route, so that its address in the network is not known; "
            "add --address with the host name or the IP address at which neighbours reach it"
        )
    block = ask(home, checked_host("--address", name, where, str(port)), anew=anew)
    typer.echo(block)
    say(f"the key is in {home}; sign this on your machine: joulemesh deploy sign FLEET -", err=True)
    say(f"and bring the answer here: joulemesh node enroll {name} --accept -", err=True)


def _accept(home: Path, name: str, answer: Path) -> None:
    from joulemesh.deploy.fleet.enroll import accept

    if answer == Path("-"):
        say("paste the answer of `joulemesh deploy sign`:", err=True)
    mine = accept(home, pasted_text(answer), name)
    fault = mine.identity.bearer.fault()
    if fault is not None:
        say(f"note: {fault}", err=True)
    near = ", ".join(mine.fleet.names[one] for one in mine.neighbours)
    say(f"{name} is device {mine.device} of fleet {mine.fleet.id}; its neighbours are {near}")
    say(f"now: joulemesh node run {home}")


def run(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The device's folder, as `node enroll` made it."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Train on this device's own samples, in any format that `joulemesh run` reads.",
        ),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="Train your own object: parameters(), load(parameters), "
            "train(iteration, rounds), evaluate().",
        ),
    ] = None,
    meter: Annotated[
        str,
        typer.Option(
            help="Count joules by a meter of this machine (see `joulemesh doctor`), an external "
            "meter's FILE.csv, or the plan's prices (modelled); auto: a meter that is found, "
            "otherwise modelled.",
        ),
    ] = "auto",
    watts: Annotated[
        str | None, typer.Option(help="Declare what the machine draws, where nothing measures it.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serve OpenMetrics on this machine, or HOST:PORT."),
    ] = None,
    page: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve the page of `joulemesh watch` on 127.0.0.1, with what this device knows; "
            "0 takes any free port.",
        ),
    ] = None,
    linger: Annotated[
        str,
        typer.Option(
            help="After the end, serve journal and model to the operator, and the last parameters "
            "to devices that come late, for so long; auto: 5 min if such a device may come."
        ),
    ] = "auto",
    load: LoadOption = None,
) -> None:
    """Carry out this device's part of the plan: train, exchange with neighbours, save, repeat.

    The device waits for its neighbours. Ctrl-C or SIGTERM saves everything and stops; started
    again, it resumes. A second Ctrl-C stops at once. What happens is in FOLDER/run/journal.jsonl;
    planned and metered joules and seconds, whenever it ends, in FOLDER/run/receipt.json and .csv;
    the model that it has then, with a card, in FOLDER/model.

    Exit code 0 when all is done or the operator has retired the device, 130 or 143 when it was
    stopped, 3 when it cannot go on at present, and 2 if something must be corrected first.
    """
    from joulemesh.base.units import parse
    from joulemesh.deploy.device.device import Wanted, run_device
    from joulemesh.deploy.fleet.fleet import Fleet

    load_files(load)
    fleet = Fleet.load(folder)
    fleet.check_code(tuple(load or ()))
    drawn_w = None if watts is None else parse(watts, "W")
    linger_s = None if linger == "auto" else max(0.0, parse(linger, "s"))
    wanted = Wanted(data, learner, meter, drawn_w, metrics, linger_s, _page(folder, page))
    code = run_device(folder, wanted, _Watcher(fleet.given_names), lambda line: say(line, err=True))
    if code:
        raise typer.Exit(code)


def _page(folder: Path, port: int | None) -> Any:
    if port is None:
        return None
    from joulemesh.studio.watching import serve_node

    return serve_node(folder, port, lambda line: say(line, err=True))


class _Watcher:
    """Says on standard error what is worth a line, and how far the device is."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._due, self._accuracy = names, 0.0, ""

    def __call__(self, kind: str, figures: dict[str, Any]) -> None:
        if kind in _TOLD:
            peers = {
                name: called(figures[name], self._names)
                for name in ("device", "sender")
                if isinstance(figures.get(name), int)
            }
            say(_TOLD[kind](figures | peers), err=True)
        elif kind == "evaluated" and "accuracy" in figures:
            self._accuracy = f", accuracy {figures['accuracy']:.3f}"
        elif kind == "committed" and time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            spent = f"{figures['spent_j']:.4g} J spent"
            say(f"iteration {figures['iteration']}{self._accuracy}, {spent}", err=True)


# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    enroll: (
        "joulemesh node enroll farm-07 > request.txt",
        "joulemesh node enroll farm-07 --address farm-07.local --port 7200",
        "joulemesh node enroll farm-07 --accept answer.txt",
    ),
    run: (
        "joulemesh node run farm-07/",
        "joulemesh node run farm-07/ --data mine.npz --metrics 9100",
        "joulemesh node run farm-07/ --learner learner.py:make",
    ),
}
