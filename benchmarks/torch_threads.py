"""One thread or all of them for steps of PyTorch modules: `python -m benchmarks.torch_threads`.

    --busy N         beside N processes that compute all the time (0); several times for several
    --case NAME      one of the modules; several times for several
    --out FOLDER     write the record there (docs/benchmarks otherwise, and the page)

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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OUT, machine, page_text, progress, table
from benchmarks.serve import cores
from benchmarks.work import CNN, MLP
from joulemesh.data import Dataset, partition
from joulemesh.training.schedule import Options, Schedule

TITLE = "Threads of PyTorch for modules on a CPU"
SHAPES = {
    "mlp": (784,),
    "conv1d": (2, 128),
    "lenet": (1, 28, 28),
    "cnn": (3, 32, 32),
}
DEVICES, BATCH, TURNS = 4, 32, 5
SPIN = "while True: pass"


def module_of(case: str) -> Any:
    from torch import nn

    from benchmarks.peers.torch_loop import network

    if case == "mlp":
        return network(MLP, 784)
    if case == "conv1d":
        return nn.Sequential(
            nn.Conv1d(2, 32, 7, padding=3), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8),
            nn.Flatten(), nn.Linear(512, 96), nn.ReLU(), nn.Linear(96, 10),
        )  # fmt: skip
    if case == "cnn":  # the one of benchmarks.torch_speed
        return network(CNN, 784)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(784, 10),
    )  # fmt: skip


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
    from joulemesh.training.torch import steps

    before, steps.WORTH_THREADS = steps.WORTH_THREADS, worth
    try:
        begun = time.perf_counter()
        state, _ = learner.advance(state)
        return state, 1e3 * (time.perf_counter() - begun) / (2 * DEVICES)
    finally:
        steps.WORTH_THREADS = before


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


def page(record: dict[str, Any]) -> str:
    """The page: one table for each time that it was measured."""
    lines = [
        f"Milliseconds of a device-step of the torch learner ({DEVICES} devices, batch {BATCH}, "
        f"float32), in turn with one thread and with all, medians of {record['turns']} blocks. "
        "The learner takes one thread where a forward pass of what is computed at once has fewer "
        f"than {record['worth'] / 1e6:,.0f} million multiply-adds: PyTorch's threads wait for each "
        "other busily at every operation, which costs most where others use the processor, too. "
        "The choice is by size alone, so that a run ends with the same bits whatever else the "
        "machine does.",
    ]
    for run in record["runs"]:
        rows = [
            (
                case["case"],
                "together" if case["together"] else "one by one",
                f"{case['multiply_adds'] / 1e6:,.0f}",
                f"{case['step_ms']['one']:,.2f}",
                f"{case['step_ms']['all']:,.2f}",
                f"{case['times_as_fast']:.2f}",
                "one" if case["multiply_adds"] < record["worth"] else "all",
            )
            for case in run["cases"]
        ]
        head = ["module", "computed", "million multiply-adds", "one thread [ms]"]
        head += ["all threads [ms]", "one thread is times as fast", "chosen"]
        beside = f"Beside {run['busy']} busy processes of its own, at" if run["busy"] else "At"
        lines += ["", f"{beside} a load average of {run['load']:.1f} when it began:", ""]
        lines.append(table(head, [list(row) for row in rows]))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before JAX is imported
    import torch

    from joulemesh.training.torch.steps import WORTH_THREADS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_threads")
    parser.add_argument("--busy", type=int, action="append", default=None)
    parser.add_argument("--case", action="append", choices=tuple(SHAPES), default=None)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(words)
    torch.set_num_threads(cores())
    record: dict[str, Any] = {
        "module": "benchmarks.torch_threads",
        "machine": machine("torch"),
        "turns": TURNS,
        "worth": WORTH_THREADS,
        "runs": [],
    }
    for busy in given.busy or [0]:
        load = os.getloadavg()[0]
        others = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(busy)]
        try:
            cases = []
            for case in given.case or SHAPES:
                progress(f"{case}, beside {busy}")
                cases.append(measured(case))
                print(json.dumps(cases[-1]), flush=True)
        finally:
            for one in others:
                one.kill()
                one.wait()
        record["runs"].append({"busy": busy, "load": load, "cases": cases})
    (given.out / "torch-threads.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    if given.out == OUT:
        text = page_text("torch-threads", TITLE, page(record), record)
        (OUT / "torch-threads.md").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
