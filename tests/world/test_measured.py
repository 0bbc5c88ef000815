"""Measured figures: a training step's, a device's at rest, the links'; never mixed in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh import Scenario
from joulemesh.base.errors import ScenarioError
from joulemesh.planning.ground import Ground

DEVICES = """\
step_s,step_s_low,step_s_high,step_s_source,step_j,idle_w,energy_j
0.002,0.0018,0.0022,wall clock,0.01,1.5,200
0.004,,,wall clock,0.02,2.5,200
0.001,0.0009,0.0011,declared,0.03,0,200
"""
LINKS = """\
i,j,rate_bps,rate_bps_low,rate_bps_high,energy_j_per_bit,receive_j_per_bit,loss,transfers
0,1,10 Mbit/s,9e6,11e6,2e-8,1e-8,0.1,5
1,0,5e6,,,3e-8,2e-8,0.2,5
1,2,2e7,,,4e-8,5e-8,0,5
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices.csv").write_text(DEVICES)
    (tmp_path / "links.csv").write_text(LINKS)
    return Scenario(
        devices={"table": "devices.csv"},
        network={"links": "links.csv"},
        budget={"deadline_s": 2.0},
        plan={"iterations": 3},
    )


def test_a_step_takes_what_was_measured(scenario: Scenario) -> None:
    devices = Ground.of(scenario).world.devices
    assert devices.round_latency_s.tolist() == [0.002, 0.004, 0.001]
    assert devices.round_energy_j.tolist() == [0.01, 0.02, 0.03]
    assert devices.idle_w is not None
    assert devices.idle_w.tolist() == [1.5, 2.5, 0.0]


def test_an_epoch_is_as_many_steps_as_it_has_batches(scenario: Scenario) -> None:
    epochs = {"training.local_round": "epoch", "devices.samples": [32, 33, 100]}
    devices = Ground.of(scenario.override(epochs)).world.devices
    assert devices.round_latency_s == pytest.approx([0.002, 2 * 0.004, 4 * 0.001], rel=1e-15)
    assert devices.round_energy_j == pytest.approx([0.01, 2 * 0.02, 4 * 0.03], rel=1e-15)


def test_links_cost_what_was_measured_in_each_direction(scenario: Scenario) -> None:
    world = Ground.of(scenario).world
    assert world.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert world.measured is not None
    costs = world.measured.costs  # of sending once; what is lost is sent again
    assert costs.forward_s == pytest.approx([1e-7, 5e-8])
    assert costs.backward_s == pytest.approx([2e-7, 5e-8])  # 2 to 1 has no row: it is like 1 to 2
    assert costs.forward_j.tolist() == [2e-8, 4e-8]
    assert costs.backward_j.tolist() == [3e-8, 4e-8]
    assert costs.forward_receive_j is not None
    assert costs.backward_receive_j is not None
    assert costs.forward_receive_j.tolist() == [1e-8, 5e-8]
    assert costs.backward_receive_j.tolist() == [2e-8, 5e-8]
    assert world.measured.loss is not None
    assert world.measured.loss.tolist() == [[0.1, 0.2], [0.0, 0.0]]


