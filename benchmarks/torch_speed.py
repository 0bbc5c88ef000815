"""The torch learner beside a plain PyTorch loop: `python -m benchmarks.torch_speed [options]`.

    --device cuda    measure a GPU (auto: one if there is one)
    --out FOLDER     write the record there (docs/benchmarks otherwise, and the page)
    --case CASE      MODEL:DEVICES[:traced], such as cnn:100; several times for several
    --minutes M      begin no further case after that

The record is written anew after every case; a case that fails is named in it, and the others go on.

The loop takes one step after another, device after device, as fast as we can write it
(`benchmarks/peers/torch_loop.py`): samples normalised and resident, the fused optimiser, the mean
as two operations, and the draws made before the clock starts. The learner does its own drawing.
Blocks of both are timed in turn: on a CPU in a process each, since what one process keeps of freed
memory, and its threads, would change the other's speed. That both compute the same is checked in
float64.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # the GPU's memory is left to PyTorch

import numpy as np

from benchmarks.common import OUT, machine, page_text, progress
from benchmarks.serve import cores, serve
from benchmarks.torch_page import TITLES, page
from benchmarks.work import CNN, MLP, Work
from benchmarks.workers import Worker, rate
from joulemesh._version import __version__
from joulemesh.data import Dataset, Partition, partition
from joulemesh.training.batches import Batches
from joulemesh.training.schedule import Options, Schedule

CASES = {
    "cpu": ("mlp:100", "cnn:100", "mlp:20", "cnn:20"),
    "cuda": ("mlp:100", "cnn:100:traced", "cnn:100", "mlp:20", "cnn:20"),  # compiled ones later
}
SEED = 0
TURNS = 7
LONG = 1_200_000  # device-steps of a schedule that the learner takes for a long one
CHECKED = 3  # iterations that both compute in float64
TOLERANCE = 1e-10
# Iterations of a block of the loop and of the learner, by model.
BLOCKS = {"cpu": {"mlp": (2, 2), "cnn": (1, 1)}, "cuda": {"mlp": (2, 100), "cnn": (1, 20)}}


def work_of(case: str) -> Work:
    kind, devices, *_ = case.split(":")
    return replace(MLP if kind == "mlp" else CNN, devices=int(devices))


def data_of(work: Work) -> Dataset:
    """Noise of the data sets' shapes, as a module sees them."""
    rng = np.random.default_rng(SEED)
    count, shape = (60_000, (784,)) if work.model == "mlp" else (20_000, (3, 32, 32))
    x = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, count).astype(np.int32)
    return Dataset("noise", x, y, x[:2000], y[:2000], 10, mean=127.0, std=64.0)


