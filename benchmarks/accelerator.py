"""Device-steps per second on an accelerator: `python -m benchmarks.accelerator [CASE ...]`.

Without a case all are measured, and docs/benchmarks/accelerator.md and .json are written.
A case is MODEL:DEVICES[:PRECISION[:SEEDS[:START]]], such as mlp:1000 or cnn:20:bfloat16:5; START
is the engine's (`training/jax/layout.py`). Noise of the data sets' shapes, batch 32, 5 rounds,
exact mean, no evaluation; the best of three chunks after compilation. Counts of operations and
bytes are those of benchmarks/counts.py.
The case ``learn[:PRECISION[:SEEDS]]`` is a whole run of the size of the paper's figures instead:
the CNN on CIFAR-10 (its files must be found), 20 devices, 400 iterations of 4 rounds, evaluated 8
times on the whole test set; its time, compilations apart, and its accuracy.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from benchmarks.accelerator_page import TITLE, page
from benchmarks.common import machine, publish
from benchmarks.ours import limits
from joulemesh._version import __version__
from joulemesh.data import Dataset, Partition, load, partition
from joulemesh.models import build
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.platform import configure, this_machine
from joulemesh.training.schedule import Options, Schedule

CASES = (
    "mlp:20",
    "mlp:100",
    "mlp:100:float32:1:own",
    "mlp:1000",
    "mlp:1000:float32:1:own",
    "mlp:10000",
    "mlp:100000",
    "mlp:20:float32:5",
    "cnn:20",
    "cnn:20:bfloat16",
    "cnn:20:float32:5",
    "cnn:100",
    "cnn:1000",
    "cnn:10000",
    "cnn:1000:bfloat16",
    "learn:float32:1",
    "learn:float32:5",
    "learn:bfloat16:5",
)
ROUNDS, BATCH = 5, 32
STEPS = {"mlp": 400_000, "cnn": 4_000}  # of all devices in one call of 8 to 400 iterations


def noise(shape: tuple[int, ...], count: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, count).astype(np.int32)
    return Dataset("noise", x, y, x[:2000], y[:2000], 10, mean=127.0, std=64.0)


def deal(data: Dataset, devices: int, seed: int) -> Partition:
    """Equal shares; of very many devices each draws as many samples as it has in a batch."""
    if devices <= len(data.y_train) // BATCH:
        return partition(data.y_train, devices, kind="iid", seed=seed)
    sizes = np.full(devices, BATCH)
    return partition(data.y_train, devices, kind="resample", sizes=sizes, seed=seed)


def speed(kind: str, devices: int, precision: Any, seeds: int, start: Any) -> dict[str, Any]:
    """Compile, then time."""
    shape = (28, 28, 1) if kind == "mlp" else (32, 32, 3)
    data = noise(shape, 60_000 if kind == "mlp" else 20_000)
    chunk = int(np.clip(STEPS[kind] // (ROUNDS * devices), 8, 400))
    schedule = Schedule(np.full((4 * chunk, devices), ROUNDS, np.int32))
    options = Options(
        batch_size=BATCH, precision=precision, chunk_iterations=chunk, eval_every=10**6
    )
    held = [deal(data, devices, seed) for seed in range(seeds)]
    begun = time.perf_counter()
    model = build(kind, shape, 10, (200,))
    machine = replace(this_machine(), start=start)
    engine = Engine(model, data, held, schedule, options, range(seeds), machine=machine)
    state, _ = engine.advance(engine.begin())
    jax.block_until_ready(state.params)
    first, best = time.perf_counter() - begun, np.inf
    for _ in range(3):
        begun = time.perf_counter()
        state, _ = engine.advance(state)
        jax.block_until_ready(state.params)
        best = min(best, time.perf_counter() - begun)
    return {
        "model": kind,
        "devices": devices,
        "precision": precision,
        "seeds": seeds,
        "trained": _trained(engine),
        "first_s": first,
        "device_steps_per_s": chunk * ROUNDS * devices * seeds / best,
    }


def _trained(engine: Engine) -> str:
    """How devices are trained: from which parameters, and with which input layer."""
    strategy = engine.key.strategy
    return "factored" if strategy.span else "shared" if strategy.shared else "kept"


def learn(precision: Any = "float32", seeds: int = 1) -> dict[str, Any]:
    """Train to the end twice, and time the second time: nothing compiles then."""
    data = load("cifar-10", download=False, progress=False)
    schedule = Schedule(np.full((400, 20), 4, np.int32))
    options = Options(
        batch_size=BATCH,
        learning_rate=0.05,
        precision=precision,
        eval_every=50,
        eval_share=0.0,
        eval_device_samples=100,
    )
    held = [partition(data.y_train, 20, kind="iid", seed=s) for s in range(seeds)]
    engine = Engine(build("cnn", data.shape, 10), data, held, schedule, options, range(seeds))
    engine.run()
    begun = time.perf_counter()
    accuracy = engine.run().test_accuracy[-1]
    seconds = time.perf_counter() - begun
    return {
        "precision": precision,
        "seeds": seeds,
        "seconds": seconds,
        "accuracy": [float(one) for one in accuracy],
    }


def measure(case: str) -> dict[str, Any]:
    kind, *more = case.split(":")
    if kind == "learn":
        words: list[Any] = more
        return {"case": case, **learn(*words[:1], *map(int, words[1:]))}
    devices, *more = more
    precision, seeds, start = more + ["float32", "1", "auto"][len(more) :]
    return {"case": case, **speed(kind, int(devices), precision, int(seeds), start)}


def main() -> None:
    configure()
    record: dict[str, Any] = {
        "module": "benchmarks.accelerator",
        "machine": machine("jax", "jaxlib"),
        "limits": limits(),
        "cases": [],
    }
    record["machine"]["versions"]["joulemesh"] = __version__  # it need not be installed there
    record["machine"]["accelerator"] = jax.local_devices()[0].device_kind
    for case in sys.argv[1:] or CASES:
        record["cases"].append(measure(case))
        print(json.dumps(record["cases"][-1]), flush=True)
    if not sys.argv[1:]:
        publish("accelerator", TITLE, page(record), record)


if __name__ == "__main__":
    main()
