"""Devices that leave for good: the plan before, the rest made again, and nothing overspent."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.deploy.fleet.pack import check_deployable
from joulemesh.methods import build
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from tests.samples import sample

BASE = Scenario.preset("adaptive").override({"network.topology": "grid", "plan.iterations": 30})


def leaving(*pairs: tuple[int, int], **changes: Any) -> Plan:
    return joulemesh.plan(BASE.override({**changes, "devices.leave": [list(p) for p in pairs]}))


def spent_exactly(plan: Plan, device: int) -> Fraction:
    """Joules in exact arithmetic: rounds, exchanges and rest of every iteration."""
    round_j = Fraction(float(plan.world.devices.round_energy_j[device]))
    rows = np.broadcast_to(plan.exchange_j, plan.rounds.shape)
    exchange = sum((Fraction(float(row[device])) for row in rows), Fraction(0))
    return int(plan.rounds[:, device].sum()) * round_j + exchange


def test_nothing_changes_until_somebody_leaves() -> None:
    whole, plan = joulemesh.plan(BASE), leaving((3, 11))
    assert (plan.rounds[:10] == whole.rounds[:10]).all()
    assert plan.active[:10].all()
    assert not plan.active[10:, 3].any()
    assert not plan.rounds[10:, 3].any()
    assert plan.active[10:].sum() == 20 * (plan.iterations - 10) - (plan.iterations - 10)
    assert [(event.iteration, event.kind, event.devices) for event in plan.events] == [
        (11, "gone", (3,))
    ]
    assert plan.binding[3] == "left"


def test_who_is_gone_neither_sends_nor_relays() -> None:
    plan = leaving((3, 11), (7, 20))
    for iteration in range(1, plan.iterations + 1):
        route = plan.route(iteration)
        assert route is not None
        ends = set(plan.world.graph.edges[np.unique(route.link_index)].ravel().tolist())
        assert (3 in ends) == (iteration < 11)
        assert (7 in ends) == (iteration < 20)
    heard = np.broadcast_to(plan.exchange_j, plan.rounds.shape)
    assert not heard[10:, 3].any()


def test_a_device_may_never_be_there() -> None:
    plan = leaving((0, 1))
    assert not plan.active[:, 0].any()
    assert plan.spent_j[0] == 0


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in sample(range(1, 6), 1))]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.rounds": "spread", "budget.total_s": 1.0},
        {"plan.aggregation": "gossip", "network.topology": "complete"},
        {"devices.idle_w": 0.05},
        {"plan.exchange": {"every": 3, "final": True}, "plan.rounds": "spread"},
    ],
    ids=str,
)
def test_nothing_is_overspent(seed: int, changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    who = rng.choice(20, 3, replace=False).tolist()
    pairs = [(device, int(rng.integers(1, 31))) for device in who]
    plan = leaving(*pairs, **changes, seed=seed)
    assert (plan.margin_j >= 0).all()
    assert (plan.margin_s >= 0).all()
    assert plan.total_s is None or plan.time_s <= plan.total_s
    if "devices.idle_w" not in changes:
        for device in range(20):
            assert spent_exactly(plan, device) <= Fraction(float(plan.energy_budget_j[device]))
    for device, iteration in pairs:
        assert not plan.active[iteration - 1 :, device].any()


def test_planned_step_by_step_they_leave_too() -> None:
    """Under fading every iteration is planned by itself, by another planner."""
    plan = leaving((3, 11), **{"network.fading": "rayleigh"})
    assert plan.active[:10, 3].all()
    assert not plan.active[10:, 3].any()
    assert any(event.kind == "gone" and event.devices == (3,) for event in plan.events)


def test_who_is_left_alone_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="fewer than two devices"):
        leaving(*((device, 5) for device in range(19)))


@pytest.mark.parametrize("pairs", [[[3]], [[3, 0]], [[-1, 2]], [[3, 4], [3, 5]], 7, [[99, 2]]])
def test_what_is_no_departure_is_refused(pairs: Any) -> None:
    with pytest.raises(ScenarioError, match=r"devices\.leave"):
        joulemesh.plan(BASE.override({"devices.leave": pairs}))


def test_rivals_follow_it_and_deployments_refuse() -> None:
    scenario = BASE.override({"devices.leave": [[3, 11]]})
    active = build("fixed:3", scenario).schedule.active
    assert active[:10].all()
    assert active[10:].all(axis=0).tolist() == [i != 3 for i in range(active.shape[1])]
    with pytest.raises(ScenarioError, match=r"devices\.leave is for simulation"):
        check_deployable(joulemesh.plan(scenario))


@pytest.mark.slow
def test_it_is_trained_as_planned() -> None:
    plan = leaving((3, 5), **{"plan.iterations": 8})
    result = joulemesh.run(plan.scenario)
    assert (result.plan.rounds == plan.rounds).all()
    assert len(result.plan.rounds) == 8
