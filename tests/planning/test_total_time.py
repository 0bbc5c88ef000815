"""A budget of time for the whole training, beside the deadline or in its place."""

from __future__ import annotations

import json
import re
import tomllib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import joulemesh
from joulemesh import InfeasibleError, Plan, Scenario, ScenarioError
from joulemesh.methods import build
from joulemesh.methods.setting import Setting
from joulemesh.planning.budget import TimeLeft, TimeLimits
from joulemesh.planning.orders import Orders, orders
from joulemesh.tolerance import TOLERANCE
from joulemesh.views.console import show_plan


def asked(**changes: Any) -> Scenario:
    """The default scenario with fields changed; ``budget__total_s`` is ``budget.total_s``."""
    return Scenario.preset("adaptive").override(
        {name.replace("__", "."): value for name, value in changes.items()}
    )


def seconds(plan: Plan) -> Fraction:
    """All iterations together, exactly, by nothing but the plan's figures."""
    price = [Fraction(x) for x in plan.world.devices.round_latency_s.tolist()]
    longest = [
        max(tau * s for tau, s in zip(row, price, strict=True)) for row in plan.rounds.tolist()
    ]
    return sum(longest, Fraction()) + sum(map(Fraction, plan.exchange_s.tolist()), Fraction())


# The scenario ------------------------------------------------------------------------------------


def test_a_total_alone_leaves_no_deadline_and_a_given_deadline_stays() -> None:
    assert Scenario.preset("adaptive").budget.deadline_s == 0.04
    alone = Scenario(budget={"total_s": "1 min"})
    assert (alone.budget.deadline_s, alone.budget.total_s) == (None, 60.0)
    assert asked(budget__total_s=4.0).budget.deadline_s is None  # a preset's gives way
    own = Scenario(budget={"deadline_s": 0.1}).override({"budget.total_s": 3.0})
    assert (own.budget.deadline_s, own.budget.total_s) == (0.1, 3.0)


@pytest.mark.parametrize(
    "budget", [{"total_s": 3.0}, {"total_s": 3.0, "deadline_s": 0.1}, {"deadline_s": 0.1}, {}]
)
@pytest.mark.parametrize("comments", [False, True])
def test_every_budget_of_time_survives_toml_and_json(
    budget: dict[str, float], comments: bool
) -> None:
    for one in (Scenario(budget=budget), asked(**{f"budget__{k}": v for k, v in budget.items()})):
        assert Scenario(**tomllib.loads(one.to_toml(comments=comments))) == one
        assert Scenario.from_json(one.to_json()) == one


def test_no_time_at_all_and_a_total_that_is_no_time_are_refused() -> None:
    with pytest.raises(ScenarioError, match="neither deadline_s nor total_s is given"):
        Scenario(budget={"deadline_s": None, "total_s": None})
    with pytest.raises(ScenarioError, match=r"budget\.total_s = '3 J'"):
        Scenario(budget={"total_s": "3 J"})
    with pytest.raises(ScenarioError, match=r"budget\.total_s = 1e"):
        joulemesh.plan(asked(budget__total_s=1e300))


# Plans -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["theorem4", "backfill", "uniform", "inverse"])
@pytest.mark.parametrize(
    "changes",
    [{"budget__total_s": 2.0}, {"budget__total_s": 2.4, "budget__deadline_s": 0.022}],
    ids=["total", "both"],
)
def test_no_plan_takes_longer_than_the_total(policy: str, changes: dict[str, float]) -> None:
    plan = joulemesh.plan(asked(plan__rounds=policy, **changes))
    total_s = plan.total_s
    assert total_s is not None
    assert seconds(plan) <= total_s * (1 + TOLERANCE)
    assert plan.margin_total_s >= 0
    assert (plan.margin_s >= 0).all()
    # It is used: one more round on the slowest device in each iteration would be too much.
    longest = plan.iterations * plan.world.devices.round_latency_s.max()
    assert plan.time_s + longest > total_s or plan.deadline_s is not None


def test_the_total_may_be_what_the_plan_takes_to_the_last_bit() -> None:
    free = joulemesh.plan(asked(plan__rounds="uniform", budget__total_s=2.0))
    for total_s in (float(seconds(free)), np.nextafter(free.time_s, 9.0)):
        tight = joulemesh.plan(asked(plan__rounds="uniform", budget__total_s=float(total_s)))
        assert seconds(tight) <= float(total_s) * (1 + TOLERANCE)
        assert tight.rounds.sum() >= free.rounds.sum() - tight.rounds.size


@pytest.mark.parametrize("known", [True, False])
def test_under_fading_the_total_is_kept_iteration_by_iteration(known: bool) -> None:
    scenario = asked(budget__total_s=2.0, network__fading="rayleigh", network__channel_known=known)
    plan = joulemesh.plan(scenario)
    assert seconds(plan) <= 2.0 * (1 + TOLERANCE)
    assert plan.time_s > 1.8  # and nearly all of it is used
    assert plan.exchanged.mean() > 0.8


