"""Plans and series that the tests of the views share, and a browser where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.views.report import ReportView, Summary
from tests.browser import Browser, find_browser

DEFAULT = joulemesh.Scenario.preset("adaptive")
SCENARIOS = {
    "default": DEFAULT,
    "paper-grid": joulemesh.Scenario.preset("paper").override({"network.topology": "grid"}),
    "fading": DEFAULT.override(
        {
            "network.topology": "complete",
            "network.fading": "rayleigh",
            "network.channel_known": False,
            "plan.aggregation": "tree",
            "plan.fade_quantile": 0.3,
            "budget.deadline_s": 0.031,
        }
    ),
    "leave": DEFAULT.override({"plan.on_depletion": "leave", "budget.energy_j": [0.5, 20]}),
    "gossip": DEFAULT.override({"network.topology": "complete", "plan.aggregation": "gossip"}),
    "tiny": DEFAULT.override({"devices.count": 3, "plan.iterations": 1}),
    "many": DEFAULT.override(
        {
            "devices.count": 700,
            "network.topology": "geometric",
            "network.area_m": 2500.0,
            "budget.deadline_s": 0.3,
            "plan.iterations": 30,
        }
    ),
}


@pytest.fixture(scope="session")
def plans() -> dict[str, Plan]:
    return {name: joulemesh.plan(scenario) for name, scenario in SCENARIOS.items()}


def make_series(plan: Plan, seeds: Sequence[int]) -> dict[str, NDArray[Any]]:
    """Learning curves of no meaning: [seeds, evaluations], or [evaluations] for one seed."""
    when = np.arange(1, plan.iterations + 1)
    shape = (len(seeds), len(when)) if len(seeds) > 1 else (len(when),)
    noise = np.random.default_rng(0).random(shape) / 100
    accuracy = 0.9 - 0.8 * np.exp(-when / 20) + noise
    exchange = np.broadcast_to(plan.exchange_j, plan.rounds.shape)
    return {
        "iteration": when,
        "energy_j": (plan.compute_j + exchange).sum(axis=1).cumsum(),
        "time_s": plan.latency_s.cumsum(),
        "train_loss": 2 * np.exp(-when / 20) + 0.1 + noise,
        "test_loss": 2.2 * np.exp(-when / 20) + 0.1 + noise,
        "test_accuracy": accuracy,
        "device_accuracy_mean": accuracy - 0.02,
        "device_accuracy_min": accuracy - 0.08,
        "device_accuracy_max": accuracy + 0.01,
        "consensus": 0.2 * np.exp(-when / 10) + 1e-4 + noise / 1000,
    }


@pytest.fixture(scope="session")
def make_view() -> Callable[..., ReportView]:
    def make(plan: Plan, *, seeds: Sequence[int] = (0,), **fields: Any) -> ReportView:
        series = make_series(plan, seeds)
        summary = Summary(
            energy_j=float(plan.spent_j.sum()),
            time_s=float(plan.latency_s.sum()),
            accuracy=float(np.mean(series["test_accuracy"], axis=-1).mean()),
            weakest=0.5,
        )
        count = plan.rounds.shape[1]
        counts = np.random.default_rng(1).integers(0, 30, (count, 10))
        given: dict[str, Any] = {"summary": summary, "series": series, "seeds": seeds}
        given["histogram"] = counts.__getitem__
        return ReportView(plan, **{**given, **fields})

    return make


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    with Browser(program) as opened:
        yield opened
