"""NVIDIA Jetson boards: INA3221 and INA238 sensors, whose rails are named differently on each.

Where a board has a rail that feeds all others, that one is read; otherwise those that do not feed
each other are summed. Rails by board: energymon's list of NVIDIA's device trees
(github.com/energymon/energymon, jetson/JetsonPowerRails.md), the kernel's tegra234 device trees,
and NVIDIA's forum for INA238 on Thor.
"""

from __future__ import annotations

__all__ = ["Rail", "chosen_rails", "rails"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from joulemesh.meters.choose import METERS
from joulemesh.meters.meter import Finding, Meter, MeterError, MeterKind, MeterOptions
from joulemesh.meters.reading import flag, model_of_board, number_of
from joulemesh.meters.sampled import Sampled

# What feeds everything: the module, and beside it the carrier board (TX1, TX2).
_INPUTS = ("VDD_IN", "POM_5V_IN", "5V_IN", "VIN")
_CARRIER = "VDD_MUX"
# AGX Orin: fed from VIN_SYS_5V0, which is counted.
_FED_BY_OTHERS = ("VDDQ_VDD2_1V8AO",)
_UNUSED = ("", "NC", "sum of shunt voltages")
_OFFSET_W = 1.0  # a rail that is switched off may read a little below 0


@dataclass(frozen=True)
class Rail:
    """A rail of the board.

    Attributes:
        label: as the board calls it.
        watts: reads it; raises `MeterError` if it cannot.
    """

    label: str
    watts: Callable[[], float]


def rails(root: Path) -> list[Rail]:
    """All rails that the board's sensors watch.

    >>> rails(Path("/nowhere"))
    []
    """
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
    """The rail of a channel, in milliwatts (JetPack 4)."""
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
    """Those of a board's rails whose sum is what it draws.

    >>> [rail.label for rail in chosen_rails([Rail("VDD_IN", float), Rail("VDD_SOC", float)])]
    ['VDD_IN']
    """
    inputs = [rail for rail in found if rail.label in _INPUTS]
    if inputs:
        return inputs[:1] + [rail for rail in found if rail.label == _CARRIER]
    return [rail for rail in found if rail.label not in _FED_BY_OTHERS]


def _open(options: MeterOptions) -> Meter:
    chosen = chosen_rails(rails(options.root))
    if not chosen:
        raise MeterError(f"{options.root / 'sys/class/hwmon'} shows no INA3221 or INA238 sensor")
    labels = ", ".join(rail.label for rail in chosen)
    source = f"{options.verb} Jetson sensors, rails {labels}"
    return Sampled("jetson", source, lambda: sum(rail.watts() for rail in chosen), options)


def _find(options: MeterOptions) -> Finding:
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
        find=_find,
        open=_open,
        sees="what flows through the rails that it names",
    )
)
