"""`joulemesh export`: a scenario or a model for other tools."""

from __future__ import annotations

from collections.abc import Callable

from joulemesh.cli.export import flower, model

__all__ = ["COMMANDS", "HELP"]

HELP = "Write a scenario or a trained model for other tools."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    model.model: (
        "joulemesh export model runs/default-001 -o model",
        "joulemesh export model runs/default-001 -o graph --format onnx",
        "joulemesh export model runs/default-001 -o device-3 --device 3",
    ),
    flower.flower: (
        "joulemesh export flower -o app",
        "joulemesh export flower fleet.toml -o app --set plan.iterations=20",
    ),
}
