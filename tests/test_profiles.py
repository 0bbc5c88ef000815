"""Profiles: every figure has a source, the derivations hold, and what is given wins."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.scenario import Scenario, profile_notes, profiles
from joulemesh.scenario.profiles import DEVICES, RADIOS, device, find, radio

HOME = Path(joulemesh.__file__).parent / "scenario"


def entries(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((HOME / file).read_text("utf-8"))


# The tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DEVICES, *RADIOS])
def test_every_figure_of_a_profile_has_a_source(name: str) -> None:
    profile = find(name)
    given = " ".join(source.gives for source in profile.sources)
    derived = {"cores", "area_m", "path_loss", "carrier_hz", "sensitivity_rate_bps"}
    assert {figure for figure in profile.said if figure not in given} <= derived
    for source in profile.sources:
        assert source.url.startswith("https://")
        assert source.how in ("read", "quoted", "cited")
        assert 2005 <= source.year <= 2026
        assert source.title


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_draws_its_power_at_its_clock(name: str) -> None:
    profile = device(name)
    theta, clock = profile.devices["capacitance"], profile.devices["cpu_hz"]
    assert theta * clock**3 == pytest.approx(profile.said["power_w"], rel=1e-12)
    assert clock == profile.said["cpu_hz"]


def test_a_pi_by_hand() -> None:
    pi = device("raspberry-pi-4").devices
    assert pi["cpu_hz"] == 1.8e9
    assert pi["capacitance"] == pytest.approx(7.2 / 5.832e27, rel=1e-12)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_ideal_links_are_those_of_a_scenario_without_a_radio(preset: str) -> None:
    """Whatever radio was named before."""
    plain = Scenario.preset(preset).override({"network.profile": None})
    named = plain.override({"network.profile": "wifi"}).override({"network.profile": "ideal"})
    assert named.devices == plain.devices
    assert named.network == plain.network.model_copy(update={"profile": "ideal"})
    assert profile_notes(named) == []


def test_free_space_at_one_metre() -> None:
    # (4 pi d f / c)^2 at 2.44 GHz
    loss_db = 20 * np.log10(4 * np.pi * 2.44e9 / 299_792_458)
    assert radio("wifi").network["path_loss_reference_db"] == pytest.approx(loss_db, abs=0.01)


# In a scenario ---------------------------------------------------------------------------------


def test_a_profile_fills_what_is_not_given() -> None:
    one = Scenario(devices={"profile": "esp32", "count": 4}, network={"profile": "zigbee"})
    assert one.devices.cpu_hz == 240e6
    assert one.devices.capacitance == device("esp32").devices["capacitance"]
    assert one.devices.transmit_power_w == 0.05742
    assert (one.network.bandwidth_hz, one.network.max_rate_bps) == (2e6, 250e3)
    assert one.network.path_loss == "power-law"
    assert one.devices.cycles_per_sample == Scenario().devices.cycles_per_sample


def test_what_is_given_wins() -> None:
    one = Scenario(
        devices={"profile": "esp32", "cpu_hz": 80e6, "transmit_power_w": 0.1},
        network={"profile": "wifi", "bandwidth_hz": 40e6},
    )
    assert (one.devices.cpu_hz, one.devices.transmit_power_w) == (80e6, 0.1)
    assert one.network.bandwidth_hz == 40e6
    assert one.network.max_rate_bps == 65e6
    notes = profile_notes(one)
    assert [note.split(" ")[0] for note in notes] == [
        "devices.cpu_hz",
        "devices.transmit_power_w",
        "network.bandwidth_hz",
    ]
    plain = Scenario(devices={"profile": "esp32"}, network={"profile": "wifi"})
    assert profile_notes(plain) == []
    assert profile_notes(Scenario()) == []


def test_a_mixed_fleet_by_a_column(tmp_path: Path) -> None:
    table = tmp_path / "fleet.csv"
    table.write_text("profile,energy_j\nraspberry-pi-4,30\nesp32,2\njetson-nano,60\n")
    one = Scenario(devices={"table": str(table)})
    assert one.devices.profile == "profile"
    assert one.devices.cpu_hz == (1.8e9, 240e6, 1.479e9)
    table.write_text("profile,cpu_hz\nraspberry-pi-4,1e9\nesp32,1e8\n")
    two = Scenario(devices={"table": str(table)})
    assert two.devices.cpu_hz == "cpu_hz"  # a column of figures is given, too
    assert two.devices.capacitance == {
        "values": tuple(device(n).devices["capacitance"] for n in ("raspberry-pi-4", "esp32"))
    }
    other = tmp_path / "other.csv"
    other.write_text("profile\nlaptop\nlaptop\nesp32\nesp32\n")
    three = two.override({"devices.table": str(other)})
    assert three.devices.count == 4
    assert three.devices.cpu_hz == (1.6e9, 1.6e9, 240e6, 240e6)


def test_a_mixed_fleet_by_a_list() -> None:
    one = Scenario(devices={"profile": ["esp32", "laptop"]})
    assert one.devices.count == 2
    assert one.devices.cpu_hz == {"values": (240e6, 1.6e9)}
    with pytest.raises(joulemesh.ScenarioError, match="lists 2 names for 3 devices"):
        Scenario(devices={"profile": ["esp32", "laptop"], "count": 3})
    with pytest.raises(joulemesh.ScenarioError, match=r"devices.profile\[1\]: 'x' is unknown"):
        Scenario(devices={"profile": ["esp32", "x"]})
    with pytest.raises(joulemesh.ScenarioError, match=r"devices.profile: must be a name"):
        Scenario(devices={"profile": 3})


@pytest.mark.parametrize("hardware", ["raspberry-pi-5", ["esp32", "laptop", "esp32"]])
def test_a_resolved_scenario_stands_for_itself(
    hardware: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Scenario(devices={"profile": hardware}, network={"profile": "wifi"})
    for name, text in (("s.toml", one.to_toml()), ("s.json", one.to_json())):
        (tmp_path / name).write_text(text, "utf-8")
    # Another version of Joulemesh may have other figures.
    changed = {
        file: {
            name: profiles._device(name, {**entry, "power_w": 1.0}) if "cpu_hz" in entry
            else profiles._radio(name, {**entry, "max_rate_bps": 1.0})
            for name, entry in entries(file).items()
        }
        for file in ("devices.toml", "radios.toml")
    }  # fmt: skip
    monkeypatch.setattr(profiles, "_read", changed.__getitem__)
    assert Scenario(devices={"profile": hardware}).devices != one.devices
    assert Scenario.load(tmp_path / "s.toml") == one
    assert Scenario.load(tmp_path / "s.json") == one


def test_the_fastest_rate_cuts_the_rate_of_every_link() -> None:
    base = Scenario.preset("adaptive")
    free = joulemesh.plan(base).world
    rates = 1 / free.costs(free.channel.mean_gain).forward_s
    limit = float(np.median(rates))
    cut = joulemesh.plan(base.override({"network.max_rate_bps": limit, "budget.deadline_s": 1.0}))
    costs = cut.world.costs(cut.world.channel.mean_gain)
    assert 1 / costs.forward_s == pytest.approx(np.minimum(rates, limit))
    assert costs.forward_j == pytest.approx(costs.forward_s * 1.0)  # 1 W


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from([*DEVICES[:2], *RADIOS[:2], "ring", "profile"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=6,
)  # fmt: skip


@given(hardware=anything, air=anything, links=anything, gains=anything, count=anything)
@settings(max_examples=150, deadline=None)
def test_whatever_is_written_is_understood_or_refused(
    hardware: object, air: object, links: object, gains: object, count: object
) -> None:
    try:
        one = Scenario(
            devices={"profile": hardware, "count": count},
            network={"profile": air, "topology": links, "gains": gains},
        )
    except joulemesh.ScenarioError:
        return
    assert Scenario(**tomllib.loads(one.to_toml())) == one
