"""On an accelerator: the program that trains all devices at once equals the slow reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import jax
import numpy as np
import pytest

from joulemesh.data import from_arrays, partition
from joulemesh.models import build
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.platform import this_machine
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Options, Schedule

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("model", "start"),
    [("logistic", "own"), ("mlp", "own"), ("cnn", "own"), ("mlp", "factored"), ("cnn", "shared")],
)
def test_engine_equals_reference_on_an_accelerator(
    model: str, start: Literal["own", "shared", "factored"]
) -> None:
    if jax.default_backend() == "cpu":
        pytest.skip("there is no accelerator here")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 22, 22, 1)).astype(np.float32)
    data = from_arrays(x[:60], np.arange(60) % 3, x[60:], np.arange(20) % 3)
    held = partition(data.y_train, 4, kind="dirichlet", alpha=0.5)
    learner = build(model, data.shape, 3, (6,), l2=0.01)
    options = Options(batch_size=4, precision="float64", chunk_iterations=2)
    schedule = Schedule(rng.integers(1, 6, (3, 4)))
    engine = Engine(
        learner, data, [held], schedule, options, machine=replace(this_machine(), start=start)
    )
    slow = run_reference(engine)[0]
    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for device, params in enumerate(slow):
        for name, leaf in params.items():
            np.testing.assert_allclose(fast[name][0, device], leaf, rtol=0, atol=1e-9)
