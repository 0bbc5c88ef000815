"""The devices' figures, one array each, and the price of a round (eqs. `ticp`, `eicp`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario
from joulemesh.world.limits import require_usable
from joulemesh.world.quantities import resolve

__all__ = ["DeviceArrays", "build_devices", "round_energy_j", "round_latency_s"]

FloatArray = NDArray[np.float64]


def round_latency_s(
    cycles_per_sample: FloatArray, samples: FloatArray, cpu_hz: FloatArray
) -> FloatArray:
    """Seconds of one local round, eq. `ticp`: L = C D / f.

    >>> round_latency_s(np.array([2000.0]), np.array([3000.0]), np.array([2e9])).tolist()
    [0.003]
    """
    return cycles_per_sample * samples / cpu_hz


def round_energy_j(
    capacitance: FloatArray, cycles_per_sample: FloatArray, samples: FloatArray, cpu_hz: FloatArray
) -> FloatArray:
    """Joules of one local round, eq. `eicp`: E = theta C D f².

    >>> one = np.array([1.0])
    >>> round(round_energy_j(1e-27 * one, 2000 * one, 3000 * one, 2e9 * one).item(), 6)
    0.024
    """
    return capacitance * cycles_per_sample * samples * cpu_hz**2


@dataclass(frozen=True)
class DeviceArrays:
    """Per-device figures, each float64 [N].

    Attributes:
        round_samples: samples that one round processes (D_i in eqs. `ticp`, `eicp`).
        round_latency_s: seconds of one round.
        round_energy_j: joules of one round.
        transmit_power_w: radio power.
        energy_budget_j: battery for the whole training.
        idle_w: power at rest, drawn during the whole of every iteration; None if it is not counted.
        send_j_per_bit: joules of a bit that is sent; None: transmit power times its seconds.
        receive_j_per_bit: joules of a bit that is received; None if it is not counted.
    """

    round_samples: FloatArray
    round_latency_s: FloatArray
    round_energy_j: FloatArray
    transmit_power_w: FloatArray
    energy_budget_j: FloatArray
    idle_w: FloatArray | None = None
    send_j_per_bit: FloatArray | None = None
    receive_j_per_bit: FloatArray | None = None


def build_devices(scenario: Scenario, round_samples: FloatArray) -> DeviceArrays:
    """Resolve the scenario's per-device quantities and price one round of each device."""
    devices = scenario.devices
    cpu_hz = resolve(scenario, "cpu_hz", devices.cpu_hz)
    cycles = resolve(scenario, "cycles_per_sample", devices.cycles_per_sample)
    capacitance = resolve(scenario, "capacitance", devices.capacitance)
    with np.errstate(all="ignore"):  # overflow and underflow are checked below
        latency_s = round_latency_s(cycles, round_samples, cpu_hz)
        energy_j = round_energy_j(capacitance, cycles, round_samples, cpu_hz)
    battery_j = resolve(scenario, "energy_j", scenario.budget.energy_j)
    power_w = resolve(scenario, "transmit_power_w", devices.transmit_power_w)
    require_usable(latency_s, "a round of {} s", "devices.cycles_per_sample and cpu_hz")
    require_usable(energy_j, "a round of {} J", "devices.capacitance, cycles_per_sample and cpu_hz")
    require_usable(battery_j, "a battery of {} J", "budget.energy_j")
    require_usable(power_w, "a radio of {} W", "devices.transmit_power_w")
    return DeviceArrays(
        round_samples, latency_s, energy_j, power_w, battery_j, *_radio_and_rest(scenario)
    )


def _radio_and_rest(scenario: Scenario) -> tuple[FloatArray | None, ...]:
    """Power at rest and joules per bit, sent and received; None where they are not given."""
    devices = scenario.devices
    idle_w = _given(scenario, "idle_w", devices.idle_w)
    send_j = _given(scenario, "send_j_per_bit", devices.send_j_per_bit)
    receive_j = _given(scenario, "receive_j_per_bit", devices.receive_j_per_bit)
    if send_j is not None:
        require_usable(send_j, "{} J per bit to send", "devices.send_j_per_bit")
    for figure, what in ((idle_w, "{} W at rest"), (receive_j, "{} J per bit to receive")):
        if figure is not None and figure.any():
            require_usable(figure[figure > 0], what, "devices.idle_w and receive_j_per_bit")
    return (
        None if idle_w is None or not idle_w.any() else idle_w,
        send_j,
        None if receive_j is None or not receive_j.any() else receive_j,
    )


def _given(scenario: Scenario, field: str, value: object) -> FloatArray | None:
    """A quantity that counts only if it is given; it may be 0."""
    return None if value is None else resolve(scenario, field, value, minimum=-np.nextafter(0, 1))
