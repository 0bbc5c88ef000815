"""Rules with one figure each that can be checked by hand."""

from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.aggregation.route import Route
from joulemesh.ledger import Ledger, charge, slowest_s
from joulemesh.planning import budget, iterations, losses, rounds, walk
from joulemesh.planning.plan import digest_of
from joulemesh.planning.policy import water_fill
from joulemesh.scenario import PlanOptions
from joulemesh.theory import bounds
from joulemesh.theory.bounds import Constants
from joulemesh.tolerance import affordable, left_of, within
from joulemesh.world.topology import Graph
from joulemesh.world.traces import Traces

ONE = np.ones(1)


def test_a_budget_pays_for_a_share_more_than_itself_and_no_further() -> None:
    assert affordable(10.0, 1.5, 4.0) == 4
    assert affordable(0.3, 0.1) == 3
    assert within([0.3, 0.3], [0.1, 0.3], [0.2, 0.001]).tolist() == [True, False]
    assert left_of(np.array([0.3, 1.0]), [0.1, 2.0], [0.2, 0.0]).tolist() == [0.0, -1.0]


def test_ledgers_add_up_and_follow_each_other() -> None:
    ledger = Ledger.of((2, 3), compute_j=1.0, transmit_j=0.5, receive_j=0.5, seconds=4.0)
    assert ledger.spent_j.tolist() == [4.0, 4.0, 4.0]
    assert ledger[:1].total_j == 6.0
    assert ledger.then(ledger).iterations == 4
    assert slowest_s(np.array([[3, 1], [0, 0]]), np.array([0.5, 1.0])).tolist() == [1.5, 0.0]
    devices = joulemesh.plan(Scenario.preset("adaptive")).world.devices
    free = Ledger.of((2, 20))
    assert (charge(devices, 3, free).seconds == 3 * devices.round_latency_s.max()).all()


def test_limits_of_time_and_rest() -> None:
    assert budget.rounds_cap(10.0, 4.0, np.array([1.0, 2.5])).tolist() == [6, 2]
    two = np.array([1.0, 0.3])
    assert budget.rounds_in_all(10.0, np.ones(4), two).tolist() == [6, 20]
    assert budget.TimeLimits(None, 10.0).caps(np.ones(4), two).tolist() == [[1, 5]]
    mends = budget.missing_time(1, 2.0, 9.0, np.full(4, 1.5), ONE)
    assert [(edit.field, edit.value) for edit in mends] == [
        ("budget.deadline_s", 2.5),
        ("budget.total_s", 10.0),
    ]
    figures = [budget.at_least(one) for one in (0.028, 1.00001, 9.99901)]
    assert figures == [0.028, 1.001, 10.0]
    left = budget.TimeLeft(budget.TimeLimits(None, 10.0), np.array([1.0, 0.25]))
    left.pay(np.array([2, 4]), 1.5)  # an equal share of what is left after exchanges
    assert left.caps(np.array([1.5, 1.5])).tolist() == [[1, 7], [1, 7]]
    assert budget.TimeLeft(budget.TimeLimits(2.0, 10.0), ONE).share_s(10) == 1.0
    rest = budget.Waiting(np.array([2.0, 0.5]), np.array([1.0, 3.0]))
    assert rest.of_iteration(np.array([3, 2]), 1.0).tolist() == [14.0, 3.5]  # 6 s, then 1 s
    assert budget.least_s(np.full(2, 0.5), np.array([1.0, 2.0]), 1) == 5.0
    purse = budget.Purse(10 * ONE, 2 * ONE, ONE, budget.Waiting(0.5 * ONE, ONE))
    assert purse.total(4.0).tolist() == [6]
    limits = budget.TimeLimits(3.0, None)
    assert budget.affordable_s(np.array([9.0]), ONE, 2 * ONE, limits, 2) == 4.0


def test_how_many_iterations() -> None:
    battery_j = np.array([300.0, 400.0])
    assert iterations.longest(battery_j, np.ones(2), np.ones(2)) == 150
    assert iterations.longest_in_time(0.3, 0.0, 0.1) == 3
    assert iterations.least_of(100_000, lambda n: n / 37 + 37 / n) == 37
    assert iterations.best_iterations(1000, lambda n: abs(n - 37.0)) == 37
    assert iterations.zeta_limit(PlanOptions(zeta=12.5, rounds="theorem4")) == 13
    assert iterations.zeta_limit(PlanOptions(zeta=3.0, rounds="backfill")) is None


