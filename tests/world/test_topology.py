"""The graphs: connected, sorted, each link once, and refused when they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import Registry
from joulemesh.planning.static import plan
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario import Network
from joulemesh.world.topology import Graph, Site, Topology, build_graph, components
from tests.ideal import ideal


def graph(topology: str, count: int, seed: int = 0, **network: Any) -> Graph:
    return build_graph(
        ideal(seed=seed, devices={"count": count}, network={"topology": topology, **network})
    )


def connected(graph: Graph) -> bool:
    reached, todo = {0}, [0]
    while todo:
        at = todo.pop()
        for i, j in graph.edges.tolist():
            if at in (i, j):
                other = j if at == i else i
                if other not in reached:
                    reached.add(other)
                    todo.append(other)
    return len(reached) == graph.devices


@pytest.mark.parametrize("topology", TOPOLOGIES.names())
@given(half=st.integers(2, 12), seed=st.integers(0, 10**6), degree=st.floats(0.1, 8))
@settings(max_examples=25, deadline=None)
def test_every_named_graph_is_connected_sorted_and_simple(
    topology: str, half: int, seed: int, degree: float
) -> None:
    count = 2 * half
    made = graph(topology, count, seed, mean_degree=degree)
    edges = made.edges.tolist()
    assert edges == sorted(edges)
    assert len({tuple(edge) for edge in edges}) == len(edges)
    assert all(0 <= i < j < count for i, j in edges)
    assert connected(made)
    assert made.positions_m.shape == (count, 2)
    assert (made.positions_m >= 0).all()
    assert (made.positions_m <= 500).all()
    if made.ring is not None:
        assert sorted(made.ring.tolist()) == list(range(count))
        for i, j in zip(made.ring.tolist(), np.roll(made.ring, -1).tolist(), strict=True):
            assert [min(i, j), max(i, j)] in edges


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_a_topology_says_what_it_is_and_its_parameters_are_fields(name: str) -> None:
    topology = TOPOLOGIES[name]
    assert topology.name == name
    assert topology.description
    assert "\n" not in topology.description + topology.phrase
    assert topology.phrase.startswith(("a ", "the "))
    for parameter in topology.parameters:
        field = Network.model_fields[parameter]
        assert (field.description or "").startswith(name)


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_a_topology_is_a_function_of_the_seed_from_its_least_number_on(
    name: str,
) -> None:
    least = TOPOLOGIES[name].least
    for count in (least + least % 2, 40):
        one, same = (graph(name, count, seed=3, chords=1) for _ in range(2))
        assert np.array_equal(one.edges, same.edges)
        assert np.array_equal(one.positions_m, same.positions_m)
    with pytest.raises(ScenarioError, match=f"needs at least {least} devices"):
        graph(name, least - 1)


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_the_number_of_links_is_estimated_before_they_are_drawn(name: str) -> None:
    estimate = TOPOLOGIES[name].link_count
    expected = 200 if estimate is None else estimate(200, Network())
    assert expected / 2 <= len(graph(name, 200).edges) <= 2 * expected


def test_ring_and_grid_and_complete_by_hand() -> None:
    assert graph("ring", 4).edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert graph("complete", 3).edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    #  4 - 5
    #  |   |
    #  2 - 3
    #  |   |
    #  0 - 1
    grid = graph("grid", 6)
    assert grid.edges.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3], [2, 4], [3, 5], [4, 5]]
    assert grid.ring is not None
    assert grid.ring.tolist() == [0, 2, 4, 5, 3, 1]
    assert graph("grid", 2).edges.tolist() == [[0, 1]]
    assert graph("complete", 2).edges.tolist() == [[0, 1]]


@given(count=st.integers(4, 12), seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=40, deadline=None)
def test_quasi_ring_is_the_ring_plus_its_chords(count: int, seed: int, data: st.DataObject) -> None:
    chords = data.draw(st.integers(0, count * (count - 3) // 2))
    made = {tuple(edge) for edge in graph("quasi-ring", count, seed, chords=chords).edges.tolist()}
    ring = {tuple(edge) for edge in graph("ring", count).edges.tolist()}
    assert ring <= made
    assert len(made) == count + chords


def test_a_quasi_ring_has_two_chords_by_default() -> None:
    assert len(graph("quasi-ring", 10).edges) == 12


def test_geometric_links_the_near_and_has_about_the_wanted_degree() -> None:
    made = graph("geometric", 400, mean_degree=12.0)
    place = made.positions_m
    length = np.linalg.norm(place[made.edges[:, 0]] - place[made.edges[:, 1]], axis=1)
    radius = np.sort(length)[-1]
    apart = np.linalg.norm(place[:, None] - place[None], axis=2)
    within = (apart[np.triu_indices(400, 1)] < radius).sum()
    assert within <= len(made.edges) + 1  # nobody nearer is left out
    # Devices near the border have fewer neighbours: up to a fifth less than in the open.
    assert 0.8 * 12 <= 2 * len(made.edges) / 400 <= 12


def test_few_links_are_completed_to_a_connected_graph() -> None:
    for seed in range(20):
        made = graph("geometric", 30, seed, mean_degree=0.5)
        assert components(made.edges, 30)[0] == 1
        assert len(made.edges) <= 60


def test_same_seed_same_graph_and_other_seed_other_graph() -> None:
    for name in ("quasi-ring", "geometric"):
        one, same, other = (graph(name, 20, seed, mean_degree=4.0) for seed in (1, 1, 2))
        assert np.array_equal(one.edges, same.edges)
        assert np.array_equal(one.positions_m, same.positions_m)
        assert not np.array_equal(one.edges, other.edges)


def test_given_positions_are_kept() -> None:
    scenario = ideal(
        devices={"count": 3, "x_m": {"values": [0, 3, 0]}, "y_m": {"values": [0, 0, 4]}}
    )
    assert build_graph(scenario).positions_m.tolist() == [[0, 0], [3, 0], [0, 4]]
    with pytest.raises(ScenarioError, match=r"devices\.x_m and devices\.y_m go together"):
        build_graph(ideal(devices={"x_m": 1.0}))


@pytest.mark.parametrize(
    ("topology", "count", "wanted"),
    [
        ("grid", 7, r"devices\.count is 7.*even number; use 6 or 8"),
        ("ring", 2, r"devices\.count is 2.*at least 3"),
        ("quasi-ring", 3, r"devices\.count is 3.*at least 4"),
        ("complete", 1, r"devices\.count is 1.*at least 2"),
        ("geometric", 1, r"devices\.count is 1.*at least 2"),
    ],
)
def test_counts_that_do_not_fit_are_refused(topology: str, count: int, wanted: str) -> None:
    with pytest.raises(ScenarioError, match=wanted):
        graph(topology, count)


def test_too_many_chords_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"network\.chords is 6.*room for 5"):
        graph("quasi-ring", 5, chords=6)


# Edge lists ------------------------------------------------------------------------------------


def listed(folder: Path, text: str, count: int = 4) -> Graph:
    path = folder / "links.csv"
    path.write_text(text)
    return graph(str(path), count)


def test_an_edge_list_in_any_order_and_direction(tmp_path: Path) -> None:
    made = listed(tmp_path, "j,i,note\n3,2,a\n0,1,b\n1,0,c\n2,1,d\n")
    assert made.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert made.ring is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("i,j\n0,1\n2,3\n", r"network\.topology.*2 parts.*no path from device 0 to device 2"),
        ("i,j\n0,1\n1,2\n", r"network\.topology.*no path from device 0 to device 3\); add a link"),
        ("i,j\n0,1\n1,4\n", r"row 3: link 1-4 must join two different devices of 0\.\.3"),
        ("i,j\n0,-1\n", r"row 2: link 0--1"),
        ("i,j\n1,1\n", r"row 2: link 1-1"),
        ("i,j\n0,1.5\n", r"row 2: link 0-1\.5"),
        ("i,j\n0,1e300\n", r"row 2: link 0-1e\+300"),
        ("i,k\n0,1\n", r"no column 'j'"),
    ],
)
def test_bad_edge_lists_are_refused(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=wanted) as bad:
        listed(tmp_path, text)
    assert "\n" not in str(bad.value)


def test_nearly_all_chords_are_drawn_at_once() -> None:
    """300 devices have room for 44,550 chords; met by chance, the last would be hardly ever new."""
    assert len(graph("quasi-ring", 300, chords=44_550).edges) == 300 * 299 // 2
    most = graph("quasi-ring", 300, chords=44_000).edges
    assert len(most) == 300 + 44_000  # every one is new, and none lies on the ring
    assert np.array_equal(most, graph("quasi-ring", 300, chords=44_000).edges)
    assert not np.array_equal(most, graph("quasi-ring", 300, 1, chords=44_000).edges)


# Topologies of the user's own ------------------------------------------------------------------


@pytest.fixture
def registry() -> Iterator[Registry[Topology]]:
    with TOPOLOGIES.scoped():
        yield TOPOLOGIES


def test_links_of_an_own_topology_may_come_in_any_order_and_twice(
    registry: Registry[Topology],
) -> None:
    links = [(2, 1), (1, 2), (3, 0), (0, 1)]
    registry.register(Topology("own", "of mine", lambda site: links, ring=lambda count: None))
    made = graph("own", 4)
    assert made.edges.tolist() == [[0, 1], [0, 3], [1, 2]]
    assert made.ring is None


def test_an_own_topology_sees_positions_parameters_and_a_stream_of_the_seed(
    registry: Registry[Topology],
) -> None:
    seen = []

    def links(site: Site) -> Any:
        seen.append((site.devices, site.network.mean_degree, site.rng.random()))
        assert site.positions_m.tolist() == [[100.0 * i, 0.0] for i in range(4)]
        return [(i, i + 1) for i in range(3)]

    registry.register(
        Topology(
            "line",
            "of mine",
            links,
            layout=lambda count, side: (np.outer(np.arange(count), [100.0, 0.0]), 0.0),
        )
    )
    for seed in (1, 1, 2):
        graph("line", 4, seed, mean_degree=3.0)
    assert seen[0] == seen[1]
    assert seen[0][:2] == (4, 3.0)
    assert seen[0][2] != seen[2][2]


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({"links": [[0, 1], [2, 3]]}, r"the graph of own falls into 2 parts .*device 2"),
        ({"links": [[0, 1], [1, 4]]}, r"'own' gives the link 1-4; .* devices of 0\.\.3"),
        ({"links": [[0, 1], [-1, 2]]}, r"'own' gives the link -1-2"),
        ({"links": [[0, 1], [2, 2]]}, r"'own' gives the link 2-2"),
        ({"links": []}, r"'own' gives float64 of shape \(0,\)"),
        ({"links": [[0.0, 1.0]]}, r"'own' gives float64 of shape \(1, 2\)"),
        ({"links": [0, 1, 2, 3]}, r"'own' gives int64 of shape \(4,\)"),
        ({"ring": [0, 1, 2, 3]}, r"'own' names a ring through 0 and 3, which it does not link"),
        ({"ring": [0, 1, 2, 2]}, r"'own' names a ring that does not visit each of the 4 devices"),
        ({"ring": [0, 1, 2]}, r"'own' names a ring that does not visit each of the 4 devices"),
        ({"layout": np.zeros((3, 2))}, r"'own' lays out positions of shape \(3, 2\)"),
        ({"layout": np.full((4, 2), np.nan)}, r"'own' lays out positions"),
    ],
)
def test_what_an_own_topology_gives_is_checked(
    own: dict[str, Any], wanted: str, registry: Registry[Topology]
) -> None:
    path = [[0, 1], [1, 2], [2, 3]]
    registry.register(
        Topology(
            "own",
            "of mine",
            lambda site: own.get("links", path),
            ring=(lambda count: own["ring"]) if "ring" in own else None,
            layout=(lambda count, side: (own["layout"], 1.0)) if "layout" in own else None,
        )
    )
    with pytest.raises(ScenarioError, match=wanted) as bad:
        graph("own", 4)
    assert "\n" not in str(bad.value)


def test_too_many_links_of_an_own_topology_are_refused_before_they_are_drawn(
    registry: Registry[Topology],
) -> None:
    def never(site: Site) -> Any:
        raise AssertionError

    registry.register(
        Topology("own", "of mine", never, link_count=lambda devices, network: devices**9)
    )
    with pytest.raises(ScenarioError, match=r"with 512000000000 links takes about"):
        plan(ideal(devices={"count": 20}, network={"topology": "own"}))
