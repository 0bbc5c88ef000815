"""Programs are compiled side by side before a run begins, and none afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import monitoring

from joulemesh.base import machine
from joulemesh.data import Dataset, partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax import ahead
from joulemesh.training.jax import engine as engine_module


@pytest.fixture
def compiled() -> Iterator[list[float]]:
    """Seconds of every compilation since."""
    heard: list[float] = []

    def hear(event: str, duration_secs: float, **_: Any) -> None:
        if event.endswith("backend_compile_duration"):
            heard.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield heard
    monitoring.unregister_event_duration_listener(hear)


def engine_of(toy: Dataset, batch: int, mixing: Any = None, **changes: Any) -> Engine:
    rounds = np.ones((12, 3), int)
    schedule = Schedule(rounds) if mixing is None else Schedule(rounds, mixing=mixing)
    options = {"batch_size": batch, "chunk_iterations": 5, "eval_every": 12, "eval_share": 0.01}
    held = [partition(toy.y_train, 3, kind="iid")]
    model = build("logistic", toy.shape, toy.classes)
    return Engine(model, toy, held, schedule, Options(**{**options, **changes}))


@pytest.mark.parametrize(
    ("batch", "mixing"),
    [(11, None), pytest.param(12, np.full((1, 3, 3), 1 / 3), marks=pytest.mark.slow)],
    ids=["shared", "own"],
)
def test_nothing_is_compiled_once_a_run_has_begun(
    toy: Dataset,
    batch: int,
    mixing: Any,
    compiled: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "cpus", lambda: 2)
    engine = engine_of(toy, batch, mixing)
    state = engine.begin()
    engine.compile()
    assert len(compiled) >= 3
    compiled.clear()
    while int(state.iteration) < 12:
        state, _ = engine.advance(state)
    assert compiled == []


def test_a_single_core_compiles_as_it_comes_to_a_call(
    toy: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpus", lambda: 1)
    monkeypatch.setattr(ahead, "_rehearse", lambda *_: pytest.fail("traced for nothing"))
    engine_of(toy, 13).compile()


def test_a_brief_run_needs_one_program_less_and_gives_the_same_bits(
    toy: Dataset, compiled: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "cpus", lambda: 1)
    found = []
    for brief in (True, False):
        engine = engine_of(toy, 14, eval_every=2)
        assert engine.brief
        engine.brief = brief
        compiled.clear()
        *_, (state, _) = engine.train()
        found.append((engine.params(state), len(compiled)))
    (one, _), (other, more) = found
    assert more == 1  # which a brief run goes without
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_many_parameters_are_not_measured_to_save_a_program(
    toy: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine_of(toy, 14, eval_every=2).brief
    monkeypatch.setattr(
        engine_module, "_QUICKLY_MEASURED", 100.0
    )  # fewer than the toy's devices have
    assert not engine_of(toy, 14, eval_every=2).brief
