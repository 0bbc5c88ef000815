"""A plan in other tools: pandas, networkx, JSON and back."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.optional import MissingPackageError
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario

BASE = Scenario.preset("adaptive").override({"devices.count": 8, "plan.iterations": 12})
KINDS = {
    "ring": BASE,
    "geometric": BASE.override({"network.topology": "geometric", "network.mean_degree": 3.0}),
    "fading": BASE.override({"network.fading": "rayleigh", "network.topology": "complete"}),
    "unequal": BASE.override({"devices.transmit_power_w": [0.2, 1.0]}),
}


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: joulemesh.plan(scenario) for name, scenario in KINDS.items()}


# pandas ----------------------------------------------------------------------------------------


def test_the_frame_is_the_ledger(plans: dict[str, Plan]) -> None:
    pytest.importorskip("pandas")
    plan = plans["geometric"]
    frame = plan.frame()
    assert frame.index.name == "device"
    assert frame.index.tolist() == list(range(8))
    for name in ("energy_budget_j", "compute_total_j", "exchange_total_j", "spent_j", "margin_j"):
        np.testing.assert_array_equal(frame[name], getattr(plan, name))
    assert frame["binding"].tolist() == plan.binding.tolist()
    np.testing.assert_array_equal(frame[["x_m", "y_m"]], plan.world.graph.positions_m)


@pytest.mark.parametrize(("module", "call"), [("pandas", "frame"), ("networkx", "graph")])
def test_a_missing_package_is_named_with_its_remedy(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch, module: str, call: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=f"needs {module}, .* pip install {module}"):
        getattr(plans["ring"], call)()


# networkx --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_the_graph_has_the_links_and_their_prices(plans: dict[str, Plan], name: str) -> None:
    pytest.importorskip("networkx")
    plan = plans[name]
    graph = plan.graph()
    assert sorted(map(sorted, graph.edges)) == plan.world.graph.edges.tolist()
    costs = plan.world.costs(plan.world.channel.quantile_gain(plan.scenario.plan.fade_quantile))
    for k, (i, j) in enumerate(plan.world.graph.edges.tolist()):
        link = graph.edges[i, j]
        assert link["gain"] == plan.world.channel.mean_gain[k]
        assert link["rate_bps"] == min(1 / costs.forward_s[k], 1 / costs.backward_s[k])
        assert link["weight"] == costs.forward_j[k] + costs.backward_j[k]
        assert link["energy_j_per_bit"] == link["weight"] / 2
    assert graph.nodes[3]["pos"] == tuple(plan.world.graph.positions_m[3])
    assert [graph.nodes[i]["spent_j"] for i in range(8)] == plan.spent_j.tolist()
    used = sorted(sorted(ends) for *ends, on in graph.edges(data="used") if on)
    assert used == sorted(map(sorted, plan.edges.tolist()))


def test_networkx_finds_the_same_tree(plans: dict[str, Plan]) -> None:
    nx = pytest.importorskip("networkx")
    for name in ("geometric", "unequal"):
        plan = plans[name]
        assert plan.scheme == "tree"
        theirs = nx.minimum_spanning_tree(plan.graph())
        assert sorted(map(sorted, theirs.edges)) == sorted(map(sorted, plan.edges.tolist()))


@pytest.mark.parametrize("name", ["ring", "geometric", "fading"])
def test_a_graph_goes_out_and_comes_back(plans: dict[str, Plan], name: str) -> None:
    pytest.importorskip("networkx")
    plan = plans[name]
    back = joulemesh.plan(plan.scenario.with_graph(plan.graph()))
    np.testing.assert_array_equal(back.world.graph.edges, plan.world.graph.edges)
    np.testing.assert_array_equal(back.world.channel.mean_gain, plan.world.channel.mean_gain)
    np.testing.assert_array_equal(back.world.graph.positions_m, plan.world.graph.positions_m)
    np.testing.assert_array_equal(back.rounds, plan.rounds)
    assert Scenario(**json.loads(back.scenario.to_json())) == back.scenario


def test_a_graph_of_names_by_hand() -> None:
    nx = pytest.importorskip("networkx")
    graph = nx.Graph()
    graph.add_node("attic", pos=(0, 0))
    graph.add_node("cellar", x_m=30.0, y_m=40.0)
    graph.add_node("shed", pos=(60, 80))
    graph.add_edge("cellar", "attic", gain=1e-9)
    graph.add_edge("shed", "cellar", gain=2e-9)
    plan = joulemesh.plan(BASE.with_graph(graph))
    assert plan.world.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert plan.world.channel.mean_gain.tolist() == [1e-9, 2e-9]
    assert plan.world.graph.positions_m.tolist() == [[0, 0], [30, 40], [60, 80]]
    bare = nx.path_graph(3)
    two = joulemesh.plan(BASE.with_graph(bare))
    assert two.scenario.network.gains is None
    assert two.world.graph.edges.tolist() == [[0, 1], [1, 2]]


def test_graphs_that_cannot_be_meant() -> None:
    nx = pytest.importorskip("networkx")
    half = nx.path_graph(3)
    half.edges[0, 1]["gain"] = 1e-9
    placed = nx.path_graph(3)
    placed.nodes[0]["pos"] = (0, 0)
    loop = nx.path_graph(3)
    loop.add_edge(1, 1)
    solid = nx.path_graph(2)
    nx.set_node_attributes(solid, (0, 0, 0), "pos")
    for graph, why in (
        (nx.DiGraph([(0, 1)]), "is a DiGraph"),
        (nx.MultiGraph([(0, 1)]), "is a MultiGraph"),
        (nx.empty_graph(3), "has no edges"),
        (half, "1 of 2 edges of the graph have no 'gain'"),
        (placed, "2 of 3 nodes of the graph have no 'pos'"),
        (loop, "joins device 1 to itself"),
        (solid, "has 3 coordinates"),
        ([[0, 1]], "a list is not a graph"),
    ):
        with pytest.raises(joulemesh.ScenarioError, match=why):
            BASE.with_graph(graph)
    apart = nx.Graph([(0, 1), (2, 3)])
    with pytest.raises(joulemesh.ScenarioError, match="the 2 listed links falls into 2 parts"):
        joulemesh.plan(BASE.with_graph(apart))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        ({"topology": [[0, 0]]}, "a link joins two different devices"),
        ({"topology": [[0, 1, 2]]}, "a link joins two different devices"),
        ({"topology": [[0, True]]}, "a link joins two different devices"),
        ({"topology": [[0, 10**20]]}, "a link joins two different devices"),
        ({"topology": []}, "must be a name, a path, or a list of links"),
        ({"topology": [[0, 1]], "gains": [1e-9, 1e-9]}, "lists 2 gains for 1 listed links"),
        ({"gains": [1e-9]}, "lists 1 gains for 0 listed links"),
        ({"topology": [[0, 1]], "gains": [0]}, "network.gains: must be greater than 0"),
    ],
)
def test_links_that_cannot_be_meant(network: dict[str, Any], why: str) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=why):
        Scenario(network=network)


def test_a_link_to_nobody_is_refused() -> None:
    scenario = Scenario(devices={"count": 3}, network={"topology": [[0, 1], [1, 2], [2, 7]]})
    with pytest.raises(joulemesh.ScenarioError, match=r"link 2-7 must join .*devices.count to 8"):
        joulemesh.plan(scenario)


# JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_json_and_back(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]
    back = Plan.from_json(plan.to_json())
    assert back.scenario == plan.scenario
    np.testing.assert_array_equal(back.rounds, plan.rounds)
    np.testing.assert_array_equal(back.spent_j, plan.spent_j)


def test_json_of_the_users_own_model_keeps_its_size() -> None:
    plan = joulemesh.plan(BASE, parameters=123)
    assert Plan.from_json(plan.to_json()).work.parameters == 123


def test_json_that_is_no_plan_is_refused(plans: dict[str, Plan]) -> None:
    for text in ("", "[]", "{}", '{"scenario": {}}', "[" * 100_000):
        with pytest.raises(joulemesh.ScenarioError, match="is no plan") as refusal:
            Plan.from_json(text)
        assert "\n" not in str(refusal.value)
    record = json.loads(plans["ring"].to_json())
    record["rounds"][0][0] += 1
    with pytest.raises(joulemesh.ScenarioError, match="plan it again"):
        Plan.from_json(json.dumps(record))
    record["scenario"]["devices"]["cout"] = 3
    with pytest.raises(joulemesh.ScenarioError, match="unknown field"):
        Plan.from_json(json.dumps(record))


def test_scenario_json_that_is_none_is_refused() -> None:
    for text, why in (
        ("{", "is no JSON"),
        ("[1]", "holds no scenario"),
        ("[" * 100_000, "no JSON"),
    ):
        with pytest.raises(joulemesh.ScenarioError, match=why):
            Scenario.from_json(text)
