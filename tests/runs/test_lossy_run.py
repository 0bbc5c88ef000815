"""A run in which packets are lost: what it reports, keeps and says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.methods import build
from joulemesh.planning.drawn import carried_out
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.job import prepare
from joulemesh.setup.from_plan import schedule_of

LOSSY = {
    "devices.count": 5,
    "network.packet_error": 0.3,
    "network.tries": 2,
    "plan.iterations": 6,
    "training.hidden": [8],
    "training.chunk_iterations": 3,
    "training.eval_every": 2,
}


@pytest.fixture(scope="module")
def lossy() -> joulemesh.Scenario:
    return joulemesh.Scenario.preset("adaptive").override(LOSSY)


def test_what_a_run_trains_and_pays_is_drawn(lossy: joulemesh.Scenario) -> None:
    job = prepare(lossy, None, None, 2, deterministic=False, on_stage=lambda stage: None)
    drawn = carried_out(joulemesh.plan(lossy))
    np.testing.assert_array_equal(job.pricing.reserve.spent_j, drawn.spent_j)
    assert job.learner.schedule.kind == "dense"  # the same matrices for both seeds


@pytest.mark.slow
def test_a_run_is_priced_as_drawn_and_says_what_was_expected(
    lossy: joulemesh.Scenario, tmp_path: Path
) -> None:
    result = joulemesh.run(lossy, out=tmp_path / "run", seeds=2)
    planned = joulemesh.plan(lossy)
    drawn = carried_out(planned)
    assert result.energy_j[-1] == pytest.approx(drawn.spent_j.sum(), rel=1e-12)
    assert result.time_s[-1] == pytest.approx(drawn.latency_s.sum(), rel=1e-12)
    found = result.summary()
    assert found["expected_energy_j"] == pytest.approx(planned.spent_j.sum(), rel=1e-12)
    assert found["expected_time_s"] == pytest.approx(planned.time_s, rel=1e-12)
    assert drawn.drawn is not None
    assert found["messages_lost"] == drawn.drawn.lost_messages.sum() > 0
    assert any(note.startswith("packets are lost: exchanges took") for note in found["notes"])
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "messages lost" in page
    assert f"{found['messages_lost']:,} of {found['messages']:,}" in page
    kept = RunFolder(tmp_path / "run").account()
    np.testing.assert_array_equal(kept.spent_j, drawn.spent_j)
    again = joulemesh.run(lossy, seeds=2)
    np.testing.assert_array_equal(again.accuracy, result.accuracy)


def test_methods_say_whether_their_losses_are_drawn(lossy: joulemesh.Scenario) -> None:
    adaptive, learning = build("adaptive", lossy), build("gossip-learning", lossy)
    drawn = carried_out(joulemesh.plan(lossy))
    np.testing.assert_allclose(adaptive.ledger().spent_j, drawn.spent_j, rtol=1e-12)
    assert adaptive.schedule.kind == "dense"
    assert any("messages were lost" in note for note in adaptive.notes)
    assert learning.notes[-1].endswith("none of its messages is lost")
    assert not any("packets" in note for note in build("fixed:1", _without(lossy)).notes)


@pytest.mark.parametrize("method", ["fixed:1", "d-psgd", "gossip-pga:3", "merge", "skiptrain"])
def test_methods_whose_exchanges_are_those_of_schemes_are_drawn(
    lossy: joulemesh.Scenario, method: str
) -> None:
    idle = {"devices.idle_w": 0.01, "devices.receive_j_per_bit": 1e-8}
    made = build(method, lossy.override(idle), equal="batteries")
    assert made.drawn
    assert (made.leftover_j() >= 0).all()
    assert made.schedule.kind == "dense"
    n = made.schedule.iterations
    mixing = made.schedule.matrices(0, n)
    assert mixing.min() >= 0
    sums = mixing.sum(axis=1)
    assert np.abs(sums - 1).max() > 0.1  # something was lost: means are not kept
    # Where hardly anything is lost, everything is as it was expected.
    rare = build(method, lossy.override({**idle, "network.packet_error": 1e-12}))
    plain = build(method, lossy.override({**idle, "network.packet_error": 0.0}))
    np.testing.assert_allclose(rare.ledger().energy_j, plain.ledger().energy_j, rtol=1e-9)
    np.testing.assert_allclose(rare.ledger().latency_s, plain.ledger().latency_s, rtol=1e-9)
    assert rare.schedule.digest() == plain.schedule.digest()


def test_devices_in_the_field_make_the_same_plan(lossy: joulemesh.Scenario) -> None:
    """The plan that is deployed is the expected one, also from a method."""
    adaptive = build("adaptive", lossy)
    assert adaptive.deployable
    assert adaptive.plan is not None
    planned = joulemesh.plan(lossy)
    np.testing.assert_array_equal(adaptive.plan.planned.exchange_j, planned.exchange_j)


def test_losses_that_are_all_mended_leave_the_training_as_it_is(lossy: joulemesh.Scenario) -> None:
    """With many tries nothing is lost, and the engine plays the plan's own schedule."""
    patient = carried_out(joulemesh.plan(lossy.override({"network.tries": 50})))
    assert patient.drawn is not None
    assert not patient.drawn.lost_messages.any()
    assert schedule_of(patient).kind == "mean"


def _without(lossy: joulemesh.Scenario) -> joulemesh.Scenario:
    return lossy.override({"network.packet_error": 0.0})
