"""Joulemesh's engine in a child process: `python -m benchmarks.ours COMMAND WORK`.

Commands: ``serve`` blocks to a parent that times contenders in turn; ``first`` step from a fresh
process; ``run`` from files to the last evaluation; ``speed`` of a few blocks, with memory;
``limits`` of the machine; ``backend``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.common import own_peak_mib
from benchmarks.serve import serve
from benchmarks.work import Work, raw
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, partition
from joulemesh.models.core import build
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.inputs import State
from joulemesh.training.jax.platform import configure
from joulemesh.training.schedule import Options, Schedule

# When the parent started this process: imports are part of what is timed.
BEGIN = float(os.environ.get("BENCH_BEGIN", "nan"))
CYCLE = 50  # blocks before training starts anew
MOST_ROUNDS = 10


def dataset_of(work: Work) -> Dataset:
    arrays, mean, std = raw(work)
    return Dataset(work.dataset, **arrays, classes=10, mean=mean, std=std)


def engine_of(work: Work, dataset: Dataset, rounds: Any, options: Options) -> Engine:
    model = build(work.model, dataset.shape, dataset.classes, work.hidden)
    if work.samples:
        sizes = np.full(work.devices, work.samples)
        held = partition(dataset.y_train, work.devices, kind="resample", sizes=sizes)
    else:
        held = partition(dataset.y_train, work.devices, kind="iid")
    return Engine(model, dataset, [held], Schedule(rounds), options)


def options_of(work: Work, **changes: Any) -> Options:
    settings = {"chunk_iterations": work.iterations, "precision": work.precision, **changes}
    return Options(batch_size=work.batch, learning_rate=work.learning_rate, **settings)


def unequal(work: Work, rows: int) -> Any:
    """Rounds 1..10 drawn per device (and row), the draws whose mean is the work's rounds."""
    rng = np.random.default_rng(0)
    total = work.devices * work.rounds
    drawn: list[Any] = []
    while len(drawn) < rows:
        tries = rng.integers(1, MOST_ROUNDS + 1, (4096, work.devices))
        drawn += list(tries[tries.sum(axis=1) == total])
    return np.stack(drawn[:rows])


def rounds_of(work: Work, variant: str) -> Any:
    """Rounds of CYCLE blocks and one iteration more, so that only that one is the last."""
    shape = (CYCLE * work.iterations + 1, work.devices)
    if variant == "unequal":
        return np.broadcast_to(unequal(work, 1), shape)
    if variant == "unequal-each":
        return unequal(work, shape[0])
    return np.full(shape, work.rounds)


class Blocks:
    """One engine that runs block after block; without evaluation unless the variant has it."""

    def __init__(self, work: Work, dataset: Dataset, variant: str) -> None:
        self._work = work
        rounds = rounds_of(work, variant)
        every = Options().eval_every if variant == "evaluated" else len(rounds)
        self.engine = engine_of(work, dataset, rounds, options_of(work, eval_every=every))
        self._state: State | None = None
        self._done = 0
        self.run()  # compiles

    def run(self) -> dict[str, Any]:
        if self._state is None or self._done == CYCLE:
            self._state, self._done = self.engine.begin(), 0
        jax.block_until_ready(self._state)
        start = time.perf_counter()
        self._state, _ = self.engine.advance(self._state)
        jax.block_until_ready(self._state)
        seconds = time.perf_counter() - start
        self._done += 1
        return {"seconds": seconds, "device_steps": self._work.device_steps}


def serve_blocks(work: Work) -> None:
    dataset, made = dataset_of(work), {}

    def block(variant: str) -> dict[str, Any]:
        if variant not in made:
            made[variant] = Blocks(work, dataset, variant)
        return made[variant].run()

    block("")
    serve(block, "joulemesh", "jax", "jaxlib", "optax", "numpy")


