"""Hardware and radios by name. In: a profile's name. Out: its figures as fields of a scenario, and
where they come from; it holds data and the arithmetic that they name.
May not know: scenarios (``scenario``), or what follows from the figures (``world``).
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError

FloatArray = NDArray[np.float64]

DEVICES = (
    "raspberry-pi-3",
    "raspberry-pi-4",
    "raspberry-pi-5",
    "raspberry-pi-zero-2",
    "jetson-nano",
    "jetson-orin-nano",
    "phone-mid-range",
    "phone-flagship",
    "esp32",
    "stm32f411",
    "laptop",
)
RADIOS = ("wifi", "bluetooth-le", "zigbee", "lora", "lte", "ideal")

DEVICE_FIELDS = ("cpu_hz", "capacitance")
"""What a device's profile says, of the section ``devices``."""
RADIO_FIELDS = (
    "area_m",
    "bandwidth_hz",
    "noise_dbm_per_hz",
    "max_rate_bps",
    "path_loss",
    "path_loss_exponent",
    "path_loss_reference_db",
    "packet_bits",
    "header_bits",
    "packet_s",
)
"""What a radio's profile says, of the section ``network``; and what it draws, of ``devices``."""

_FREE_SPACE_DB = -147.55  # 20 log10(4 pi / c): the loss at 1 m and 1 Hz


@dataclass(frozen=True)
class Source:
    """Where figures come from.

    Attributes:
        gives: which figures, and how they were formed.
        title: of the data sheet, paper or measurement.
        year: of its publication.
        url: where it is.
        how: ``"read"``, ``"quoted"`` (read where somebody quotes it) or ``"cited"`` (not re-read).
    """

    gives: str
    title: str
    year: int
    url: str
    how: str


@dataclass(frozen=True)
class Profile:
    """Named figures.

    Attributes:
        name: as a scenario says it.
        kind: ``"device"`` or ``"radio"``.
        summary: what was measured or specified.
        said: the figures as the sources give them.
        devices: fields of the section ``devices`` that follow.
        network: fields of the section ``network`` that follow.
        plan: fields of the section ``plan`` that follow.
        sources: where the figures come from.
    """

    name: str
    kind: str
    summary: str
    said: Mapping[str, float | str]
    devices: Mapping[str, float]
    network: Mapping[str, float | str]
    plan: Mapping[str, float]
    sources: tuple[Source, ...]

    def received_dbm(self, drawn_w: FloatArray, gain: FloatArray) -> FloatArray:
        """What arrives of the power that radios draw, in dBm."""
        lost_db = 0.0
        if "radiated_dbm" in self.said:
            lost_db = _dbm(self.said["transmit_power_w"]) - float(self.said["radiated_dbm"])
        with np.errstate(divide="ignore"):
            return 10 * np.log10(1e3 * drawn_w * gain) - lost_db

    @property
    def reach_dbm(self) -> float:
        """The weakest signal that a radio receives at its slowest rate."""
        return float(self.said.get("reach_dbm", self.said.get("sensitivity_dbm", -math.inf)))


def device(name: str, where: str = "devices.profile") -> Profile:
    """The profile of a device."""
    return _find(name, where, "devices.toml", DEVICES)


def radio(name: str, where: str = "network.profile") -> Profile:
    """The profile of a radio."""
    return _find(name, where, "radios.toml", RADIOS)


def find(name: str) -> Profile:
    """The profile of a device or a radio."""
    file, known = ("radios.toml", RADIOS) if name in RADIOS else ("devices.toml", DEVICES)
    return _find(name, "profile", file, known if name in known else (*DEVICES, *RADIOS))


def profiles() -> tuple[Profile, ...]:
    """All profiles, devices first."""
    return (*map(device, DEVICES), *map(radio, RADIOS))


def _find(name: str, where: str, file: str, known: tuple[str, ...]) -> Profile:
    if name in known:
        return _read(file)[name]
    close = difflib.get_close_matches(name.lower().replace(" ", "-").replace("_", "-"), known, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    shown = name if len(name) <= 40 else name[:37] + "..."
    raise ScenarioError(f"{where}: {shown!r} is unknown; {hint}known profiles: {', '.join(known)}")


@cache
def _read(file: str) -> dict[str, Profile]:
    text = resources.files("joulemesh.scenario").joinpath(file).read_text("utf-8")
    make = _device if file == "devices.toml" else _radio
    return {name: make(name, entry) for name, entry in tomllib.loads(text).items()}


def _device(name: str, entry: dict[str, Any]) -> Profile:
    said = {key: value for key, value in entry.items() if key not in ("summary", "sources")}
    figures = {
        "cpu_hz": said["cpu_hz"],
        "capacitance": said["power_w"] / said["cpu_hz"] ** 3,  # P = theta f^3
    }
    return Profile(name, "device", entry["summary"], said, figures, {}, {}, _sources(entry))


def _radio(name: str, entry: dict[str, Any]) -> Profile:
    said = {key: value for key, value in entry.items() if key not in ("summary", "sources")}
    rated = "sensitivity_dbm" in said
    network: dict[str, float | str] = {
        "bandwidth_hz": said["bandwidth_hz"],
        "noise_dbm_per_hz": _noise_dbm_per_hz(said) if rated else said["noise_dbm_per_hz"],
        "path_loss": said["path_loss"],
    }
    asked = ("max_rate_bps", "area_m", "packet_bits", "header_bits", "packet_s")
    network |= {field: said[field] for field in asked if field in said}
    if said["path_loss"] == "power-law":
        free_db = 20 * math.log10(said["carrier_hz"]) + _FREE_SPACE_DB
        network["path_loss_exponent"] = said["path_loss_exponent"]
        network["path_loss_reference_db"] = said.get("path_loss_reference_db", round(free_db, 2))
    draws = ("transmit_power_w", "receive_power_w", "idle_w")
    power = {field: said[field] for field in draws if field in said}
    plan = {"message_s": said["message_s"]} if "message_s" in said else {}
    return Profile(name, "radio", entry["summary"], said, power, network, plan, _sources(entry))


def _noise_dbm_per_hz(said: Mapping[str, Any]) -> float:
    """Noise with which the model's link just carries the rated rate at the rated sensitivity."""
    band = said["bandwidth_hz"]
    need_db = 10 * math.log10(2 ** (said["sensitivity_rate_bps"] / band) - 1)
    lost_db = _dbm(said["transmit_power_w"]) - said["radiated_dbm"]
    noise = said["sensitivity_dbm"] - 10 * math.log10(band) - need_db + lost_db
    return float(round(noise, 2))


def _dbm(watts: float | str) -> float:
    return 10 * math.log10(1e3 * float(watts))


def _sources(entry: Mapping[str, Any]) -> tuple[Source, ...]:
    return tuple(Source(**source) for source in entry["sources"])
