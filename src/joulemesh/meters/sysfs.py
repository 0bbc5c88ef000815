"""Meters of sensors that the system shows as files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
    flag,
    model_of_board,
    number_of,
    text_of,
)

_FOLDER_POWERCAP = Path("sys/class/powercap")
_RULE = 'SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj"'


class Powercap:
    """Sums the counters of some zones."""

    def __init__(self, options: MeterOptions, platform: bool = False) -> None:
        self.name = "psys" if platform else "powercap"
        found = zones(options.root, platform)
        if not found:
            raise MeterError(_nothing(options.root, platform).what)
        self._counters = [_counter(name, zone, options) for name, zone in found.items()]
        self.source = f"{options.verb} powercap {', '.join(found)}"

    def joules(self) -> float:
        return sum(counter.joules() for counter in self._counters)

    def close(self) -> None:
        """Do nothing: files are opened for each reading only."""


def zones(root: Path, platform: bool) -> dict[str, Path]:
    folders = sorted(
        (root / _FOLDER_POWERCAP).glob("*:*"), key=lambda one: (len(one.name), one.name)
    )
    found: dict[str, Path] = {}
    for zone in folders:
        name, depth = flag(zone / "name"), zone.name.count(":")
        if not (zone / "energy_uj").exists():
            continue
        if platform:
            wanted = name == "psys"
        else:
            wanted = depth == 1 and name.startswith("package")
            if depth == 2 and name == "dram":
                above = zone.with_name(zone.name.rpartition(":")[0])
                name, wanted = f"dram of {flag(above / 'name')}", above in found.values()
        if wanted:
            found.setdefault(name, zone)
    return found


def _counter(name: str, zone: Path, options: MeterOptions) -> Counter:
    full_uj = number_of(zone / "max_energy_range_uj")
    if full_uj <= 0:
        raise MeterError(f"{zone}/max_energy_range_uj says {full_uj:g}; use another meter")
    return Counter(
        f"powercap {name}",
        lambda: number_of(zone / "energy_uj") / 1e6,
        options.clock,
        full_uj / 1e6,
    )


def remedy(found: dict[str, Path]) -> str:
    files = " ".join(f"{zone}/energy_uj" for zone in found.values())
    return (
        f"sudo chmod a+r {files}\n"
        f"(for good: echo '{_RULE}' | sudo tee /etc/udev/rules.d/70-powercap.rules)"
    )


def _nothing(root: Path, platform: bool) -> Finding:
    what = "zone psys" if platform else "package"
    return Finding(
        False, f"{root / _FOLDER_POWERCAP} shows no {what} (in most virtual machines it is empty)"
    )


def _find_powercap(options: MeterOptions, platform: bool = False) -> Finding:
    found = zones(options.root, platform)
    if not found:
        return _nothing(options.root, platform)
    try:
        Powercap(options, platform)
    except MeterError as error:
        locked = "may not be read" in str(error)
        what = f"{', '.join(found)}: only root may read the counters" if locked else str(error)
        return Finding(False, what, remedy(found) if locked else "")
    return Finding(True, ", ".join(found))


METERS.register(
    MeterKind(
        name="powercap",
        description="Counters of Intel and AMD processors (RAPL).",
        find=_find_powercap,
        open=Powercap,
        sees="processor packages and memory, not the rest of the machine",
        suits=lambda options: not options.accelerator,
    )
)
METERS.register(
    MeterKind(
        name="psys",
        description="The counter of a whole Intel platform, where its maker has calibrated it.",
        find=lambda options: _find_powercap(options, platform=True),
        open=lambda options: Powercap(options, platform=True),
        sees="the platform, as its maker has wired it",
        suits=lambda options: False,
    )
)


_FOLDER_BATTERY = Path("sys/class/power_supply")
_J_PER_MICROWATTHOUR = 3.6e-3
_LARGEST_JUMP = 0.05  # of the first charge, in one step: more is a gauge that corrects itself


class Battery:
    """Counts what leaves the machine's batteries."""

    # Where a battery shows its charge only, what leaves is charge times voltage in between: the
    # voltage sags under load, and what the battery holds does not become less by that.

    name = "battery"

    def __init__(self, options: MeterOptions) -> None:
        found = batteries(options.root)
        if not found:
            raise MeterError(f"{options.root / _FOLDER_BATTERY} shows no battery of the machine")
        self._gauges = [_Gauge(supply) for supply in found]
        self.source = f"{options.verb} battery {', '.join(one.name for one in found)}"
        self._last_j = 0.0
        self._require_discharging()

    def joules(self) -> float:
        self._require_discharging()
        self._last_j = max(self._last_j, sum(gauge.drawn_j() for gauge in self._gauges))
        return self._last_j

    def close(self) -> None:
        """Do nothing: files are opened for each reading only."""

    def _require_discharging(self) -> None:
        states = [text_of(gauge.supply / "status") for gauge in self._gauges]
        if "Discharging" not in states or "Charging" in states:
            raise MeterError(
                f"the battery is not being discharged ({', '.join(states)}); unplug the machine"
            )


