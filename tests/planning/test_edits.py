"""Remedies of refusals, read as changes: each of them makes the plan that was refused."""

from __future__ import annotations

import pytest

import joulemesh
from joulemesh.errors import InfeasibleError
from joulemesh.planning.edits import apply_edits, remedies_in
from joulemesh.scenario import Scenario

BASE = Scenario.preset("adaptive")
REFUSED: dict[str, dict[str, object]] = {
    "deadline": {"budget.deadline_s": 1e-3},
    "battery": {"budget.energy_j": 0.5},
    "batteries of their own": {"budget.energy_j": [0.2, 30.0]},
    "total": {"budget.total_s": 0.2},
    "both": {"budget.deadline_s": 1e-3, "budget.energy_j": 0.01},
    "spread": {"plan.rounds": "spread", "budget.energy_j": 1e-4},
    "spread, late": {"plan.rounds": "spread", "budget.deadline_s": 1e-4},
    "gossip": {"plan.aggregation": "gossip", "budget.energy_j": 0.5},
    "idle": {"devices.idle_w": 1.0, "budget.energy_j": 1.0},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_every_remedy_of_a_refusal_makes_a_plan(changes: dict[str, object]) -> None:
    scenario = BASE.override(changes)
    with pytest.raises(InfeasibleError) as refusal:
        joulemesh.plan(scenario)
    found = remedies_in(str(refusal.value))
    assert found
    for remedy in found:
        joulemesh.plan(apply_edits(scenario, remedy.edits))


@pytest.mark.parametrize(
    "text",
    [
        "nothing can be done",
        "raise budget.deadline_s or budget.total_s and deploy again",
        "raise evil.field to at least 3",
        "set plan.iterations to a number",
        "set __class__ = 3",
    ],
)
def test_advice_without_a_figure_is_no_button(text: str) -> None:
    assert remedies_in(text) == []
