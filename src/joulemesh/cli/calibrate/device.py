"""`joulemesh calibrate device`: seconds and joules of a training step on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError
from joulemesh.base.printable import say
from joulemesh.cli import completion
from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
    write_text,
)

if TYPE_CHECKING:
    from joulemesh.calibration import Calibration, Method
    from joulemesh.scenario import Scenario

__all__ = ["device"]

_INTERRUPTED = 130


def device(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    which: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Whose samples: a number or a name.")
    ] = "0",
    name: Annotated[
        str | None, typer.Option(help="Of this device in tables; else as in the scenario's table.")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:NAME", help="Train your own object, as `node run` does."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Train on your own samples, as `node run` does."),
    ] = None,
    meter: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What counts joules: auto, a name that `joulemesh doctor` lists, or the CSV file "
            "of an external meter (columns time and watts).",
            autocompletion=completion.meters,
        ),
    ] = "auto",
    watts: Annotated[
        float | None, typer.Option(help="Declare what the machine draws while it trains.")
    ] = None,
    idle_watts: Annotated[
        float, typer.Option(help="Declare what it draws at rest; goes with --watts.")
    ] = 0.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure seconds only, in blocks of 1 s.")
    ] = False,
    samples: Annotated[int, typer.Option(help="Blocks of training, each beside one of rest.")] = 8,
    block: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of a block; 10 s, or 1 s if --quick.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Local rounds per call; else as many as take 0.25 s.")
    ] = None,
    append: Annotated[
        Path | None,
        typer.Option(metavar="DEVICES.csv", help="Write this device's row into a table."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Keep everything, with all blocks.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure seconds and joules of a training step of a scenario, and watts at rest.

    Warms up, then lets blocks of rest and of training take turns. Figures come with 95 % intervals;
    one wider than 10 % is said aloud. Nothing is written before everything is measured: Ctrl-C
    leaves nothing behind.
    """
    from joulemesh.calibration.calibration import check_table, write_row

    scenario = read_scenario(file, preset, changes, load)
    method = _method(quick, samples, block, rounds)
    if out is not None and out.exists() and not force:
        raise ScenarioError(f"{out} exists; choose another name or add --force")
    if append is not None:
        check_table(append)
        _require_joules(meter, watts, quick, append)
    try:
        found = _measured(
            scenario,
            method,
            quiet=json,
            device=_number(scenario, which),
            name=name,
            learner=learner,
            data=data,
            meter=meter,
            watts=watts,
            idle_w=idle_watts,
        )
    except KeyboardInterrupt:
        say("stopped; nothing was written", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if append is not None and found.step_j is None:
        raise ScenarioError(f"--append {append} needs joules: {found.notes[0]}")
    if out is not None:
        write_text(out, found.to_json(), force=force)
    had = append is not None and write_row(append, found.row)
    if json:
        typer.echo(found.to_json().rstrip())
        return
    from joulemesh.views.fleet import show_calibration

    show_calibration(found)
    if append is not None:
        say(f"{append}: the row of {found.name} is {'replaced' if had else 'added'}")


def _method(quick: bool, samples: int, block: str | None, rounds: int | None) -> Method:
    from joulemesh.base.units import parse
    from joulemesh.calibration import Method

    given: dict[str, Any] = {} if block is None else {"block_s": parse(block, "s")}
    if quick:
        return Method.quick(samples=samples, rounds=rounds, **given)
    return Method(samples=samples, rounds=rounds, **given)


def _require_joules(meter: str, watts: float | None, quick: bool, append: Path) -> None:
    """Refuse, before minutes are spent, to write a row that would lack its joules."""
    from joulemesh.meters import MeterOptions, choose

    if watts is not None or meter != "auto":
        return
    if quick:
        raise ScenarioError(
            f"--append {append} needs joules, and --quick measures seconds only: leave --quick "
            "out, or add --watts"
        )
    choices = [choose(MeterOptions(accelerator=gpu)) for gpu in (True, False)]
    if all(one.kind is None for one in choices):
        raise ScenarioError(f"--append {append} needs joules: {choices[-1].reason}")


def _number(scenario: Scenario, which: str) -> int:
    """The number of the device that is meant."""
    from joulemesh.data.load import device_names

    names = device_names(scenario)
    if which in names:
        return names.index(which)
    if which.isdecimal():
        return int(which)
    known = f"one of {', '.join(names[:5])}…" if names else "a number"
    raise ScenarioError(f"--device {which} is not in the scenario: use {known}")


def _measured(scenario: Scenario, method: Method, *, quiet: bool, **given: Any) -> Calibration:
    from joulemesh.calibration import Bench, calibrate
    from joulemesh.views.progress import Display

    with Display(quiet=quiet) as display:
        bench = Bench(progress=lambda words, share: display.step("calibrating", share, [words]))
        return calibrate(scenario, method=method, bench=bench, **given)