def first(work: Work) -> dict[str, float]:
    """Seconds from a fresh process to the end of the first step of every device."""
    imported = time.time()
    one = np.full((1, work.devices), 1)
    dataset = dataset_of(work)
    loaded = time.perf_counter()
    engine = engine_of(work, dataset, one, options_of(work))
    state = engine.begin()
    ready = time.perf_counter()
    engine.advance(state)
    stepped = time.perf_counter()
    state = jax.block_until_ready(engine.begin())
    again = time.perf_counter()
    engine.advance(state)
    return {
        "import_s": imported - BEGIN,
        "set_up_s": ready - loaded,
        "first_step_s": stepped - ready,
        "later_step_s": time.perf_counter() - again,
    }


def whole_run(work: Work) -> dict[str, Any]:
    """A run as a user's: data from its files, training, evaluations."""
    dataset = _from_files(work, os.environ.get("BENCH_FROM_FILES"))
    rounds = np.full((work.iterations, work.devices), work.rounds)
    engine = engine_of(work, dataset, rounds, options_of(work))
    start = time.perf_counter()
    trace = engine.run()
    return {
        "seconds": time.perf_counter() - start,
        "accuracy": float(trace.test_accuracy[-1, 0]),
        "parameters": engine.model.parameters,
        "data_mib": (dataset.x_train.nbytes + dataset.x_test.nbytes) / 2**20,
        **_device_memory(),
    }


def _from_files(work: Work, cache: str | None) -> Dataset:
    """Decode the published files anew into an empty cache; the prepared arrays without one."""
    if cache is None:
        return dataset_of(work)
    try:
        return load(work.dataset, cache_dir=cache, download=False, progress=False)
    except ScenarioError:  # the files lie in the user's own cache
        return load(work.dataset, download=False, progress=False)


def speed(work: Work, repeats: int = 5, enough_s: float = 30.0) -> dict[str, Any]:
    blocks = Blocks(work, dataset_of(work), "")
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) < enough_s:
        seconds.append(blocks.run()["seconds"])
    return {
        "devices": work.devices,
        "precision": work.precision,
        "parameters": blocks.engine.model.parameters,
        "device_steps": work.device_steps,
        "seconds": statistics.median(seconds),
        "host_peak_mib": own_peak_mib(),
        **_device_memory(),
    }


def _device_memory() -> dict[str, float]:
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" not in stats:
        return {}
    return {"device_peak_mib": stats["peak_bytes_in_use"] / 2**20}


def limits() -> dict[str, float]:
    """What this machine does at best: large products, and copies that no cache holds."""
    on_cpu = jax.default_backend() == "cpu"
    side, words = (2048, 2**27) if on_cpu else (8192, 2**30)
    found = {}
    for name in ("float32", "bfloat16"):
        if on_cpu and name == "bfloat16":
            continue
        a = jax.random.normal(jax.random.key(0), (side, side), jnp.dtype(name))
        product = jax.jit(jnp.matmul)
        found[f"{name}_gflops"] = 2 * side**3 / _least_s(product, a, a) / 1e9
    if on_cpu:
        one, two = (np.ones((side, side), np.float32) for _ in range(2))
        ours = 2 * side**3 / _least_s(np.matmul, one, two) / 1e9
        found["float32_gflops"] = max(found["float32_gflops"], ours)
    found["copy_gb_s"] = 2 * 4 * words / _pass_s(words) / 1e9
    return found


def _pass_s(words: int, repeats: int = 10) -> float:
    """Least seconds to read and write that many floats, in place: fresh pages cost more."""
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    values = jax.block_until_ready(step(jnp.zeros(words, jnp.float32)))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        values = jax.block_until_ready(step(values))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _least_s(function: Any, *arguments: Any, repeats: int = 10) -> float:
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def backend() -> dict[str, Any]:
    device = jax.local_devices()[0]
    return {"backend": jax.default_backend(), "kind": device.device_kind}


def main() -> None:
    command = sys.argv[1]
    work = Work.parse(sys.argv[2]) if len(sys.argv) > 2 else None
    # One processor that XLA splits is the fair limit; training shares devices out instead.
    shards = 1 if command == "limits" else None
    configure(cpu_shards=shards, cache_dir=os.environ.get("BENCH_COMPILED"))
    if command == "serve":
        assert work is not None
        serve_blocks(work)
        return
    with_work = {"first": first, "run": whole_run, "speed": speed}
    bare = {"limits": limits, "backend": backend}
    result = with_work[command](work) if work is not None else bare[command]()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
