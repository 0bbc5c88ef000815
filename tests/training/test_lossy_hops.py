"""Lost messages in training: the engine's matrices against messages carried hop by hop."""

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
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Plan
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


def _plan(scheme: str, dataset: Dataset, more: dict[str, object]) -> Plan:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": DEVICES,
            "plan.aggregation": scheme,
            "plan.iterations": ITERATIONS,
            "plan.epsilon": 0.3,
            "plan.rounds": "fixed",
            "plan.fixed_rounds": 1,
            "network.packet_error": 0.2,
            "network.packet_bits": 300,
            "network.tries": 1,
            "budget.energy_j": [2.0, 4.0],
            "budget.deadline_s": 0.3,
            "training.batch_size": 4,
            "training.precision": "float64",
            **more,
        }
    )
    parameters = build("mlp", (5,), 3, (4,)).parameters
    return carried_out(joulemesh.plan(scenario, parameters=parameters, data=dataset))


@pytest.mark.parametrize(
    ("scheme", "more"),
    [
        ("tree-chunked", {"plan.chunks": 4}),
        *(
            pytest.param(name, {}, marks=pytest.mark.slow)
            for name in ("tree", "ring", "ring-chunked", "gossip", "metropolis")
        ),
        pytest.param(
            "tree-chunked",
            {"plan.chunks": 4, "plan.exchange": {"every": 2}},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_engine_equals_messages_of_which_some_are_lost(
    unevaluated: Callable[[Engine], Engine], scheme: str, more: dict[str, object]
) -> None:
    dataset = _data()
    plan = _plan(scheme, dataset, more)
    drawn = plan.drawn
    assert drawn is not None
    assert drawn.lost_messages.sum() > 0
    model = build("mlp", (5,), 3, (4,))
    held = partitions(plan.scenario, dataset, (0,), plan.work.round_samples)
    options = Options.from_scenario(plan.scenario.training)
    engine = unevaluated(Engine(model, dataset, held, schedule_of(plan), options, (0,)))

    def hop_by_hop(t: int, values: NDArray[Any]) -> NDArray[Any]:
        route = plan.route(t + 1)
        assert route is not None
        assert drawn is not None
        return execute(plan.scheme_at(t + 1), route, values, drawn.lost_in(t, route))

    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for slow in (run_reference(engine, exchange=hop_by_hop), run_reference(engine)):
        for seed, own in enumerate(slow):
            for device, params in enumerate(own):
                for name, leaf in params.items():
                    np.testing.assert_allclose(fast[name][seed, device], leaf, rtol=0, atol=1e-10)
