"""Two versions of the code, timed in turn on one machine: has a change made anything slower?

    python -m benchmarks.side_by_side BEFORE AFTER [TURNS [WORD ...]]

BEFORE and AFTER are folders that hold the package (``src`` of two checkouts). Every case is run by
one version, then by the other, in a process of its own, TURNS times (5 unless given); a version's
time is its best, because other work on a machine only ever adds. Prints the ratio after / before,
which is below 1 where the change is faster. Cases use the public interface and made-up data
alone. With words, only cases whose names hold one of them; without, all but those for an
accelerator ("gpu"), whose steps are long enough to keep it busy.

Planning is timed when the process has planned once. Training is the median over chunks of seconds
per device-step; the first chunk and the last are left out, because both compile: the last is
evaluated on all test samples, which is a program of its own. What compiling takes has cases of its
own: the whole of a first run. Every process begins with an empty cache of compiled programs: on a
GPU the compiler times alternatives and keeps what was the quickest at that moment, and a program
that was unlucky once would be timed in all turns. Start-up is the whole of a process that finds its
modules compiled.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, machine, measure, progress, table

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
_PRESETS = ROOT / "src" / "joulemesh" / "presets"
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
if case["kind"] in ("train", "busy"):
    chunks = joulemesh.run(scenario, data=data).chunks[1:-1]
    print(statistics.median(chunk.wall_s / chunk.device_steps for chunk in chunks))
else:
    joulemesh.plan(scenario, parameters=4810)
    if case["kind"] == "again":
        joulemesh.run(scenario, data=data)
    begun = time.perf_counter()
    if case["kind"] == "plan":
        joulemesh.plan(scenario, parameters=4810)
    else:
        joulemesh.run(scenario, data=data)
    print(time.perf_counter() - begun)
"""


def cases() -> dict[str, dict[str, Any]]:
    """Every case by name: changes to the default scenario, and what is timed."""
    kinds = [("plan", _PLANS), ("train", _TRAINED), ("busy", _BUSY), ("run", _BEGUN)]
    kinds.append(("again", _MANY))  # what a run takes that finds its programs compiled
    asked = {
        name: {"changes": {**_RICH, **changes}, "kind": kind}
        for kind, some in kinds
        for name, changes in some.items()
    }
    return asked | {name: {"command": command} for name, command in _STARTED.items()}


def timed(source: Path, case: dict[str, Any]) -> float:
    """Seconds of one case (per device-step, if it trains), in a process of its own."""
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PYTHONPATH": path}
    if "command" in case:
        command = [sys.executable, *case["command"]]
        measure(*command, env=env, cwd=_PRESETS)
        return measure(*command, env=env, cwd=_PRESETS)[0]
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-c", _CHILD, json.dumps(case)]
        return float(measure(*command, env=env | {"XDG_CACHE_HOME": cache})[2].split()[-1])


def main(before: Path, after: Path, turns: int = 5, words: Sequence[str] = ()) -> None:
    """Time the cases whose names hold one of some words, and print the table."""
    for source in (before, after):
        if not (source / "joulemesh").is_dir():
            sys.exit(f"{source} does not hold the package: name the src of a checkout")
    rows = []
    for name, case in cases().items():
        if not (any(word in name for word in words) if words else name not in _BUSY):
            continue
        best: dict[Path, float] = {}
        for turn in range(turns):
            for source in (before, after) if turn % 2 == 0 else (after, before):
                try:
                    took = timed(source, case)
                except RuntimeError:  # the child has said why
                    sys.exit(f"{source}: {name} failed")
                best[source] = min(best.get(source, took), took)
        ratio = best[after] / best[before]
        progress(f"{name}: {ratio:.3f}")
        rows.append([name, f"{best[before]:.3g} s", f"{best[after]:.3g} s", f"{ratio:.3f}"])
    print(json.dumps(machine("jax")))
    print(table(["case", "before", "after", "after / before"], rows))


if __name__ == "__main__":
    _turns = int(sys.argv[3]) if sys.argv[3:] else 5
    main(Path(sys.argv[1]), Path(sys.argv[2]), _turns, sys.argv[4:])
