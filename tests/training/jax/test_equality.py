"""The engine equals the slow reference, whatever the model, the mixing and the partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.aggregation.gossip import metropolis_weights
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, from_arrays, partition
from joulemesh.models import build
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.exchange import Exchange
from joulemesh.training.jax import mixing
from joulemesh.training.jax.engine import Engine
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Options, Schedule

DEVICES = 5
RING = np.array([[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]])


def _data(shape: tuple[int, ...], count: int = 60) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count + 20, *shape)).astype(np.float32)
    y = np.arange(count + 20) % 3
    return from_arrays(x[:count], y[:count], x[count:], y[count:])


def _rounds(iterations: int, devices: int = DEVICES) -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(1, 5, (iterations, devices))


MEAN = np.full((DEVICES, DEVICES), 1 / DEVICES)
MIXINGS: dict[str, tuple[Literal["step", "epoch"], dict[str, Any]]] = {
    "weighed": (
        "step",
        {
            "mixing": lambda t: MEAN if t < 2 else np.roll(np.eye(DEVICES), 1, axis=1),
            "exact": np.array([True, True, False]),
        },
    ),
    "changing": ("epoch", {"mixing": lambda t: np.roll(np.eye(DEVICES), t + 1, axis=1)}),
    "sparse": (
        "epoch",
        {"mixing": sparse.csr_array(metropolis_weights(RING, DEVICES)), "mixing_rounds": 3},
    ),
    "sparse, exact on the way": (
        "step",
        {
            "mixing": sparse.csr_array(metropolis_weights(RING, DEVICES)),
            "mixing_rounds": 2,
            "exact": np.array([False, True, False]),
        },
    ),
}


def _assert_equal(engine: Engine, atol: float, iterations: int | None = None) -> None:
    slow = run_reference(engine, iterations)
    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for number, devices in enumerate(slow):
        for device, params in enumerate(devices):
            mine = jax.tree.map(lambda leaf, s=number, d=device: leaf[s, d], fast)
            for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("mixing", MIXINGS)
def test_more_mixings_in_float64(mixing: str, unevaluated: Callable[[Engine], Engine]) -> None:
    """Those that test_engine.py does not try: exact means on the way, functions of t, epochs."""
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind="quantity", alpha=1.0)
    local_round, how = MIXINGS[mixing]
    options = Options(
        batch_size=8,
        precision="float64",
        local_round=local_round,
        chunk_iterations=2,
        eval_every=1,
        weights="samples",
    )
    model = build("mlp", data.shape, 3, (6,))
    engine = Engine(model, data, [held], Schedule(_rounds(3), **how), options)
    _assert_equal(unevaluated(engine), 1e-10)


@pytest.mark.parametrize(
    ("machine", "seed"),
    [("one processor", seed) for seed in range(6)]
    + [("two processors", 1), ("two processors", 4), ("rows together", 1), ("rows together", 2)],
    indirect=["machine"],
)
def test_exact_means_among_sparse_mixings(
    machine: Machine, seed: int, unevaluated: Callable[[Engine], Engine]
) -> None:
    """Any pattern of neighbours and exact means, with departures and skipped exchanges."""
    rng = np.random.default_rng(seed)
    exact, exchanged = rng.random((2, 5)) < 0.5
    active = np.ones((5, DEVICES), bool)
    active[int(rng.integers(1, 5)) :, int(rng.integers(DEVICES))] = False
    schedule = Schedule(
        rng.integers(0, 3, (5, DEVICES)) * active,
        active,
        exchanged,
        mixing=sparse.csr_array(metropolis_weights(RING, DEVICES)),
        mixing_rounds=int(rng.integers(1, 4)),
        exact=exact,
    )
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind="quantity", alpha=1.0)
    weights: Literal["samples", "uniform"] = "uniform" if seed % 2 else "samples"
    options = Options(batch_size=8, precision="float64", chunk_iterations=2, weights=weights)
    model = build("mlp", data.shape, 3, (6,))
    engine = Engine(model, data, [held], schedule, options, machine=machine)
    _assert_equal(unevaluated(engine), 1e-10)


def _patterned(exact: NDArray[np.bool_]) -> Engine:
    data = _data((4,))
    held = partition(data.y_train, DEVICES, kind="iid")
    schedule = Schedule(
        _rounds(4), mixing=sparse.csr_array(metropolis_weights(RING, DEVICES)), exact=exact
    )
    model = build("mlp", data.shape, 3, (6,))
    return Engine(model, data, [held], schedule, Options(batch_size=8))


def test_patterns_of_exact_means_share_a_program() -> None:
    """Which iterations are exact is data; two branches are compiled only where both are needed."""
    first = _patterned(np.array([False, True, False, True]))
    other = _patterned(np.array([True, True, False, False]))
    assert first.key == other.key
    assert first.programs is other.programs
    assert first.key.exchange is mixing.sparse_or_mean
    assert _patterned(np.zeros(4, bool)).key.exchange is mixing.sparse
    assert _patterned(np.ones(4, bool)).key.exchange is mixing.mean


def _corrected() -> Exchange:
    """Every exchange adds one to what the next iteration's steps subtract in all."""

    def apply(params: Any, state: Any, key: Any, context: Any) -> Any:
        return params, jax.tree.map(lambda leaf: leaf + 1, state), ()

    return Exchange(
        lambda params: jax.tree.map(jnp.zeros_like, params), apply, correction=lambda state: state
    )


