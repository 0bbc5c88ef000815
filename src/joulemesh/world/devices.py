"""The devices' figures, one array each, and the price of a round (eqs. `ticp`, `eicp`)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.scenario import Devices, Scenario
from joulemesh.tolerance import TOLERANCE
from joulemesh.world.clocks import Clocks, cubic, measured
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
        circuit_w: drawn by circuits while sending at ``transmit_power_w``, on top of it; None if
            it is not counted.
        lowest_w: the least power that a plan may choose; ``transmit_power_w`` is the highest. None
            if there is nothing to choose.
        levels_w: float64 [N, L, 2]: the powers that a plan may choose, ascending, and what is drawn
            at each in all; None if any between lowest and highest will do.
        clocks: what a round costs at slower clocks; None if processors run at full clock only.
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
    circuit_w: FloatArray | None = None
    lowest_w: FloatArray | None = None
    levels_w: FloatArray | None = None
    _: KW_ONLY
    clocks: Clocks | None = None

    @property
    def round_prices(self) -> Clocks:
        """What a round costs by its seconds; at full clock alone if there is no other."""
        if self.clocks is not None:
            return self.clocks
        return Clocks(self.round_latency_s[:, None], self.round_energy_j[:, None])


def build_devices(scenario: Scenario, round_samples: FloatArray) -> DeviceArrays:
    """Resolve the scenario's per-device quantities and price one round of each device.

    Figures that have an interval are taken at the quantile of ``plan.safety``, if that is given.
    """
    devices = scenario.devices
    known = Intervals(scenario)
    known.require_some()
    clocks = None
    if devices.operating_points is not None:
        clocks = measured(scenario, _steps(scenario, round_samples))
        latency_s, energy_j = clocks.fastest_s, np.asarray(clocks.points_j[:, 0])
    elif devices.step_s is None:
        latency_s, energy_j = _modelled_round(scenario, round_samples)
    else:
        latency_s, energy_j = _measured_round(scenario, round_samples, known)
    if devices.clock_range is not None:
        low, high = devices.clock_range
        latency_s, energy_j = latency_s / high, energy_j * high**2
        clocks = cubic(latency_s, energy_j, min(max(low, devices.clock_floor or 0.0) / high, 1.0))
    battery_j = resolve(scenario, "energy_j", scenario.budget.energy_j)
    power_w = resolve(scenario, "transmit_power_w", devices.transmit_power_w)
    require_usable(battery_j, "a battery of {} J", "budget.energy_j")
    require_usable(power_w, "a radio of {} W", "devices.transmit_power_w")
    figures = (round_samples, latency_s, energy_j, power_w, battery_j)
    made = DeviceArrays(*figures, clocks=clocks, **_radio_and_rest(scenario, known))
    return _with_powers(scenario, made)


def _with_powers(scenario: Scenario, made: DeviceArrays) -> DeviceArrays:
    """The same with the powers that a plan may choose; the highest is what is planned with."""
    devices = scenario.devices
    if devices.power_levels_w is not None:
        levels = _levels(devices, made.circuit_w)
        highest = levels[:, -1, 0]
        _within_limit("devices.power_levels_w", "level", highest, made.transmit_power_w)
        circuit_w = levels[:, -1, 1] - highest
        return replace(
            made,
            transmit_power_w=highest,
            circuit_w=circuit_w if circuit_w.any() else None,
            lowest_w=levels[:, 0, 0],
            levels_w=levels,
        )
    if devices.power_range_w is None:
        return made
    lowest, highest = _range(scenario, devices.power_range_w)
    _within_limit("devices.power_range_w", "highest power", highest, made.transmit_power_w)
    return replace(made, transmit_power_w=highest, lowest_w=lowest)


def _range(scenario: Scenario, given: tuple[Any, ...]) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest power of each device: a pair for all, or one for each, or two columns."""
    count = scenario.devices.count
    if isinstance(given[0], tuple):
        if len(given) != count:
            raise ScenarioError(
                f"devices.power_range_w lists {len(given)} ranges for {count} devices; give "
                "[lowest, highest], or one such pair for each device",
                field="devices.power_range_w",
            )
        lowest, highest = np.array(given, np.float64).T
    else:
        lowest, highest = (resolve(scenario, "power_range_w", one) for one in given)
    wrong = lowest > highest
    if wrong.any():
        device = int(np.argmax(wrong))
        raise ScenarioError(
            f"devices.power_range_w of {{device}} runs backwards, from {lowest[device]:g} to "
            f"{highest[device]:g} W; write [lowest, highest]",
            device=device,
            field="devices.power_range_w",
        )
    return lowest, highest