def test_rounds_by_each_policy() -> None:
    assert water_fill([1.0, 2.0, 3.0], [12, 4], 5).T.tolist() == [[2, 5, 5], [1, 1, 2]]
    assert rounds.theorem4(3, 11, 10, 3.0).tolist() == [2, 3, 6]
    assert rounds.theorem4(3, 9, 10, 3.0, start=2).tolist() == [3, 6]
    assert rounds.theorem4_literal(4, 6, 10, 4.0).tolist() == [0, 0, 1, 2]
    assert rounds.backfill(5, 12, 4).tolist() == [1, 1, 2, 4, 4]
    assert rounds.uniform(4, 10, 5).tolist() == [2, 2, 3, 3]
    assert rounds.inverse(3, 11, 10, 3.0).tolist() == [6, 3, 2]
    assert rounds.spread(5, [2, 7], 4).T.tolist() == [[0, 1, 0, 0, 1], [1, 2, 1, 1, 2]]
    assert rounds.fit_time(4, np.array([2, 9]), np.array([5.0, 1.0]), 9.0).tolist() == [1, 6]


def test_who_is_cut_off_and_who_gives_to_whom() -> None:
    graph = Graph(4, np.array([[0, 1], [1, 2], [2, 3]]), np.zeros((4, 2)))
    everybody = np.ones(4, bool)
    first = walk.cut_off(graph, everybody, np.array([False, False, True]))
    assert first.tolist() == [False, False, False, True]
    holds = np.array([False, False, False, True])  # a part that holds what was learned goes on
    second = walk.cut_off(graph, everybody, np.array([False, True, False]), holds)
    assert second.tolist() == [True, True, False, False]
    near = [(0, 2), (1, 2), (2, 3)]
    gifts = walk.givers({0: 5.0, 1: 9.0, 2: 1.0, 3: 1.0}, {2, 3}, near)
    assert gifts == ((2, 1), (3, 2))
    assert walk.origins(gifts) == {2: 1, 3: 1}
    route = walk.gift_route(gifts, np.array(near), 8.0)
    assert list(route.messages()) == [(0, 1, 2, 8.0), (1, 2, 3, 8.0)]


def test_a_full_battery_spills() -> None:
    sunny = Traces(steady_w=np.array([2.0]), capacity_j=np.array([5.0]))
    after = walk.recharged(sunny, np.array([4.0]), 0, 0.0, 3.0)
    assert after is not None
    assert (after.held_j[0], after.spilled_j[0]) == (5.0, 5.0)


def test_messages_are_told_apart_by_step_and_ends() -> None:
    route = Route.build(
        "tree",
        edges=[[0, 1]],
        edge=[0, 0],
        forward=[True, False],
        step=[0, 1],
        bits=8.0,
        repeats=1,
        uses=2,
    ).in_chunks(2)
    keys = [part.tolist() for part in losses.message_keys(route)]
    assert keys == [[0, 1, 1, 2], [0, 1, 0, 1], [1, 0, 1, 0]]


def test_a_digest_tells_plans_apart() -> None:
    one, other = (joulemesh.plan(Scenario(seed=seed)) for seed in (0, 1))
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(joulemesh.plan(Scenario(seed=0)))


def constants(
    sigma: float = 0.0, bound: float = 0.0, delta: float = 0.0, gap: float = 1.0
) -> Constants:
    return Constants(1.0, 1.0, sigma, bound, delta, gap)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (bounds.theorem2_corrected([1, 2], constants(delta=1.0), 0.5), [0.625, 1.5]),
        (bounds.theorem2_discounted([1, 2], constants(delta=1.0), 0.5), 1.65625),
        (bounds.theorem1_corrected([1, 2], constants(sigma=1.0, gap=8.0), 0.5), 1.21875),
        (bounds.corollary1_corrected(constants(gap=8.0), 0.5, target_gap=1.0), 3.0),
        (bounds.spread_roots([2, 0, 2], [0.5, 0.5, 0.0], constants(delta=1.0), 0.5)[2], 1.25),
        (bounds.exchange_costs([1, 2], [1.0, 0.0], constants(delta=1.0), 0.5), [0.0, 2.625]),
        (bounds.theorem1_printed([1, 2], constants(sigma=1.0, gap=8.0), 0.5), 1.375),
        (bounds.phi_printed(20, 1), 37.05),
        (bounds.theorem2_printed(1, 1, 10, constants(bound=2.0)), 0.822467),
        (bounds.p42([1, 1, 3], 0.5), 0.21875),
        (bounds.drift([1, 2], a=0.5, eta=0.5, smoothness=1.0, divergence=1.0), 1.65625),
        (bounds.noise_ball(Constants(0.5, 1.0, 2.0, 0.0, 0.0, 1.0), 0.5), 1.0),
        (bounds.moments_of(np.array([[3.0], [1.0]]), np.array([10.0, 1.0]), 2).variance, [0.5, 0]),
    ],
)
def test_bounds_by_hand(found: Any, expected: Any) -> None:
    assert found == pytest.approx(expected, rel=1e-5)