def test_without_joules_in_the_file_the_devices_pay_theirs(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text("i,j,rate_bps\n0,1,1e6\n1,2,1e6\n")
    asked = {"devices.count": 3, "network.links": str(path), "devices.transmit_power_w": 2.0}
    world = Ground.of(Scenario().override(asked)).world
    assert world.costs(world.channel.mean_gain).forward_j == pytest.approx([2e-6, 2e-6])
    own = {**asked, "devices.send_j_per_bit": [1e-8, 2e-8, 3e-8]}
    world = Ground.of(Scenario().override(own)).world
    costs = world.costs(world.channel.mean_gain)
    assert costs.forward_j.tolist() == [1e-8, 2e-8]
    assert costs.backward_j.tolist() == [2e-8, 3e-8]


def test_a_presets_figures_give_way_to_measured_ones(scenario: Scenario) -> None:
    preset = Scenario.preset("paper").override({"devices.step_s": 0.1, "devices.step_j": 1.0})
    assert preset.devices.cpu_hz == Scenario().devices.cpu_hz
    assert Scenario.from_json(preset.to_json()) == preset
    assert Scenario.from_json(scenario.to_json()) == scenario


def test_the_scenario_says_how_a_figure_was_measured(scenario: Scenario) -> None:
    origin = scenario.origin("devices.step_s")
    assert str(origin) == "measured, devices.csv: wall clock, declared"
    assert type(origin).parse(str(origin)) == origin
    assert str(scenario.origin("network.topology")) == "from links.csv"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"devices.cpu_hz": 1e9}, "devices.cpu_hz = 1000000000.0 (given) would be ignored beside"),
        ({"devices.capacitance": 2e-27}, "devices.capacitance"),
        ({"devices.cycles_per_sample": [1e3, 2e3]}, "devices.cycles_per_sample"),
        ({"devices.profile": "esp32"}, "devices.profile = 'esp32'"),
        ({"network.profile": "wifi"}, "network.profile = 'wifi'"),
        ({"network.path_loss": "power-law"}, "network.path_loss = 'power-law'"),
        ({"network.gains": [1e-9, 1e-9], "network.topology": [[0, 1], [1, 2]]}, "network.gains"),
        ({"network.fading": "rayleigh"}, "network.fading = 'rayleigh'"),
        ({"devices.send_j_per_bit": 1e-8}, "has a column 'energy_j_per_bit' and"),
        ({"devices.receive_j_per_bit": 1e-8}, "has a column 'receive_j_per_bit' and"),
        ({"network.topology": "complete"}, "has no row for the link 0-2"),
    ],
)
def test_what_is_modelled_is_refused_beside_what_is_measured(
    scenario: Scenario, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ScenarioError) as refusal:
        Ground.of(scenario.override(change))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i,j,rate_bps\n0,1,0\n1,2,1e6\n", "row 2: rate_bps = 0 must be above 0"),
        ("i,j,rate_bps\n0,1,1e6\n0,1,2e6\n1,2,1e6\n", "two rows from 0 to 1 (2 and 3)"),
        ("i,j,gain\n0,1,1\n1,2,1\n", "has no column 'rate_bps'"),
        ("i,j,rate_bps,energy_j_per_bit\n0,1,1e6,1e-8\n1,2,1e6,\n", "column 'energy_j_per_bit'"),
    ],
)
def test_a_file_of_links_that_cannot_be_meant_is_refused(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "links.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError) as refusal:
        Ground.of(Scenario(devices={"count": 3}, network={"links": str(path)}))
    assert words in str(refusal.value)


def test_half_a_step_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"devices.step_s is given and devices.step_j is not"):
        Scenario(devices={"step_s": 0.1})


def test_safety_takes_the_quantile_of_every_figure_with_an_interval(scenario: Scenario) -> None:
    world = Ground.of(scenario.override({"plan.safety": 0.95})).world
    # Three figures have an interval: each may exceed its quantile with probability 0.05 / 3.
    z, sigma = 2.128045234184983, 0.2 / (2 * 1.959963984540054)
    wanted = [0.002 * (1 + z * sigma), 0.004, 0.001 * (1 + z * sigma)]
    assert world.devices.round_latency_s == pytest.approx(wanted, rel=1e-12)
    rate = 1e7 * (1 - z * sigma)
    assert world.measured is not None
    costs = world.measured.costs
    assert costs.forward_s == pytest.approx([1 / rate, 5e-8], rel=1e-12)
    assert costs.forward_j.tolist() == [2e-8, 4e-8]


def test_safety_without_any_interval_is_refused() -> None:
    with pytest.raises(ScenarioError, match="none has one"):
        Ground.of(Scenario(plan={"safety": 0.95}))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0.002,0.0018,,0.01,10\n", "must hold step_s"),
        ("0.002,0.0021,0.0022,0.01,10\n", "the interval 0.0021 to 0.0022 must hold"),
    ],
)
def test_an_interval_that_does_not_hold_its_figure_is_refused(
    tmp_path: Path, row: str, words: str
) -> None:
    path = tmp_path / "devices.csv"
    good = "0.002,0.0018,0.0022,0.01,10\n"
    path.write_text(f"step_s,step_s_low,step_s_high,step_j,energy_j\n{good}{row}{good}")
    asked = Scenario(devices={"table": str(path)}, plan={"safety": 0.9})
    with pytest.raises(ScenarioError) as refusal:
        Ground.of(asked)
    assert words in str(refusal.value)
    assert np.isfinite(Ground.of(asked.override({"plan.safety": None})).forecast.forward_j).all()


def test_receiving_is_not_paid_twice() -> None:
    asked = {"devices.receive_j_per_bit": 1e-8, "plan.accounting": "both-ends"}
    with pytest.raises(ScenarioError, match=r'plan.accounting = "transmitter"'):
        Ground.of(Scenario().override(asked))
