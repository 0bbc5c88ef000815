"""What holds where a scenario leaves fields out: the product's plan, over Wi-Fi links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.planning.notes import figures
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import ASSUMED, GIVEN, Origin
from joulemesh.scenario.profiles import RADIOS, radio

WIFI = Origin("profile", "wifi")


def assumed(scenario: Scenario) -> set[str]:
    return {one.name for one in figures(scenario) if one.origin == ASSUMED}


# Time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_s", "holds"),
    [
        ({}, (None, Scenario().budget.total_s)),
        ({"deadline_s": 0.05}, (0.05, None)),
        ({"total_s": 9.0}, (None, 9.0)),
        ({"deadline_s": 0.05, "total_s": 9.0}, (0.05, 9.0)),
    ],
)
def test_a_deadline_alone_is_the_only_limit_of_time(
    given_s: dict[str, float], holds: tuple[float | None, float | None]
) -> None:
    for one in (
        Scenario(budget=given_s),
        Scenario().override({f"budget.{name}": value for name, value in given_s.items()}),
        Scenario.from_toml(Scenario(budget=given_s).to_toml()),
        Scenario.from_json(Scenario(budget=given_s).to_json()),
    ):
        assert (one.budget.deadline_s, one.budget.total_s) == holds
    limits = {"budget.deadline_s", "budget.total_s"}
    assert (assumed(Scenario(budget=given_s)) & limits) == (
        set() if given_s else {"budget.total_s"}
    )


# The radio -------------------------------------------------------------------------------------


@st.composite
def radio_fields(draw: st.DrawFn) -> dict[str, float]:
    known: dict[str, Any] = {"devices": radio("wifi").devices, "network": radio("wifi").network}
    names = [
        f"{section}.{field}"
        for section, fields in known.items()
        for field, value in fields.items()
        if not isinstance(value, str)
    ]
    chosen = draw(st.sets(st.sampled_from(names)))
    # Also the profile's own figure: what is given is given.
    scale = draw(st.sampled_from([1, 2]))
    figure = {name: known[name.partition(".")[0]][name.partition(".")[2]] for name in names}
    return {name: figure[name] * scale for name in sorted(chosen)}


@settings(max_examples=25, deadline=None)
@given(fields=radio_fields())
def test_what_is_given_of_the_radio_wins_and_wifi_fills_the_rest(fields: dict[str, float]) -> None:
    one = Scenario().override(fields)
    assert one.network.profile == "wifi"
    assert one.origin("network.profile") == ASSUMED
    for section in ("devices", "network"):
        for field, figure in getattr(radio("wifi"), section).items():
            name = f"{section}.{field}"
            assert getattr(getattr(one, section), field) == fields.get(name, figure)
            assert one.origin(name) == (GIVEN if name in fields else WIFI)
    assert one.given == fields
    assert Scenario.from_toml(one.to_toml()) == one
    assert Scenario.from_toml(one.to_toml(comments=True)) == one


@pytest.mark.parametrize("name", RADIOS)
def test_a_radio_that_is_named_replaces_the_default_one(name: str) -> None:
    one = Scenario(network={"profile": name})
    assert one == Scenario().override({"network.profile": name})
    for section in ("devices", "network"):
        for field, figure in getattr(radio(name), section).items():
            assert getattr(getattr(one, section), field) == figure
    left = [figure for figure in figures(one) if figure.origin == WIFI]
    assert bool(left) == (name == "wifi")


def test_devices_stay_where_they_are_when_their_radio_changes() -> None:
    one = Scenario(network={"area_m": 70.0}).override({"network.profile": "zigbee"})
    assert one.network.area_m == 70.0
    assert Scenario(network={"profile": "ideal"}).network.area_m == 500.0
    assert Scenario.preset("adaptive").override({"network.profile": "wifi"}).network.area_m == 500.0


def test_gains_and_places_of_the_users_own_go_over_the_default_radio(tmp_path: Path) -> None:
    (tmp_path / "gains.csv").write_text("i,j,gain\n0,1,1e-8\n1,2,1e-8\n0,2,1e-8\n")
    by_gain = Scenario(devices={"count": 3}, network={"gains": str(tmp_path / "gains.csv")})
    placed = Scenario(
        devices={"count": 3, "x_m": [0.0, 9.0, 9.0], "y_m": [0.0, 0.0, 9.0]},
        network={"topology": [[0, 1], [1, 2]]},
    )
    for one in (by_gain, placed):
        plan = joulemesh.plan(one)
        costs = plan.ground.world.costs(plan.ground.world.channel.mean_gain)
        assert (1 / costs.forward_s <= 65e6 * (1 + 1e-9)).all()
        assert "network.area_m" not in {figure.name for figure in plan.figures}


# Reach -----------------------------------------------------------------------------------------


def beyond_reach(scenario: Scenario) -> list[str]:
    return [note for note in joulemesh.plan(scenario).notes if "beyond the radio's reach" in note]


@pytest.mark.parametrize("name", [name for name in RADIOS if name not in ("ideal", "lora")])
@pytest.mark.parametrize("seed", range(2))
def test_links_of_the_default_area_are_within_reach(name: str, seed: int) -> None:
    fields = {"network.profile": name, "seed": seed, "plan.iterations": 1, "budget.total_s": 60.0}
    assert not beyond_reach(Scenario().override(fields))


def test_ideal_links_reach_anywhere() -> None:
    far = {"network.profile": "ideal", "network.area_m": 5e4, "budget.energy_j": 1e5}
    more = {"budget.total_s": 1e4, "plan.iterations": 1}
    assert not beyond_reach(Scenario().override({**far, **more}))
