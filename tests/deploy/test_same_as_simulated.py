"""Simulator = deployment: nodes that talk over TLS end with the simulated parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.device.device import RUN
from joulemesh.deploy.device.journal import JOURNAL
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import largest_difference
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from tests.deploy import over_tcp
from tests.deploy.over_tcp import apart, carried_out, drifted, kept, packed, simulated, small


def check(plan: Plan, folder: Path, wanted: Sequence[Vector], learner: str | None = None) -> Fleet:
    assert len(np.unique(plan.rounds)) > 1  # unequal rounds, or the test would show less
    fleet = packed(folder / "fleet", plan)
    ends = carried_out(fleet, learner)
    assert all(end.complete for end in ends), ends
    found = kept(fleet)
    assert apart(found, wanted) <= (1e-10 if wanted[0].dtype == np.float64 else 1e-5)
    assert np.ptp(found[0]) > 0.01  # it has learned something
    if plan.timeline.scheme.exact:
        assert len({vector.tobytes() for vector in found}) == 1
    return fleet


@pytest.mark.parametrize("scheme", ["tree-chunked", "metropolis"])
def test_nodes_over_tcp_end_with_what_messages_in_one_process_give(
    scheme: str, tmp_path: Path
) -> None:
    plan, model = small(scheme), tmp_path / "model.safetensors"
    wanted = drifted(plan)
    fleet = check(plan, tmp_path, wanted, f"{over_tcp.__file__}:Drifter")
    mean = np.mean(wanted, axis=0)
    save_file({"b": mean[:600], "a_first": mean[:0], "c": mean[600:] + 0.5}, model)
    assert largest_difference(fleet.folder, fleet, model) == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "precision"),
    [("tree", "float32"), *((scheme, "float64") for scheme in SCHEMES.built_in)],
)
def test_nodes_over_tcp_end_with_the_simulated_parameters(
    scheme: str, precision: str, tmp_path: Path
) -> None:
    plan = small(scheme, precision)
    check(plan, tmp_path, simulated(plan))


@pytest.mark.parametrize(
    ("scheme", "precision"),
    [
        ("tree-chunked", "float64"),
        *(
            pytest.param(scheme, "float64", marks=pytest.mark.slow)
            for scheme in SCHEMES.built_in
            if scheme != "tree-chunked"
        ),
        pytest.param("tree", "float32", marks=pytest.mark.slow),
    ],
)
def test_messages_of_16_bits_are_rounded_alike_in_the_field_and_in_training(
    scheme: str, precision: str, tmp_path: Path
) -> None:
    plan = small(scheme, precision, {"network.bits_per_parameter": 16})
    wanted, fleet = simulated(plan), packed(tmp_path / "fleet", plan)
    assert all(end.complete for end in carried_out(fleet))
    found = kept(fleet)
    for vector in found:
        np.testing.assert_array_equal(vector, vector.astype(np.float16).astype(vector.dtype))
    # In 32 bits the last digit of training may turn the rounding of a number.
    assert apart(found, wanted) <= (0.0 if precision == "float64" else 2e-3)
    assert apart(simulated(small(scheme, precision)), wanted) > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    "exchange", ["neighbours", {"every": 2, "final": True}, {"every": 2, "between": "neighbours"}]
)
def test_patterns_of_exchanges_deploy(exchange: object, tmp_path: Path) -> None:
    plan = small("tree", "float64", {"plan.exchange": exchange, "plan.rounds": "spread"})
    check(plan, tmp_path, simulated(plan))


@pytest.mark.parametrize(
    ("scheme", "bits", "precision"),
    [
        ("tree-chunked", 8, "float64"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("tree", 4, "float64"),
                ("ring", 8, "float64"),
                ("ring-chunked", 16, "float64"),
                ("tree", 8, "float32"),
            )
        ),
    ],
)
def test_quantised_averages_are_alike_in_the_field_and_in_training(
    scheme: str, bits: int, precision: str, tmp_path: Path
) -> None:
    plan = small(scheme, precision, {"plan.bits": bits})
    wanted, fleet = simulated(plan), packed(tmp_path / "fleet", plan)
    assert all(end.complete for end in carried_out(fleet))
    found = kept(fleet)
    assert all((vector == found[0]).all() for vector in found)
    # In 32 bits the last digit of training may turn the rounding of a number.
    assert apart(found, wanted) <= (1e-12 if precision == "float64" else 0.05)
    assert apart(simulated(small(scheme, precision)), wanted) > 1e-7
    folders = [fleet.folder / DEVICES / name / RUN / JOURNAL for name in fleet.names]
    sent = [
        each[0]
        for folder in folders
        for line in map(json.loads, folder.read_text().splitlines())
        for each in line.get("sent", {}).values()
    ]
    assert 8 * sum(sent) == pytest.approx(float(plan.ledger.bits.sum()))
