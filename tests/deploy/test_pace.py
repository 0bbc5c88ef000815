"""Seconds of an iteration, as journals and the receipt give them."""

from __future__ import annotations

import json

import pytest

import joulemesh
from joulemesh.deploy.record.history import FIGURES, History, history_of
from joulemesh.deploy.record.receipt import Receipt, iteration_seconds, mean_iteration_s, planned


def history(device: int, ends: dict[int, float]) -> History:
    figures = dict.fromkeys(FIGURES, 0.0)
    lines = [
        json.dumps({"kind": "committed", "iteration": t, **figures, "at": at, "sent": {}}).encode()
        for t, at in ends.items()
    ]
    return history_of(lines, device, f"d{device}")


def test_an_iteration_ends_with_the_last_device() -> None:
    one = history(0, {1: 10.0, 2: 11.0, 3: 12.5, 5: 20.0})
    other = history(1, {1: 10.5, 2: 10.75, 3: 13.0, 4: 14.0, 5: 20.0})
    # Ends at 10.5, 11 and 13; of iteration 4 one device knows nothing, so that 5 follows none.
    assert iteration_seconds([one, other]) == (0.5, 2.0)
    assert iteration_seconds([history(0, {})]) == ()


def test_the_receipt_has_seconds_per_iteration_planned_and_measured() -> None:
    plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 3}, plan={"iterations": 3}))
    costs = planned(plan)
    step = 2.0 * float(plan.latency_s[1:].mean())
    histories = [history(k, {t: 5.0 + step * t for t in (1, 2, 3)}) for k in range(3)]
    assert mean_iteration_s(histories, costs) == pytest.approx((step / 2, step))
    battery_j = plan.world.devices.energy_budget_j
    made = Receipt(histories, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    said = json.loads(made.to_json())["iteration_s"]
    assert said["ratio"] == pytest.approx(2.0)
    assert said["measured"] == pytest.approx(step)
    empty = [history(k, {}) for k in range(3)]
    made = Receipt(empty, costs, costs, fleet="f", plan="p", battery_j=battery_j)
    assert json.loads(made.to_json())["iteration_s"]["ratio"] is None
