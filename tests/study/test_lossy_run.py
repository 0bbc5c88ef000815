"""A run in which packets are lost: what it reports, keeps and says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.methods import build
from joulemesh.planning.losses import carried_out
from joulemesh.study.folder import RunFolder
from joulemesh.study.request import RunRequest
from joulemesh.study.run import prepare

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
    job = prepare(RunRequest(scenario=lossy, seeds=2))
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
    np.testing.assert_allclose(rare.ledger().seconds, plain.ledger().seconds, rtol=1e-9)
    assert rare.schedule.digest() == plain.schedule.digest()


OWN = (
    "pens:phase1=3,tau=1",
    "gossip-learning:s=0.5,tau=1",
    "balanced:tau1=1,tau2=2,compress=topk:0.2",
    "led:1",
    "fedavg:1",
)


@pytest.mark.slow
@pytest.mark.parametrize("method", OWN)
def test_a_stopped_run_that_loses_messages_goes_on_to_the_same_bits(
    lossy: joulemesh.Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr("joulemesh.study.run.SAVE_EVERY_S", 0.0)

    class StopError(Exception):
        pass

    def stop(step: Any) -> None:
        if step.completed == 3:
            raise StopError

    folder = tmp_path / "run"
    kept: dict[str, Any] = {"method": method, "equal": "iterations"}
    with pytest.raises(StopError):
        joulemesh.run(lossy, out=folder, seeds=2, on_progress=stop, **kept)
    joulemesh.run(lossy, out=folder, seeds=2, resume=True)
    whole = joulemesh.run(lossy, out=tmp_path / "whole", seeds=2, **kept)
    assert any("messages were lost" in note for note in whole.account.notes)
    for name in ("metrics.csv", "ledger.csv", "model.safetensors", "plan.npz"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    # Nothing but the losses sets it apart from a run without: the messages that arrive are its.
    free = joulemesh.run(_without(lossy), seeds=2, **kept)
    name = min(whole.params)
    assert np.abs(whole.params[name] - free.params[name]).max() > 1e-6


def test_devices_in_the_field_make_the_same_plan(lossy: joulemesh.Scenario) -> None:
    """The plan that is deployed is the expected one, also from a method."""
    adaptive = build("adaptive", lossy)
    assert adaptive.deployable
    assert adaptive.plan is not None
    planned = joulemesh.plan(lossy)
    np.testing.assert_array_equal(adaptive.plan.planned.exchange_j, planned.exchange_j)


def _without(lossy: joulemesh.Scenario) -> joulemesh.Scenario:
    return lossy.override({"network.packet_error": 0.0})
