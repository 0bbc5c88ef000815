"""Two versions of the code, timed in turn on one machine: has a change made anything slower?

    python -m benchmarks.side_by_side BEFORE AFTER [TURNS [WORD ...]]

BEFORE and AFTER are folders that hold the package (``src`` of two checkouts). Every case is run by
one version, then by the other, TURNS times (5 unless given). Two ratios after / before are printed,
below 1 where the change is faster: of the best times, because other work on a machine only ever
adds, and the median of those of the single turns, for what also varies by itself, such as a GPU's
clock. Cases use the public interface and made-up data alone. With words, only cases whose names
hold one of them; without, all but those for an accelerator ("gpu"), whose steps are long enough to
keep it busy.

Planning and training are timed in one process for each version, which has done the same once
before. Training is the median over chunks of seconds per device-step; the first chunk and the last
are left out, because both compile: the last is evaluated on all test samples, which is a program of
its own. What compiling takes has cases of its own: the whole of a first run, each in a process of
its own with an empty cache of compiled programs. Start-up is the whole of a process that finds its
modules compiled. On a GPU the compiler itself times alternatives, and keeps for the whole process
what was quickest at that moment; ``XLA_FLAGS=--xla_gpu_autotune_level=0`` takes that out.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, environment, machine, measure, progress, table

_PLANS = {
    "plan: 2,000 devices, geometric": {"devices.count": 2000, "network.topology": "geometric"},
    "plan: 100 devices, Rayleigh, causal": {
        "devices.count": 100,
        "network.topology": "complete",
        "network.fading": "rayleigh",
        "plan.iterations": 50,
    },
}
_TRAINED: dict[str, dict[str, Any]] = {
    "train: default": {"plan.iterations": 800},
    "train: 100 devices, gossip": {
        "devices.count": 100,
        "plan.aggregation": "metropolis",
        "plan.iterations": 400,
    },
    "train: 64 devices, MLP of 256": {
        "devices.count": 64,
        "plan.aggregation": "tree",
        "training.hidden": [256],
        "plan.iterations": 400,
    },
}
_BUSY: dict[str, dict[str, Any]] = {
    "gpu: 100 devices, gossip": {
        "devices.count": 100,
        "plan.aggregation": "metropolis",
        "training.hidden": [200],
        "plan.iterations": 1600,
    },
    "gpu: 1,000 devices, tree": {
        "devices.count": 1000,
        "plan.aggregation": "tree",
        "training.hidden": [200],
        "plan.iterations": 800,
    },
}
_MANY: dict[str, dict[str, Any]] = {
    "run: 20,000 devices, 6 iterations": {
        "devices.count": 20_000,
        "devices.samples": 4,
        "network.topology": "geometric",
        "network.area_m": 4000.0,
        "network.mean_degree": 10.0,
        "plan.aggregation": "tree",
        "plan.fixed_rounds": 2,
        "plan.iterations": 6,
        "training.partition": "resample",
        "training.hidden": [200],
        "training.eval_every": 6,
    },
}
_STARTED = {
    "start: import joulemesh.plan": ["-c", "import joulemesh; joulemesh.plan"],
    "start: joulemesh --version": ["-m", "joulemesh", "--version"],
    "start: joulemesh plan": ["-m", "joulemesh", "plan", "adaptive.toml"],
}
_BEGUN: dict[str, dict[str, Any]] = {
    "first run: default": {"plan.iterations": 100},
    "first run: 3 devices, 2 iterations": {
        "devices.count": 3,
        "plan.iterations": 2,
        "training.eval_every": 2,
    },
}
_PRESETS = ROOT / "src" / "joulemesh" / "scenario" / "presets"
_RICH = {"budget.energy_j": 1e9, "budget.deadline_s": 1e3, "plan.rounds": "fixed"}

_CHILD = """
import json, statistics, sys, time
import joulemesh
import numpy as np
rng = np.random.default_rng(0)
case = json.loads(sys.argv[1])
samples, features = (60_000, 784) if case["kind"] == "busy" else (6000, 64)
x, y = rng.random((samples, features), np.float32), rng.integers(10, size=samples)
try:
    base = joulemesh.Scenario.preset("adaptive")