class Learner:
    """Our contender."""

    def __init__(self, work: Work, data: Dataset, held: Partition, chunk: int, long: bool) -> None:
        from benchmarks.peers.torch_loop import network
        from joulemesh.models import from_torch
        from joulemesh.training.torch.learner import TorchLearner

        per_iteration = work.devices * work.rounds
        iterations = max(4 * chunk * TURNS, LONG // per_iteration if long else 0)
        self.learner = TorchLearner(
            from_torch(lambda: network(work, 784)),
            data,
            [held],
            Schedule(np.full((iterations, work.devices), work.rounds, np.int32)),
            options_of(work, chunk),
            (SEED,),
        )
        self.state = self.learner.begin()
        self.device_steps = chunk * per_iteration

    def block(self) -> None:
        self.state, _ = self.learner.advance(self.state)


def options_of(work: Work, chunk: int) -> Options:
    return Options(
        batch_size=work.batch,
        learning_rate=work.learning_rate,
        precision=work.precision,  # type: ignore[arg-type]
        chunk_iterations=chunk,
        eval_every=10**9,
    )


class Loop:
    """The plain loop, on the same samples, from the same parameters."""

    def __init__(self, work: Work, data: Dataset, held: Partition, where: str, start: Any) -> None:
        import torch

        from benchmarks.peers.torch_loop import Devices, network

        dtype = getattr(torch, work.precision)
        first = network(work, 784).to(dtype)
        first.load_state_dict(start)
        self.devices, self.work = Devices(work, 784, where, first), work
        x = torch.as_tensor(data.x_train).to(where, dtype)
        x = x * (1 / data.std) + (-data.mean / data.std)
        if work.model == "cnn":  # channels last, which is quicker on CPUs
            x = x.to(memory_format=torch.channels_last)
        self.x, self.y = x, torch.as_tensor(data.y_train).long().to(where)
        self._loss = torch.nn.functional.cross_entropy
        self._batches = Batches([held], [SEED], options_of(work, 1))
        self._where, self._torch = where, torch
        self.drawn: list[Any] = []

    def draw(self, first: int, last: int) -> None:
        """The samples of some iterations, to be trained on in the next block."""
        rows = np.arange(self.work.devices)
        self.drawn = [
            self._torch.as_tensor(self._batches.draw(t, rows, 0, self.work.rounds)[0]).to(
                self._where
            )
            for t in range(first, last)
        ]
        self.device_steps = len(self.drawn) * self.work.devices * self.work.rounds

    def block(self) -> None:
        for drawn in self.drawn:
            both = zip(self.devices.models, self.devices.optimizers, strict=True)
            for i, (model, optimizer) in enumerate(both):
                for k in range(self.work.rounds):
                    index = drawn[k, i]
                    loss = self._loss(model(self.x[index]), self.y[index])
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
            self.devices.average()


Contender: TypeAlias = Learner | Loop
Answers: TypeAlias = dict[str, dict[str, Any]]
Rates: TypeAlias = dict[str, list[float]]


def difference(work: Work, data: Dataset, where: str) -> float:
    """The largest difference of any parameter after the same iterations, in float64."""
    import torch

    exact = replace(work, precision="float64", devices=min(work.devices, 20))
    held = partition(data.y_train, exact.devices, kind="iid", seed=SEED)
    ours = Learner(exact, data, held, CHECKED, long=False)
    start = {n: one.double() for n, one in ours.learner.model.initial(SEED).items()}
    loop = Loop(exact, data, held, where, start)
    loop.draw(0, CHECKED)
    ours.block()
    loop.block()
    given = ours.learner.params(ours.state)
    apart = 0.0
    for i, model in enumerate(loop.devices.models):
        for name, one in model.named_parameters():
            mine = torch.as_tensor(given[name][0, i])
            apart = max(apart, float((mine - one.detach().cpu()).abs().max()))
    return apart


def speed(case: str, where: str, turns: int) -> dict[str, Any]:
    """Blocks of both in turn."""
    import torch

    work = work_of(case)
    progress(f"{case} on {where}")
    apart = difference(work, data_of(work), where)
    _forget(torch)
    progress(f"{case}: float64 difference {apart:.1g}")
    first, rates = (on_gpu if where == "cuda" else on_cpu)(case, turns)
    ratios = [a / b for a, b in zip(rates["ours"], rates["loop"], strict=True)]
    return {
        "case": case,
        "model": work.model,
        "devices": work.devices,
        **first["ours"]["facts"],
        "first_s": first["ours"]["seconds"],
        "device_steps_per_s": {name: statistics.median(found) for name, found in rates.items()},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "peak_mib": {name: first[name]["peak_mib"] for name in ("ours", "loop")},
        "difference_float64": apart,
    }


def on_gpu(case: str, turns: int) -> tuple[Answers, Rates]:
    """First blocks and speeds of both, in this process."""
    import torch

    held: dict[str, Contender] = {}
    first: Answers = {}
    for name in ("ours", "loop"):
        torch.cuda.synchronize()
        _forget(torch)
        before = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        held[name], first[name] = _begun(name, case, "cuda")
        # What PyTorch reserves, since captured graphs keep memory in which nothing is allocated.
        first[name]["peak_mib"] = (torch.cuda.max_memory_reserved() - before) / 2**20
    held["ours"].block()
    return first, _in_turn(lambda name: rate(_timed(held[name], "cuda")), turns)


def on_cpu(case: str, turns: int) -> tuple[Answers, Rates]:
    """First blocks and speeds of both, each in a process of its own."""
    command = (sys.executable, "-m", "benchmarks.torch_speed", "--case", case, "--only")
    with Worker((*command, "ours")) as ours, Worker((*command, "loop")) as loop:
        held = {"ours": ours, "loop": loop}
        first = {name: one.block() for name, one in held.items()}
        for one in held.values():
            one.block()
        return first, _in_turn(lambda name: rate(held[name].block()), turns)


def _in_turn(speed_of: Callable[[str], float], turns: int) -> Rates:
    rates: Rates = {"loop": [], "ours": []}
    for turn in range(turns):
        for name in ("loop", "ours") if turn % 2 == 0 else ("ours", "loop"):
            rates[name].append(speed_of(name))
    return rates


def _begun(name: str, case: str, where: str) -> tuple[Contender, dict[str, Any]]:
    """A contender after its first block, which includes making it."""
    work = work_of(case)
    data = data_of(work)
    held = partition(data.y_train, work.devices, kind="iid", seed=SEED)
    theirs, own = BLOCKS[where][work.model]
    begun = time.perf_counter()
    facts: dict[str, Any] = {}
    made: Contender
    if name == "ours":
        made = Learner(work, data, held, own, long=not case.endswith(":traced"))
    else:
        from benchmarks.peers.torch_loop import network

        made = Loop(work, data, held, where, network(work, 784).state_dict())
        made.draw(0, theirs)
    first = _timed(made, where, begun)
    if isinstance(made, Learner):
        one = made.learner
        facts = {"together": one.together, "device": one.device_name}
        facts |= {"compiled": one.compiled, "captured": one.captured}
    return made, {**first, "facts": facts}


def _timed(one: Contender, where: str, begun: float | None = None) -> dict[str, Any]:
    """A block's device-steps and seconds, from some moment if it is given."""
    _wait(where)
    begun = time.perf_counter() if begun is None else begun
    one.block()
    _wait(where)
    return {"device_steps": one.device_steps, "seconds": time.perf_counter() - begun}


def _wait(where: str) -> None:
    """For all that the GPU was told to do."""
    if where == "cuda":
        import torch

        torch.cuda.synchronize()


def _forget(torch: Any) -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def alone(name: str, case: str) -> None:
    """Be one contender on the CPU: answer every line with what a block took."""
    made: list[Contender] = []

    def block(_: str) -> dict[str, Any]:
        if made:
            return _timed(made[0], "cpu")
        one, first = _begun(name, case, "cpu")
        made.append(one)
        # ru_maxrss would include the parent, which the process was forked from.
        lines = Path("/proc/self/status").read_text().splitlines()
        kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return {**first, "peak_mib": int(kib) / 1024}

    serve(block)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_speed")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--case", action="append", default=None)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--only", choices=("ours", "loop"), default=None, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(given: argparse.Namespace | None = None) -> None:
    import torch

    given = given or arguments([])
    torch.manual_seed(SEED)
    torch.set_num_threads(cores())
    if given.only:
        alone(given.only, given.case[0])
        return
    found = "cuda" if torch.cuda.is_available() else "cpu"
    where = found if given.device == "auto" else given.device
    if where != found:
        sys.exit(f"--device {where}: the learner uses the {found} of this machine")
    name = "torch" if where == "cpu" else "torch-gpu"
    record: dict[str, Any] = {
        "module": "benchmarks.torch_speed",
        "machine": machine("torch", "triton"),
        "turns": given.turns,
        "tolerance": TOLERANCE,
        "cases": [],
        "failed": {},
    }
    record["machine"]["versions"]["joulemesh"] = __version__  # it need not be installed there
    record["machine"]["versions"]["torch"] = torch.__version__
    if where == "cuda":
        record["machine"]["accelerator"] = torch.cuda.get_device_name(0)
    folder = given.out or OUT
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for case in given.case or CASES[where]:
        if time.monotonic() - begun > 60 * given.minutes:
            record["failed"][case] = f"not begun within {given.minutes:g} minutes"
        else:
            _add(record, case, where)
        (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    if given.out is None and record["cases"]:
        text = page_text(name, TITLES[name], page(record), record)
        (OUT / f"{name}.md").write_text(text, "utf-8")
    _require_all(record)


def _add(record: dict[str, Any], case: str, where: str) -> None:
    """Measure a case; what fails in it is told, and leaves the others be."""
    import torch

    try:
        record["cases"].append(speed(case, where, record["turns"]))
        print(json.dumps(record["cases"][-1]), flush=True)
        _forget(torch)
    except Exception as error:
        traceback.print_exc()
        record["failed"][case] = f"{type(error).__name__}: {error}"


def _require_all(record: dict[str, Any]) -> None:
    worst = max((case["difference_float64"] for case in record["cases"]), default=0.0)
    if worst > TOLERANCE:
        sys.exit(f"parameters differ by {worst:g}, more than {TOLERANCE:g}")
    if record["failed"]:
        sys.exit(f"not measured: {', '.join(record['failed'])}")


if __name__ == "__main__":
    main(arguments())
