"""`plan.iterations = "auto"`: rounds against exchanges, by their prices."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import InfeasibleError, Scenario
from joulemesh.base.units import duration, energy
from joulemesh.data import label_distance, load_for
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import Drift, Merit, least_of
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


def kappa_of(scenario: Scenario) -> float:
    return Drift.of(Ground.of(scenario)).kappa


@pytest.mark.parametrize(("exchange", "alpha"), [(0.25, 0.01), (0.25, 0.5), (1.0, 0.1), (4.0, 1.0)])
def test_the_optimum_has_the_square_root_of_price_over_kappa_as_rounds_per_iteration(
    exchange: float, alpha: float
) -> None:
    plan = joulemesh.plan(alike(exchange, training__alpha=alpha))
    price = float(plan.exchange_j[0, 0] / plan.world.devices.round_energy_j[0])
    # An iteration in which nobody trains is worth nothing.
    rate = max(1.0, math.sqrt(price / kappa_of(plan.scenario)))
    assert plan.rounds.mean() == pytest.approx(rate, rel=0.05)


def merit(plan: joulemesh.Plan, kappa: float) -> float:
    """Of the rounds that were planned, not of those that were estimated."""
    rounds = plan.rounds.sum(axis=0)
    exchanges = min(plan.iterations, int(rounds.max()))
    return float((1 / (rounds + 1)).mean() + kappa / exchanges)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget__energy_j": 1.0},
        {"budget__total_s": 3.0},
        {"budget__total_s": 1.2, "training__alpha": 0.1},
        {"budget__total_s": 6.0, "network__profile": "wifi", "budget__energy_j": 20.0},
        {"network__bandwidth_hz": 1e6, "budget__deadline_s": None, "budget__total_s": 30.0},
    ],
    ids=["deadline", "total", "skewed", "at rest", "dear"],
)
@pytest.mark.parametrize("policy", ["spread", "theorem4", "uniform"])
def test_no_other_number_of_iterations_has_a_better_merit(
    policy: str, changes: dict[str, float]
) -> None:
    scenario = asked(plan__rounds=policy, **changes)
    plan, kappa = joulemesh.plan(scenario), kappa_of(scenario)
    n, own = plan.iterations, merit(plan, kappa)
    for factor in (0.4, 0.8, 1.25, 2.5):
        with suppress(InfeasibleError):
            other = scenario.override({"plan.iterations": max(1, int(factor * n))})
            assert own <= merit(joulemesh.plan(other), kappa) * 1.03
    assert any(note.startswith(f'plan.iterations = "auto" is {n:,}: ') for note in plan.notes)


@pytest.mark.parametrize("wifi", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_are_estimated_as_they_are_planned(seed: int, wifi: bool) -> None:
    """Devices of unequal speeds and batteries, with and without power at rest."""
    profile = "wifi" if wifi else "ideal"
    scenario = Scenario().override({"seed": seed, "network.profile": profile})
    planner = StaticPlanner(Ground.of(scenario))
    estimate = Merit.of(planner, 1)
    for n in (5, 40, 150):
        rounds = joulemesh.plan(scenario.override({"plan.iterations": n})).rounds.sum(axis=0)
        np.testing.assert_allclose(estimate.rounds(n).mean(), rounds.mean(), rtol=0.05)


def star(tmp_path: Path, **changes: Any) -> Scenario:
    """A hub and its leaves: the hub pays for half of every exchange."""
    (tmp_path / "star.csv").write_text("i,j\n" + "".join(f"0,{leaf}\n" for leaf in range(1, 8)))
    return Scenario().override(
        {
            "devices.count": 8,
            "devices.cycles_per_sample": 2e5,
            "network.profile": "ideal",
            "network.topology": str(tmp_path / "star.csv"),
            "network.bandwidth_hz": 1e6,
            "network.placement": "layout",
            "plan.aggregation": "tree",
            "budget.total_s": 600.0,
            "budget.energy_j": 8.0,
            **changes,
        }
    )


def test_a_hub_is_not_starved_by_what_it_relays(tmp_path: Path) -> None:
    plan = joulemesh.plan(star(tmp_path))
    rounds = plan.rounds.sum(axis=0)
    assert plan.iterations > 1
    assert rounds.argmin() == 0
    assert rounds[0] > rounds.mean() / 5
    assert not any("relays" in note for note in plan.notes)


def test_a_device_that_relays_more_than_it_trains_is_named(tmp_path: Path) -> None:
    most = joulemesh.plan(star(tmp_path, **{"plan.iterations": "longest"})).iterations
    plan = joulemesh.plan(star(tmp_path, **{"plan.iterations": int(0.95 * most)}))
    rounds = plan.rounds.sum(axis=0)
    assert 0 < rounds[0] < rounds.mean() / 5
    (note,) = (one for one in plan.notes if "relays" in one)
    share = 100 * plan.exchange_total_j[0] / plan.energy_budget_j[0]
    assert note.startswith(f"device 0 trains {rounds[0]:,} rounds")
    assert f"{rounds.mean():,.0f}" in note
    assert f"{share:.0f} % of its battery" in note


@pytest.mark.parametrize(
    ("partition", "least", "most"),
    [
        ({"partition": "iid"}, 0.0, 0.02),
        ({"partition": "dirichlet", "alpha": 100.0}, 0.0, 0.03),
        ({"partition": "dirichlet", "alpha": 0.5}, 0.10, 0.20),
        ({"partition": "dirichlet", "alpha": 0.01}, 0.6, 0.9),
        ({"partition": "shards", "shards_per_device": 1}, 0.6, 0.9),
    ],
)
def test_kappa_follows_the_labels_of_the_partition(
    partition: dict[str, Any], least: float, most: float
) -> None:
    fields = {f"training.{name}": value for name, value in partition.items()}
    scenario = Scenario().override(fields)
    distance = label_distance(scenario)
    assert distance is not None
    assert least <= distance <= most
    # Labels that are drawn stand for those of the data.
    assert label_distance(scenario, load_for(scenario)) == pytest.approx(
        distance, rel=0.2, abs=0.02
    )
    assert kappa_of(scenario) == pytest.approx(0.6 * distance**1.5)


def test_kappa_says_what_it_rests_on() -> None:
    def note(**changes: Any) -> str:
        plan = joulemesh.plan(asked(budget__total_s=0.6, **changes))
        return next(one for one in plan.notes if one.startswith("plan.iterations"))

    assert "(kappa 0.0" in note()
    assert "from the devices' label shares, which differ by 0.1" in note()
    verses = {"dataset": "verses", "model": "token-mlp", "loss": "token-cross-entropy"}
    unknown = note(training__partition="iid", **{f"training__{k}": v for k, v in verses.items()})
    assert "(kappa 0.035, nothing is known of the devices' labels: " in unknown


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
    assert 2 * few.iterations < many.iterations
    assert any("(kappa 9, by the constants of [bounds]" in note for note in many.notes)


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
