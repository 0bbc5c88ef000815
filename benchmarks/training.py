"""Training: device-steps per second beside a plain PyTorch loop, start-up, memory, scale, limits.

Every figure comes from child processes, so that no setting of JAX reaches another. On an
accelerator the same command measures that instead (and writes training-gpu).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from benchmarks.common import machine, measure, progress, publish
from benchmarks.environments import torch_python
from benchmarks.training_page import page
from benchmarks.work import CNN, MLP, SMALL, Work, prepare, with_data
from benchmarks.workers import Worker, rate

TITLE = "Training: speed, start-up, memory, scale"
SIZES = (20, 100, 1_000, 10_000)
REPEATS = 7
SAMPLES = 64
STARTS = 3
# Device-steps of one block when devices are few: enough to time.
CPU_STEPS, GPU_STEPS = 10_000, 200_000
VARIANTS = ("", "unequal", "unequal-each", "evaluated")


def ours(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.ours", *arguments]


def child(command: str, work: Work | None = None, **env: str) -> dict[str, Any]:
    """What a child of ``benchmarks.ours`` reports, with the peak memory of the process."""
    _, peak, output = measure(*ours(command, *([work.dump()] if work else [])), env=env)
    return {**json.loads(output.splitlines()[-1]), "peak_mib": peak}


def side_by_side(work: Work, repeats: int) -> dict[str, Any]:
    """Blocks of a plain PyTorch loop and of ours in turn, and ours in its variants."""
    progress(f"{work.model} on {work.dataset}, blocks in turn with a PyTorch loop")
    seconds: dict[str, list[float]] = {name: [] for name in ("torch", *VARIANTS)}
    failed = ""
    with ExitStack() as stack:
        engine = stack.enter_context(Worker(ours("serve", work.dump())))
        for variant in VARIANTS:
            engine.block(variant)  # compiles
        try:
            command = [torch_python(), "-m", "benchmarks.peers.torch_loop", work.dump()]
            torch = stack.enter_context(Worker(command))
        except RuntimeError as error:
            failed = str(error)
        for _ in range(repeats):
            if not failed:
                seconds["torch"].append(torch.block()["seconds"])
            for variant in VARIANTS:
                seconds[variant].append(engine.block(variant)["seconds"])
    seconds = {name: values for name, values in seconds.items() if values}

    def ratio(above: str, below: str) -> float | None:
        if above not in seconds:
            return None
        pairs = zip(seconds[above], seconds[below], strict=True)
        return statistics.median(a / b for a, b in pairs)

    return {
        "work": asdict(work),
        "torch_failed": failed,
        "device_steps_per_s": {
            name or "ours": work.device_steps / statistics.median(values)
            for name, values in seconds.items()
        },
        "torch_ratio": ratio("torch", ""),
        "unequal_ratio": ratio("unequal", ""),
        "unequal_each_ratio": ratio("unequal-each", ""),
        "evaluation_share": 1 - 1 / (ratio("evaluated", "") or 1.0),
        "seconds": {name or "ours": values for name, values in seconds.items()},
    }


def starts(work: Work, repeats: int) -> dict[str, dict[str, float]]:
    """Fresh processes with an empty compilation cache, then again with what that left."""
    progress(f"{work.model}: starts of fresh processes")
    found: dict[str, list[dict[str, Any]]] = {"first": [], "second": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for name in found:
                now = str(time.time())
                found[name].append(child("first", work, BENCH_COMPILED=cache, BENCH_BEGIN=now))
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }


def memory(work: Work, made: bool) -> dict[str, Any]:
    """A run from its files, decoded for the first time, to its last evaluation."""
    progress(f"{work.dataset}: memory of a whole run")
    with tempfile.TemporaryDirectory() as cache:
        return child("run", work, **({} if made else {"BENCH_FROM_FILES": cache}))


def sized(work: Work, devices: int, steps: int) -> Work:
    """The work with that many devices, and about as many device-steps in a block.

    Each has as many samples: with equal shares of all, many devices would have few, which the
    cache holds, and seem quicker.
    """
    iterations = max(1, steps // (devices * work.rounds))
    return replace(work, devices=devices, iterations=iterations, samples=SAMPLES)


def speeds(on_gpu: bool, quick: bool) -> list[dict[str, Any]]:
    """Speed and memory as devices grow; on an accelerator the CNN in both precisions."""
    steps = (GPU_STEPS if on_gpu else CPU_STEPS) // (10 if quick else 1)
    sizes = SIZES[:2] if quick else SIZES
    works = [sized(MLP if on_gpu else SMALL, devices, steps) for devices in sizes]
    if on_gpu:
        works += [
            sized(replace(CNN, precision=precision), devices, steps // 20)
            for devices in sizes[:2]
            for precision in ("float32", "bfloat16")
        ]
        works.append(sized(replace(MLP, precision="bfloat16"), sizes[-1], steps))
    else:
        works += [sized(replace(CNN, rounds=1), devices, steps // 20) for devices in sizes]
    return [_tried("speed", with_data(work)) for work in works]


def _tried(command: str, work: Work) -> dict[str, Any]:
    """A size that does not fit this machine is reported and does not stop the others."""
    progress(f"{work.model}, {work.precision}, {work.devices:,} devices")
    try:
        result = child(command, work)
    except RuntimeError:
        return {"work": asdict(work), "failed": "its process ended early"}
    return {"work": asdict(work), **result, "device_steps_per_s": rate(result)}


def main(*, quick: bool = False) -> None:
    load = os.getloadavg()[0]
    backend = child("backend")
    on_gpu = backend["backend"] != "cpu"
    made = {work.dataset: prepare(work.dataset)[1] for work in (MLP, CNN)}
    repeats, start_count = (2, 1) if quick else (REPEATS, 1 if on_gpu else STARTS)
    mlp, cnn = with_data(MLP), with_data(CNN)
    if on_gpu:
        mlp, cnn = replace(mlp, iterations=200), replace(cnn, iterations=20)
    elif quick:
        mlp, cnn = replace(mlp, iterations=5), replace(cnn, devices=2)
    record: dict[str, Any] = {
        "machine": machine("jax", "jaxlib", "optax"),
        "backend": backend,
        "load_before": load,
        "made": made,
        "repeats": repeats,
        "side_by_side": [side_by_side(work, repeats) for work in (mlp, cnn)],
        "starts": {work.model: starts(work, start_count) for work in (mlp, cnn)},
        "memory": {
            work.dataset: memory(work, made[work.dataset]) for work in (with_data(MLP), cnn)
        },
        "speeds": speeds(on_gpu, quick),
        "limits": child("limits"),
    }
    if on_gpu:
        record["machine"]["accelerator"] = backend["kind"]
    suffix = "-gpu" if on_gpu else ""
    publish("training", TITLE, page(record), record, suffix=suffix, quick=quick)