class _Gauge:
    """Joules drawn from one battery since the first reading."""

    def __init__(self, supply: Path) -> None:
        self.supply = supply
        self._by_energy = (supply / "energy_now").exists()
        self._first = self._last = self._reading()
        self._drawn_j = 0.0

    def drawn_j(self) -> float:
        """Joules so far; a gauge that goes up a little gives them back."""
        now = self._reading()
        (held, volts), (before, volts_before) = now, self._last
        if abs(held - before) > _LARGEST_JUMP * self._first[0]:
            raise MeterError(
                f"{self.supply} jumped from {before / 1e6:.4g} to {held / 1e6:.4g} "
                f"{'Wh' if self._by_energy else 'Ah'}; measure again"
            )
        self._drawn_j += (before - held) * (volts + volts_before) / 2 * _J_PER_MICROWATTHOUR
        self._last = now
        return self._drawn_j

    def _reading(self) -> tuple[float, float]:
        """What it holds, in microwatt hours or microampere hours, and volts (1 for the former)."""
        if self._by_energy:
            held, volts = number_of(self.supply / "energy_now"), 1.0
        else:
            held = number_of(self.supply / "charge_now")
            volts = number_of(self.supply / "voltage_now") / 1e6
        if held < 0 or volts <= 0:
            raise MeterError(f"{self.supply} holds {held:g} at {volts:g} V; use another meter")
        return held, volts


def batteries(root: Path) -> list[Path]:
    """Batteries that the machine runs on; a mouse or a headset has one of its own."""
    return [
        supply
        for supply in sorted((root / _FOLDER_BATTERY).glob("*"))
        if flag(supply / "type") == "Battery"
        and flag(supply / "scope") != "Device"
        and flag(supply / "present") != "0"
        and ((supply / "energy_now").exists() or (supply / "charge_now").exists())
    ]


def _find_battery(options: MeterOptions) -> Finding:
    found = batteries(options.root)
    if not found:
        return Finding(False, "the machine has no battery")
    try:
        Battery(options)
    except MeterError as error:
        remedy = "unplug the machine" if "discharged" in str(error) else ""
        return Finding(False, str(error), remedy)
    return Finding(True, ", ".join(one.name for one in found))


METERS.register(
    MeterKind(
        name="battery",
        description="The battery that the machine runs on.",
        find=_find_battery,
        open=Battery,
        sees="everything that the machine draws, slowly and smoothed",
        least_s=120.0,
    )
)


# What feeds everything: the module, and beside it the carrier board (TX1, TX2).
_INPUTS = ("VDD_IN", "POM_5V_IN", "5V_IN", "VIN")
_CARRIER = "VDD_MUX"
# AGX Orin: fed from VIN_SYS_5V0, which is counted.
_FED_BY_OTHERS = ("VDDQ_VDD2_1V8AO",)
_UNUSED = ("", "NC", "sum of shunt voltages")
_OFFSET_W = 1.0  # a rail that is switched off may read a little below 0


@dataclass(frozen=True)
class Rail:
    """A rail of the board."""

    label: str  # as the board calls it
    watts: Callable[[], float]  # reads it; raises `MeterError` if it cannot


def rails(root: Path) -> list[Rail]:
    found: list[Rail] = []
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        kind = flag(chip / "name")
        if kind == "ina3221":
            found += [rail for channel in (1, 2, 3) for rail in _ina3221(chip, channel)]
        elif kind == "ina238":
            label = flag(chip / "label") or flag(chip / "in1_label") or "VIN"
            found.append(Rail(label, lambda chip=chip: _positive(chip / "power1_input", 1e6)))  # type: ignore[misc]
    for chip in sorted((root / "sys/bus/i2c/drivers/ina3221x").glob("*/iio:device*")):
        found += [rail for channel in (0, 1, 2) for rail in _ina3221x(chip, channel)]
    return found


def _ina3221(chip: Path, channel: int) -> list[Rail]:
    """The rail of a channel: volts times amperes (JetPack 5 and later)."""
    label = flag(chip / f"in{channel}_label")
    if label in _UNUSED or flag(chip / f"in{channel}_enable") == "0":
        return []

    def watts() -> float:
        millivolts = number_of(chip / f"in{channel}_input")
        return _checked(chip, millivolts * number_of(chip / f"curr{channel}_input") / 1e6)

    return [Rail(label, watts)]


def _ina3221x(chip: Path, channel: int) -> list[Rail]:
    label = flag(chip / f"rail_name_{channel}")
    if label in _UNUSED:
        return []
    return [Rail(label, lambda: _positive(chip / f"in_power{channel}_input", 1e3))]


def _positive(path: Path, per_watt: float) -> float:
    return _checked(path, number_of(path) / per_watt)


def _checked(place: Path, watts: float) -> float:
    if watts < -_OFFSET_W:
        raise MeterError(f"{place} says {watts:.3g} W, which is negative; use another meter")
    return max(0.0, watts)


