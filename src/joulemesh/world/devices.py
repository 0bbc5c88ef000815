"""The devices' figures, one array each, and the price of a round (eqs. `ticp`, `eicp`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario
from joulemesh.world.quantities import Intervals, require_usable, resolve

FloatArray = NDArray[np.float64]


def round_latency_s(
    cycles_per_sample: FloatArray, samples: FloatArray, cpu_hz: FloatArray
) -> FloatArray:
    """Seconds of one local round, eq. `ticp`: L = C D / f."""
    return cycles_per_sample * samples / cpu_hz


def round_energy_j(
    capacitance: FloatArray, cycles_per_sample: FloatArray, samples: FloatArray, cpu_hz: FloatArray
) -> FloatArray:
    """Joules of one local round, eq. `eicp`: E = theta C D f²."""
    return capacitance * cycles_per_sample * samples * cpu_hz**2


@dataclass(frozen=True, eq=False)
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
        overhead_s: seconds of an iteration besides rounds and sending; None if not counted.
        receive_power_w: drawn while receiving, in place of ``receive_j_per_bit``; None if it is not
            counted.
        message_j: joules of handling a message, at either end; None if it is not counted.
    """

    round_samples: FloatArray
    round_latency_s: FloatArray
    round_energy_j: FloatArray
    transmit_power_w: FloatArray
    energy_budget_j: FloatArray
    idle_w: FloatArray | None = None
    send_j_per_bit: FloatArray | None = None
    receive_j_per_bit: FloatArray | None = None
    overhead_s: FloatArray | None = None
    receive_power_w: FloatArray | None = None
    message_j: FloatArray | None = None


def build_devices(scenario: Scenario, round_samples: FloatArray) -> DeviceArrays:
    """Resolve the scenario's per-device quantities and price one round of each device.

    Figures that have an interval are taken at the quantile of ``plan.safety``, if that is given.
    """
    devices = scenario.devices
    known = Intervals(scenario)
    known.require_some()
    if devices.step_s is None:
        latency_s, energy_j = _modelled_round(scenario, round_samples)
    else:
        latency_s, energy_j = _measured_round(scenario, round_samples, known)
    battery_j = resolve(scenario, "energy_j", scenario.budget.energy_j)
    power_w = resolve(scenario, "transmit_power_w", devices.transmit_power_w)
    require_usable(battery_j, "a battery of {} J", "budget.energy_j")
    require_usable(power_w, "a radio of {} W", "devices.transmit_power_w")
    return DeviceArrays(
        round_samples, latency_s, energy_j, power_w, battery_j, *_radio_and_rest(scenario, known)
    )


def _modelled_round(scenario: Scenario, round_samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Seconds and joules of a round by cycles, clock and capacitance."""
    devices = scenario.devices
    cpu_hz = resolve(scenario, "cpu_hz", devices.cpu_hz)
    cycles = resolve(scenario, "cycles_per_sample", devices.cycles_per_sample)
    capacitance = resolve(scenario, "capacitance", devices.capacitance)
    with np.errstate(all="ignore"):  # overflow and underflow are checked below
        latency_s = round_latency_s(cycles, round_samples, cpu_hz)
        energy_j = round_energy_j(capacitance, cycles, round_samples, cpu_hz)
    require_usable(latency_s, "a round of {} s", "devices.cycles_per_sample and cpu_hz")
    require_usable(energy_j, "a round of {} J", "devices.capacitance, cycles_per_sample and cpu_hz")
    return latency_s, energy_j


def _measured_round(
    scenario: Scenario, round_samples: FloatArray, known: Intervals
) -> tuple[FloatArray, FloatArray]:
    """Seconds and joules of a round of as many steps as it has, each as measured."""
    devices, training = scenario.devices, scenario.training
    step_s = known.safe("step_s", resolve(scenario, "step_s", devices.step_s))
    step_j = known.safe("step_j", resolve(scenario, "step_j", devices.step_j))
    steps = np.ones_like(round_samples)
    if training.local_round == "epoch":
        steps = np.ceil(round_samples / training.batch_size)
    require_usable(steps * step_s, "a round of {} s", "devices.step_s")
    require_usable(steps * step_j, "a round of {} J", "devices.step_j")
    return steps * step_s, steps * step_j


def _radio_and_rest(scenario: Scenario, known: Intervals) -> tuple[FloatArray | None, ...]:
    """Power at rest, joules per bit, and seconds of overhead; None where they are not given."""
    words = {
        "idle_w": "{} W at rest",
        "send_j_per_bit": "{} J per bit to send",
        "receive_j_per_bit": "{} J per bit to receive",
        "overhead_s": "{} s of overhead",
        "receive_power_w": "a receiver of {} W",
        "message_j": "{} J to handle a message",
    }
    found: list[FloatArray | None] = []
    for field, what in words.items():
        value = getattr(scenario.devices, field)
        if value is None:
            found.append(None)
            continue
        least = 0.0 if field == "send_j_per_bit" else -np.nextafter(0.0, 1.0)
        figure = known.safe(field, resolve(scenario, field, value, minimum=least))
        checked = figure if field == "send_j_per_bit" else np.where(figure == 0.0, 1.0, figure)
        require_usable(checked, what, f"devices.{field}")
        found.append(figure if figure.any() else None)
    return tuple(found)
