"""A scheme of the user's own, that of the how-to page, wherever schemes are treated apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

import joulemesh
from joulemesh.aggregation import (
    Conditions,
    Route,
    SchemeBase,
    SchemeKind,
    Subgraph,
    check,
    choose,
)
from joulemesh.aggregation.air import ORTHOGONAL
from joulemesh.aggregation.gossip import MetropolisPeer, metropolis_route, metropolis_weights
from joulemesh.base.errors import InfeasibleError
from joulemesh.base.optional import run_file
from joulemesh.methods.adaptive import scheme_prices
from joulemesh.methods.setting import Setting
from joulemesh.planning.pricing import LINK_REPORT_BITS
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario
from joulemesh.training.from_plan import schedule_of
from joulemesh.views.console import show_plan
from joulemesh.world import build_world
from joulemesh.world.links import LinkCosts
from tools.reading import DOCS, blocks

RIM = [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4]]  # 0 alone is linked to all


@pytest.fixture(autouse=True)
def star(tmp_path: Path) -> Iterator[None]:
    page = (DOCS / "how-to" / "add-a-scheme.md").read_text("utf-8")
    code = next(block.text for block in blocks(page) if block.title == "star.py")
    (tmp_path / "star.py").write_text(code)
    with SCHEMES.scoped():
        run_file(tmp_path / "star.py", "star.py")
        yield


def asked(**changes: object) -> Scenario:
    base = {
        "devices.count": 5,
        "network.topology": "complete",
        "plan.aggregation": "star",
        "plan.iterations": 6,
        "budget.energy_j": 5.0,
        "budget.deadline_s": 0.2,
    }
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return Scenario.preset("adaptive").override({**base, **fields})


@pytest.mark.parametrize("gone", [None, 0, 3])
@pytest.mark.parametrize("seed", range(5))
def test_it_keeps_the_contract_with_all_devices_and_with_some(gone: int | None, seed: int) -> None:
    scenario = asked(seed=seed)
    world = build_world(scenario, np.full(5, 8.0))
    costs = world.costs(world.channel.gain(0))
    part = Subgraph.of(world.graph, None if gone is None else np.arange(5) != gone)
    conditions = Conditions.of(
        scenario,
        part,
        costs,
        bits=96.0,
        battery_j=np.ones(5),
        iterations=1,
        medium=ORTHOGONAL,
    )
    scheme = choose(conditions).ready(conditions)
    check(scheme, costs, seed=seed)
    # The hub is the device with the cheapest links, by trying all.
    weight = dict(zip(map(tuple, world.graph.edges.tolist()), costs.weight(), strict=True))
    members = part.members.tolist()
    price = {
        hub: sum(weight[min(hub, i), max(hub, i)] for i in members if i != hub) for hub in members
    }
    assert scheme.route(costs).root == min(members, key=price.__getitem__)


def test_it_is_priced_as_what_it_sends() -> None:
    plan = joulemesh.plan(asked())
    route, bits = plan.route(1), plan.work.model_bits
    assert route is not None
    assert (route.count, plan.scheme, plan.timeline.scheme.exact) == (8, "star", True)
    costs = plan.world.costs(plan.world.channel.gain(0))
    joules = np.zeros(5)
    for link, (i, j) in enumerate(plan.edges.tolist()):
        if route.root in (i, j):
            joules[i] += costs.forward_j[link] * bits
            joules[j] += costs.backward_j[link] * bits
    np.testing.assert_allclose(plan.exchange_j[0], joules, rtol=1e-12)


def test_in_half_duplex_the_hub_serves_one_device_at_a_time() -> None:
    plan = joulemesh.plan(asked(network__duplex="half"))
    route = plan.route(1)
    assert route is not None
    costs, hub = plan.world.costs(plan.world.channel.gain(0)), route.root
    seconds = sum(
        costs.forward_s[link] + costs.backward_s[link]
        for link, ends in enumerate(plan.edges.tolist())
        if hub in ends
    )
    np.testing.assert_allclose(plan.exchange_s, plan.work.model_bits * seconds, rtol=1e-12)


@pytest.mark.parametrize("known", [True, False])
def test_under_fading_the_hub_follows_the_gains_that_are_known(known: bool) -> None:
    plan = joulemesh.plan(
        asked(
            network__fading="rayleigh",
            network__channel_known=known,
            plan__iterations=12,
            plan__fade_quantile=0.999,
            budget__deadline_s=5.0,
        )
    )
    routes = [route for t in range(1, 13) if (route := plan.route(t)) is not None]
    assert len(routes) > 6
    hubs = {route.root for route in routes}
    assert len(hubs) > 1 if known else hubs == {plan.timeline.route.root}


@pytest.mark.parametrize("known", [True, False])
def test_link_costs_are_flooded_and_paid_wherever_it_is_computed(known: bool) -> None:
    """And the fixed method pays for the same exchanges what the plan does."""
    scenario = asked(plan__coordination=True, network__channel_known=known)
    plan, plain = joulemesh.plan(scenario), joulemesh.plan(asked(network__channel_known=known))
    more = plan.exchange_j[0] - plain.exchange_j[0]
    assert (more > 0).all()
    np.testing.assert_array_equal(plan.timeline.flooded, [True] + [False] * 5)
    ledger = scheme_prices(Setting(scenario), 3)(0, 6)
    np.testing.assert_allclose(ledger.exchange_j, np.broadcast_to(plan.exchange_j, (6, 5)))
    flood = 2 * 10 * LINK_REPORT_BITS * 10
    assert ledger.bits.tolist() == [
        8 * plan.work.model_bits + flood,
        *[8 * plan.work.model_bits] * 5,
    ]


def test_if_the_hub_leaves_theorem_3_decides_among_what_remains() -> None:
    values = {"values": [1e-6, 5.0, 5.0, 5.0, 5.0]}
    links = {"network__topology": RIM, "plan__on_depletion": "leave"}
    plan = joulemesh.plan(asked(**links, budget__energy_j=values))
    assert plan.scheme == "tree"
    assert plan.reason.startswith("the star broke; the channel is known")


def test_a_graph_that_cannot_carry_it_is_refused_in_its_own_words() -> None:
    with pytest.raises(InfeasibleError, match=r'"star" needs a device .*network\.topology'):
        joulemesh.plan(asked(network__topology="ring"))
    pairs = [list(pair) for pair in combinations(range(5), 2)]
    assert joulemesh.plan(asked(network__topology=pairs)).scheme == "star"


# One that is not exact ------------------------------------------------------------------------


class Once(SchemeBase):
    """One round of Metropolis weights, without a number of rounds to decide."""

    error = 0.5

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        return self.graph.in_whole(metropolis_route(self.graph.edges, self.bits, 1))

    def mixing(self, start: int, stop: int) -> NDArray[np.float64]:
        return metropolis_weights(self.graph.edges, self.graph.devices).toarray()[None]

    def peer(self, device: int, route: Route) -> MetropolisPeer:
        return MetropolisPeer(device, route)


def test_a_scheme_that_leaves_an_error_needs_no_gossip_rounds() -> None:
    kind = SCHEMES.register(
        SchemeKind(
            "once",
            "everybody mixes with all neighbours, once",
            lambda conditions, fit, reason: Once(kind, reason, conditions.graph, conditions.bits),
            words="with neighbours",
            exact=False,
        )
    )
    plan = joulemesh.plan(asked(plan__aggregation="once", network__topology="ring"))
    scheme = plan.scheme_at(1)
    check(scheme, plan.world.costs(plan.world.channel.gain(0)))
    assert json.loads(plan.to_json())["gossip"] == {
        "kind": "once",
        "rounds": 0,
        "contraction": None,
        "consensus_error": 0.5,
        "balance": None,
    }
    np.testing.assert_array_equal(schedule_of(plan).matrices(0, 1)[0], scheme.mixing(0, 1)[0])
    printed = Console(file=StringIO(), width=100)
    show_plan(plan, printed)
    assert "once, consensus error 0.5\n" in printed.file.getvalue()  # type: ignore[attr-defined]


class Unfinished(SchemeBase):
    """A scheme that says nothing about its exchange."""


def test_a_scheme_that_lacks_a_part_is_named_with_it_when_it_is_made() -> None:
    with pytest.raises(TypeError, match=r"Unfinished.*error.*mixing.*peer.*route"):
        Unfinished(SCHEMES["tree"], "", None, 8.0)  # type: ignore[abstract, arg-type]
