"""The rest of a plan, from random members, iterations and joules, through a checker of its own.

The checker is that of whole plans (`tests.planning.test_zero_overspends`): the paper's equations,
message by message, in exact arithmetic. What it holds the rest of a plan to is what each member has
left, not the batteries of the scenario.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Plan
from joulemesh.aggregation.contract import execute
from joulemesh.aggregation.scheme import Scheme
from joulemesh.planning.ground import Ground
from joulemesh.planning.policy import Policy
from joulemesh.planning.static import plan_of
from joulemesh.planning.walk import Continuation, Remaining, continue_plan
from joulemesh.registries import POLICIES as REGISTERED
from joulemesh.scenario import PlanOptions
from tests.ideal import ideal
from tests.planning.test_zero_overspends import (
    allowed,
    draw,
    iteration_prices,
    planned,
    round_prices,
)
from tests.samples import sample


class Rows:
    """The rest of a plan with the numbers and the names of a whole one, for the checker."""

    def __init__(self, rest: Continuation) -> None:
        self.rest, self.ground = rest, rest.ground
        self.scenario, self.world, self.work = (
            rest.ground.scenario,
            rest.ground.world,
            rest.ground.work,
        )
        self.route = rest.route
        self.active = {t - 1: rest.active(t) for t in range(rest.start, rest.last + 1)}

    def scheme_at(self, iteration: int) -> Scheme:
        return self.rest.scheme(iteration)


def state(plan: Plan, rng: random.Random) -> dict[str, Any]:
    """Some iteration, some members, and joules of any kind: as planned, more, fewer, none."""
    count, n = plan.scenario.devices.count, plan.iterations
    start = rng.randint(1, n)
    members = tuple(sorted(rng.sample(range(count), rng.randint(max(2, count - 3), count))))
    if rng.random() < 0.3:
        members = tuple(range(count))
    spent = np.zeros(count)
    for t in range(start - 1):
        prices = plan.exchange_j
        spent += prices[0 if len(prices) == 1 else t]
        spent += plan.rounds[t] * plan.world.devices.round_energy_j
    left = np.maximum(plan.energy_budget_j - spent, 0.0)
    kinds = rng.choice(((1.0,), (1.0, 1.0, 0.9), (1.0, 0.3, 0.05), (1.0, 1.0, 0.0), (0.0, 1e-3)))
    left_j = tuple(float(left[i]) * rng.choice(kinds) for i in members)
    links = [tuple(link) for link in plan.world.graph.edges.tolist()]
    cut = tuple(rng.sample(links, rng.choice((0, 0, 1, 2)))) if len(links) > 2 else ()
    elapsed = float(plan.latency_s[: start - 1].sum()) * rng.choice((1.0, 1.0, 1.3))
    return {
        "start": start,
        "members": members,
        "left_j": left_j,
        "cut": cut,
        "elapsed_s": elapsed,
    }


def check(made: Continuation, fields: dict[str, Any], given: dict[str, Any]) -> None:
    """Only members act, over links that are whole, and nobody spends more than is left."""
    rows, count = Rows(made), made.ground.scenario.devices.count
    round_j, _ = round_prices(fields)
    figures = made.ground.world.devices
    listed_j = [Fraction(x) for x in figures.round_energy_j.tolist()]
    listed_s = [Fraction(x) for x in figures.round_latency_s.tolist()]
    held = dict(zip(given["members"], given["left_j"], strict=True))
    entries, mine = [Fraction(0)] * count, [Fraction(0)] * count
    deadline, whole = fields["budget.deadline_s"], fields.get("budget.total_s")
    taken, paid = Fraction(0), None
    assert made.start == given["start"]
    known = made.ground.scenario.network.channel_known
    for iteration in range(made.start, made.last + 1):
        active, every = made.active(iteration), made.rounds(iteration).tolist()
        assert set(np.flatnonzero(active).tolist()) <= set(given["members"])
        assert active.sum() >= 2
        assert not any(rounds for rounds, acts in zip(every, active, strict=True) if not acts)
        route = made.route(iteration)
        if route is not None:
            assert active[route.edges].all()
            assert not {tuple(link) for link in route.edges.tolist()} & set(given["cut"])
        t = iteration - 1
        tree = (tuple(active.tolist()), made.ground.world.channel.block(t) if known else 0)
        if not made.ground.scenario.plan.coordination:  # cut links report nothing
            joules, seconds = iteration_prices(rows, fields, t, fresh=tree != paid)  # type: ignore[arg-type]
            wanted = [float(joules.get(i, 0)) for i in range(count)]
            assert made.exchange_j(iteration).tolist() == pytest.approx(wanted, rel=1e-12, abs=0)
            assert made.exchange_s(iteration) == pytest.approx(seconds, rel=1e-12, abs=0)
            for i, rounds in enumerate(every):
                mine[i] += joules.get(i, Fraction(0)) + rounds * Fraction(round_j[i])
        paid = tree if route is not None else paid
        exchange_s = Fraction(made.exchange_s(iteration))
        lengths = [rounds * one + exchange_s for rounds, one in zip(every, listed_s, strict=True)]
        assert deadline is None or max(lengths) <= allowed(deadline)
        taken += max(lengths)
        for i, rounds in enumerate(every):
            entries[i] += Fraction(float(made.exchange_j(iteration)[i])) + rounds * listed_j[i]
    for i in range(count):
        assert max(entries[i], mine[i]) <= allowed(held.get(i, 0.0))
    if whole is not None:
        assert taken <= allowed(whole) - Fraction(given["elapsed_s"])


def averages(made: Continuation) -> None:
    """An exchange that says that it is exact gives everybody who takes part the same mean."""
    for iteration in {made.start, made.last}:
        route = made.route(iteration)
        if route is None or not made.exact(iteration):
            continue
        values = np.random.default_rng(0).normal(size=(made.ground.scenario.devices.count, 7))
        after = execute(made.scheme(iteration), route, values)
        who = made.active(iteration)
        assert np.allclose(after[who], values[who].mean(axis=0), rtol=0, atol=1e-12)
        assert np.array_equal(after[~who], values[~who])


def continued(plan: Plan, given: dict[str, Any]) -> Continuation | None:
    """The rest of a plan; None where it is refused, in one line."""
    try:
        return continue_plan(plan, Remaining.of(plan.ground, **given))
    except joulemesh.InfeasibleError as refusal:
        said = str(refusal)
    assert len(said.splitlines()) == 1
    return None


def explore(seed: int, cases: int) -> Counter[str]:
    """Continue so many plans; all kinds of scenario, half of them with a total time."""
    rng, seen = random.Random(seed), Counter[str]()
    while seen["made"] < cases:
        fields = draw(rng, timed=rng.random() < 0.5)
        plan = planned(fields)
        for _ in range(0 if plan is None else 3):
            assert plan is not None
            given = state(plan, rng)
            made = continued(plan, given)
            if made is None:
                seen["refused"] += 1
                continue
            check(made, fields, given)
            averages(made)
            again = plan_of(Ground.of(plan.scenario))
            assert continue_plan(again, Remaining.of(again.ground, **given)).digest == made.digest
            seen["made"] += 1
            seen["fewer iterations"] += made.last < plan.iterations
            seen["fading"] += plan.world.channel.fading
            seen["zeros"] += bool((made.timeline.rounds[made.timeline.active] == 0).any())
            seen["kept"] += made.notes == plan.notes and not given["cut"]
            seen["total"] += plan.total_s is not None
            seen[plan.scenario.plan.rounds] += 1
            seen[made.timeline.scheme.name] += 1
            for event in made.events:
                seen[event.kind] += 1
    return seen


KINDS = ("refused", "fewer iterations", "fading", "kept", "total")
SCHEMES_ASKED = ("tree", "tree-chunked", "ring", "ring-chunked", "gossip", "metropolis")
POLICIES = ("theorem4", "theorem4-literal", "backfill", "uniform", "fixed", "inverse", "spread")


def test_the_rest_of_a_plan_never_spends_more_than_is_left() -> None:
    seen = explore(0, 10)
    assert all(seen[kind] for kind in ("refused", "kept")), seen


def test_no_iteration_is_planned_once_the_time_is_over_not_even_an_empty_one() -> None:
    fields = {
        "plan.rounds": "spread",
        "plan.iterations": 9,
        "plan.exchange": {"between": "none", "every": 4},
        "budget.deadline_s": None,
        "budget.total_s": 30.0,
    }
    plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(fields))
    assert not plan.exchanged[8]  # nothing is sent in the last iteration
    late: dict[str, Any] = {
        "start": 9,
        "members": range(19),
        "left_j": [0.0] * 19,
        "elapsed_s": 31.0,
    }
    with pytest.raises(joulemesh.InfeasibleError) as no:
        continue_plan(plan, Remaining.of(plan.ground, **late))
    assert (no.value.code, no.value.figures) == ("time", {"iteration": 9, "elapsed_s": 31.0})


@pytest.mark.parametrize("least", [0, 1])
def test_a_policy_that_refuses_the_rest_gives_way_to_another(least: int) -> None:
    def once(start: int, n: int, total: Any, cap: Any, options: PlanOptions) -> Any:
        if start > 1:
            raise joulemesh.ScenarioError("this policy plans from the first iteration on")
        return np.ones((n, len(total)), np.int64)

    with REGISTERED.scoped():
        policy = Policy(
            "once", "one round each", once, least=lambda options: least, zeros=not least
        )
        REGISTERED.register(policy)
        plan = joulemesh.plan(ideal(plan={"rounds": "once", "iterations": 6}))
        given: dict[str, Any] = {"start": 3, "members": range(19), "left_j": [50.0] * 19}
        made = continue_plan(plan, Remaining.of(plan.ground, **given))
    assert made.last == 6
    assert made.rounds(3)[:19].all()
    assert f'follow "{"uniform" if least else "spread"}"' in made.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(1, 11), 2))
def test_the_rest_of_a_thousand_plans(piece: int) -> None:
    seen = explore(piece, 100)
    assert all(seen[kind] for kind in (*KINDS, "depleted", "cut-off")), seen


def test_the_exploration_meets_every_scheme_and_policy() -> None:
    """Drawn only, and planned, so that the cases above mean something."""
    rng, seen = random.Random(1), Counter[str]()
    for _ in range(300):
        fields = draw(rng, timed=rng.random() < 0.5)
        seen.update((fields["plan.aggregation"], fields["plan.rounds"]))
    assert set(SCHEMES_ASKED) | set(POLICIES) <= set(seen)
