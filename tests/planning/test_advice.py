"""The answer: what binds, what is left over, and the change that helps most, found by planning."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import Edit
from joulemesh.planning.advice import FACTOR, Answer, _percent, _Prospects, advice
from joulemesh.planning.plan import BINDING
from joulemesh.planning.static import apply_edits
from joulemesh.scenario import Scenario

DEFAULT = Scenario.preset("adaptive")
DEADLINE_BINDS = {"budget.energy_j": 3600.0}
BATTERY_BINDS = {"budget.deadline_s": 4.0}
# Links of 20 kHz at 10 W: an exchange costs each device some 4 J, a round some 0.03 J.
EXCHANGE_COSTS = {
    "network.bandwidth_hz": 2e4,
    "devices.transmit_power_w": 10.0,
    "budget.deadline_s": 100.0,
    "budget.energy_j": 800.0,
}
# Links of 500 kHz: an exchange takes most of the deadline.
EXCHANGE_LASTS = {"network.bandwidth_hz": 5e5, "budget.deadline_s": 0.3}
WEAK = {"plan.iterations": "longest", "budget.energy_j": [2.0] + [20.0] * 19}
SCENARIOS: dict[str, dict[str, Any]] = {
    "default": {},
    "deadline": DEADLINE_BINDS,
    "battery": BATTERY_BINDS,
    "exchange costs": EXCHANGE_COSTS,
    "exchange lasts": EXCHANGE_LASTS,
    "weak": WEAK,
    "longest": {"plan.iterations": "longest"},
    "zeta": {"plan.iterations": "longest", "plan.zeta": 50.0},
    "one": {"plan.iterations": 1},
    "fixed": {"plan.rounds": "fixed", "plan.fixed_rounds": 1},
    "uniform": {"plan.rounds": "uniform"},
    "backfill": {"plan.rounds": "backfill", "network.topology": "grid"},
    "paper": {"plan.physics": "paper"},
}


def answer(changes: dict[str, Any]) -> Answer:
    return advice(joulemesh.plan(DEFAULT.override(changes)))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_change_brings_what_is_said(name: str) -> None:
    """Whatever is promised, planning with it delivers."""
    found = answer(SCENARIOS[name])
    plan = joulemesh.plan(DEFAULT.override(SCENARIOS[name]))
    assert found.tried
    for change in found.tried:
        made = joulemesh.plan(apply_edits(plan.scenario, [change.edit]))
        amounts = {"rounds": made.rounds.sum(), "iterations": made.iterations}
        now = {"rounds": plan.rounds.sum(), "iterations": plan.iterations}[change.measure]
        assert change.amount == amounts[change.measure], change
        assert change.gain == pytest.approx(change.amount / now)
    assert [c.gain for c in found.tried] == sorted((c.gain for c in found.tried), reverse=True)


def test_the_deadline_binds() -> None:
    found = answer(DEADLINE_BINDS)
    assert found.feasible
    assert found.binding == dict.fromkeys(BINDING, 0) | {"deadline": 20}
    assert found.energy_left > 0.99
    assert found.change is not None
    assert (found.change.edit.field, found.change.edit.value) == (
        "budget.deadline_s",
        FACTOR * 0.04,
    )
    assert found.text.startswith(
        "Feasible: 99.4 % of the energy in all batteries is left over because the deadline of "
        "40 ms binds all 20 devices. Set the deadline to 160 ms, and they could train 5.1 times "
        "as many rounds ("
    )


def test_the_deadline_is_raised_no_further_than_it_is_of_use() -> None:
    found = answer({})
    change = next(c for c in found.tried if c.edit.field == "budget.deadline_s")
    assert 0.04 < change.edit.value < FACTOR * 0.04
    more = joulemesh.plan(DEFAULT.override({"budget.deadline_s": 2 * change.edit.value}))
    assert int(more.rounds.sum()) == change.amount
    assert "deadline" not in more.binding


def test_the_battery_binds() -> None:
    found = answer(BATTERY_BINDS)
    assert found.binding["energy"] == 20
    assert found.change is not None
    assert (found.change.edit.field, found.change.edit.value) == ("budget.energy_j", FACTOR)
    assert (
        "of the time before the deadlines is left over because the battery binds all 20 devices"
        in found.text
    )
    assert "Make the batteries 4 times as large, and they could train 4 times" in found.text


def test_a_setting_comes_before_a_budget_where_the_exchange_costs_most() -> None:
    plan = joulemesh.plan(DEFAULT.override(EXCHANGE_COSTS))
    assert plan.exchange_total_j.sum() > plan.compute_total_j.sum()
    found = advice(plan)
    assert found.change is not None
    assert found.change.edit.field == "plan.iterations"
    batteries = next(c for c in found.tried if c.edit.field == "budget.energy_j")
    assert batteries.gain > found.change.gain >= 1.25
    halved = next(c for c in found.tried if c.edit.field == "plan.iterations")
    assert (halved.edit.value, halved.measure) == (50, "rounds")


def test_another_scheme_and_never_fewer_bits_where_the_exchange_lasts_longest() -> None:
    found = answer(EXCHANGE_LASTS)
    assert found.change is not None
    assert found.change.edit.field == "plan.aggregation"
    assert "network.bits_per_parameter" not in {c.edit.field for c in found.tried}


def test_one_weak_device_holds_back_everybody() -> None:
    found = answer(WEAK)
    assert found.change is not None
    assert found.change.measure == "iterations"
    assert found.text.startswith("Feasible for 54 iterations, limited by the battery of device 0: ")
    assert found.change.edit == Edit("budget.energy_j", 19.1, device=0)
    assert "Set the battery of device 0 to 19.1 J, and they could last for" in found.text
    assert found.change.gain > 9
    # Of two alike, more for one of them is no help.
    both = answer(
        {**WEAK, "budget.energy_j": [2.0, 2.0] + [20.0] * 18, "devices.cycles_per_sample": 2e5}
    )
    assert both.change is not None
    assert both.change.edit.value == FACTOR


def test_zeta_binds() -> None:
    found = answer(SCENARIOS["zeta"])
    assert found.text.startswith("Feasible for 50 iterations, limited by plan.zeta = 50: ")
    assert found.change is not None
    assert (found.change.edit.field, found.change.edit.value) == ("plan.zeta", "auto")
    assert found.change.amount == 246


def test_the_policy_binds() -> None:
    found = answer(SCENARIOS["fixed"])
    assert found.binding["policy"] == 20
    assert found.change is not None
    assert (found.change.edit.field, found.change.edit.value) == ("plan.rounds", "theorem4")
    assert ("plan.fixed_rounds", 2) in {(c.edit.field, c.edit.value) for c in found.tried}
    assert 'plan.rounds = "fixed" binds all 20 devices' in found.text


def test_a_single_iteration() -> None:
    found = answer({"plan.iterations": 1})
    assert found.change is not None
    assert found.change.edit.field == "budget.deadline_s"
    assert not any(c.edit.field == "plan.iterations" and c.edit.value < 1 for c in found.tried)


def test_an_infeasible_plan_is_refused_with_its_remedy() -> None:
    with pytest.raises(joulemesh.InfeasibleError, match=r"raise budget\.energy_j to at least"):
        answer({"budget.energy_j": 0.06})


def test_departures_are_named() -> None:
    found = answer({"plan.on_depletion": "leave", "budget.energy_j": [0.5, 20.0]})
    assert not found.feasible
    assert found.binding["left"] == 3
    assert found.text.startswith(
        "Not feasible as asked, because 3 of 20 devices leave before the end: "
    )
    assert found.change is not None


def test_a_number_that_the_planner_chooses_is_chosen_anew() -> None:
    """With more time ``auto`` plans another number of iterations, and their rounds are counted."""
    plan = joulemesh.plan(Scenario.preset("default"))
    change = next(one for one in plan.answer.tried if one.edit.field == "budget.total_s")
    made = joulemesh.plan(apply_edits(plan.scenario, [change.edit]))
    assert made.iterations != plan.iterations
    assert change.amount == int(made.rounds.sum())
    assert "plan.iterations" not in {one.edit.field for one in plan.answer.tried}


def test_a_plan_that_ends_early_is_not_feasible() -> None:
    found = answer({"plan.on_depletion": "leave", "budget.energy_j": 0.5, "devices.count": 3})
    assert not found.feasible
    assert "the plan ends after" in found.text
    assert "of 100 iterations" in found.text


def test_nothing_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Prospects, "_candidates", lambda self: iter(()))
    found = answer({})
    assert found.change is None
    assert found.text.endswith("No single change that was tried adds 5 % to the rounds.")


def test_large_plans_are_not_made_again_and_the_answer_says_so() -> None:
    found = answer({"plan.iterations": 30_000, "budget.energy_j": 6000.0})
    assert found.change is None
    assert not found.tried
    assert found.text.endswith("The plan is too large to try changes by planning again.")


def test_the_answer_is_in_the_json_and_names_devices(tmp_path: Any) -> None:
    record = json.loads(joulemesh.plan(DEFAULT.override(DEADLINE_BINDS)).to_json())["answer"]
    assert record["feasible"] is True
    assert record["text"] == answer(DEADLINE_BINDS).text
    assert record["change"]["edit"]["field"] == "budget.deadline_s"
    assert record["tried"][0] == record["change"]
    rows = "".join(f"{name},{joules}\n" for name, joules in zip("abcd", (1, 9, 9, 9), strict=True))
    (tmp_path / "d.csv").write_text("name,energy_j\n" + rows)
    plan = joulemesh.plan(
        DEFAULT.override({"devices.table": str(tmp_path / "d.csv"), "plan.iterations": "longest"})
    )
    assert plan.names == ("a", "b", "c", "d")
    assert "limited by the battery of device 0 (a): " in plan.answer.text
    assert "Set the battery of device 0 (a) to " in plan.answer.text


def test_shares_of_nearly_all_and_nothing_keep_their_digits() -> None:
    for share in np.geomspace(1e-5, 0.49, 40):
        text = _percent(share)
        assert text != "0 %"
        assert _percent(1 - share) != "100 %"
