"""Two processors for the tests of training, if JAX has not started with fewer."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from joulemesh.data import from_arrays
from joulemesh.training import Engine, platform
from joulemesh.training.evaluate import Panel

platform.configure(cpu_shards=2)


@pytest.fixture(scope="session")
def toy():
    """Three classes that can be told apart, five features, 90 training samples."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    x = (rng.normal(size=(150, 5)) + 1.5 * np.eye(5)[y]).astype(np.float32)
    return from_arrays(x[:90], y[:90], x[90:], y[90:])


@pytest.fixture(params=["one processor", "two processors", "rows together"])
def backend(request, monkeypatch):
    """How rows are trained: in turn on one or two processors, or (accelerators) all at once."""
    count = 2 if request.param == "two processors" else 1
    if jax.local_device_count() < count:
        pytest.skip("JAX was started with one processor")
    mesh = Mesh(np.array(jax.local_devices()[:count]), ("rows",))
    monkeypatch.setattr(platform, "row_mesh", lambda devices: mesh)
    monkeypatch.setattr(platform, "loops_over_rows", lambda: request.param != "rows together")
    return request.param


@pytest.fixture
def unevaluated(monkeypatch):
    """Train without evaluating: a program by itself, which takes longest to compile."""

    def nothing(engine, state, iteration):
        return Panel(*[np.zeros(len(engine.seeds))] * len(Panel._fields))

    monkeypatch.setattr(Engine, "_panel", nothing)
