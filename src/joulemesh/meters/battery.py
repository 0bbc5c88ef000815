"""The battery that a machine runs on, by what is left in it (Linux's ``power_supply``).

It sees everything that the machine draws, but slowly: many batteries renew their figures every
half minute, in steps of 36 J or more, and smooth them.
"""

from __future__ import annotations

__all__ = ["Battery"]

from pathlib import Path

from joulemesh.meters.choose import METERS
from joulemesh.meters.meter import Finding, MeterError, MeterKind, MeterOptions
from joulemesh.meters.reading import flag, number_of, text_of

_FOLDER = Path("sys/class/power_supply")
_J_PER_MICROWATTHOUR = 3.6e-3
_LARGEST_JUMP = 0.05  # of the first charge, in one step: more is a gauge that corrects itself


class Battery:
    """Counts what leaves the machine's batteries.

    Where a battery shows its charge only, what leaves is charge times voltage in between: the
    voltage sags under load, and what the battery holds does not become less by that.

    Args:
        options: with the place of ``/sys``.

    Raises:
        MeterError: there is no battery, or it is not being discharged.
    """

    name = "battery"

    def __init__(self, options: MeterOptions) -> None:
        found = batteries(options.root)
        if not found:
            raise MeterError(f"{options.root / _FOLDER} shows no battery of the machine")
        self._gauges = [_Gauge(supply) for supply in found]
        self.source = f"{options.verb} battery {', '.join(one.name for one in found)}"
        self._last_j = 0.0
        self._require_discharging()

    def joules(self) -> float:
        """Joules since the meter was opened.

        Raises:
            MeterError: the machine runs on mains by now, or a gauge has jumped.
        """
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
    """Batteries that the machine runs on; a mouse or a headset has one of its own.

    >>> batteries(Path("/nowhere"))
    []
    """
    return [
        supply
        for supply in sorted((root / _FOLDER).glob("*"))
        if flag(supply / "type") == "Battery"
        and flag(supply / "scope") != "Device"
        and flag(supply / "present") != "0"
        and ((supply / "energy_now").exists() or (supply / "charge_now").exists())
    ]


def _find(options: MeterOptions) -> Finding:
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
        find=_find,
        open=Battery,
        sees="everything that the machine draws, slowly and smoothed",
        least_s=120.0,
    )
)
