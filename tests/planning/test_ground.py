"""One object under every planner and method: what is derived there is derived nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.planning.ground import Ground
from joulemesh.scenario import Scenario

HOME = Path(joulemesh.__file__).parent

# What stands for each step, and the room whose own definition of it is not a use.
ONE_PLACE = {
    "forecast costs": (r"\.quantile_gain\(", "world"),
    "the conditions of a scheme": (r"\bConditions\.of\(", "aggregation"),
    "choosing a scheme": (r"aggregation\.scheme import .*\bchoose\b", "aggregation"),
    "the price list": (r"\bPricer\(", "-"),
    "the flooding of link costs": (r"plan\.coordination\b(?!`)|options\.coordination\b", "-"),
}
# Who takes a step as well, for conditions that the ground has made.
BESIDE = {
    "choosing a scheme": (
        "planning/pricing.py",
        "methods/walk.py",
        "testing/fleets/setup.py",
    )
}


@pytest.mark.parametrize("step", ONE_PLACE)
def test_each_step_is_taken_in_one_place(step: str) -> None:
    pattern, home = ONE_PLACE[step]
    users = {
        str(path.relative_to(HOME))
        for path in HOME.rglob("*.py")
        if re.search(pattern, path.read_text()) and path.relative_to(HOME).parts[0] != home
    }
    assert users == {"planning/ground.py", *BESIDE.get(step, ())}


def _faded(known: bool) -> Ground:
    network = {"fading": "rayleigh", "coherence_iterations": 4, "channel_known": known}
    plan = {"aggregation": "tree", "coordination": True, "iterations": 12}
    return Ground.of(Scenario(network=network, plan=plan))


@pytest.mark.parametrize("known", [True, False])
def test_link_costs_are_flooded_when_the_gains_change_that_the_planner_sees(known: bool) -> None:
    ground = _faded(known)
    scheme = ground.ready(12)
    expected = [t % 4 == 0 if known else t == 0 for t in range(12)]
    assert ground.flooded(scheme, 0, 12).tolist() == expected
    for start in range(12):  # a stretch is part of the whole
        assert ground.flooded(scheme, start, 12).tolist() == expected[start:]
    # As expected in iteration 5, in which a device has left and a tree is computed.
    among = [t == 5 or (known and t % 4 == 0) for t in range(5, 12)]
    assert ground.expected_floods(scheme, 5, 12).tolist() == among


@pytest.mark.parametrize("known", [True, False])
def test_links_are_chosen_by_the_costs_that_the_planner_sees(known: bool) -> None:
    ground = _faded(known)
    for t in (0, 3, 4, 11, 2):
        gain = ground.world.channel.gain(t) if known else ground.world.channel.quantile_gain(0.9)
        expected = ground.world.costs(gain)
        assert np.array_equal(ground.seen_costs(t).forward_j, expected.forward_j)
        realised = ground.world.costs(ground.world.channel.gain(t))
        assert np.array_equal(ground.costs(t).forward_j, realised.forward_j)
