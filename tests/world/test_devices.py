"""Per-device figures: every way to give them, draws that depend on seed and field alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world import World, build_world
from joulemesh.world.devices import DeviceArrays, build_devices
from joulemesh.world.quantities import stream

FIELDS = ("cpu_hz", "cycles_per_sample", "capacitance", "transmit_power_w")


def devices(seed: int = 0, **fields: Any) -> DeviceArrays:
    energy_j = fields.pop("energy_j", 1.0)
    scenario = Scenario(seed=seed, devices=fields, budget={"energy_j": energy_j})
    return build_devices(scenario, np.full(scenario.devices.count, 10.0))


def test_the_price_of_a_round_by_hand() -> None:
    # C D / f = 2000 x 10 / 10^9 = 20 us; theta C D f^2 = 10^-27 x 20,000 x 10^18 = 20 uJ.
    made = devices(count=3, cycles_per_sample=2000, cpu_hz=1e9, capacitance=1e-27)
    assert made.round_latency_s == pytest.approx([20e-6] * 3)
    assert made.round_energy_j == pytest.approx([20e-6] * 3)


def test_a_number_a_list_and_two_values() -> None:
    assert devices(count=3, transmit_power_w=2).transmit_power_w.tolist() == [2.0] * 3
    assert devices(count=3, transmit_power_w=[3, 1, 2]).transmit_power_w.tolist() == [3, 1, 2]
    two = devices(count=2, transmit_power_w={"values": [9, 1]})
    assert two.transmit_power_w.tolist() == [9.0, 1.0]
    assert devices(count=3, energy_j=[3, 1, 2]).energy_budget_j.tolist() == [3, 1, 2]


@pytest.mark.parametrize("field", [*FIELDS, "energy_j"])
@pytest.mark.parametrize("values", [[1.0, 2.0, 3.0], {"values": [1.0, 2.0]}])
def test_a_list_of_another_length_is_refused(field: str, values: Any) -> None:
    section = "budget" if field == "energy_j" else "devices"
    with pytest.raises(ScenarioError, match=rf"{section}\.{field} lists \d values for 4 devices"):
        devices(count=4, **{field: values})


def test_two_numbers_are_a_range_drawn_uniformly() -> None:
    for value in ([1.0, 3.0], {"range": [1.0, 3.0]}):
        drawn = devices(count=20_000, transmit_power_w=value).transmit_power_w
        assert ((drawn >= 1) & (drawn <= 3)).all()
        quarters = np.histogram(drawn, bins=4, range=(1, 3))[0]
        assert np.abs(quarters - 5000).max() < 5 * np.sqrt(5000 * 0.75)


@given(seed=st.integers(0, 10**9))
@settings(max_examples=25, deadline=None)
def test_a_draw_depends_on_the_seed_and_its_field_alone(seed: int) -> None:
    power = {"count": 5, "transmit_power_w": [1.0, 2.0]}
    alone = devices(seed, **power).transmit_power_w
    among = devices(
        seed, cpu_hz=[1e9, 2e9], capacitance=[1e-28, 1e-27], energy_j=[1, 9], **power
    ).transmit_power_w
    np.testing.assert_array_equal(alone, among)
    assert not np.array_equal(alone, devices(seed + 1, **power).transmit_power_w)
    wider = devices(seed, count=5, transmit_power_w=[1.0, 3.0]).transmit_power_w
    np.testing.assert_allclose((wider - 1) / 2, alone - 1)


def test_fields_are_drawn_independently() -> None:
    shares = [
        getattr(devices(0, count=2000, **{field: [1.0, 2.0]}), name)
        for field, name in (
            ("transmit_power_w", "transmit_power_w"),
            ("energy_j", "energy_budget_j"),
        )
    ]
    shares.append(devices(count=2000, cpu_hz=1.0, cycles_per_sample=[1.0, 2.0]).round_latency_s)
    apart = np.corrcoef(shares)[np.triu_indices(3, 1)]
    assert np.abs(apart).max() < 0.1


def test_streams_differ_by_seed_purpose_and_index() -> None:
    draws = {
        stream(seed, purpose, *index).random()
        for seed in (0, 1)
        for purpose in ("fading", "positions", "x_m", "y_m")
        for index in ((0,), (1,), (2,))
    }
    assert len(draws) == 24


def world(**fields: Any) -> World:
    scenario = Scenario().override(fields)
    return build_world(scenario, np.full(scenario.devices.count, 32.0))


def test_a_world_is_the_same_whatever_the_plan_and_the_training() -> None:
    one = world(**{"network.fading": "rayleigh"})
    two = world(
        **{
            "network.fading": "rayleigh",
            "network.channel_known": False,
            "plan.aggregation": "ring",
            "plan.iterations": 7,
            "training.model": "logistic",
            "budget.deadline_s": 3.0,
        }
    )
    np.testing.assert_array_equal(one.graph.positions_m, two.graph.positions_m)
    np.testing.assert_array_equal(one.channel.gain(5), two.channel.gain(5))
    np.testing.assert_array_equal(one.devices.round_energy_j, two.devices.round_energy_j)


def test_noise_is_read_in_dbm_per_hertz() -> None:
    assert world().noise_w_per_hz == pytest.approx(10**-20.4)
    assert world(**{"network.noise_dbm_per_hz": 30.0}).noise_w_per_hz == pytest.approx(1.0)
