"""NVIDIA GPUs, by NVML: the counter of total energy, or else the power, integrated.

A100 and H100 look at their power during a quarter of the time only (arXiv 2312.02741): what is
measured should last ten seconds or more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from joulemesh.base.optional import MissingPackageError, require
from joulemesh.meters.meter import (
    METERS,
    Counter,
    Finding,
    Meter,
    MeterError,
    MeterKind,
    MeterOptions,
    Sampled,
)

_INSTALL = "pip install 'joulemesh[meters]'"
# Bits of NVML's reasons for a lower clock: hardware slowdown, heat by software and by hardware,
# power brake. A power cap (0x4) is how the card is meant to run.
_SLOWED = 0x8 | 0x20 | 0x40 | 0x80


def _library() -> Any:
    return require("pynvml", "measuring an NVIDIA GPU", "nvidia-ml-py")


class Nvml:
    """Sums the energy of the GPUs that this process may use."""

    name = "nvml"

    def __init__(
        self, options: MeterOptions, library: Any = None, visible: str | None = None
    ) -> None:
        self._library = library or _library()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
        self._open = False
        try:
            self._library.nvmlInit()
            self._open = True
            handles = _handles(self._library, visible)
            if not handles:
                raise MeterError("NVML shows no GPU; is CUDA_VISIBLE_DEVICES empty?")
            self._handles = handles
            self._parts = [self._part(handle, options) for handle in handles]
            names = ", ".join(_name(self._library, handle) for handle in handles)
        except self._library.NVMLError as error:
            self.close()
            raise MeterError(f"NVML does not answer ({error}); is the driver loaded?") from None
        except MeterError:
            self.close()
            raise
        how = "energy counter" if isinstance(self._parts[0], Counter) else "power"
        self.source = f"{options.verb} NVML, {how} of {names}"

    def _part(self, handle: Any, options: MeterOptions) -> Counter | Sampled:
        read = self._reader(lambda: self._library.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3)
        with suppress(MeterError):
            return Counter("NVML's energy counter", read, options.clock)
        power = self._reader(lambda: self._library.nvmlDeviceGetPowerUsage(handle) / 1e3)
        return Sampled(self.name, "NVML's power", power, options)

    def _reader(self, read: Callable[[], float]) -> Callable[[], float]:
        def answer() -> float:
            try:
                return float(read())
            except self._library.NVMLError as error:
                raise MeterError(f"NVML does not answer ({error}); look at nvidia-smi") from None

        return answer

    def joules(self) -> float:
        return sum(part.joules() for part in self._parts)

    def state(self) -> dict[str, float]:
        """Clock, temperature and throttling of the first GPU, as far as it tells."""
        asks: dict[str, Callable[[Any], float]] = {
            "clock_hz": lambda gpu: 1e6 * self._library.nvmlDeviceGetClockInfo(gpu, 1),  # SM
            "temperature_c": lambda gpu: self._library.nvmlDeviceGetTemperature(gpu, 0),  # GPU
            "throttled": lambda gpu: (
                self._library.nvmlDeviceGetCurrentClocksThrottleReasons(gpu) & _SLOWED
            ),
        }
        found = {}
        for name, ask in asks.items():
            with suppress(self._library.NVMLError, AttributeError):
                found[name] = float(ask(self._handles[0]))
        return found

    def close(self) -> None:
        for part in getattr(self, "_parts", ()):
            if isinstance(part, Sampled):
                part.close()
        if self._open:
            self._open = False
            with suppress(self._library.NVMLError):
                self._library.nvmlShutdown()


def _handles(library: Any, visible: str | None) -> list[Any]:
    """GPUs that are visible to this process: by number or by UUID; all unless some are chosen."""
    if visible is None:
        count = library.nvmlDeviceGetCount()
        return [library.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
    found = []
    for asked in (one.strip() for one in visible.split(",")):
        if asked.isdecimal():
            found.append(library.nvmlDeviceGetHandleByIndex(int(asked)))
        elif asked.startswith(("GPU-", "MIG-")):
            found.append(library.nvmlDeviceGetHandleByUUID(asked))
        else:  # as CUDA does: what follows an unknown name is not visible
            break
    return found


def _name(library: Any, handle: Any) -> str:
    name = library.nvmlDeviceGetName(handle)
    return name.decode() if isinstance(name, bytes) else str(name)


def _find(options: MeterOptions) -> Finding:
    signs = (options.root / "proc/driver/nvidia", options.root / "dev/nvidiactl")
    here = any(sign.exists() for sign in signs)
    if not here and options.root != Path("/"):  # the driver would show this machine's GPUs
        return Finding(False, "no NVIDIA driver is loaded")
    try:
        meter: Meter = Nvml(options)
    except MissingPackageError:
        if here:
            return Finding(False, "a GPU is here, and nvidia-ml-py is not installed", _INSTALL)
        return Finding(False, "no NVIDIA driver is loaded")
    except MeterError as error:
        return Finding(False, str(error) if here else "no NVIDIA driver is loaded")
    meter.close()
    return Finding(True, meter.source.partition(" of ")[2])


METERS.register(
    MeterKind(
        name="nvml",
        description="NVIDIA GPUs, by their driver (nvidia-ml-py).",
        find=_find,
        open=Nvml,
        sees="the GPU, not the processor beside it",
        suits=lambda options: options.accelerator,
    )
)