def test_a_correction_is_spread_over_the_steps_of_an_iteration(
    machine: Machine, unevaluated: Callable[[Engine], Engine]
) -> None:
    """0, 1 and 2 in three iterations, whatever the steps; nothing where a device does not train."""
    data = _data((4,))
    seeds = (0, 1)
    held = [partition(data.y_train, DEVICES, kind="quantity", alpha=1.0, seed=s) for s in seeds]
    rounds = np.array([[1, 2, 7, 3, 1], [4, 1, 2, 0, 3], [3, 5, 1, 2, 0]])
    options = Options(
        batch_size=8, learning_rate=1e-30, precision="float64", chunk_iterations=2, eval_every=2
    )
    model = build("mlp", data.shape, 3, (6,))
    engine = Engine(
        model, data, held, Schedule(rounds), options, seeds, own_exchange=_corrected(),
        machine=machine,
    )  # fmt: skip
    *_, (state, _) = unevaluated(engine).train()
    found = engine.params(state)
    taken = np.where(rounds[1] > 0, 1, 0) + np.where(rounds[2] > 0, 2, 0)
    for number, seed in enumerate(seeds):
        start = engine.initial(seed)
        for name, leaf in start.items():
            for device in range(DEVICES):
                wanted = leaf - taken[device]
                np.testing.assert_allclose(found[name][number, device], wanted, atol=1e-12)


def _engine(
    seeds: tuple[int, ...], rounds: NDArray[np.int64] | None = None, **options: Any
) -> Engine:
    data = _data((4,))
    parts = [partition(data.y_train, DEVICES, kind="dirichlet", seed=s) for s in seeds]
    schedule = Schedule(_rounds(6) if rounds is None else rounds)
    chosen = Options(batch_size=8, chunk_iterations=2, eval_every=2, **options)
    return Engine(build("mlp", data.shape, 3, (6,)), data, parts, schedule, chosen, seeds)


def test_a_restored_checkpoint_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    engine = _engine((0, 1))
    kept = Checkpoints(tmp_path / "checkpoint")
    states = engine.train()
    state, _ = next(states)
    kept.save(engine, state)
    *_, (final, _) = states
    again, _ = Checkpoints(tmp_path / "checkpoint").restore(engine, 2)
    assert int(again.iteration) == 2
    *_, (resumed, _) = engine.train(again)
    for a, b in zip(
        jax.tree.leaves(engine.params(final)), jax.tree.leaves(engine.params(resumed)), strict=True
    ):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", ["bit", "cut", "empty", "other", "header"])
def test_a_damaged_checkpoint_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    engine = _engine((0,))
    kept = Checkpoints(tmp_path)
    for state, _ in engine.train():
        kept.save(engine, state)
    assert kept.saved() == [2, 4, 6]
    path = kept.path(6)
    content = bytearray(path.read_bytes())
    if kind == "bit":
        content[-3] ^= 4
    elif kind == "cut":
        del content[-8:]
    elif kind == "empty":
        content.clear()
    elif kind == "header":
        content[:8] = (2**40).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(ScenarioError, match=r"6\.safetensors cannot be used"):
        kept.restore(_engine((0, 1)) if kind == "other" else engine, 6)
    assert int(kept.restore(engine, 4)[0].iteration) == 4
