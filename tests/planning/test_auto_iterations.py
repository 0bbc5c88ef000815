"""`plan.iterations = "auto"`: rounds against exchanges, by their prices."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import InfeasibleError, Scenario
from joulemesh.base.units import duration, energy
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import Merit, least_of
from joulemesh.planning.static import StaticPlanner


def asked(**changes: Any) -> Scenario:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    base = {"plan.rounds": "spread", "plan.iterations": "auto"}
    return Scenario.preset("adaptive").override({**base, **named})


def alike(exchange: float, **changes: Any) -> Scenario:
    """Devices that are all the same, whose exchange costs so many rounds of energy."""
    here: dict[str, Any] = {
        "devices__count": 4,
        "devices__cycles_per_sample": 2e5,
        "network__topology": "ring",
        "network__placement": "layout",
        "plan__aggregation": "ring-chunked",
        "budget__deadline_s": 100.0,
        "budget__energy_j": 1.0,
    }
    ground = Ground.of(asked(**here, plan__iterations=1))
    planner = StaticPlanner(ground)
    round_j = float(ground.world.devices.round_energy_j[0])
    price_j = float(planner.prices(ground.ready(1), 1).energy_j[0, 0])
    # Joules of a round are in proportion to the capacitance, and its seconds do not depend on it.
    times = price_j / (exchange * round_j)
    own = {
        "devices__capacitance": times * ground.scenario.devices.capacitance,
        "budget__energy_j": 3000 * times * round_j,
    }
    return asked(**here | own | changes)


@pytest.mark.parametrize("exchange", [0.25, 1.0, 4.0])
def test_the_optimum_has_the_square_root_of_the_price_as_rounds_per_iteration(
    exchange: float,
) -> None:
    plan = joulemesh.plan(alike(exchange))
    price = float(plan.exchange_j[0, 0] / plan.world.devices.round_energy_j[0])
    rate = plan.rounds.mean()
    if price < 1:  # an iteration in which nobody trains is worth nothing
        assert rate == pytest.approx(1.0, rel=0.05)
    else:
        assert rate == pytest.approx(math.sqrt(price), rel=0.05)


@pytest.mark.parametrize("changes", [{}, {"budget__total_s": 3.0}, {"budget__total_s": 1.2}])
@pytest.mark.parametrize("policy", ["spread", "theorem4", "uniform"])
def test_no_other_number_of_iterations_has_a_better_merit(
    policy: str, changes: dict[str, float]
) -> None:
    plan = joulemesh.plan(asked(plan__rounds=policy, **changes))

    def merit(n: int) -> float:
        try:
            made = joulemesh.plan(asked(plan__rounds=policy, plan__iterations=n, **changes))
        except InfeasibleError:
            return math.inf
        rounds = made.rounds.sum(axis=0)
        return float(1 / rounds.mean() + 1 / min(n, int(rounds.max())))

    n = plan.iterations
    own = merit(n)
    more = (int(1.25 * n), 2 * n, 4 * n) if policy == "spread" else ()
    for other in (n // 4, n // 2, int(0.8 * n), *more):
        assert own <= merit(max(1, other)) * 1.01
    assert any(note.startswith(f'plan.iterations = "auto" is {n:,}: ') for note in plan.notes)


def test_constants_say_what_an_exchange_is_worth() -> None:
    constants = {
        "strong_convexity": 0.1,
        "smoothness": 2.0,
        "gradient_variance": 1.0,
        "gradient_bound": 9.0,
        "initial_gap": 2.0,
    }

    def chosen(divergence: float) -> joulemesh.Plan:
        known = {**constants, "divergence": divergence}
        fields = {f"bounds__{name}": value for name, value in known.items()}
        return joulemesh.plan(asked(budget__total_s=3.0, **fields))

    few, many = chosen(0.05), chosen(3.0)
    assert few.iterations < joulemesh.plan(asked(budget__total_s=3.0)).iterations < many.iterations
    assert any("kappa 9, by the constants of [bounds]" in note for note in many.notes)


def test_fading_patterns_gossip_and_departures_have_a_number_too() -> None:
    for changes in (
        {"network__fading": "rayleigh"},
        {"plan__exchange": {"every": 5, "final": True}},
        {"plan__exchange": {"between": "neighbours", "every": 9, "train": 2, "mix": 1}},
        {"plan__aggregation": "gossip"},
        {"plan__on_depletion": "leave"},
    ):
        plan = joulemesh.plan(asked(budget__total_s=0.6, budget__energy_j=2.0, **changes))
        assert plan.iterations > 1
        assert plan.margin_total_s >= 0
        assert (plan.margin_j >= 0).all()


def test_what_cannot_be_paid_once_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="raise budget"):
        joulemesh.plan(asked(budget__energy_j=1e-6))


def test_the_least_of_one_dip_is_found() -> None:
    for best in (1, 2, 77, 4000, 99_999):
        assert least_of(100_000, lambda n: n / best + best / n) == best  # noqa: B023
    assert least_of(1, lambda n: 3.0) == 1
    assert least_of(50, lambda n: math.inf if n > 7 else -n) == 7


def test_many_devices_are_priced_without_planning_them() -> None:
    ground = Ground.of(asked(devices__count=20_000, budget__total_s=600.0))
    merit = Merit.of(StaticPlanner(ground), 100)
    assert np.isfinite(merit.value(50))


def test_shares_tell_of_what_they_are() -> None:
    plan = joulemesh.plan(Scenario.preset("default"))
    (note,) = (one for one in plan.notes if one.startswith("plan.iterations"))
    share = 100 * plan.exchange_total_j.sum() / plan.energy_budget_j.sum()
    assert f"exchanges take {share:.2g} % of the energy in all batteries and " in note
    assert re.search(r" and [\d.]+ % of the total time; ", note)


@pytest.mark.parametrize("bandwidth_hz", [1e4, 1e6, 2e7, 1e9])
def test_the_reason_has_the_prefixes_of_the_other_lines(bandwidth_hz: float) -> None:
    fields = {"network.profile": "ideal", "network.bandwidth_hz": bandwidth_hz}
    roomy = {"budget.energy_j": 1e5, "budget.total_s": 1e5, "plan.iterations": 5}
    plan = joulemesh.plan(Scenario.preset("default").override(fields | roomy))
    cost = f"{energy(float(plan.exchange_j[0].sum()))} in {duration(plan.exchange_s[0])}"
    assert cost in plan.reason
    assert not re.search(r"\b0\.0\d+ [Js]\b|e[-+]\d", plan.reason)
