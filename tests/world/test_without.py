"""Links that are gone: the others stay what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world import build_world

GRID = Scenario(devices={"count": 10}, network={"topology": "grid"})


def world(scenario: Scenario) -> Any:
    return build_world(scenario, np.full(scenario.devices.count, 32.0))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"network.shadowing_db": 6.0},
        {"network.fading": "rayleigh"},
        {"network.fading": "rician", "network.shadowing_db": 3.0},
    ],
)
def test_what_is_drawn_for_the_other_links_stays(changes: dict[str, Any]) -> None:
    whole = world(GRID.override(changes))
    fewer = world(GRID.override({**changes, "network.without": [[1, 0], [4, 5]]}))
    gone = [tuple(link) in {(0, 1), (4, 5)} for link in whole.graph.edges.tolist()]
    assert sum(gone) == 2
    kept = ~np.array(gone)
    assert fewer.graph.edges.tolist() == whole.graph.edges[kept].tolist()
    for block in (0, 7):
        assert (fewer.channel.gain(block) == whole.channel.gain(block)[kept]).all()
    seen = [one.channel.quantile_gain(0.9, 3) for one in (fewer, whole)]
    assert (seen[0] == seen[1][kept]).all()


def test_listed_gains_stay_with_their_links() -> None:
    links, gains = [[0, 1], [1, 2], [0, 2]], [1e-9, 2e-9, 3e-9]
    one = Scenario(devices={"count": 3}, network={"topology": links, "gains": gains})
    assert world(one.override({"network.without": [[1, 2]]})).channel.gain(0).tolist() == [
        1e-9,
        3e-9,
    ]


def test_a_ring_that_is_broken_is_none() -> None:
    ring = Scenario(devices={"count": 6})
    assert world(ring).graph.ring is not None
    assert world(ring.override({"network.without": [[2, 3]]})).graph.ring is None
    beside = ring.override({"network.without": [[0, 3]]})  # no link of a ring of six
    assert world(beside).graph.ring is not None


def test_a_graph_that_falls_apart_says_what_may_be_put_back() -> None:
    apart = Scenario(devices={"count": 6}).override({"network.without": [[0, 1], [3, 4]]})
    with pytest.raises(ScenarioError, match=r"2 parts .*take one out of network\.without"):
        joulemesh.plan(apart)


@pytest.mark.parametrize("links", ["ring", [[0, 0]], [[0]], [[0, 99]], [[-1, 2]], 3])
def test_what_is_no_list_of_links_is_refused(links: Any) -> None:
    with pytest.raises(ScenarioError, match=r"network\.without"):
        joulemesh.plan(GRID.override({"network.without": links}))


def test_a_file_says_the_same() -> None:
    one = GRID.override({"network.without": [[4, 1]], "devices.leave": [[3, 41]]})
    assert Scenario.from_toml(one.to_toml()) == one
    assert Scenario.from_json(one.to_json()) == one
