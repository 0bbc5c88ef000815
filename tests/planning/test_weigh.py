"""`plan.aggregation = "auto"`: joules and seconds are weighed; `"theorem3"` is the paper's rule."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh import Scenario
from joulemesh.aggregation.air import ORTHOGONAL
from joulemesh.aggregation.route import Subgraph
from joulemesh.aggregation.scheme import Conditions, choose
from joulemesh.planning.pricing import Pricer
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph

EXACT = ("tree", "tree-chunked", "ring-chunked")


def planned(scheme: str, **fields: Any) -> joulemesh.Plan:
    changes = {name.replace("__", "."): value for name, value in fields.items()}
    base = {"plan.iterations": 3, "budget.energy_j": 1e3, "budget.deadline_s": 1e3}
    return joulemesh.plan(
        Scenario.preset("adaptive").override({**base, **changes, "plan.aggregation": scheme})
    )


def products(**fields: Any) -> dict[str, float]:
    """Joules × seconds of an exchange of each exact scheme that the graph carries."""
    found = {}
    for scheme in EXACT:
        try:
            plan = planned(scheme, **fields)
        except joulemesh.InfeasibleError:
            continue
        joules = np.broadcast_to(plan.exchange_j, plan.rounds.shape)[0].sum()
        found[scheme] = float(joules * plan.exchange_s[0])
    return found


@given(
    topology=st.sampled_from(["ring", "grid", "complete", "geometric", "quasi-ring"]),
    count=st.sampled_from([4, 6, 8, 16]),
    duplex=st.sampled_from(["orthogonal", "half"]),
    physics=st.sampled_from(["physical", "paper"]),
    power=st.sampled_from([1.0, [0.05, 2.0]]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_auto_has_the_least_joules_times_seconds(
    topology: str, count: int, duplex: str, physics: str, power: Any, seed: int
) -> None:
    fields = {
        "seed": seed,
        "network__topology": topology,
        "network__duplex": duplex,
        "devices__count": count,
        "devices__transmit_power_w": power,
        "plan__physics": physics,
    }
    every = products(**fields)
    taken = planned("auto", **fields)
    assert every[taken.scheme] <= min(every.values()) * (1 + 1e-12)


def test_auto_says_the_figures() -> None:
    plan = planned("auto", network__duplex="half")  # a ring, where each of the three may win
    assert plan.reason.startswith("the least joules × seconds of an exchange: ")
    figures = re.findall(r"([a-z-]+) ([\d.]+) mJ in ([\d.]+) ms", plan.reason)
    said = {name: float(mj) * float(ms) * 1e-6 for name, mj, ms in figures}
    assert said == pytest.approx(products(network__duplex="half"), rel=0.02)
    assert list(said) == sorted(said, key=said.__getitem__)
    assert plan.scheme == next(iter(said))


def test_theorem_3_looks_at_joules_alone_and_auto_is_the_default() -> None:
    paper, asked = joulemesh.plan(Scenario.preset("adaptive")), planned("theorem3")
    assert paper.scheme == asked.scheme == "tree"
    assert "Theorem 3, case 1" in paper.reason
    assert planned("auto").scheme == joulemesh.plan(Scenario()).scheme == "tree-chunked"


def test_an_unknown_channel_leaves_no_tree_to_choose() -> None:
    plan = planned("auto", network__channel_known=False)
    assert plan.scheme == "ring-chunked"
    assert "the channel is unknown" in plan.reason
    path = [[0, 1], [1, 2], [2, 3]]
    fields = {"network__channel_known": False, "devices__count": 4, "network__topology": path}
    plan = planned("auto", **fields)
    assert plan.scheme == planned("theorem3", **fields).scheme == "gossip"
    assert plan.reason.startswith("no exact scheme can be weighed; ")


def test_auto_chooses_again_among_those_that_remain() -> None:
    """A ring that breaks leaves a path, along which a tree still goes."""
    plan = joulemesh.plan(
        Scenario.preset("adaptive").override(
            {
                "devices.count": 6,
                "plan.aggregation": "auto",
                "plan.on_depletion": "leave",
                "plan.rounds": "fixed",
                "plan.iterations": 200,
                "budget.energy_j": {"values": (0.3, 20.0, 20.0, 20.0, 20.0, 20.0)},
            }
        )
    )
    assert not plan.active.all()
    assert plan.scheme_at(plan.iterations).name == "tree-chunked"


@given(devices=st.integers(3, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_ring_beats_what_auto_assumes_of_rings(devices: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(devices)
    pairs = {tuple(sorted(pair)) for pair in zip(order, np.roll(order, 1), strict=True)}
    more = rng.integers(devices, size=(devices, 2))
    pairs |= {(min(i, j), max(i, j)) for i, j in more.tolist() if i != j}
    edges = np.array(sorted(pairs), np.int64)
    costs = LinkCosts(*(10 ** rng.uniform(-8, -5, (4, len(edges)))))
    scenario = Scenario.preset("adaptive").override(
        {"devices.count": devices, "plan.aggregation": "ring-chunked"}
    )
    graph = Graph(devices, edges, np.zeros((devices, 2)))
    conditions = Conditions.of(
        scenario,
        Subgraph.of(graph),
        costs,
        bits=1e6,
        battery_j=np.ones(devices),
        iterations=1,
        medium=ORTHOGONAL,
    )
    least = SCHEMES["ring-chunked"].least
    assert least is not None
    joules, seconds = least(conditions)
    world = joulemesh.plan(scenario.override({"plan.iterations": 1})).world
    for change in ({}, {"network.duplex": "half"}, {"network.medium": "shared"}):
        pricer = Pricer(scenario.override(change), world, 1e6)
        prices = pricer.scheme(choose(conditions).ready(conditions), costs, 0, 1)
        assert prices.energy_j.sum() >= joules * (1 - 1e-12)
        assert prices.seconds[0] >= seconds * (1 - 1e-12)
