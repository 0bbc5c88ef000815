"""The whole way in slow motion: every device trained alone, every message carried hop by hop.

The plan's route is played out message by message on the parameters that the slow reference has
trained; the engine, which multiplies by a matrix or takes a mean, must hold the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.aggregation.contract import execute
from joulemesh.data import Dataset, from_arrays
from joulemesh.models import build
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.prepare import partitions
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Options

DEVICES, ITERATIONS = 6, 3


def _data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    return from_arrays(x[:90], np.arange(90) % 3, x[90:], np.arange(30) % 3)


@pytest.mark.parametrize(
    ("scheme", "partition"),
    [
        ("tree", "quantity"),
        ("ring", "iid"),
        ("ring-chunked", "dirichlet"),
        ("gossip", "quantity"),
        ("metropolis", "dirichlet"),
    ],
)
def test_engine_equals_messages_carried_hop_by_hop(
    unevaluated: Callable[[Engine], Engine], scheme: str, partition: str
) -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": DEVICES,
            "plan.aggregation": scheme,
            "plan.iterations": ITERATIONS,
            "plan.epsilon": 0.3,
            "budget.energy_j": [1.0, 2.0],
            "budget.deadline_s": 0.3,
            "training.partition": partition,
            "training.batch_size": 4,
            "training.precision": "float64",
            "training.eval_every": 1,
        }
    )
    data = _data()
    model = build("mlp", data.shape, 3, (7,))
    plan = joulemesh.plan(scenario, parameters=model.parameters)
    assert len(np.unique(plan.rounds)) > 1  # unequal rounds, or the test would show less
    held = partitions(scenario, data, (0,), plan.work.round_samples)
    options = Options.from_scenario(scenario.training)
    engine = unevaluated(Engine(model, data, held, schedule_of(plan), options, (0,)))

    def hop(t: int, values: NDArray[np.float64]) -> Any:
        route = plan.route(t + 1)
        assert route is not None
        return execute(plan.scheme_at(t + 1), route, values)

    slow = run_reference(engine, exchange=hop)[0]
    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for device, params in enumerate(slow):
        for name, leaf in params.items():
            np.testing.assert_allclose(fast[name][0, device], leaf, rtol=0, atol=1e-10)
