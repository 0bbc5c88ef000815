"""Where a scenario's values come from: given and resolved are kept apart."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from typer.testing import CliRunner

import joulemesh
from joulemesh.cli.main import app
from joulemesh.planning.notes import figures
from joulemesh.scenario import PRESETS, SECTIONS, Origin, Scenario
from joulemesh.scenario.given import ASSUMED, GIVEN


def test_one_default_in_code_presets_files_and_init(tmp_path: Path) -> None:
    """Whatever a user starts from; only `init` gives the figures that decide a plan."""
    default = Scenario()
    empty, init = tmp_path / "empty.toml", tmp_path / "init.toml"
    empty.write_text("")
    assert Scenario.preset("default") == Scenario.load(empty) == Scenario.from_toml("") == default
    assert CliRunner().invoke(app, ["init", str(init)]).exit_code == 0
    written = Scenario.load(init)
    assert written == default
    decide = {one.name for one in figures(default) if one.origin == ASSUMED}
    assert set(written.given) == decide
    commented = Scenario.from_toml(Scenario.preset("default").to_toml(comments=True))
    assert commented == default
    assert commented.given == {}  # what nobody chose stays assumed
    for section in SECTIONS:
        assert getattr(Scenario(**{section: {}}), section) == getattr(default, section)


# Origins ---------------------------------------------------------------------------------------


def test_what_nobody_gave_is_assumed() -> None:
    one = Scenario(budget={"energy_j": 5.0})
    assert one.origin("budget.energy_j") == GIVEN
    assert one.origin("budget.deadline_s") == ASSUMED
    assert one.origin("seed") == ASSUMED
    assert one.given == {"budget.energy_j": 5.0}
    assert set(one.origins()) == {
        "seed",
        *(f"{name}.{field}" for name, kind in SECTIONS.items() for field in kind.model_fields),
    }


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_vouches_for_all_its_fields(name: str) -> None:
    one = Scenario.preset(name)
    radio = Origin("profile", one.network.profile or "")
    base = ASSUMED if name == "default" else Origin("preset", name)
    assert set(one.origins().values()) == {base, radio}
    assert one.given == {}
    two = one.override({"devices.count": 8}, source="--set")
    assert str(two.origin("devices.count")) == "given by --set"
    assert two.origin("budget.deadline_s") == base


def test_files_tables_and_profiles_are_named(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("name,profile,energy_j,power\na,esp32,5,1\nb,laptop,6,2\n")
    (tmp_path / "fleet.toml").write_text(
        '[devices]\ntable = "fleet.csv"\ntransmit_power_w = "power"\n[network]\nprofile = "wifi"\n'
    )
    one = Scenario.load(tmp_path / "fleet.toml")
    words = {name: str(origin) for name, origin in one.origins().items()}
    assert words["devices.table"] == "given in fleet.toml"
    assert words["devices.count"] == words["budget.energy_j"] == "from fleet.csv"
    assert words["devices.transmit_power_w"] == "from fleet.csv"  # a column of another name
    assert words["devices.cpu_hz"] == "from profile esp32, laptop"
    assert words["network.bandwidth_hz"] == "from profile wifi"
    assert words["devices.cycles_per_sample"] == "assumed"
    assert set(one.given) == {"devices.table", "devices.transmit_power_w", "network.profile"}


def test_origins_do_not_count_when_scenarios_are_compared() -> None:
    one, two = Scenario(), Scenario(devices={"count": 20})
    assert one == two
    assert hash(one) == hash(two)
    assert one != two.override({"seed": 1})
    assert one != "a scenario"


def test_origins_survive_copies_and_records() -> None:
    one = Scenario(devices={"profile": "esp32"}, network={"profile": "wifi"})
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other.origins() == one.origins()
        assert other.given == one.given
    words = {name: str(origin) for name, origin in one.origins().items()}
    whole = Scenario.from_json(one.to_json())  # every field is given in it
    assert whole.origin("budget.deadline_s") == GIVEN
    assert whole.origin("devices.cpu_hz") == Origin("profile", "esp32")  # and this one repeats it
    parsed = {name: Origin.parse(text) for name, text in words.items()}
    assert whole.with_origins(parsed).origins() == one.origins()
    assert whole.origin("budget.deadline_s") == GIVEN


# What is said last wins ------------------------------------------------------------------------


def test_a_table_replaces_what_an_earlier_statement_gives(tmp_path: Path) -> None:
    """The preset's own number of devices and batteries do not stand against a table."""
    table = tmp_path / "d.csv"
    table.write_text("energy_j,cpu_hz\n10,1e9\n20,1e9\n30,1e9\n")
    one = Scenario.preset("adaptive").override({"devices.table": str(table)})
    assert (one.devices.count, one.budget.energy_j, one.devices.cpu_hz) == (3, "energy_j", "cpu_hz")
    assert joulemesh.plan(one).energy_budget_j.tolist() == [10.0, 20.0, 30.0]
    two = one.override({"budget.energy_j": 40.0})
    assert joulemesh.plan(two).energy_budget_j.tolist() == [40.0, 40.0, 40.0]
    assert two.origin("budget.energy_j") == GIVEN
    with pytest.raises(joulemesh.ScenarioError, match=r"devices\.count is 4 .* 3 rows"):
        one.override({"devices.count": 4})


def test_a_statement_returns_when_what_replaced_it_is_taken_back() -> None:
    one = Scenario(network={"bandwidth_hz": 5e6}).override({"network.profile": "wifi"})
    assert one.network.bandwidth_hz == 20e6
    assert one.override({"network.profile": None}).network.bandwidth_hz == 5e6


def test_overriding_a_section_changes_only_the_fields_that_it_names() -> None:
    one = Scenario.preset("paper").override({"devices": {"count": 8}})
    assert (one.devices.count, one.devices.samples) == (8, 3000.0)
