"""`longest` against a loop over n, `bound` against every n, zeta's limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.planning import static as planning
from joulemesh.planning.iterations import best_iterations, longest, zeta_limit
from joulemesh.scenario import PlanOptions
from joulemesh.theory.bounds import Constants, evaluate

CONSTANTS = {
    "strong_convexity": 0.1,
    "smoothness": 1.0,
    "gradient_variance": 0.5,
    "gradient_bound": 2.0,
    "divergence": 0.3,
    "initial_gap": 5.0,
}


@given(
    battery=st.lists(st.integers(1, 200), min_size=3, max_size=3),
    exchange=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    rounds=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    least=st.integers(1, 3),
)
@settings(max_examples=200, deadline=None)
def test_longest_is_algorithm_3s_loop(
    battery: list[int], exchange: list[int], rounds: list[int], least: int
) -> None:
    battery_j, exchange_j, round_j = (np.array(x) / 10 for x in (battery, exchange, rounds))
    n = 0
    while all(
        (n + 1) * (least * r + e) <= b for b, e, r in zip(battery, exchange, rounds, strict=True)
    ):
        n += 1
    assert longest(battery_j, exchange_j, round_j, least) == n


def test_longest_by_the_closed_form() -> None:
    # notes: longest-plan. A battery of 300, rounds and exchanges of 1: 150 iterations (T = 151).
    one = np.ones(1)
    assert longest(300 * one, one, one) == 150


@given(zeta=st.floats(0.01, 1000))
@settings(max_examples=100, deadline=None)
def test_zeta_limit_is_the_largest_n_below_zeta_plus_one(zeta: float) -> None:
    limit = zeta_limit(PlanOptions(zeta=zeta, rounds="theorem4"))
    assert limit is not None
    assert limit - 1 < zeta <= limit
    assert zeta_limit(PlanOptions(zeta=zeta, rounds="uniform")) is None
    assert zeta_limit(PlanOptions()) is None


def small(**more: Any) -> joulemesh.Scenario:
    fields = {
        "devices.count": 5,
        "devices.cycles_per_sample": [1e4, 3e4],
        "budget.deadline_s": 10.0,
        "plan.iterations": "longest",
        "plan.rounds": "uniform",
    }
    return joulemesh.Scenario.preset("adaptive").override(
        fields | {k.replace("__", "."): v for k, v in more.items()}
    )


def feasible(scenario: joulemesh.Scenario, n: int) -> bool:
    try:
        joulemesh.plan(scenario.override({"plan.iterations": n}))
    except joulemesh.InfeasibleError:
        return False
    return True


@pytest.mark.parametrize(
    "options",
    [
        {"plan__aggregation": "tree"},
        {  # many links to report, once: far dearer than an exchange along the tree
            "plan__coordination": True,
            "devices__count": 24,
            "network__topology": "complete",
        },
        {"plan__aggregation": "ring"},
        {"plan__aggregation": "ring-chunked", "plan__physics": "paper"},
        {"plan__aggregation": "metropolis", "plan__gossip_rounds": 2},
        {"plan__aggregation": "metropolis", "plan__gossip_rounds": "balanced"},
        {"plan__aggregation": "gossip", "plan__gossip_rounds": 6},
        {"plan__aggregation": "gossip", "plan__gossip_rounds": 3, "plan__gossip_mode": "matchings"},
        {"plan__aggregation": "gossip", "plan__physics": "paper"},
        {"plan__rounds": "fixed", "plan__fixed_rounds": 4},
    ],
    ids=str,
)
def test_longest_is_the_last_n_of_a_loop(options: dict[str, Any]) -> None:
    scenario = small(budget__energy_j=[0.2, 0.4], **options)
    n = 1
    while feasible(scenario, n):
        n += 1
    assert n > 2
    assert joulemesh.plan(scenario).iterations == n - 1


def test_longest_stops_before_a_random_exchange_that_misses_the_deadline() -> None:
    scenario = small(
        budget__energy_j=1.0,
        plan__aggregation="gossip",
        plan__gossip_rounds=6,
    )
    exchange_s = joulemesh.plan(scenario.override({"plan.iterations": 12})).exchange_s
    first = int(np.argmax(exchange_s > exchange_s[:3].max()))
    assert first >= 3
    slowest = joulemesh.plan(scenario).world.devices.round_latency_s.max()
    deadline = float(exchange_s[:first].max() + slowest) * (1 + 1e-9)
    assert joulemesh.plan(scenario.override({"budget.deadline_s": deadline})).iterations == first


def test_longest_stays_below_zeta_for_theorem_4_only() -> None:
    for policy, n in (("theorem4", 8), ("inverse", 8)):
        made = joulemesh.plan(small(budget__energy_j=1.0, plan__rounds=policy, plan__zeta=7.5))
        assert made.iterations == n
    assert joulemesh.plan(small(budget__energy_j=1.0, plan__zeta=7.5)).iterations > 8


def test_longest_is_not_cut_by_a_zeta_that_nobody_gave() -> None:
    rich = {"budget__energy_j": 60.0, "plan__rounds": "theorem4"}
    free, even = (
        joulemesh.plan(small(**{**rich, "plan__rounds": p})) for p in ("theorem4", "uniform")
    )
    assert free.iterations == even.iterations > 400
    assert free.notes == ()
    # ζ follows n: the weights are those of ζ = n, which is the paper's own setting at 400.
    asked = {"plan__iterations": free.iterations, "plan__zeta": float(free.iterations)}
    assert (joulemesh.plan(small(**rich, **asked)).rounds == free.rounds).all()


@pytest.mark.parametrize("n", [1, 100, 400])
def test_zeta_is_the_papers_up_to_its_400_iterations(n: int) -> None:
    asked = {"plan__rounds": "theorem4", "plan__iterations": n, "budget__energy_j": 60.0}
    free, given = (joulemesh.plan(small(**asked, **more)) for more in ({}, {"plan__zeta": 400.0}))
    assert (free.rounds == given.rounds).all()


@pytest.mark.parametrize(
    ("more", "figure"),
    [({}, "{:,}"), ({"plan__aggregation": "gossip", "plan__gossip_rounds": 6}, "more")],
)
def test_a_zeta_that_cuts_the_longest_plan_is_said(more: dict[str, Any], figure: str) -> None:
    rich = {"budget__energy_j": 1.0, "plan__rounds": "theorem4", **more}
    whole = joulemesh.plan(small(**rich)).iterations
    (note,) = joulemesh.plan(small(**rich, plan__zeta=7.5)).notes
    assert note.startswith("plan.zeta = 7.5 ends the plan after 8 iterations")
    assert f"the batteries pay for {figure.format(whole)}; leave plan.zeta out" in note
    exactly = joulemesh.plan(small(**rich, plan__zeta=float(whole)))
    assert (exactly.iterations, exactly.notes) == (whole, ())


def test_longest_under_fading_is_refused_where_it_would_take_hours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_MOST_FADED", 5)
    faded = small(budget__energy_j=1.0, network__fading="rayleigh")
    with pytest.raises(joulemesh.InfeasibleError, match=r"set plan\.iterations to a number"):
        joulemesh.plan(faded)
    assert joulemesh.plan(faded.override({"plan.iterations": 6})).iterations == 6


def test_the_largest_n_of_a_refusal_respects_zeta() -> None:
    scenario = small(budget__energy_j=0.1, plan__rounds="theorem4", plan__zeta=3.0)
    with pytest.raises(joulemesh.InfeasibleError, match="at most 3, or"):
        joulemesh.plan(scenario.override({"plan.iterations": 1000}))
    assert joulemesh.plan(scenario.override({"plan.iterations": 3})).iterations == 3


def test_longest_of_nothing_is_refused() -> None:
    for policy in ("refuse", "leave"):
        with pytest.raises(joulemesh.InfeasibleError) as poor:
            joulemesh.plan(small(budget__energy_j=1e-6, plan__on_depletion=policy))
        assert poor.value.code == "energy"
        assert "at most 0" not in str(poor.value)


def test_a_plan_too_large_to_hold_is_refused() -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"budget.energy_j": 1e9, "plan.rounds": "uniform"}
    )
    for n in (10**9, "longest"):
        with pytest.raises(joulemesh.InfeasibleError, match=r"set plan\.iterations to at most \d+"):
            joulemesh.plan(scenario.override({"plan.iterations": n}))


@given(most=st.integers(1, 300), where=st.floats(0, 1), shape=st.floats(0.2, 3))
@settings(max_examples=60, deadline=None)
def test_best_of_a_valley_is_its_bottom(most: int, where: float, shape: float) -> None:
    bottom = 1 + round(where * (most - 1))
    assert best_iterations(most, lambda n: abs(n - bottom) ** shape) == bottom


@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=64))
@settings(max_examples=60, deadline=None)
def test_best_of_a_few_is_exact_whatever_the_shape(values: list[float]) -> None:
    assert values[best_iterations(len(values), lambda n: values[n - 1]) - 1] == min(values)


def test_bound_picks_the_n_with_the_least_corrected_bound() -> None:
    scenario = small(
        budget__energy_j=[0.2, 0.4], budget__deadline_s=0.005, plan__iterations="bound"
    ).override({f"bounds.{name}": value for name, value in CONSTANTS.items()})
    most = joulemesh.plan(scenario.override({"plan.iterations": "longest"})).iterations
    value = {}
    for n in range(1, most + 1):
        rounds = joulemesh.plan(scenario.override({"plan.iterations": n})).rounds
        found = evaluate(rounds, Constants(**CONSTANTS), 0.05, 4810)
        value[n] = found.theorem1_corrected
    assert joulemesh.plan(scenario).iterations == min(value, key=lambda n: value[n] or np.inf)


def test_bound_needs_its_constants_and_a_small_rate() -> None:
    with pytest.raises(joulemesh.ScenarioError, match=r"plan\.iterations = \"bound\".*\[bounds\]"):
        joulemesh.plan(small(plan__iterations="bound"))
    fields = {f"bounds.{name}": value for name, value in CONSTANTS.items()}
    quick = small(plan__iterations="bound", training__learning_rate=2.0).override(fields)
    with pytest.raises(joulemesh.ScenarioError, match=r"training\.learning_rate at most 1/M"):
        joulemesh.plan(quick)
