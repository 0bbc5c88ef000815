"""`joulemesh export flower`: a Flower app of a scenario."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.cli.common import FileArgument, LoadOption, PresetOption, SetOption, read_scenario
from joulemesh.printable import say

__all__ = ["flower"]


def flower(
    file: FileArgument = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder, or an empty one.")
    ] = Path("flower-app"),
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
) -> None:
    """Write a Flower app that plays a scenario with a server in the middle.

    Devices hold the same samples, start from the same parameters and run the plan's local rounds on
    the same batches; a server averages them (FedAvg). The app needs Flower, NumPy and JAX (or
    PyTorch, for a module of yours), not Joulemesh; its README says what is the same and what is
    not.
    """
    from joulemesh.export.flower import export_flower

    scenario = read_scenario(file, preset, changes, load)
    made = export_flower(scenario, out)
    devices = len(list((made / "data").glob("device-*.npz")))
    say(f"wrote a Flower app of {devices} devices in {made}; now:")
    say(
        f"cd {shlex.quote(str(made))} && flwr run . --stream --federation-config "
        f'"num-supernodes={devices}"'
    )
