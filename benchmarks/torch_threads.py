"""One thread or all of them for steps of PyTorch modules: `python -m benchmarks.torch_threads`.

    --busy N         beside N processes that compute all the time (0)
    --case NAME      one of the modules; several times for several
    --out FILE       add the record there, as one JSON line

The learner trains a few devices of each module in blocks, in turn with one thread and with all. A
block with all threads on a busy machine shows what it costs that PyTorch's threads wait for each
other busily at every operation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from benchmarks.common import machine, progress
from benchmarks.serve import cores
from joulemesh.data import Dataset, partition
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

SHAPES = {
    "mlp": (784,),
    "conv1d": (2, 128),
    "lenet": (1, 28, 28),
    "cnn": (3, 32, 32),
    "cnn-wide": (3, 32, 32),
}
DEVICES, BATCH, TURNS = 4, 32, 5
SPIN = "while True: pass"


def module_of(case: str) -> Any:
    from torch import nn

    if case == "mlp":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    if case == "conv1d":
        return nn.Sequential(
            nn.Conv1d(2, 32, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8),
            nn.Flatten(), nn.Linear(512, 96), nn.ReLU(), nn.Linear(96, 10),
        )  # fmt: skip
    channels = {"lenet": (1, 6, 16), "cnn": (3, 32, 64), "cnn-wide": (3, 96, 192)}[case]
    parts: list[Any] = []
    for before, after in pairwise(channels):
        parts += [nn.Conv2d(before, after, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    side = SHAPES[case][1] // 4
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels[-1] * side * side, 10))


def learner_of(case: str) -> Any:
    from joulemesh.models import from_torch
    from joulemesh.training.torch.learner import TorchLearner

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, *SHAPES[case])).astype(np.float32)
    y = rng.integers(0, 10, 1000).astype(np.int32)
    data = Dataset("noise", x, y, x[:100], y[:100], 10)
    options = Options(batch_size=BATCH, chunk_iterations=1, eval_every=10**9)
    schedule = Schedule(np.full((10**6, DEVICES), 2, np.int32))
    held = partition(y, DEVICES, kind="iid", seed=0)
    return TorchLearner(from_torch(lambda: module_of(case)), data, [held], schedule, options)


def step_ms(learner: Any, state: Any, worth: float) -> tuple[Any, float]:
    """Milliseconds of a device-step, where more multiply-adds than ``worth`` get all threads."""
    from joulemesh.training.torch import parts

    before, parts.WORTH_THREADS = parts.WORTH_THREADS, worth
    try:
        begun = time.perf_counter()
        state, _ = learner.advance(state)
        return state, 1e3 * (time.perf_counter() - begun) / (2 * DEVICES)
    finally:
        parts.WORTH_THREADS = before


def measured(case: str) -> dict[str, Any]:
    learner = learner_of(case)
    state = learner.begin()
    found: dict[str, list[float]] = {"one": [], "all": []}
    for worth in (math.inf, 0.0):  # what is made when it is first used
        state, _ = step_ms(learner, state, worth)
    for turn in range(TURNS):
        for name in ("one", "all") if turn % 2 else ("all", "one"):
            state, ms = step_ms(learner, state, math.inf if name == "one" else 0.0)
            found[name].append(ms)
    medians = {name: statistics.median(each) for name, each in found.items()}
    return {
        "case": case,
        "together": learner.together,
        "multiply_adds": learner.multiply_adds,
        "step_ms": medians,
        "times_as_fast": medians["all"] / medians["one"],
    }


def main(words: Sequence[str] | None = None) -> None:
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_threads")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--case", action="append", choices=tuple(SHAPES), default=None)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args(words)
    torch.set_num_threads(cores())
    others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(given.busy)]
    try:
        cases = []
        for case in given.case or SHAPES:
            progress(case)
            cases.append(measured(case))
            print(json.dumps(cases[-1]), flush=True)
    finally:
        for one in others:
            one.kill()
            one.wait()
    record = {"machine": machine("torch"), "busy": given.busy, "load": os.getloadavg()[0]}
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**record, "cases": cases}) + "\n")


if __name__ == "__main__":
    main()
