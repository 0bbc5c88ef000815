"""A comparison that is stopped inside a method goes on from its last checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.scenario import Scenario
from joulemesh.study import contest
from joulemesh.training.jax import engine as learners
from joulemesh.training.jax.engine import Engine

METHODS = ["fixed:2", "pens:phase1=2"]


class StopError(Exception):
    """Stands for whatever kills a comparison."""


@pytest.fixture
def tiny() -> Scenario:
    return Scenario.preset("adaptive").override(
        {
            "devices.count": 4,
            "plan.iterations": 8,
            "training.model": "logistic",
            "training.chunk_iterations": 2,
        }
    )


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """A checkpoint after every chunk; which iterations engines have begun a chunk at."""
    begun: list[tuple[str, int]] = []

    class Watched(Engine):
        def advance(self, state: Any) -> Any:
            begun.append((self.key.kind, int(state.iteration)))
            return super().advance(state)

    monkeypatch.setattr(contest, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(contest, "_SHARE", 0)
    monkeypatch.setattr(learners, "Engine", Watched)
    return begun


def compared(scenario: Scenario, cache: Path, **options: Any) -> Any:
    return joulemesh.compare(scenario, METHODS, "iterations", 2, cache=cache, **options)


@pytest.mark.slow
def test_killed_inside_a_method_it_goes_on_to_the_same_bits(
    tiny: Scenario, tmp_path: Path, often: list[tuple[str, int]]
) -> None:
    whole = compared(tiny, tmp_path / "whole")
    assert [start for _, start in often] == [0, 2, 4, 6] * 2

    def stop(method: str, at: int) -> Any:
        def told(step: Any) -> None:
            if (step.method, step.completed) == (method, at):
                raise StopError

        return told

    cache = tmp_path / "cache"
    for method, at in (("fixed:2", 4), ("pens:phase1=2", 2), ("pens:phase1=2", 6)):
        with pytest.raises(StopError):
            compared(tiny, cache, on_progress=stop(method, at))
        assert len(list((cache / "unfinished").iterdir())) == 1
    often.clear()
    again = compared(tiny, cache)
    assert [start for _, start in often] == [6]
    assert again.to_csv() == whole.to_csv()
    assert again.table_csv() == whole.table_csv()
    assert list((cache / "unfinished").iterdir()) == []


@pytest.mark.parametrize("at", [2, 6])
def test_an_interrupt_keeps_the_chunk_that_is_under_way(
    tiny: Scenario,
    tmp_path: Path,
    often: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    at: int,
) -> None:
    class Interrupted(Engine):
        def advance(self, state: Any) -> Any:
            if int(state.iteration) == at:
                os.kill(os.getpid(), signal.SIGINT)
            return super().advance(state)

    def once() -> Any:
        return joulemesh.compare(tiny, "fixed:2", "iterations", 1, cache=tmp_path)

    monkeypatch.setattr(contest, "SAVE_EVERY_S", 1e9)
    with monkeypatch.context() as patch:
        patch.setattr(learners, "Engine", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            once()
    often.clear()
    found = once()
    # In the last chunk the run itself is kept.
    assert [start for _, start in often] == ([4, 6] if at == 2 else [])
    assert found.computed == (1 if at == 2 else 0)


def test_a_damaged_checkpoint_only_costs_its_time(
    tiny: Scenario, tmp_path: Path, often: list[tuple[str, int]]
) -> None:
    def stop(step: Any) -> None:
        if step.completed == 4:
            raise StopError

    with pytest.raises(StopError):
        compared(tiny, tmp_path, on_progress=stop)
    (path,) = (tmp_path / "unfinished").rglob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    often.clear()
    found = compared(tiny, tmp_path)
    assert often[0][1] == 0
    assert np.isfinite(found.entries[0].final["test_accuracy"]).all()
