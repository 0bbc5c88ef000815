"""Notes on figures that are far from what the model, the hardware or the radio imply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import Edit
from joulemesh.planning.notes import questions
from joulemesh.planning.static import apply_edits, plan
from joulemesh.scenario import Scenario

ROOMY = {"budget.energy_j": 1e6, "budget.deadline_s": 1e4, "plan.iterations": 3}


def notes(changes: dict[str, Any], **own: Any) -> tuple[str, ...]:
    return plan(Scenario.preset("adaptive").override(changes), **own).notes


@pytest.mark.parametrize("name", ["adaptive", "narrowband"])
def test_presets_with_plausible_figures_have_no_notes(name: str) -> None:
    assert plan(Scenario.preset(name)).notes == ()


def test_the_papers_cycles_are_noted() -> None:
    """1,000 to 3,000 cycles for some 953,000 operations of an MLP 784-200-10."""
    (note,) = plan(Scenario.preset("paper")).notes
    assert note.startswith("devices.cycles_per_sample is 1,000 to 2,920, but training the model")
    assert "about 953,000 operations" in note
    assert "expect 9,530 to 95,300,000" in note
    assert "seconds of a training step × cpu_hz / its samples" in note


# 28,416 operations a sample: six times the 4,736 multiply-adds of the MLP 64-64-10.
@pytest.mark.parametrize(
    ("cycles", "noted"),
    [(280.0, True), (285.0, False), (2.84e6, False), (2.85e6, True), ([285.0, 1e7], True)],
)
def test_cycles_lie_within_a_hundredfold_of_the_operations(cycles: Any, noted: bool) -> None:
    found = notes({**ROOMY, "budget.energy_j": 1e4, "devices.cycles_per_sample": cycles})
    assert any("devices.cycles_per_sample" in note for note in found) is noted


def test_of_a_model_of_ones_own_only_the_least_is_known() -> None:
    many = {**ROOMY, "devices.cycles_per_sample": 1e9}
    assert not any("cycles_per_sample" in note for note in notes(many, parameters=5000))
    few = {**ROOMY, "devices.cycles_per_sample": 299.0}
    (note,) = (n for n in notes(few, parameters=5000) if "cycles_per_sample" in n)
    assert "at least 30,000 operations" in note
    assert "expect 300 or more" in note
    # The scenario's own model is recognised by its size.
    assert any("cycles_per_sample" in note for note in notes(many, parameters=4810))


def test_a_model_on_data_of_ones_own_is_counted(tmp_path: Path) -> None:
    x, y = np.zeros((40, 64), np.float32), np.arange(40) % 10
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    many = {**ROOMY, "devices.cycles_per_sample": 1e9, "training.partition": "resample"}
    (note,) = (
        note
        for note in notes({**many, "training.dataset": str(tmp_path / "mine.npz")})
        if "cycles_per_sample" in note
    )
    assert "about 28,400 operations" in note


def test_a_cnn_is_counted_by_its_convolutions() -> None:
    changes = {"training.model": "cnn", "training.dataset": "mnist", "devices.samples": 100}
    low, high = 0.01 * 6 * 2_190_080, 100 * 6 * 2_190_080
    for cycles, noted in ((0.99 * low, True), (1.01 * low, False), (1.01 * high, True)):
        found = notes({**ROOMY, **changes, "devices.cycles_per_sample": cycles})
        assert any("cycles_per_sample" in note for note in found) is noted


@pytest.mark.parametrize(
    ("hertz", "noted"), [(4.7e7, False), (4.6e7, True), (9.9e9, False), (1.01e10, True)]
)
def test_a_processor_draws_between_a_tenth_of_a_milliwatt_and_a_kilowatt(
    hertz: float, noted: bool
) -> None:
    found = notes({**ROOMY, "devices.cpu_hz": hertz, "devices.capacitance": 1e-27})
    assert any("make a processor of" in note for note in found) is noted


def test_a_deadline_shorter_than_any_round_is_noted_beside_the_refusal() -> None:
    scenario = Scenario.preset("adaptive")
    shortest = float(plan(scenario).world.devices.round_latency_s.min())
    with pytest.raises(joulemesh.InfeasibleError, match="misses the deadline") as refusal:
        plan(scenario.override({"budget.deadline_s": 0.99 * shortest}))
    (note,) = refusal.value.__notes__
    assert note.startswith("budget.deadline_s is ")
    assert "one round takes every device 1.6 ms or more" in note
    with pytest.raises(joulemesh.InfeasibleError) as refusal:
        plan(scenario.override({"budget.deadline_s": 1.01 * shortest}))
    assert not hasattr(refusal.value, "__notes__")


def test_a_battery_of_ten_thousand_times_the_need_is_noted() -> None:
    plain = {"plan.rounds": "fixed", "budget.energy_j": 30.0}
    spent = plan(Scenario.preset("adaptive").override(plain)).spent_j
    for factor, devices in ((0.99, 0), (1.01, 1)):
        found = notes({**plain, "budget.energy_j": factor * 1e4 * float(spent.min())})
        assert len(found) == devices
    assert f"on 1 of 20 devices: device {spent.argmin()} has" in found[0]
    assert "joules" in found[0]


def test_a_rate_beyond_the_radio_is_noted() -> None:
    near = {**ROOMY, "budget.energy_j": 100.0, "network.profile": "wifi", "network.area_m": 50.0}
    assert notes(near) == ()
    (note,) = notes({**near, "network.max_rate_bps": 1e9})
    assert "beyond the 65 Mbit/s of network.profile = 'wifi'" in note
    (note,) = notes({"network.area_m": 0.1})
    assert "bit/s per hertz of network.bandwidth_hz; expect 25 at most" in note


def test_notes_are_in_the_json_and_survive_it() -> None:
    made = plan(Scenario.preset("paper"))
    assert json.loads(made.to_json())["notes"] == list(made.notes)
    assert joulemesh.Plan.from_json(made.to_json()).notes == made.notes


def refused(scenario: Scenario) -> joulemesh.InfeasibleError | None:
    try:
        joulemesh.plan(scenario)
    except joulemesh.InfeasibleError as refusal:
        return refusal
    return None


MISTAKEN: dict[str, tuple[float, float]] = {
    "network.bandwidth_hz": (20.0, 20e6),
    "network.area_m": (500_000.0, 500.0),
    "network.max_rate_bps": (5.0, 5e6),
    "devices.cpu_hz": (2.0, 2e9),
    "devices.transmit_power_w": (1_000.0, 1.0),
    "network.noise_dbm_per_hz": (174.0, -174.0),
}


@pytest.mark.parametrize("field", MISTAKEN)
def test_a_unit_that_was_probably_mistaken_is_asked_about_first(field: str) -> None:
    wrong, meant = MISTAKEN[field]
    scenario = Scenario.preset("default").override({field: wrong})
    (doubt,) = questions(scenario)
    assert doubt.edit == Edit(field, meant)
    assert doubt.text.startswith(f"{field} = {wrong:g} is ")
    refusal = refused(scenario)
    if refusal is None:
        assert doubt.text in joulemesh.plan(scenario).notes
    else:
        assert str(refusal).startswith(doubt.text)
        assert refusal.remedies[0] == (doubt.edit,)
    joulemesh.plan(apply_edits(scenario, [doubt.edit]))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("network.bandwidth_hz", (100.0, 7.8e3, 125e3, 20e6, 2e9)),
        ("network.area_m", (1.0, 500.0, 50e3)),
        ("devices.cpu_hz", (32_768.0, 16e6, 5e9, [16e6, 2e9])),
        ("devices.transmit_power_w", (1e-6, 0.1, 23.0, 100.0)),
        ("network.noise_dbm_per_hz", (-204.0, -174.0, -100.0)),
    ],
)
def test_unusual_figures_that_are_in_use_raise_no_question(field: str, values: Any) -> None:
    for value in values:
        assert not list(questions(Scenario().override({field: value}))), value
