"""Worlds of one scenario: their seeds, and what differs between them."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.redraw import WORLD_STRIDE, redrawn, redrawn_words, world_seeds

GIVEN = {
    "devices.count": 4,
    "devices.x_m": {"values": [0, 100, 100, 0]},
    "devices.y_m": {"values": [0, 0, 100, 100]},
    "devices.cycles_per_sample": 1e5,
    "budget.energy_j": 5.0,
}


def test_the_first_world_is_the_scenarios_own_and_more_worlds_change_none() -> None:
    assert world_seeds(3, 1) == (3,)
    assert world_seeds(3, 5)[:2] == world_seeds(3, 2) == (3, 3 + WORLD_STRIDE)
    assert len(set(world_seeds(0, 100))) == 100


@pytest.mark.parametrize(
    ("seed", "worlds", "words"),
    [(0, 0, "worlds = 0 is too few"), (0, -1, "too few"), (2**64 - 5, 2, "leaves no room for 2")],
)
def test_worlds_that_cannot_be(seed: int, worlds: int, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        world_seeds(seed, worlds)


def test_what_is_given_is_the_same_in_all_worlds(tmp_path: Path) -> None:
    scenario = Scenario().override(GIVEN)
    assert redrawn(scenario) == ()
    assert redrawn_words(scenario) == (
        "nothing of this scenario's world is drawn from its seed: all worlds are alike"
    )
    cases = {
        "network.shadowing_db": (8.0, ("gains",)),
        "network.fading": ("nakagami", ("fading",)),
        "budget.energy_j": ([1.0, 2.0], ("batteries",)),
        "devices.cpu_hz": ([1e9, 2e9], ("processors",)),
        "devices.transmit_power_w": ([0.5, 1.0], ("radios",)),
        "network.topology": ("quasi-ring", ()),  # both chords of a square, whatever the seed
    }
    for field, (value, names) in cases.items():
        assert redrawn(scenario.override({field: value})) == names, field
    rows = [f"1,{i},{(i + 1) % 4},1e-9\n" for i in range(4)]
    (tmp_path / "trace.csv").write_text("t,i,j,gain\n" + "".join(rows))
    traced = {"network.fading": f"trace:{tmp_path / 'trace.csv'}", "network.shadowing_db": 8.0}
    assert redrawn(scenario.override(traced)) == ()


def test_the_words_name_what_differs() -> None:
    scenario = Scenario().override({**GIVEN, "network.shadowing_db": 8.0})
    assert redrawn_words(scenario) == "worlds differ in gains"
    two = scenario.override({"budget.energy_j": [1.0, 2.0]})
    assert redrawn_words(two) == "worlds differ in gains and batteries"