def test_departures_keep_the_total_as_well() -> None:
    plan = joulemesh.plan(
        asked(
            budget__total_s=2.0,
            budget__energy_j={"values": [0.3, 0.6, *[20.0] * 18]},
            plan__on_depletion="leave",
        )
    )
    assert any(event.kind == "depleted" for event in plan.events)
    assert seconds(plan) <= 2.0 * (1 + TOLERANCE)


def test_the_longest_plan_ends_with_the_total_time() -> None:
    plan = joulemesh.plan(asked(budget__total_s=2.0, plan__iterations="longest"))
    one_more = plan.exchange_s[0] + plan.world.devices.round_latency_s.max()
    assert plan.time_s <= 2.0 < (plan.iterations + 1) * one_more
    assert "limited by the total time of 2 s" in plan.answer.text
    randomly = joulemesh.plan(
        asked(budget__total_s=0.5, plan__iterations="longest", plan__aggregation="gossip")
    )
    assert seconds(randomly) <= 0.5 * (1 + TOLERANCE)


# Refusals ----------------------------------------------------------------------------------------


def followed(scenario: Scenario, remedy: str) -> Scenario:
    """The scenario with what one remedy names."""
    found = re.findall(r"(budget\.\w+|plan\.\w+)(?: to at (?:least|most)| =) ([\w.+-]+)", remedy)
    assert found, remedy
    values = {name: int(x) if name == "plan.iterations" else float(x) for name, x in found}
    return scenario.override(values)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget__total_s": 1.0},
        {"budget__total_s": 1.0, "budget__deadline_s": 0.001},
        {"budget__total_s": 1.0, "budget__energy_j": 0.2},
        {"budget__total_s": 1e-3},
        {"budget__total_s": 1.0, "plan__rounds": "fixed", "budget__energy_j": 90.0},
        {"budget__total_s": 0.2, "plan__aggregation": "gossip", "plan__iterations": 9},
    ],
)
def test_a_refusal_names_figure_and_remedies_that_are_accepted(changes: dict[str, Any]) -> None:
    scenario = asked(**changes)
    with pytest.raises(InfeasibleError) as refused:
        joulemesh.plan(scenario)
    assert refused.value.code in ("time", "deadline", "energy")
    assert refused.value.device is not None
    cause, _, remedies = str(refused.value).partition("; ")
    assert re.search(r"\d", cause)
    for remedy in remedies.split(", or "):
        joulemesh.plan(followed(scenario, remedy))


def test_a_refusal_for_time_says_so() -> None:
    with pytest.raises(InfeasibleError, match="in the total time of 1 s") as refused:
        joulemesh.plan(asked(budget__total_s=1.0))
    assert refused.value.code == "time"


# What is shown and written -----------------------------------------------------------------------


def test_views_and_files_know_a_plan_without_a_deadline() -> None:
    plan = joulemesh.plan(asked(budget__total_s=2.0))
    record = json.loads(plan.to_json())
    assert (record["deadline_s"], record["total_s"]) == (None, 2.0)
    assert set(record["margin_s"]) == {None}  # JSON has no infinity
    assert (Plan.from_json(plan.to_json()).rounds == plan.rounds).all()
    mine = orders(plan, 3)
    assert (mine.deadline_s, mine.total_s) == (None, 2.0)
    assert Orders.from_json(mine.to_json()) == mine
    console = Console(width=100)
    with console.capture() as shown:
        show_plan(plan, console)
    assert "1.99 s of 2 s; longest iteration 19.9 ms, exchange 9.44 ms" in shown.get()
    assert "in at most 2 s" in plan.scenario._repr_html_()
    assert "total time binds" in plan._repr_html_()
    assert plan.figures[0].name == "budget.total_s"
    assert set(plan.binding.tolist()) == {"time"}
    assert plan.answer.change is not None
    assert plan.answer.change.edit.field == "budget.total_s"


def test_methods_say_when_they_take_more_than_the_total() -> None:
    setting = Setting(asked(budget__total_s=1.6, plan__iterations=20))
    notes = build("fixed:80", setting).notes
    assert any("more than the total time of 1.6 s" in note for note in notes)
    assert not any("deadline" in note for note in notes)


# The parts ---------------------------------------------------------------------------------------


def test_time_left_counts_down() -> None:
    left = TimeLeft(TimeLimits(None, 1.0), np.array([0.1, 0.2]))
    everybody = np.ones(2, bool)
    assert left.allows(1, 0.3, np.array([0.29]), 1, everybody)  # .2 + .3 + .29 + .2
    left.pay(np.array([0, 1]), 0.3)
    assert not left.allows(1, 0.4, np.zeros(0), 0, everybody)
    assert left.allows(1, 0.25, np.zeros(0), 0, everybody)
    unlimited = TimeLeft(TimeLimits(0.55, None), np.array([0.1, 0.2]))
    unlimited.pay(np.array([9, 9]), 1e9)
    assert unlimited.caps(np.array([0.1])).tolist() == [[4, 2]]
