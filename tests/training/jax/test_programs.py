"""Programs over several CPU devices run strictly one after another (XLA deadlocks otherwise)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import monitoring

from joulemesh.data import Dataset, partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax import engine as engine_module
from joulemesh.training.jax.programs import _one_at_a_time


class _Leaf:
    """An array that takes a while, and says when two are under way together."""

    under_way = 0
    most = 0

    def __init__(self) -> None:
        _Leaf.under_way += 1
        _Leaf.most = max(_Leaf.most, _Leaf.under_way)
        self.ready = False

    def block_until_ready(self) -> None:
        if not self.ready:
            time.sleep(0.002)
            self.ready = True
            _Leaf.under_way -= 1


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


def test_a_brief_run_needs_one_program_less_and_gives_the_same_bits(
    toy: Dataset, compiled: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, model = [partition(toy.y_train, 3, kind="iid")], build("logistic", toy.shape, toy.classes)
    options = Options(batch_size=14, chunk_iterations=5, eval_every=2, eval_share=0.01)
    found = []
    for brief in (True, False):
        engine = Engine(model, toy, held, Schedule(np.ones((12, 3), int)), options)
        assert engine.brief
        engine.brief = brief
        compiled.clear()
        *_, (state, _) = engine.train()
        found.append((engine.params(state), len(compiled)))
    (one, _), (other, more) = found
    assert more == 1  # which a brief run goes without
    jax.tree.map(np.testing.assert_array_equal, one, other)
    # With more parameters than these, measuring drift takes longer than compiling.
    monkeypatch.setattr(engine_module, "_QUICKLY_MEASURED", 100.0)
    assert not Engine(model, toy, held, Schedule(np.ones((12, 3), int)), options).brief


def test_no_two_are_in_flight_whatever_thread_calls() -> None:
    program = _one_at_a_time(lambda: {"a": _Leaf()})

    def many() -> None:
        for _ in range(20):
            program()

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (_Leaf.most, _Leaf.under_way) == (1, 0)


def test_every_program_of_several_cpu_devices_waits(toy: Dataset) -> None:
    if jax.local_device_count() < 2:
        pytest.skip("JAX was started with one processor")
    parts = [partition(toy.y_train, 4, kind="iid")]
    engine = Engine(
        build("logistic", toy.shape, 3), toy, parts, Schedule(np.ones((2, 4), int)), Options()
    )
    assert engine.key.mesh.size > 1
    with_collectives = engine.programs._asdict()
    del with_collectives["memories"]
    assert all(hasattr(program, "jitted") for program in with_collectives.values())


def test_a_chunk_of_many_evaluations_does_not_hang(tmp_path: Path) -> None:
    # Before programs ran one at a time, 200 of them queued in a chunk hung in most attempts.
    command = [
        sys.executable,
        "-m",
        "joulemesh",
        "run",
        "--seeds",
        "3",
        "--out",
        str(tmp_path / "r"),
    ]
    for change in ("eval_every=1", "chunk_iterations=100"):
        command += ["--set", f"training.{change}"]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
