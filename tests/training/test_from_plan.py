"""The schedule that carries out a plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import joulemesh
from joulemesh.training.from_plan import mixing_of, schedule_of

BASE = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": 5,
        "network.topology": "complete",
        "plan.gossip_rounds": 2,
        "plan.iterations": 3,
        "budget.energy_j": 5.0,
    }
)


@pytest.mark.parametrize("name", ["metropolis", "gossip"])
def test_a_device_that_leaves_before_the_first_exchange_keeps_what_it_has(name: str) -> None:
    """The plan has one scheme then, and that is not on the whole graph."""
    left = BASE.override(
        {
            "plan.aggregation": name,
            "plan.on_depletion": "leave",
            "budget.energy_j": {"values": [5.0, 5.0, 5.0, 5.0, 1e-6]},
        }
    )
    plan = joulemesh.plan(left)
    assert not plan.active[0, 4]
    matrices = schedule_of(plan).matrices(0, 3)
    assert matrices.shape[1:] == (5, 5)
    for t, matrix in enumerate(matrices):
        np.testing.assert_array_equal(matrix[4], np.eye(5)[4])
        np.testing.assert_array_equal(matrix[:4, :4], plan.scheme_at(t + 1).mixing(t, t + 1)[0])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tree", "mean"),
        ("tree-chunked", "mean"),
        ("ring-chunked", "mean"),
        ("metropolis", "dense"),
        ("gossip", "dense"),
    ],
)
def test_a_plan_is_mixed_as_its_scheme_says(name: str, kind: str) -> None:
    plan = joulemesh.plan(BASE.override({"plan.aggregation": name}))
    schedule = schedule_of(plan)
    assert schedule.kind == kind
    if kind == "dense":
        for t in range(3):
            wanted = plan.scheme_at(t + 1).mixing(t, t + 1)[0]
            np.testing.assert_array_equal(schedule.matrices(t, t + 1)[0], wanted)


def test_many_devices_mix_by_a_sparse_matrix_round_by_round() -> None:
    many = BASE.override(
        {
            "devices.count": 1001,
            "network.topology": "ring",
            "plan.aggregation": "metropolis",
            "plan.iterations": 1,
        }
    )
    scheme = joulemesh.plan(many).scheme_at(1)
    weights, rounds = mixing_of(scheme)
    assert isinstance(weights, sparse.csr_array)
    assert rounds == 2
    after = weights @ (weights @ np.eye(1001)[:, :3])
    np.testing.assert_allclose(after, scheme.mixing(0, 1)[0][:, :3], rtol=0, atol=1e-15)


def _breaking(folder: Path, **training: object) -> joulemesh.Scenario:
    """A ring of four that a device leaves; what is left of it gossips."""
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3)]
    (folder / "graph.csv").write_text("i,j\n" + "".join(f"{i},{j}\n" for i, j in pairs))
    gains = "".join(f"{i},{j},1e-9\n" for i, j in pairs)
    (folder / "gains.csv").write_text("i,j,gain\n" + gains)
    return joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": 4,
            "devices.cycles_per_sample": 1e4,
            "network.topology": str(folder / "graph.csv"),
            "network.gains": str(folder / "gains.csv"),
            "network.channel_known": False,
            "budget.energy_j": {"values": [5.0, 5.0, 5.0, 0.004]},
            "budget.deadline_s": 10.0,
            "plan.aggregation": "ring",
            "plan.epsilon": 0.3,
            "plan.iterations": 8,
            "plan.on_depletion": "leave",
            "plan.rounds": "fixed",
            "plan.fixed_rounds": 1,
            "training.partition": "quantity",
            "training.model": "logistic",
            **{f"training.{name}": value for name, value in training.items()},
        }
    )


@pytest.mark.slow
def test_exact_means_are_weighed_by_samples_until_the_ring_breaks(tmp_path: Path) -> None:
    scenario = _breaking(tmp_path, weights="samples", eval_every=1, chunk_iterations=1)
    plan = joulemesh.plan(scenario)
    exact = [plan.scheme_at(t + 1).exact for t in range(8)]
    assert exact[0]
    assert not exact[-1]
    assert schedule_of(plan).exact.tolist() == exact
    shorter = {"plan.on_depletion": "refuse", "plan.iterations": 1, "budget.energy_j": 5.0}
    one = joulemesh.run(scenario.override(shorter), seeds=1)
    whole = joulemesh.run(scenario, seeds=1)
    # The first iteration is the same exact mean in both; in the whole run it is a matrix.
    first = [float(result.trace.test_loss[0, 0]) for result in (one, whole)]
    assert first[0] == pytest.approx(first[1], rel=1e-6)
