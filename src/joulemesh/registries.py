"""The registries that a scenario's fields choose from.

Each names its built-in entries and the modules that register them; the records' types are defined
beside the code that uses them. Methods, which comparisons choose from, are in `joulemesh.methods`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from joulemesh.registry import Registry

if TYPE_CHECKING:
    from joulemesh.fading.model import FadingModel

__all__ = ["CHANNELS"]

CHANNELS: Registry[FadingModel] = Registry(
    "fading model",
    {
        "none": "joulemesh.fading.distributions",
        "rayleigh": "joulemesh.fading.distributions",
        "rician": "joulemesh.fading.distributions",
        "nakagami": "joulemesh.fading.distributions",
        "trace": "joulemesh.fading.trace",
    },
)
