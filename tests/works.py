"""Small pieces of work that write everything there is to write, for tests of what may interrupt it.

In: a folder. Out: a run or a comparison in it, begun or taken up where it was left.
"""

from __future__ import annotations

from pathlib import Path

import joulemesh

TINY = {
    "devices.count": 4,
    "plan.iterations": 8,
    "training.model": "logistic",
    "training.chunk_iterations": 2,
    "training.eval_every": 1,
}


def run(place: Path) -> None:
    """Start a run, or go on with what is left of it."""
    scenario = joulemesh.Scenario.preset("adaptive").override(TINY)
    joulemesh.run(scenario, out=place / "run", resume=True)


def compare(place: Path) -> None:
    """Compare two methods, and keep the study."""
    scenario = joulemesh.Scenario.preset("adaptive").override(TINY)
    found = joulemesh.compare(scenario, "adaptive,fixed:1", seeds=2, cache=place / "cache")
    found.save(place / "study")


RUN = ("model.safetensors", "metrics.csv", "ledger.csv", "scenario.toml")
WORKS = {
    "run": (run, "run", [f"run/{name}" for name in RUN]),
    "compare": (compare, "study", ["study/table.csv", "study/comparison.csv"]),
}
