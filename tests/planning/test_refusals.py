"""Whatever a refusal advises is accepted when it is followed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import joulemesh
from joulemesh.base.errors import InfeasibleError
from joulemesh.planning.static import apply_edits
from joulemesh.scenario import Scenario
from tests.samples import sample

CHOICES: dict[str, tuple[Any, ...]] = {
    "network.topology": ("ring", "complete", "quasi-ring"),
    "network.fading": ("none", "none", "rayleigh"),
    "network.channel_known": (True, False),
    "network.duplex": ("orthogonal", "half"),
    "plan.aggregation": (
        "auto",
        "theorem3",
        "tree",
        "tree-chunked",
        "ring",
        "ring-chunked",
        "gossip",
        "metropolis",
    ),
    "plan.rounds": ("theorem4", "backfill", "uniform", "fixed"),
    "plan.iterations": (1, 7, 30, "longest"),
    "plan.gossip_rounds": ("balanced", "balanced", 2),
    "plan.coordination": (False, True),
    "plan.physics": ("physical", "paper"),
    "plan.on_depletion": ("refuse", "refuse", "leave"),
}


def refusal(scenario: Scenario) -> joulemesh.JoulemeshError | None:
    try:
        joulemesh.plan(scenario)
    except joulemesh.JoulemeshError as error:
        return error
    return None


TIMED = CHOICES | {
    "plan.rounds": ("spread", "spread", *CHOICES["plan.rounds"]),
    "plan.iterations": (*CHOICES["plan.iterations"], "auto"),
}


def explore(seed: int, refused: int, *, timed: bool = False) -> Counter[str]:
    """Follow every piece of advice of so many refusals; ``timed``, with a total time as well."""
    rng, seen = random.Random(seed), Counter[str]()
    choices = TIMED if timed else CHOICES
    while seen["refused"] < refused:
        fields = {name: rng.choice(values) for name, values in choices.items()} | {
            "seed": rng.randrange(1000),
            "devices.count": rng.randint(4, 8),
            "budget.energy_j": 10 ** rng.uniform(-4, 0.5),
            "budget.deadline_s": 10 ** rng.uniform(-3.5, 0),
        }
        if timed:
            fields["budget.total_s"] = 10 ** rng.uniform(-2.5, 1)
            if rng.random() < 0.6:
                fields["budget.deadline_s"] = None
        scenario = joulemesh.Scenario.preset("adaptive").override(fields)
        error = refusal(scenario)
        budgets = ("energy", "deadline", "time")
        if not isinstance(error, InfeasibleError) or error.code not in budgets:
            continue
        assert error.device is not None
        seen["refused"] += 1
        seen[error.code] += 1
        seen[str(fields["plan.rounds"])] += 1
        for remedy in error.remedies:
            again = refusal(apply_edits(scenario, remedy))
            assert again is None, (fields, remedy, str(error), str(again))
            seen[remedy[0].field] += 1
            seen["both"] += len(remedy) == 2
    return seen


def test_what_a_refusal_advises_is_accepted() -> None:
    seen = explore(0, 60)
    for kind in (
        "budget.energy_j",
        "budget.deadline_s",
        "plan.iterations",
        "plan.on_depletion",
        "both",
    ):
        assert seen[kind], seen


def test_what_a_refusal_for_time_advises_is_accepted() -> None:
    seen = explore(0, 60, timed=True)
    for kind in ("budget.total_s", "plan.iterations", "both", "time", "spread"):
        assert seen[kind], seen


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(1, 5), 1))
def test_what_a_thousand_refusals_for_time_advise_is_accepted(piece: int) -> None:
    assert explore(piece, 250, timed=True)["refused"] == 250


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(1, 9), 1))
def test_what_two_thousand_refusals_advise_is_accepted(piece: int) -> None:
    assert explore(piece, 250)["refused"] == 250


def test_the_longest_plan_is_not_advised_to_let_devices_leave() -> None:
    """Nobody can leave before the first iteration, and that is what cannot be paid for."""
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"plan.iterations": "longest", "budget.energy_j": 1e-3}
    )
    error = refusal(scenario)
    assert error is not None
    assert all(edit.field != "plan.on_depletion" for one in error.remedies for edit in one)


def test_a_balance_that_moves_with_the_battery_is_followed() -> None:
    """More joules, more gossip: the figure is one that is enough for the gossip that it buys."""
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "plan.aggregation": "metropolis",
            "plan.gossip_rounds": "balanced",
            "budget.energy_j": 0.2,
        }
    )
    error = refusal(scenario)
    assert error is not None
    (edit,) = error.remedies[0]
    assert edit.field == "budget.energy_j"
    assert refusal(scenario.override({"budget.energy_j": edit.value})) is None


def test_where_devices_may_leave_the_advice_leaves_energy_for_a_round() -> None:
    """Batteries that pay for one exchange only would let everybody leave without a round."""
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "plan.rounds": "spread",
            "plan.on_depletion": "leave",
            "plan.iterations": 7,
            "budget.energy_j": 1e-4,
        }
    )
    error = refusal(scenario)
    assert error is not None
    assert refusal(apply_edits(scenario, error.remedies[0])) is None


@pytest.mark.parametrize(
    ("iterations", "said"), [(1, "1 exchange, which takes "), (3, "3 exchanges, which take ")]
)
def test_one_exchange_is_counted_in_the_singular(iterations: int, said: str) -> None:
    short = joulemesh.Scenario.preset("adaptive").override(
        {"plan.rounds": "spread", "plan.iterations": iterations, "budget.deadline_s": 0.005}
    )
    with pytest.raises(joulemesh.InfeasibleError, match=f"beside {said}"):
        joulemesh.plan(short)
