"""`joulemesh export model`: the final model of a run, with a card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.cli.common import LoadOption, load_files
from joulemesh.printable import say

__all__ = ["model"]


def model(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The folder of a finished run, of a fleet, or of a device."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder, or an empty one.")
    ] = Path("model"),
    format: Annotated[
        str, typer.Option("--format", help="Of the model: safetensors or onnx.")
    ] = "safetensors",
    device: Annotated[
        int | None,
        typer.Option("--device", min=0, help="This device's own model; the mean of all otherwise."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Of this repetition; of the first unless given."),
    ] = None,
    load: LoadOption = None,
) -> None:
    """Write the final model of a run or of a fleet for other tools, with a card.

    safetensors holds the parameters by name; ONNX (of the built-in models and of PyTorch modules;
    `pip install onnx`) is a graph from samples to logits, compared with the trained model first.
    The card has accuracy with its interval, joules, digests, and the lines that load the model.
    """
    from joulemesh.export.fleet import is_fleet
    from joulemesh.export.model import export_model
    from joulemesh.files.bounded import read_json
    from joulemesh.files.limits import RECORD

    load_files(load)
    made = export_model(run, out, format=format, seed=seed, device=device)
    say(f"wrote model.{format} with its card (README.md) and config.json in {made}")
    if is_fleet(run):
        about = read_json(made / "config.json", RECORD.now)
        whose = ", ".join(about["devices_with_it"])
        say(f"after iteration {about['iteration']} of {about['iterations']}, of {whose}")
