"""Rows that calibrations write are what a scenario takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulemesh import Scenario, calibrate
from joulemesh.calibration import write_row
from joulemesh.cli.common import _table_notes
from joulemesh.planning.ground import Ground
from tests.calibration.toy import Machine


def test_a_plan_prices_what_was_measured(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    for number in range(3):
        toy = Machine(
            step_s=0.001 * (number + 1),
            rest_w=lambda now, number=number: 2.0 + number,  # type: ignore[misc]
            call_s=0.004,
        )
        found = calibrate(learner=toy, meter=toy, bench=toy.bench(), name=f"d{number}")
        write_row(table, found.row)
    scenario = Scenario(devices={"table": str(table)})
    devices = Ground.of(scenario).world.devices
    steps = np.array([0.001, 0.002, 0.003])
    # A call beyond its steps takes 4 ms, of which a step in a long call bears a little.
    assert devices.round_latency_s == pytest.approx(steps, rel=0.03)
    assert devices.round_energy_j == pytest.approx(
        steps * (10 - np.array([2.0, 3.0, 4.0])), rel=0.03
    )
    assert devices.idle_w == pytest.approx([2.0, 3.0, 4.0])
    assert devices.overhead_s == pytest.approx(np.full(3, 0.004), rel=0.03)
    assert not [*_table_notes(scenario)]  # every column has its use, the ends of intervals too
