"""Training from a shared start gives what training of kept devices gives."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh.data import load, partition
from joulemesh.errors import ScenarioError
from joulemesh.models import build
from joulemesh.training import Options, Schedule, platform, way
from joulemesh.training.engine import Engine
from joulemesh.training.reference import run_reference

DEVICES, SEEDS = 5, (3, 8)


def engine(rounds, *, start="auto", l2=0.0, schedule=None, **options):
    digits = load("digits")
    held = [partition(digits.y_train, DEVICES, kind="dirichlet", alpha=0.5, seed=s) for s in SEEDS]
    model = build("mlp", digits.shape, 10, (7,), l2=l2)
    settings = {"precision": "float64", "batch_size": 6, "chunk_iterations": 3, "eval_every": 2}
    settings |= {"weights": "samples", **options}
    schedule = Schedule(rounds) if schedule is None else schedule
    return Engine(model, digits, held, schedule, Options(**settings), SEEDS, start=start)


def uneven(rows=4):
    return np.random.default_rng(0).integers(0, 5, (rows, DEVICES))


@pytest.fixture
def accelerator(monkeypatch):
    """The rules of an accelerator, on the CPU."""
    monkeypatch.setattr(platform, "loops_over_rows", lambda: False)
    monkeypatch.setattr(way, "_MANY_ROWS", 1)


@pytest.mark.parametrize(("start", "l2"), [("shared", 0.0), ("factored", 0.02)])
def test_shared_start_on_an_accelerator_equals_kept_devices(accelerator, monkeypatch, start, l2):
    kept = engine(uneven(), start="own", l2=l2)
    monkeypatch.setattr(way, "_BLOCK_BYTES", 2 * 4 * kept.model.parameters * len(SEEDS))
    made = engine(uneven(), start=start, l2=l2)
    assert made.spec.way.shared
    assert 0 < made.spec.way.block < DEVICES  # several blocks, the last not full
    (*_, (last, _)), (*_, (expected, _)) = made.train(), kept.train()
    mine, theirs = made.params(last), kept.params(expected)
    for name, leaf in theirs.items():
        np.testing.assert_allclose(mine[name], leaf, rtol=0, atol=1e-10)
    curves = ("train_loss", "test_loss", "test_accuracy", "drift", "consensus")
    for field in (*curves, "device_accuracy_min"):
        curve, other = getattr(made.run(), field), getattr(kept.run(), field)
        np.testing.assert_allclose(curve, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_kept_devices_in_blocks_equal_all_together(accelerator, monkeypatch, optimizer):
    mixing = np.random.default_rng(1).random((1, DEVICES, DEVICES))
    given = Schedule(uneven(), mixing=mixing / mixing.sum(axis=2, keepdims=True))
    whole = engine(uneven(), schedule=given, optimizer=optimizer)
    working = way.working_bytes(whole.model, (8, 8, 1), whole.options.batch_size)
    room = 2.5 * 2 * working * len(SEEDS)  # float64
    monkeypatch.setattr(way, "_WORKING_SHARE", room / platform.memory_bytes())
    made = engine(uneven(), schedule=given, optimizer=optimizer)
    assert whole.spec.way.block == DEVICES
    assert made.spec.way.block == 2  # three blocks, the last of one device
    (*_, (last, _)), (*_, (expected, _)) = made.train(), whole.train()
    mine, theirs = made.params(last), whole.params(expected)
    for name, leaf in theirs.items():
        np.testing.assert_allclose(mine[name], leaf, rtol=0, atol=1e-10)


def test_shared_start_one_by_one_equals_reference():
    made = engine(uneven(), l2=0.02)
    assert made.spec.way == way.Way(shared=True)
    assert made.held.devices == 1
    *_, (last, _) = made.train()
    mine = made.params(last)
    for seed, devices in enumerate(run_reference(made)):
        for device, params in enumerate(devices):
            for name, leaf in params.items():
                np.testing.assert_allclose(mine[name][seed, device], leaf, rtol=0, atol=1e-10)


def test_what_cannot_share_a_start_keeps_its_devices(accelerator):
    even = np.full((4, DEVICES), 3)
    assert engine(even).spec.way.span == 3
    assert engine(even, batch_size=200).spec.way == way.Way(
        stride=3, block=DEVICES
    )  # too many samples
    assert not engine(np.array([[1] * DEVICES] * 3 + [[9] * DEVICES])).spec.way.shared
    assert not engine(even, optimizer="adam").spec.way.shared
    pause = Schedule(even, exchanged=np.array([True, False, True, True]))
    gone = np.ones((4, DEVICES), bool)
    gone[2:, 1] = False
    left = Schedule(even * gone, gone)
    mixed = Schedule(even, mixing=np.full((1, DEVICES, DEVICES), 1 / DEVICES))
    for schedule in (pause, left, mixed):
        assert not engine(even, schedule=schedule).spec.way.shared
        with pytest.raises(ScenarioError, match="exact mean of all devices"):
            engine(even, schedule=schedule, start="shared")


def test_devices_that_do_not_fit_are_refused_or_not_kept(accelerator, monkeypatch):
    even = np.array([[1] * DEVICES] * 3 + [[9] * DEVICES])  # not to be factored
    made = engine(even)
    needed = 2 * 8 * made.model.parameters * made.spec.places * len(SEEDS)
    monkeypatch.setattr(platform, "memory_bytes", lambda: needed - 1)
    assert engine(even).spec.way.shared
    mixed = Schedule(even, mixing=np.full((1, DEVICES, DEVICES), 1 / DEVICES))
    with pytest.raises(ScenarioError, match=r"5 devices under 2 seeds takes 0\.0 GiB"):
        engine(even, schedule=mixed)
    monkeypatch.setattr(platform, "memory_bytes", lambda: needed)
    assert not engine(even, schedule=mixed).spec.way.shared
