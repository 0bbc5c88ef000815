from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.data import Dataset, load, partition
from joulemesh.methods import Contender
from joulemesh.models.core import build as build_model
from joulemesh.scenario import Scenario
from joulemesh.training import Engine, Options, Trace
from joulemesh.training.batches import Data
from tests.ideal import ideal
from tests.methods.contexts import seen


@pytest.fixture(scope="session")
def small() -> Scenario:
    """Six devices on a ring; 650 parameters; budgets in which every method can move."""
    return ideal(
        devices={"count": 6, "cycles_per_sample": (1e5, 3e5)},
        network={"topology": "ring"},
        budget={"energy_j": (2.0, 6.0), "deadline_s": 0.04},
        plan={"iterations": 24, "zeta": 400.0},
        training={"model": "logistic", "l2": 0.01, "batch_size": 16, "hidden": ()},
    )


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """A few digits."""
    whole = load("digits")
    return Dataset(
        "few",
        whole.x_train[:240],
        whole.y_train[:240],
        whole.x_test[:60],
        whole.y_test[:60],
        10,
        mean=whole.mean,
        std=whole.std,
    )


Train = Callable[..., tuple[Any, Trace]]


@pytest.fixture(scope="session")
def train(digits: Dataset) -> Train:
    """Train a contender; gives all devices' parameters [seeds, N, P] and the trace."""
    model = build_model("logistic", digits.shape, 10, (), 0.01)

    def run(contender: Contender, *, seeds: tuple[int, ...] = (0,), **options: Any) -> Any:
        devices = contender.schedule.devices
        held = [partition(digits.y_train, devices, kind="quantity", seed=s) for s in seeds]
        engine = Engine(
            model,
            digits,
            held,
            contender.schedule,
            Options(batch_size=16, eval_every=10, chunk_iterations=30, **options),
            seeds,
            own_exchange=contender.exchange,
        )
        steps = list(engine.train())  # one chunk: later ones would consume its state
        params, trace = engine.params(steps[-1][0]), Trace.join([trace for _, trace in steps])
        flat = [np.asarray(leaf) for _, leaf in sorted(params.items())]
        rows = [leaf.reshape(*leaf.shape[:2], -1) for leaf in flat]
        return np.concatenate(rows, axis=2), trace

    return run


@pytest.fixture(scope="session")
def play(digits: Dataset) -> Callable[..., Any]:
    """Play four exchanges, without training, from random parameters.

    Of a contender it makes a function of seeds, which gives [seeds, N, P].
    """
    model = build_model("logistic", digits.shape, 10, (), 0.01)
    data = Data(
        jnp.asarray(digits.x_train), jnp.asarray(digits.y_train), jnp.float32(0.1), jnp.float32(0)
    )

    def prepare(contender: Contender) -> Callable[..., Any]:
        own, devices = contender.exchange, contender.schedule.devices
        assert own is not None
        held = partition(digits.y_train, devices, kind="quantity")
        mixing = None if contender.schedule.kind == "mean" else contender.schedule.matrices(0, 1)[0]
        order, start = (jnp.asarray(one, jnp.int32) for one in (held.order, held.offsets[:-1]))
        own_data = (data, order, start, jnp.asarray(held.sizes, jnp.uint32))
        whole = None if mixing is None else jnp.asarray(mixing)
        context = seen(0, devices, mixing=whole, model=model, held=own_data)

        def one(key: jax.Array) -> jax.Array:
            flat = jax.random.normal(key, (devices, 650))
            params = {"w": flat[:, :640].reshape(devices, 64, 10), "b": flat[:, 640:]}

            def iterate(t: jax.Array, carry: Any) -> Any:
                at = replace(context, iteration=t.astype(jnp.uint32))
                return own.apply(carry[0], carry[1], jax.random.fold_in(key, t), at)[:2]

            params, _ = jax.lax.fori_loop(0, 4, iterate, (params, own.init(params)))
            return jnp.concatenate([params["w"].reshape(devices, -1), params["b"]], axis=1)

        compiled = jax.jit(jax.vmap(one))

        def run(*, seeds: tuple[int, ...]) -> Any:
            return np.asarray(compiled(jnp.stack([jax.random.key(seed) for seed in seeds])))

        return run

    return prepare
