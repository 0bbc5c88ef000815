"""`joulemesh estimate`: the constants of the convergence bounds, measured."""

from __future__ import annotations

import json as json_format

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

__all__ = ["estimate"]


def estimate(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Measure m, M, σ, G, δ and the initial gap on the scenario's own model and data.

    Prints a `[bounds]` section to paste into the scenario; `joulemesh plan` then shows the bounds.
    """
    from joulemesh.theory.measured import estimate as measured

    constants = measured.estimate(read_scenario(file, preset, changes, load))
    if json:
        typer.echo(json_format.dumps(constants))
        return
    typer.echo("[bounds]")
    for name, value in constants.items():
        typer.echo(f"{name} = {value!r}")
