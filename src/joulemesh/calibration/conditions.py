"""Under which conditions a device was measured: governor, clock, temperature, throttling, versions.

Everything is read from files that Linux shows to everybody; what is not there is left out.
"""

from __future__ import annotations

__all__ = ["Conditions", "clock_hz", "conditions", "temperature_c", "throttled"]

import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from joulemesh._version import __version__
from joulemesh.machine import cpus
from joulemesh.meters import MeterError
from joulemesh.meters.reading import flag, model_of_board, number_of

_CPUS = "sys/devices/system/cpu"
_LIBRARIES = ("jax", "jaxlib", "torch", "tensorflow")  # those that are loaded are told


@dataclass(frozen=True)
class Conditions:
    """The device at the time of its calibration.

    Attributes:
        machine: board or processor.
        cores: that this process may use.
        system: the kernel.
        governor: of the processor's clock; empty where the system does not tell.
        accelerator: what JAX trains on, if not the processor.
        versions: of Joulemesh, Python and the numerical libraries that are loaded.
    """

    machine: str
    cores: int
    system: str
    governor: str = ""
    accelerator: str = ""
    versions: dict[str, str] = field(default_factory=dict)


def conditions(root: Path = Path("/")) -> Conditions:
    """What holds during a whole calibration.

    >>> conditions().cores >= 1
    True
    """
    governors = {flag(cpu / "scaling_governor") for cpu in _frequencies(root)} - {""}
    return Conditions(
        machine=model_of_board(root) or _processor(root) or platform.machine(),
        cores=cpus(),
        system=f"{platform.system()} {platform.release()}",
        governor=", ".join(sorted(governors)),
        accelerator=_accelerator(),
        versions=_versions(),
    )


def clock_hz(root: Path = Path("/")) -> float | None:
    """The mean clock of all processors at this moment."""
    return _mean(cpu / "scaling_cur_freq" for cpu in _frequencies(root))


def temperature_c(root: Path = Path("/")) -> float | None:
    """The hottest of all thermal zones."""
    zones = (root / "sys/class/thermal").glob("thermal_zone*/temp")
    found = [degrees for zone in zones for degrees in _numbers([zone])]
    plausible = [one / 1e3 for one in found if -40e3 < one < 200e3]
    return max(plausible, default=None)


def throttled(root: Path = Path("/")) -> float | None:
    """How often processors were slowed down by heat since the machine was started."""
    places = (root / _CPUS).glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = list(_numbers(sorted(places)))
    return sum(counts) if counts else None


def _frequencies(root: Path) -> list[Path]:
    return sorted((root / _CPUS).glob("cpu[0-9]*/cpufreq"))


def _numbers(paths: list[Path]) -> Iterator[float]:
    for path in paths:
        with suppress(MeterError):
            yield number_of(path)


def _mean(paths: Iterator[Path]) -> float | None:
    found = list(_numbers(list(paths)))
    return sum(found) / len(found) * 1e3 if found else None


def _processor(root: Path) -> str:
    for line in flag(root / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _accelerator() -> str:
    """What JAX trains on, if it is loaded and that is not the processor."""
    jax = sys.modules.get("jax")
    if jax is None or jax.default_backend() == "cpu":
        return ""
    return ", ".join(device.device_kind for device in jax.local_devices())


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules[name] for name in _LIBRARIES if name in sys.modules}
    libraries = {name: str(getattr(one, "__version__", "")) for name, one in loaded.items()}
    own = {"joulemesh": __version__, "python": platform.python_version()}
    return {**own, "numpy": np.__version__, **libraries}
