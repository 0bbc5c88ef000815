"""Prices are those of the plans, shares are of the budget, and only what cannot win is dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.study.pricing import Candidate, Priced, Pricing, undominated
from joulemesh.study.search import Space, geometric
from joulemesh.training.from_plan import schedule_of

SCENARIO = joulemesh.Scenario.preset("adaptive")


def made(number: int, learns: str, energy_j: float, time_s: float) -> Priced:
    return Priced(Candidate(number, {}), "tree", 10, 50, energy_j, time_s, learns)


def test_a_share_is_of_batteries_and_iterations() -> None:
    part = Pricing(SCENARIO).plan({"plan.iterations": 100}, 0.1)
    whole = joulemesh.plan(SCENARIO)
    np.testing.assert_allclose(part.energy_budget_j, 0.1 * whole.energy_budget_j)
    assert part.iterations == 10
    assert (part.margin_j >= 0).all()
    assert (part.margin_s >= 0).all()
    third = Pricing(SCENARIO).plan({"plan.iterations": 9}, 1 / 3)
    assert third.iterations == 3


def test_less_than_an_iteration_is_no_share() -> None:
    with pytest.raises(InfeasibleError, match=r"0\.1 of 9 iterations is less than one"):
        Pricing(SCENARIO).plan({"plan.iterations": 9}, 0.1)


def test_a_batch_makes_rounds_dearer() -> None:
    pricing = Pricing(SCENARIO)
    small, large = (
        pricing.ground({"training.batch_size": size}).world.devices.round_energy_j
        for size in (16, 64)
    )
    np.testing.assert_allclose(large, 4 * small)


def test_dominance_by_hand() -> None:
    """Only among those that learn the same, and only if neither joules nor seconds are fewer."""
    offered = [
        made(0, "a", 5.0, 2.0),
        made(1, "a", 6.0, 2.0),  # dearer, as slow: dominated by 0
        made(2, "a", 6.0, 1.0),  # dearer, but faster: kept
        made(3, "b", 9.0, 9.0),  # dearer and slower, but learns something else: kept
        made(4, "a", 5.0, 2.0),  # the same as 0
        made(5, "a", 7.0, 1.5),  # dominated by 2
    ]
    kept, dropped = undominated(offered)
    assert [one.candidate.number for one in kept] == [0, 2, 3]
    assert {one.candidate.number for one in dropped} == {1, 4, 5}
    reasons = {one.candidate.number: one.reason for one in dropped}
    assert reasons[1].endswith("which takes 5 J and 2 s in place of 6 J and 2 s")
    assert reasons[4] == "learns the same at the same price as 0 (as given)"
    assert "as 2 (as given)" in reasons[5]


def test_the_same_rounds_by_a_dearer_scheme_are_dominated() -> None:
    """Few fixed rounds leave batteries with a rest: a dearer scheme changes the price alone."""
    pricing = Pricing(SCENARIO)
    fixed = {"plan.rounds": "fixed", "plan.fixed_rounds": 1, "plan.iterations": 50}
    tree, ring = (
        pricing.price(Candidate(k, {"plan.aggregation": name, **fixed}))
        for k, name in enumerate(("ring-chunked", "ring"))
    )
    assert isinstance(tree, Priced)
    assert isinstance(ring, Priced)
    assert tree.learns == ring.learns
    kept, dropped = undominated([tree, ring])
    assert [one.scheme for one in kept] == ["ring-chunked"]
    assert dropped[0].why == "dominated"
    slow = pricing.price(Candidate(9, {"plan.aggregation": "ring", **fixed, "plan.iterations": 49}))
    assert isinstance(slow, Priced)
    assert slow.learns != ring.learns


def test_a_learning_rate_is_another_candidate_of_the_same_price() -> None:
    pricing = Pricing(SCENARIO)
    one, other = (
        pricing.price(Candidate(k, {"training.learning_rate": rate}))
        for k, rate in enumerate((0.1, 0.2))
    )
    assert isinstance(one, Priced)
    assert isinstance(other, Priced)
    assert one.energy_j == other.energy_j
    assert one.learns != other.learns


def test_the_grid_reaches_what_the_budgets_pay_for() -> None:
    pricing = Pricing(SCENARIO)
    space = Space.of({"plan.aggregation": "tree", "plan.iterations": "grid"})
    numbers = [point["plan.iterations"] for point in pricing.points(space)]
    most = joulemesh.plan(
        SCENARIO.override({"plan.aggregation": "tree", "plan.iterations": "longest"})
    )
    assert numbers == geometric(most.iterations, 100)
    assert numbers[-1] == most.iterations


@pytest.mark.slow
def test_too_many_candidates_are_drawn_by_the_seed() -> None:
    space = Space.default(SCENARIO)
    some, again = (Pricing(SCENARIO).offer(space, 12) for _ in range(2))
    other = Pricing(SCENARIO.override({"seed": 5})).offer(space, 12)
    chosen = [one.candidate.number for one in some.kept]
    assert len(chosen) == 12
    assert 0 in chosen
    assert chosen == [one.candidate.number for one in again.kept]
    assert chosen != [one.candidate.number for one in other.kept]
    assert {one.why for one in some.dropped} >= {"left out"}
    rates = {one.candidate.changes.get("training.learning_rate") for one in some.kept}
    assert len(rates) > 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"plan.iteration": [3]}, "did you mean 'plan.iterations'"),
        ({"budget.energy_j": [3.0]}, "part of the task, not of the plan"),
        ({"network.bits_per_parameter": [8]}, "messages have 16 bits or 32"),
        ({"plan.rounds": []}, "has no values to try"),
        ({"plan.rounds": ["grid"]}, '"grid" is for plan.iterations'),
        ({}, "no axes"),
        ({"plan.iterations": list(range(1, 200_000))}, "more than 100,000"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        Space.of(values)


def test_what_is_learned_is_the_schedule() -> None:
    plan = joulemesh.plan(SCENARIO)
    schedule = schedule_of(plan)
    assert schedule.digest() != replace(schedule, rounds=schedule.rounds + 1).digest()


def test_a_share_is_of_the_total_time() -> None:
    whole = joulemesh.plan(SCENARIO)
    timed = SCENARIO.override({"budget.total_s": float(whole.latency_s.sum())})
    for share in (0.1, 1 / 3):
        part = Pricing(timed).plan({"plan.rounds": "spread"}, share)
        assert part.scenario.budget.total_s == share * timed.budget.total_s  # type: ignore[operator]
        assert float(part.latency_s.sum()) <= share * float(whole.latency_s.sum())
        assert (part.margin_j >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("fading", ["rayleigh", "rician"])
def test_under_fading_candidates_are_priced_by_their_walk(fading: str) -> None:
    scenario = SCENARIO.override({"network.fading": fading, "plan.iterations": 10})
    priced = Pricing(scenario).price(Candidate(0, {"plan.rounds": "uniform"}))
    plan = joulemesh.plan(scenario.override({"plan.rounds": "uniform"}))
    assert isinstance(priced, Priced)
    assert priced.energy_j == float(plan.spent_j.sum())
    assert (Pricing(scenario).plan({}, 0.5).margin_j >= 0).all()