except joulemesh.ScenarioError:  # a version that called it so
    base = joulemesh.Scenario.preset("default")
scenario = base.override(case["changes"])
data = (x, y, x[:1000], y[:1000])
def measure():
    begun = time.perf_counter()
    if case["kind"] == "plan":
        joulemesh.plan(scenario, parameters=4810)
    else:
        result = joulemesh.run(scenario, data=data)
    if case["kind"] in ("train", "busy"):
        return statistics.median(one.wall_s / one.device_steps for one in result.chunks[1:-1])
    return time.perf_counter() - begun
joulemesh.plan(scenario, parameters=4810)
if case["kind"] != "first":
    measure()
for line in sys.stdin:
    print("took", measure(), flush=True)
"""


def cases() -> dict[str, dict[str, Any]]:
    """Every case by name: changes to the default scenario, and what is timed."""
    kinds = [("plan", _PLANS), ("train", _TRAINED), ("busy", _BUSY), ("first", _BEGUN)]
    kinds.append(("again", _MANY))  # what a run takes that finds its programs compiled
    asked = {
        name: {"changes": {**_RICH, **changes}, "kind": kind}
        for kind, some in kinds
        for name, changes in some.items()
    }
    return asked | {name: {"command": command} for name, command in _STARTED.items()}


class Clock:
    """Times a case in one version, in a process that is kept unless each has to be a new one."""

    def __init__(self, source: Path, case: dict[str, Any], stack: ExitStack) -> None:
        path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.env = {"PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.case, self.stack = case, stack
        self.child: subprocess.Popen[str] | None = None

    def __call__(self) -> float:
        """Seconds of the case; per device-step, if it trains."""
        if "command" in self.case:
            command = [sys.executable, *self.case["command"]]
            measure(*command, env=self.env, cwd=_PRESETS)
            return measure(*command, env=self.env, cwd=_PRESETS)[0]
        if self.child is None or self.case["kind"] == "first":
            self.child = self._started()
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        print(file=self.child.stdin, flush=True)
        said = next((line for line in self.child.stdout if line.startswith("took ")), None)
        if said is None:  # the child has said why
            raise RuntimeError
        return float(said.split()[1])

    def _started(self) -> subprocess.Popen[str]:
        cache = self.stack.enter_context(tempfile.TemporaryDirectory())
        return self.stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", _CHILD, json.dumps(self.case)],
                env=environment(self.env | {"XDG_CACHE_HOME": cache}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )


def compared(case: dict[str, Any], sources: Sequence[Path], turns: int) -> list[list[float]]:
    """What each of two versions takes in every turn."""
    times: list[list[float]] = [[], []]
    with ExitStack() as stack:
        clocks = [Clock(source, case, stack) for source in sources]
        for turn in range(turns):
            for k in (0, 1) if turn % 2 == 0 else (1, 0):
                try:
                    times[k].append(clocks[k]())
                except (RuntimeError, BrokenPipeError):
                    sys.exit(f"{sources[k]}: {case} failed")
    return times


def main(before: Path, after: Path, turns: int = 5, words: Sequence[str] = ()) -> None:
    """Time the cases whose names hold one of some words, and print the table."""
    for source in (before, after):
        if not (source / "joulemesh").is_dir():
            sys.exit(f"{source} does not hold the package: name the src of a checkout")
    rows = []
    for name, case in cases().items():
        if not (any(word in name for word in words) if words else name not in _BUSY):
            continue
        old, new = compared(case, (before, after), turns)
        best = min(new) / min(old)
        middle = statistics.median(b / a for a, b in zip(old, new, strict=True))
        progress(f"{name}: {best:.3f}, {middle:.3f}")
        figures = [f"{min(old):.3g} s", f"{min(new):.3g} s", f"{best:.3f}", f"{middle:.3f}"]
        rows.append([name, *figures])
    print(json.dumps(machine("jax")))
    print(table(["case", "before", "after", "after / before", "median of turns"], rows))


if __name__ == "__main__":
    _turns = int(sys.argv[3]) if sys.argv[3:] else 5
    main(Path(sys.argv[1]), Path(sys.argv[2]), _turns, sys.argv[4:])
