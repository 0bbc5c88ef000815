"""Device-steps per second on an accelerator: `python -m benchmarks.accelerator [CASE ...]`.

A case is MODEL:DEVICES[:PRECISION[:SEEDS]], such as mlp:1000 or cnn:20:bfloat16:5. Noise of the
data sets' shapes, batch 32, 5 rounds, exact mean, no evaluation; the better of two chunks after
compilation. Counts of operations and bytes are those of benchmarks/counts.py.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import numpy as np

from joulemesh.data import Dataset, partition
from joulemesh.models import build
from joulemesh.training.engine import Engine
from joulemesh.training.options import Options
from joulemesh.training.platform import configure
from joulemesh.training.schedule import Schedule

CASES = (
    "mlp:20",
    "mlp:100",
    "mlp:1000",
    "mlp:10000",
    "cnn:20",
    "cnn:20:bfloat16",
    "cnn:20:float32:5",
)
ROUNDS, BATCH = 5, 32
CHUNKS = {20: 100, 100: 100, 1000: 20, 10000: 4}  # iterations in one call


def noise(shape: tuple[int, ...], count: int) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, count).astype(np.int32)
    return Dataset("noise", x, y, x[:2000], y[:2000], 10, mean=127.0, std=64.0)


def speed(kind: str, devices: int, precision: str = "float32", seeds: int = 1) -> dict[str, Any]:
    """Compile, then time."""
    shape = (28, 28, 1) if kind == "mlp" else (32, 32, 3)
    data = noise(shape, 60_000 if kind == "mlp" else 20_000)
    chunk = CHUNKS[devices] if kind == "mlp" else 20
    schedule = Schedule(np.full((3 * chunk, devices), ROUNDS, np.int32))
    options = Options(
        batch_size=BATCH, precision=precision, chunk_iterations=chunk, eval_every=10**6
    )
    held = [partition(data.y_train, devices, kind="iid", seed=s) for s in range(seeds)]
    begun = time.perf_counter()
    engine = Engine(build(kind, shape, 10, (200,)), data, held, schedule, options, range(seeds))
    state, _ = engine.run_chunk(engine.init(), 0)
    jax.block_until_ready(state.params)
    first, best = time.perf_counter() - begun, np.inf
    for number in (1, 2):
        begun = time.perf_counter()
        state, _ = engine.run_chunk(state, number * chunk)
        jax.block_until_ready(state.params)
        best = min(best, time.perf_counter() - begun)
    return {"first_s": first, "steps_per_s": chunk * ROUNDS * devices * seeds / best}


def main() -> None:
    configure()
    print(f"JAX {jax.__version__} on {jax.local_devices()[0].device_kind}")
    for case in sys.argv[1:] or CASES:
        kind, devices, *more = case.split(":")
        precision, seeds = (more + ["float32", "1"][len(more) :])[:2]
        found = speed(kind, int(devices), precision, int(seeds))
        print(
            f"{case:<20} first chunk {found['first_s']:5.1f} s, then "
            f"{found['steps_per_s']:12,.0f} device-steps/s",
            flush=True,
        )


if __name__ == "__main__":
    main()
