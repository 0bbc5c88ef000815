"""Two processors for the tests of training, if JAX has not started with fewer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, from_arrays
from joulemesh.training import Engine
from joulemesh.training.jax.evaluation import Evaluation, Evaluator
from joulemesh.training.jax.platform import configure, this_machine

configure(cpu_shards=2)


@pytest.fixture(scope="session")
def toy() -> Dataset:
    """Three classes that can be told apart, five features, 90 training samples."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    x = (rng.normal(size=(150, 5)) + 1.5 * np.eye(5)[y]).astype(np.float32)
    return from_arrays(x[:90], y[:90], x[90:], y[90:])


def on(count: int, **changes: Any) -> Machine:
    """This machine with so many of its processors."""
    if jax.local_device_count() < count:
        pytest.skip("JAX was started with one processor")
    return replace(this_machine(), processors=tuple(jax.local_devices()[:count]), **changes)


@pytest.fixture
def machine_of() -> Callable[..., Machine]:
    """Describes this machine with some of its processors."""
    return on


@pytest.fixture(params=["one processor", "two processors", "rows together"])
def machine(request: pytest.FixtureRequest) -> Machine:
    """How rows are trained: in turn on one or two processors, or (accelerators) all at once."""
    count = 2 if request.param == "two processors" else 1
    return on(count, loop=request.param != "rows together")


class NoEvaluation(Evaluator):
    """In place of an engine's evaluator, whose program takes longest to compile."""

    def __init__(self, engine: Engine) -> None:
        self.counts, self._seeds = engine.evaluator.counts, len(engine.seeds)

    def evaluate(self, program: Any, params: Any, iteration: int) -> Evaluation:
        curves = {name: np.zeros(self._seeds) for name in Evaluation._fields if name != "own"}
        return Evaluation(**curves, own={})


@pytest.fixture
def unevaluated() -> Callable[[Engine], Engine]:
    """Makes an engine train without evaluating."""

    def without(engine: Engine) -> Engine:
        engine.evaluator = NoEvaluation(engine)
        return engine

    return without