def chosen_rails(found: list[Rail]) -> list[Rail]:
    """Those of a board's rails whose sum is what it draws."""
    inputs = [rail for rail in found if rail.label in _INPUTS]
    if inputs:
        return inputs[:1] + [rail for rail in found if rail.label == _CARRIER]
    return [rail for rail in found if rail.label not in _FED_BY_OTHERS]


def _open_jetson(options: MeterOptions) -> Meter:
    chosen = chosen_rails(rails(options.root))
    if not chosen:
        raise MeterError(f"{options.root / 'sys/class/hwmon'} shows no INA3221 or INA238 sensor")
    labels = ", ".join(rail.label for rail in chosen)
    source = f"{options.verb} Jetson sensors, rails {labels}"
    return Sampled("jetson", source, lambda: sum(rail.watts() for rail in chosen), options)


def _find_jetson(options: MeterOptions) -> Finding:
    board = model_of_board(options.root)
    if not any(word in board for word in ("Jetson", "NVIDIA")):
        return Finding(False, "this is no Jetson board")
    chosen = chosen_rails(rails(options.root))
    if not chosen:
        return Finding(False, f"{board} shows no INA3221 or INA238 sensor")
    try:
        for rail in chosen:
            rail.watts()
    except MeterError as error:
        return Finding(False, str(error))
    return Finding(True, f"{board}, rails {', '.join(rail.label for rail in chosen)}")


METERS.register(
    MeterKind(
        name="jetson",
        description="Sensors of NVIDIA Jetson boards (INA3221, INA238).",
        find=_find_jetson,
        open=_open_jetson,
        sees="what flows through the rails that it names",
    )
)


_BOARDS = ("Raspberry Pi 5", "Raspberry Pi Compute Module 5")  # the former also names the 500
_READ, _THROTTLED = "pmic_read_adc", "get_throttled"
_NOW = 0xF  # under-voltage, capped clock, throttled, too warm: at this moment, not earlier
_LINE = re.compile(r"^\s*(\w+)_([AV]) (?:current|volt)\(\d+\)=(\S+?)[AV]\s*$", re.MULTILINE)
_PERIOD_S = 0.5  # each sample starts a program, which draws something itself
_PATIENCE_S = 5.0


def watts_of(text: str) -> float:
    figures: dict[str, dict[str, float]] = {"A": {}, "V": {}}
    for rail, unit, figure in _LINE.findall(text):
        try:
            figures[unit][rail] = float(figure)
        except ValueError:
            raise MeterError(f"vcgencmd says {figure[:40]!r} for {rail}; try again") from None
    amperes, volts = figures["A"], figures["V"]
    strange = [rail for rail in amperes if not (amperes[rail] >= 0 and volts.get(rail, -1.0) >= 0)]
    if not amperes or strange:
        what = f"for the rail {strange[0]}" if strange else f"{text.strip()[:60]!r}"
        raise MeterError(f"vcgencmd gives no volts and amperes ({what}); update the firmware")
    return sum(amperes[rail] * volts[rail] for rail in amperes)


def state_of(text: str) -> dict[str, float]:
    found = re.search(r"throttled=(0x[0-9a-fA-F]+)", text)
    return {} if found is None else {"throttled": float(int(found[1], 16) & _NOW)}


def _state(root: Path) -> dict[str, float]:
    try:
        return state_of(_text(root, _THROTTLED))
    except MeterError:
        return {}


def _text(root: Path, command: str = _READ) -> str:
    if root != Path("/"):
        return text_of(root / "vcgencmd" / command)
    try:
        done = subprocess.run(
            ("vcgencmd", command), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise MeterError("vcgencmd is not installed; sudo apt install raspi-utils") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeterError(f"vcgencmd does not answer ({type(error).__name__}); try again") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:100]
        raise MeterError(f"vcgencmd fails ({said}); sudo usermod -aG video $USER, and log in again")
    return done.stdout


def _open_pi5(options: MeterOptions) -> Meter:
    source = f"{options.verb} the Raspberry Pi's PMIC (vcgencmd pmic_read_adc)"
    return Sampled(
        "pi5",
        source,
        lambda: watts_of(_text(options.root)),
        options,
        _PERIOD_S,
        lambda: _state(options.root),
    )


def _find_pi5(options: MeterOptions) -> Finding:
    board = model_of_board(options.root)
    if not board.startswith(_BOARDS):
        return Finding(False, "this is no Raspberry Pi 5 (earlier ones have no sensor)")
    try:
        watts_of(_text(options.root))
    except MeterError as error:
        return Finding(False, f"{board}: {error}")
    return Finding(True, f"{board}, PMIC")


METERS.register(
    MeterKind(
        name="pi5",
        description="The power management chip of a Raspberry Pi 5.",
        find=_find_pi5,
        open=_open_pi5,
        sees="the board's rails, not USB, HATs and the chip's own losses",
    )
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
