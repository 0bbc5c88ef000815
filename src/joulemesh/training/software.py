"""Which software computed a result: the one record that everything made from it keeps and shows."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from typing import Any

from joulemesh._version import __version__
from joulemesh.base.optional import TITLES
from joulemesh.training import hosts

PACKAGES = {
    "jax": ("jax", "jaxlib", "optax", "flax"),
    "torch": ("torch",),
}
"""What decides the numbers of a training, beside NumPy and SciPy, by the library of its model."""


def packages(*libraries: str) -> dict[str, str]:
    """Versions of the packages that compute, by name."""
    names = dict.fromkeys(name for library in libraries for name in PACKAGES[library])
    return {name: version(name) for name in ("numpy", "scipy", *names)}


def trained_by(*libraries: str) -> dict[str, str]:
    return {library: version(library) for library in libraries}


def trained_words(*libraries: str) -> str:
    """`trained_by` for a reader."""
    return ", ".join(f"{TITLES[name]} {number}" for name, number in trained_by(*libraries).items())


def software(*libraries: str) -> dict[str, Any]:
    """Software and hardware that decide the bits of a result, as plain values."""
    backends, kinds = list[str](), list[str]()
    for library in libraries:
        backend, found = torch_devices() if library == "torch" else _jax_devices()
        backends.append(backend)
        kinds += found
    return {
        "joulemesh": __version__,
        "python": sys.version.split()[0],
        "trained_by": list(libraries),
        "packages": packages(*libraries),
        "platform": platform.platform(),
        "backend": ", ".join(dict.fromkeys(backends)),
        "accelerators": kinds if len(libraries) == 1 else list(dict.fromkeys(kinds)),
        "processes": hosts.count(),
    }


def _jax_devices() -> tuple[str, list[str]]:
    import jax

    return jax.default_backend(), [device.device_kind for device in jax.devices()]


def torch_devices() -> tuple[str, list[str]]:
    """The kind of processor that PyTorch trains on here, and its name."""
    import torch

    from joulemesh.training.torch.steps import processor

    device = processor(torch)
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return device.type, [kind]
