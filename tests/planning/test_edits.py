"""Remedies of refusals: each of them makes the plan that was refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import joulemesh
from joulemesh.base.errors import Edit, InfeasibleError, in_words
from joulemesh.planning.static import apply_edits
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
    assert refusal.value.remedies
    for remedy in refusal.value.remedies:
        joulemesh.plan(apply_edits(scenario, remedy))
    ways = ", or ".join(
        " and ".join(edit.text for edit in remedy) for remedy in refusal.value.remedies
    )
    assert str(refusal.value) == f"{refusal.value.fault}; {ways}"


def test_what_fails_next_is_mended_with_the_first() -> None:
    scenario = BASE.override(
        {"plan.aggregation": "ring", "network.topology": [[0, 1], [1, 2]], "devices.count": 3}
        | {"budget.deadline_s": 1e-4, "budget.energy_j": 1e-3}
    )
    with pytest.raises(InfeasibleError, match="needs a ring through all devices") as refusal:
        joulemesh.plan(scenario)
    fields = [{edit.field for edit in remedy} for remedy in refusal.value.remedies]
    assert {"plan.aggregation", "budget.deadline_s", "budget.energy_j"} in fields


def test_a_remedy_that_leads_nowhere_is_not_offered() -> None:
    scenario = BASE.override(
        {"budget.deadline_s": 1e-4, "devices.count": 3, "devices.leave": [[0, 1], [1, 1]]}
    )
    with pytest.raises(InfeasibleError, match="and then: fewer than two devices") as refusal:
        joulemesh.plan(scenario)
    assert not refusal.value.remedies


def test_a_plan_that_is_too_large_is_refused_with_what_was_computed() -> None:
    scenario = BASE.override({"plan.iterations": 100_000})
    with pytest.raises(InfeasibleError, match=r"raise budget\.energy_j to at least") as refusal:
        joulemesh.plan(scenario)
    assert "too large to try the remedies" in refusal.value.__notes__[-1]


def test_changes_of_one_device_and_of_all() -> None:
    one = BASE.override({"devices.count": 3, "budget.energy_j": [6.0, 30.0]})
    drawn = joulemesh.plan(one).energy_budget_j
    larger = apply_edits(one, [Edit("budget.energy_j", 2.0, "scale")])
    assert joulemesh.plan(larger).energy_budget_j == pytest.approx(2 * drawn, rel=1e-15)
    single = apply_edits(one, [Edit("budget.energy_j", 40.0, device=1)])
    assert joulemesh.plan(single).energy_budget_j.tolist() == [drawn[0], 40.0, drawn[2]]
    fixed = apply_edits(
        BASE.override({"budget.energy_j": 6.0}), [Edit("budget.energy_j", 4.0, "raise")]
    )
    assert fixed.budget.energy_j == 6.0
    assert apply_edits(one, [Edit("plan.chunks", None)]).plan.chunks is None


def test_buttons_name_what_they_do() -> None:
    edits = [
        Edit("budget.energy_j", 2.9, "scale"),
        Edit("budget.energy_j", 12.5, device=3),
        Edit("plan.iterations", 1200, "lower"),
        Edit("plan.chunks", None),
    ]
    assert [in_words([edit]) for edit in edits] == [
        "make the batteries 2.9 times as large",
        "set the battery of device 3 to 12.5 J",
        "set the number of iterations to 1,200",
        "leave plan.chunks out",
    ]


def test_the_batteries_of_a_table_can_be_changed(tmp_path: Path) -> None:
    (tmp_path / "devices.csv").write_text("name,energy_j\na,1\nb,9\nc,9\n")
    one = BASE.override({"devices.table": str(tmp_path / "devices.csv")})
    assert apply_edits(one, [Edit("budget.energy_j", 3.0, "raise")]).budget.energy_j == (3, 9, 9)