def _levels(devices: Devices, circuit_w: FloatArray | None) -> FloatArray:
    """float64 [N, L, 2]: levels and what is drawn at each in all; some repeat their highest."""
    count, powers = devices.count, _of_each("power_levels_w", devices)
    drawn = powers if devices.power_drawn_w is None else _of_each("power_drawn_w", devices)
    rows = [sorted(zip(*both, strict=True)) for both in zip(powers, drawn, strict=True)]
    most = max(len(row) for row in rows)
    table = np.array([row + [row[-1]] * (most - len(row)) for row in rows], np.float64)
    table = np.broadcast_to(table, (count, most, 2)).copy()
    if circuit_w is not None:
        table[..., 1] += circuit_w[:, None]
    if (table[..., 1] < table[..., 0]).any():
        device = int(np.argmax((table[..., 1] < table[..., 0]).any(axis=1)))
        raise ScenarioError(
            "devices.power_drawn_w of {device} is below devices.power_levels_w; a radio draws what "
            "it transmits at the least",
            device=device,
            field="devices.power_drawn_w",
        )
    return table


def _of_each(field: str, devices: Devices) -> tuple[tuple[float, ...], ...]:
    """The lists of all devices, or the one that holds for all."""
    given: tuple[Any, ...] = getattr(devices, field)
    if not isinstance(given[0], tuple):
        return (given,)
    if len(given) != devices.count:
        raise ScenarioError(
            f"devices.{field} lists the levels of {len(given)} devices, and there are "
            f"{devices.count}; give one list for all, or one for each device",
            field=f"devices.{field}",
        )
    return given


def _within_limit(field: str, what: str, highest: FloatArray, limit: FloatArray) -> None:
    over = highest > limit * (1 + TOLERANCE)
    if over.any():
        device = int(np.argmax(highest / limit))
        raise ScenarioError(
            f"{field}: the {what} of {{device}}, {highest[device]:g} W, is above the limit of its "
            f"radio, devices.transmit_power_w = {limit[device]:g} W",
            device=device,
            field=field,
            remedies=[(Edit("devices.transmit_power_w", float(highest.max()), "raise"),)],
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
    devices = scenario.devices
    step_s = known.safe("step_s", resolve(scenario, "step_s", devices.step_s))
    step_j = known.safe("step_j", resolve(scenario, "step_j", devices.step_j))
    steps = _steps(scenario, round_samples)
    require_usable(steps * step_s, "a round of {} s", "devices.step_s")
    require_usable(steps * step_j, "a round of {} J", "devices.step_j")
    return steps * step_s, steps * step_j


def _steps(scenario: Scenario, round_samples: FloatArray) -> FloatArray:
    """SGD steps of a round, float64 [N]."""
    if scenario.training.local_round == "step":
        return np.ones_like(round_samples)
    return np.asarray(np.ceil(round_samples / scenario.training.batch_size))


def _radio_and_rest(scenario: Scenario, known: Intervals) -> dict[str, FloatArray]:
    """Power at rest, joules per bit, and seconds of overhead, as far as they are given."""
    words = {
        "idle_w": "{} W at rest",
        "send_j_per_bit": "{} J per bit to send",
        "receive_j_per_bit": "{} J per bit to receive",
        "overhead_s": "{} s of overhead",
        "receive_power_w": "a receiver of {} W",
        "message_j": "{} J to handle a message",
        "circuit_w": "circuits of {} W while sending",
    }
    found: dict[str, FloatArray] = {}
    for field, what in words.items():
        value = getattr(scenario.devices, field)
        if value is None:
            continue
        least = 0.0 if field == "send_j_per_bit" else -np.nextafter(0.0, 1.0)
        figure = known.safe(field, resolve(scenario, field, value, minimum=least))
        checked = figure if field == "send_j_per_bit" else np.where(figure == 0.0, 1.0, figure)
        require_usable(checked, what, f"devices.{field}")
        if figure.any():
            found[field] = figure
    return found
