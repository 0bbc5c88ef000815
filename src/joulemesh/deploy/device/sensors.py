"""Sensors of energy that Linux shows as files."""

from __future__ import annotations

__all__ = ["Sensor", "battery_sensor", "processor_sensor"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_J_PER_MICROWATTHOUR = 3.6e-3
_MOST_CHARACTERS = 100


@dataclass(frozen=True)
class Sensor:
    """Something that counts joules drawn, from anywhere on.

    Attributes:
        name: what it is, in words.
        joules: gives them; None while it cannot be read.
    """

    name: str
    joules: Callable[[], float | None]


def battery_sensor(folder: Path, *, discharging: bool = False) -> Sensor | None:
    """The machine's battery, by what is left in it; None if there is none that can be read.

    Args:
        folder: ``/sys/class/power_supply``.
        discharging: only one that the machine runs on at the moment.

    >>> battery_sensor(Path("/nowhere")) is None
    True
    """
    for supply in sorted(folder.glob("*")):
        if _text(supply / "type") != "Battery" or _text(supply / "scope") == "Device":
            continue  # a mouse has one, too
        if discharging and _text(supply / "status") != "Discharging":
            continue
        sensor = Sensor(f"battery {supply.name} (power_supply)", lambda at=supply: _drawn_j(at))  # type: ignore[misc]
        if sensor.joules() is not None:
            return sensor
    return None


def _drawn_j(supply: Path) -> float | None:
    """Joules drawn, counted from a full battery that holds nothing: minus what it holds."""
    held_uwh = _number(supply / "energy_now")
    if held_uwh is None:
        charge_uah, volt_uv = _number(supply / "charge_now"), _number(supply / "voltage_now")
        if charge_uah is None or volt_uv is None:
            return None
        held_uwh = charge_uah * volt_uv / 1e6
    return -held_uwh * _J_PER_MICROWATTHOUR


def processor_sensor(folder: Path) -> Sensor | None:
    """What processors and memory draw, by counters that wrap; None if they cannot be read.

    Args:
        folder: ``/sys/class/powercap``.

    >>> processor_sensor(Path("/nowhere")) is None
    True
    """
    zones = [
        zone
        for zone in sorted(folder.glob("*:*"))
        if zone.name.count(":") == 1 and (_text(zone / "name") or "").startswith("package")
    ]
    counters = [_Counter(zone) for zone in zones]
    if not counters or any(counter.joules() is None for counter in counters):
        return None

    def read() -> float | None:
        found = [counter.joules() for counter in counters]
        known = [one for one in found if one is not None]
        return sum(known) if len(known) == len(found) else None

    return Sensor(f"{len(counters)} processor package(s) (powercap)", read)


class _Counter:
    """A counter of microjoules that starts again at 0 when it is full."""

    def __init__(self, zone: Path) -> None:
        self._zone, self._total_uj = zone, 0.0
        self._last_uj = _number(zone / "energy_uj")

    def joules(self) -> float | None:
        """Since the first reading."""
        now_uj = _number(self._zone / "energy_uj")
        if now_uj is None:
            return None
        if self._last_uj is not None:
            step = now_uj - self._last_uj
            full = _number(self._zone / "max_energy_range_uj") or 0.0
            self._total_uj += step if step >= 0 else max(0.0, step + full)
        self._last_uj = now_uj
        return self._total_uj / 1e6


def _text(path: Path) -> str | None:
    try:
        with path.open() as file:
            return file.read(_MOST_CHARACTERS).strip()
    except (OSError, ValueError):
        return None


def _number(path: Path) -> float | None:
    try:
        return float(_text(path) or "")
    except ValueError:
        return None
