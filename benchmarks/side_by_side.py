"""Two versions of the code, timed in turn on one machine: has a change made anything slower?

    python -m benchmarks.side_by_side BEFORE AFTER [TURNS]

BEFORE and AFTER are folders that hold the package (``src`` of two checkouts). Every case is run by
one version, then by the other, in a process of its own, TURNS times (5 unless given); a version's
time is its best, because other work on a machine only ever adds. Prints the ratio after / before,
which is below 1 where the change is faster. Cases use the public interface and made-up data
alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import machine, progress, table

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
    "train: default": {"plan.iterations": 400},
    "train: 100 devices, gossip": {
        "devices.count": 100,
        "plan.aggregation": "metropolis",
        "plan.iterations": 200,
    },
    "train: 64 devices, MLP of 256": {
        "devices.count": 64,
        "plan.aggregation": "tree",
        "training.hidden": [256],
        "plan.iterations": 200,
    },
}
_RICH = {"budget.energy_j": 1e9, "budget.deadline_s": 1e3, "plan.rounds": "fixed"}

_CHILD = """
import json, sys, time
import joulemesh
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.random((6000, 64), np.float32), rng.integers(10, size=6000)
case = json.loads(sys.argv[1])
try:
    base = joulemesh.Scenario.preset("adaptive")
except joulemesh.ScenarioError:  # a version that called it so
    base = joulemesh.Scenario.preset("default")
scenario = base.override(case["changes"])
if case["trains"]:
    done = joulemesh.run(scenario, data=(x, y, x[:1000], y[:1000]))
    chunks = done.chunks[1:]  # the first is compiled
    print(sum(c.wall_s for c in chunks) / sum(c.device_steps for c in chunks))
else:
    joulemesh.plan(scenario, parameters=4810)
    begun = time.perf_counter()
    joulemesh.plan(scenario, parameters=4810)
    print(time.perf_counter() - begun)
"""


def cases() -> dict[str, dict[str, Any]]:
    """Every case by name: changes to the default scenario, and whether it trains."""
    kinds: list[tuple[dict[str, dict[str, Any]], bool]] = [(_PLANS, False), (_TRAINED, True)]
    return {
        name: {"changes": {**_RICH, **changes}, "trains": trains}
        for kind, trains in kinds
        for name, changes in kind.items()
    }


def timed(source: Path, case: dict[str, Any]) -> float:
    """Seconds of one case (per device-step, if it trains), in a process of its own."""
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", _CHILD, json.dumps(case)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{source}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


def main(before: Path, after: Path, turns: int = 5) -> None:
    """Time all cases, and print the table."""
    rows = []
    for name, case in cases().items():
        best: dict[Path, float] = {}
        for turn in range(turns):
            for source in (before, after) if turn % 2 == 0 else (after, before):
                took = timed(source, case)
                best[source] = min(best.get(source, took), took)
        ratio = best[after] / best[before]
        progress(f"{name}: {ratio:.3f}")
        rows.append([name, f"{best[before]:.3g} s", f"{best[after]:.3g} s", f"{ratio:.3f}"])
    print(json.dumps(machine("jax")))
    print(table(["case", "before", "after", "after / before"], rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:4]))
