"""The figures that decide a plan are named with their values and origins."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import joulemesh
from joulemesh.planning.notes import figures
from joulemesh.scenario import Scenario
from joulemesh.views.console import show_figures


def names(scenario: Scenario) -> set[str]:
    return {figure.name for figure in figures(scenario)}


def shown(scenario: Scenario) -> str:
    text = io.StringIO()
    show_figures(joulemesh.plan(scenario), Console(file=text, width=100))
    return " ".join(text.getvalue().split())


def test_every_figure_that_prices_a_plan_is_among_them() -> None:
    assert {
        "budget.total_s",
        "budget.energy_j",
        "devices.cycles_per_sample",
        "devices.cpu_hz",
        "devices.capacitance",
        "devices.transmit_power_w",
        "network.profile",
        "network.bandwidth_hz",
        "network.max_rate_bps",
        "plan.iterations",
        "plan.rounds",
        "plan.aggregation",
    } <= names(Scenario())


@pytest.mark.parametrize(
    ("values", "used", "unused"),
    [
        ({"plan": {"rounds": "fixed"}}, "plan.fixed_rounds", "plan.epsilon"),
        ({"plan": {"aggregation": "gossip"}}, "plan.epsilon", "plan.fixed_rounds"),
        (
            {"plan": {"aggregation": "gossip", "gossip_rounds": 3}},
            "plan.iterations",
            "plan.epsilon",
        ),
        ({"training": {"local_round": "epoch"}}, "devices.samples", "training.batch_size"),
        ({"network": {"gains": "g.csv"}}, "network.bandwidth_hz", "network.path_loss"),
        ({"network": {"path_loss": "power-law"}}, "network.path_loss_exponent", "devices.samples"),
        ({"devices": {"x_m": 1.0, "y_m": 2.0}}, "network.path_loss", "network.area_m"),
        ({"network": {"max_rate_bps": 1e6}}, "network.max_rate_bps", "plan.epsilon"),
    ],
)
def test_figures_that_the_scenario_does_not_use_are_left_out(
    values: dict[str, Any], used: str, unused: str
) -> None:
    found = names(Scenario(**values))
    assert used in found
    assert unused not in found


def test_columns_and_lists_are_given_by_their_range(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("energy_j,cpu_hz\n5,1e9\n7,1e9\n6,1e9\n")
    one = Scenario(
        devices={"table": str(tmp_path / "d.csv"), "capacitance": [3e-27, 1e-27, 2e-27]},
        network={"topology": [[0, 1], [1, 2]]},
    )
    found = {figure.name: figure for figure in figures(one)}
    assert found["budget.energy_j"].value == (5.0, 7.0)
    assert str(found["budget.energy_j"].origin) == "from d.csv"
    assert found["devices.cpu_hz"].value == 1e9
    assert found["devices.capacitance"].value == (1e-27, 3e-27)
    assert found["devices.count"].value == 3
    assert found["network.topology"].value == "2 links"


# On the screen ---------------------------------------------------------------------------------


def test_what_is_assumed_is_named_with_its_value_and_field(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        '[devices]\ncount = 8\nprofile = "raspberry-pi-4"\n[budget]\nenergy_j = 3600\n'
    )
    text = shown(Scenario.load(tmp_path / "f.toml"))
    assert "assumed (not given) [budget] total_s 4 s; [devices] cycles_per_sample" in text
    assert "topology ring, profile wifi; [plan] " in text
    assert "iterations auto, rounds spread, aggregation auto" in text
    assert "profile raspberry-pi-4: [devices] cpu_hz 1.8 GHz, capacitance 1.23e-27" in text
    assert "energy_j" not in text
    assert "count" not in text


def test_a_preset_is_named_in_one_line_as_it_stands_and_by_figures_when_changed() -> None:
    plain = shown(Scenario.preset("adaptive"))
    assert plain == "preset adaptive, as it stands; joulemesh init FILE writes its figures out"
    changed = shown(Scenario.preset("adaptive").override({"devices.count": 8}))
    assert changed.startswith("preset adaptive: [budget] deadline_s 40 ms, energy_j 6 J to 30 J; ")
    assert "count" not in changed
    assert "assumed" not in changed


def test_only_the_profile_is_printed_when_all_is_given() -> None:
    whole = Scenario.from_json(Scenario().to_json())
    text = shown(whole)
    assert text.startswith("profile wifi: [devices] transmit_power_w 660 mW, ")
    assert "assumed" not in text


IDEAL = {
    "network.medium": ("orthogonal", "shared", "each link has a band of its own"),
    "network.duplex": ("orthogonal", "half", "a device serves all of its links at once"),
    "network.max_rate_bps": ("none", 1e8, "links reach Shannon's rate"),
    "network.packet_error": (0.0, 0.1, "no packet is lost"),
    "network.header_bits": (0.0, 720, "packets have no headers"),
    "network.packet_s": (0.0, 1e-4, "channel access takes no time"),
    "plan.message_s": (0.0, 5e-3, "handling a message takes no time"),
    "devices.receive_power_w": (0.0, 0.2, "receiving is free"),
    "devices.idle_w": (0.0, 0.2, "idling is free"),
}


@pytest.mark.parametrize("name", IDEAL)
def test_what_the_radio_is_assumed_to_do_is_named_with_the_field_that_changes_it(name: str) -> None:
    assumed, other, means = IDEAL[name]
    ideal = Scenario(network={"profile": "ideal"})
    found = {figure.name: figure for figure in figures(ideal)}
    assert (found[name].value, found[name].means) == (assumed, means)
    assert str(found[name].origin) == "assumed"
    field = name.partition(".")[2]
    changed = ideal.override({"budget.total_s": 100.0, "plan.iterations": 1, name: other})
    assert f"({means})" not in shown(changed)
    assert f"{field} " in (text := shown(ideal))
    assert f"({means})" in text


def test_a_radio_that_is_named_is_not_called_ideal() -> None:
    named = {figure.name: figure for figure in figures(Scenario(network={"profile": "wifi"}))}
    for name in ("header_bits", "packet_s", "max_rate_bps"):
        assert not named[f"network.{name}"].means
        assert str(named[f"network.{name}"].origin) == "from profile wifi"
    for name in ("receive_power_w", "idle_w"):
        assert not named[f"devices.{name}"].means


# In records ------------------------------------------------------------------------------------


def test_json_names_figures_and_origins_and_keeps_them() -> None:
    plan = joulemesh.plan(Scenario(budget={"energy_j": 20.0}, devices={"profile": "laptop"}))
    record = json.loads(plan.to_json())
    by_field = {entry["field"]: entry for entry in record["figures"]}
    assert by_field["budget.energy_j"] == {
        "field": "budget.energy_j",
        "value": 20.0,
        "origin": "given",
    }
    assert by_field["devices.cpu_hz"]["origin"] == "from profile laptop"
    assert by_field["budget.total_s"] == {
        "field": "budget.total_s",
        "value": Scenario().budget.total_s,
        "origin": "assumed",
    }
    assert record["origins"]["training.learning_rate"] == "assumed"
    again = joulemesh.Plan.from_json(plan.to_json())
    assert again.figures == plan.figures
    del record["origins"]  # as an earlier version wrote it
    assert joulemesh.Plan.from_json(json.dumps(record)).iterations == plan.iterations
