"""Training from a shared start gives what training of kept devices gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import load, partition
from joulemesh.models import build
from joulemesh.training import Options, Schedule
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.layout import Strategy, working_bytes
from joulemesh.training.jax.platform import this_machine
from joulemesh.training.reference import run_reference

DEVICES, SEEDS = 5, (3, 8)


def engine(
    rounds: NDArray[np.int64],
    *,
    machine: Machine | None = None,
    l2: float = 0.0,
    schedule: Schedule | None = None,
    **options: Any,
) -> Engine:
    digits = load("digits")
    held = [partition(digits.y_train, DEVICES, kind="dirichlet", alpha=0.5, seed=s) for s in SEEDS]
    model = build("mlp", digits.shape, 10, (7,), l2=l2)
    settings: dict[str, Any] = {
        "precision": "float64",
        "batch_size": 6,
        "chunk_iterations": 3,
        "eval_every": 2,
    }
    settings |= {"weights": "samples", **options}
    schedule = Schedule(rounds) if schedule is None else schedule
    return Engine(model, digits, held, schedule, Options(**settings), SEEDS, machine=machine)


def uneven(rows: int = 4) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, 5, (rows, DEVICES))


@pytest.fixture
def accelerator() -> Machine:
    """The rules of an accelerator, on the CPU."""
    return replace(this_machine(), loop=False, many_rows=1)


@pytest.mark.slow
@pytest.mark.parametrize(("start", "l2"), [("shared", 0.0), ("factored", 0.02)])
def test_shared_start_on_an_accelerator_equals_kept_devices(
    accelerator: Machine, start: Literal["shared", "factored"], l2: float
) -> None:
    kept = engine(uneven(), machine=replace(accelerator, start="own"), l2=l2)
    two = 2 * 4 * kept.model.parameters * len(SEEDS)
    made = engine(uneven(), machine=replace(accelerator, start=start, block_bytes=two), l2=l2)
    assert made.key.strategy.shared
    assert 0 < made.key.strategy.block < DEVICES  # several blocks, the last not full
    (*_, (last, _)), (*_, (expected, _)) = made.train(), kept.train()
    mine, theirs = made.params(last), kept.params(expected)
    for name, leaf in theirs.items():
        np.testing.assert_allclose(mine[name], leaf, rtol=0, atol=1e-10)
    curves = ("train_loss", "test_loss", "test_accuracy", "drift", "consensus")
    for field in (*curves, "device_accuracy_min"):
        curve, other = getattr(made.run(), field), getattr(kept.run(), field)
        np.testing.assert_allclose(curve, other, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_kept_devices_in_blocks_equal_all_together(accelerator: Machine, optimizer: str) -> None:
    mixing = np.random.default_rng(1).random((1, DEVICES, DEVICES))
    given = Schedule(uneven(), mixing=mixing / mixing.sum(axis=2, keepdims=True))
    whole = engine(uneven(), machine=accelerator, schedule=given, optimizer=optimizer)
    working = working_bytes(whole.model, (8, 8, 1), whole.options.batch_size)
    room = 2.5 * 2 * working * len(SEEDS)  # float64
    small = replace(accelerator, working_share=room / accelerator.memory_bytes)
    made = engine(uneven(), machine=small, schedule=given, optimizer=optimizer)
    assert whole.key.strategy.block == DEVICES
    assert made.key.strategy.block == 2  # three blocks, the last of one device
    (*_, (last, _)), (*_, (expected, _)) = made.train(), whole.train()
    mine, theirs = made.params(last), whole.params(expected)
    for name, leaf in theirs.items():
        np.testing.assert_allclose(mine[name], leaf, rtol=0, atol=1e-10)


def test_shared_start_one_by_one_equals_reference() -> None:
    made = engine(uneven(), l2=0.02)
    assert made.key.strategy == Strategy(shared=True)
    assert made.held.devices == 1
    *_, (last, _) = made.train()
    mine = made.params(last)
    for seed, devices in enumerate(run_reference(made)):
        for device, params in enumerate(devices):
            for name, leaf in params.items():
                np.testing.assert_allclose(mine[name][seed, device], leaf, rtol=0, atol=1e-10)


def test_what_cannot_share_a_start_keeps_its_devices(accelerator: Machine) -> None:
    even = np.full((4, DEVICES), 3)
    long_end = np.array([[1] * DEVICES] * 3 + [[9] * DEVICES])
    assert engine(even, machine=accelerator).key.strategy.span == 3
    assert engine(even, machine=accelerator, batch_size=200).key.strategy == Strategy(
        stride=3, block=DEVICES
    )  # too many samples
    assert not engine(long_end, machine=accelerator).key.strategy.shared
    assert not engine(even, machine=accelerator, optimizer="adam").key.strategy.shared
    pause = Schedule(even, exchanged=np.array([True, False, True, True]))
    gone = np.ones((4, DEVICES), bool)
    gone[2:, 1] = False
    left = Schedule(even * gone, gone)
    mixed = Schedule(even, mixing=np.full((1, DEVICES, DEVICES), 1 / DEVICES))
    for schedule in (pause, left, mixed):
        assert not engine(even, machine=accelerator, schedule=schedule).key.strategy.shared
        with pytest.raises(ScenarioError, match="exact mean of all devices"):
            engine(even, machine=replace(accelerator, start="shared"), schedule=schedule)


def test_devices_that_do_not_fit_are_refused_or_not_kept(accelerator: Machine) -> None:
    even = np.array([[1] * DEVICES] * 3 + [[9] * DEVICES])  # not to be factored
    made = engine(even, machine=accelerator)
    needed = 2 * 8 * made.model.parameters * made.key.slots * len(SEEDS)
    small = replace(accelerator, memory_bytes=needed - 1)
    assert engine(even, machine=small).key.strategy.shared
    mixed = Schedule(even, mixing=np.full((1, DEVICES, DEVICES), 1 / DEVICES))
    with pytest.raises(ScenarioError, match=r"5 devices under 2 seeds takes 0\.0 GiB"):
        engine(even, machine=small, schedule=mixed)
    enough = replace(accelerator, memory_bytes=needed)
    assert not engine(even, machine=enough, schedule=mixed).key.strategy.shared
