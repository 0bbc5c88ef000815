"""Programs of models that were not used for long are let go of."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.data import Dataset, partition
from joulemesh.models.core import REMEMBERED, from_functions
from joulemesh.training import Engine, Schedule
from joulemesh.training.jax import programs
from joulemesh.training.jax.inputs import ProgramKey
from tests.compiled import compiled_programs

ROOT = Path(__file__).parents[3]


def key_of(toy: Dataset) -> ProgramKey:
    def init(key: jax.Array) -> dict[str, jax.Array]:
        return {"w": jnp.zeros((5, 3))}

    model = from_functions(init, lambda params, x: x @ params["w"])
    held = [partition(toy.y_train, 3, kind="iid")]
    return Engine(model, toy, held, Schedule(np.ones((2, 3), int))).key


def test_what_is_evicted_is_freed_and_what_is_used_again_is_kept(toy: Dataset) -> None:
    used, idle = key_of(toy), key_of(toy)
    kept = programs.programs(used)
    gone = weakref.ref(idle.model.init)
    del idle
    for _ in range(REMEMBERED):
        key_of(toy)
        assert programs.programs(used) is kept
    gc.collect()
    assert gone() is None


def test_traces_are_dropped_after_many_keys(toy: Dataset) -> None:
    key, jitted = key_of(toy), jax.jit(lambda x: x + 1)
    jitted(1.0)
    for chunk in range(1000, 1000 + programs._TRACED_KEYS):
        programs.programs(replace(key, chunk=chunk))
    assert compiled_programs(jitted) == 0


@pytest.mark.slow
def test_many_models_in_one_process_take_little_memory() -> None:
    # Each model took some 30 MB more while all were kept. What a process takes before the first
    # depends on the machine (libraries, threads), so it is the growth that is bounded.
    made = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "40"],
        cwd=ROOT,
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "1"},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr  # below the limit for 600 models
    told = re.findall(r"^(\d+) models, (\d+) MB", made.stdout, re.MULTILINE)
    (first, before), (last, after) = [tuple(map(int, row)) for row in (told[0], told[-1])]
    assert (first, last) == (20, 40)
    assert first > REMEMBERED
    assert after - before < 10 * (last - first), made.stdout
