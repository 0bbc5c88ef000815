"""`joulemesh export`: a scenario or a model for other tools."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from joulemesh.base.errors import say
from joulemesh.cli import common

__all__ = ["COMMANDS", "HELP"]

HELP = "Write a scenario or a trained model for other tools."


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
    load: common.LoadOption = None,
) -> None:
    """Write the final model of a run or of a fleet for other tools, with a card.

    safetensors holds the parameters by name; ONNX (of the built-in models and of PyTorch modules;
    `pip install onnx`) is a graph from samples to logits, compared with the trained model first.
    The card has accuracy with its interval, joules, digests, and the lines that load the model.
    """
    from joulemesh.base.files import read_json
    from joulemesh.study.export import export_model
    from joulemesh.study.export_fleet import is_fleet

    common.load_files(load)
    made = export_model(run, out, format=format, seed=seed, device=device)
    say(f"wrote model.{format} with its card (README.md) and config.json in {made}")
    if is_fleet(run):
        about = read_json(made / "config.json")
        whose = ", ".join(about["devices_with_it"])
        say(f"after iteration {about['iteration']} of {about['iterations']}, of {whose}")


def flower(
    file: common.FileArgument = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="A new folder, or an empty one.")
    ] = Path("flower-app"),
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
) -> None:
    """Write a Flower app that plays a scenario with a server in the middle.

    Devices hold the same samples, start from the same parameters and run the plan's local rounds on
    the same batches; a server averages them (FedAvg). The app needs Flower, NumPy and JAX (or
    PyTorch, for a module of yours), not Joulemesh; its README says what is the same and what is
    not.
    """
    from joulemesh.study.flower import export_flower

    scenario = common.read_scenario(file, preset, changes, load)
    made = export_flower(scenario, out)
    devices = len(list((made / "data").glob("device-*.npz")))
    say(f"wrote a Flower app of {devices} devices in {made}; now:")
    say(
        f"cd {shlex.quote(str(made))} && flwr run . --stream --federation-config "
        f'"num-supernodes={devices}"'
    )


# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    model: (
        "joulemesh export model runs/default-001 -o model",
        "joulemesh export model runs/default-001 -o graph --format onnx",
        "joulemesh export model runs/default-001 -o device-3 --device 3",
    ),
    flower: (
        "joulemesh export flower -o app",
        "joulemesh export flower fleet.toml -o app --set plan.iterations=20",
    ),
}
