"""A sweep with figures that were chosen, not trained: what views show can be said exactly."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Varied
from joulemesh.study.sweep_result import Point, Sweep

NASTY = '</script><b>&"$title'


def run(method: str, seed: int, accuracy: float | None, to_target: float | None) -> dict[str, Any]:
    """One run's row."""
    row: dict[str, Any] = {"method": method, "seed": seed, "iterations": None, "reason": "too poor"}
    if accuracy is None:
        return {**row, "status": "infeasible"}
    figures = {"device_accuracy": accuracy / 2, "energy_j": 3e3, "time_s": 2.0}
    more = {"energy_to_target_j": to_target, "time_to_target_s": 1.0}
    known = {"status": "ran", "iterations": 5, "reason": "", "accuracy": accuracy}
    return {**row, **known, **figures, **more}


def summary(method: str, *, ran: bool) -> dict[str, Any]:
    """One method's row."""
    figures = ["accuracy", "accuracy_difference", "device_accuracy", "energy_j", "time_s"]
    figures += ["energy_to_target_j", "time_to_target_s"]
    names = [name for one in figures for name in (one, f"{one}_ci95")]
    row: dict[str, Any] = dict.fromkeys(names)
    row |= {"method": method, "seeds": 2, "reached": 1, "notes": [], "energy_to_target_j_error": 0}
    if not ran:
        return {**row, "status": "infeasible", "iterations": None, "notes": [f"why: {NASTY}"]}
    return {
        **row,
        "status": "ran",
        "iterations": 5,
        "accuracy": 0.5,
        "energy_j": 3.0,
        "time_s": 2.0,
    }


@pytest.fixture(scope="session")
def chosen() -> Sweep:
    """Counts 10, 20, 50 × two topologies; the second method cannot run at 50 on a hostile one."""
    fields = (Varied("devices.count", (10, 20, 50)), Varied("network.topology", ("ring", NASTY)))
    methods, points = ("adaptive", NASTY), []
    for at in itertools.product(range(3), range(2)):
        runs, rows = [], []
        for m, method in enumerate(methods):
            ran = (at, m) != ((2, 1), 1)
            rows.append(summary(method, ran=ran))
            for seed in (0, 1):
                accuracy = 0.1 * (1 + at[0]) + 0.2 * at[1] + 0.1 * m + 0.02 * seed
                reached = None if (at[0], m, seed) == (0, 0, 1) else 2.0
                runs.append(run(method, seed, accuracy if ran else None, reached))
        points.append(Point(at, tuple(runs), tuple(rows)))
    return Sweep(Scenario(), fields, methods, "batteries", (0, 1), tuple(points))
