"""What comes with training: set-up, report and comparison, beside the training itself.

The embedded default (digits, 20 devices), as `make run` has it, and a comparison of four methods
on it. Every case is a process of its own, the second of two, so that it finds its programs
compiled; loading these counts as training.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.common import machine, measure, progress, publish, table

TITLE = "Reports and comparisons beside training"
METHODS = ("adaptive", "fixed:3", "d-psgd", "balanced")
SEEDS = 5

_BEFORE = """
import json, sys, tempfile, time
from pathlib import Path
import joulemesh
from joulemesh.study.folder import RunFolder
from joulemesh.training.jax.engine import Engine
spent = {}
def timed(owner, name, label):
    function = getattr(owner, name)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[label] = spent.get(label, 0.0) + time.perf_counter() - start
    setattr(owner, name, wrapper)
timed(Engine, "advance", "training_s")
scenario = joulemesh.Scenario.preset("adaptive")
folder = tempfile.TemporaryDirectory()
out, start = Path(folder.name), time.perf_counter()
"""

_RUN = """
timed(RunFolder, "write_report", "report_s")
joulemesh.run(scenario, out=out / "run", seeds=int(sys.argv[1]))
"""

_COMPARE = """
methods, seeds = sys.argv[1].split(","), int(sys.argv[2])
made = joulemesh.compare(scenario, methods, seeds=seeds, cache=out / "cache")
timed(type(made), "save", "report_s")
made.save(out / "page")
"""

_AGAIN = """
spent["all_s"] = time.perf_counter() - start
start = time.perf_counter()
joulemesh.compare(scenario, methods, seeds=seeds, cache=out / "cache")
spent["again_s"] = time.perf_counter() - start
"""

_AFTER = """
spent.setdefault("all_s", time.perf_counter() - start)
print(json.dumps(spent))
"""


def case(name: str, code: str, *arguments: str) -> dict[str, Any]:
    progress(name)
    command = [sys.executable, "-c", _BEFORE + code + _AFTER, *arguments]
    measure(*command)
    wall, _, output = measure(*command)
    return {"name": name, "process_s": wall, **json.loads(output)}


def page(record: dict[str, Any]) -> str:
    rows = []
    for one in record["cases"]:
        whole, ran = one["process_s"], one["all_s"] + one.get("again_s", 0.0)
        rest = one["all_s"] - one["training_s"] - one["report_s"]
        shares = (one["training_s"], one["report_s"], rest, whole - ran, one.get("again_s"))
        shown = ("" if share is None else f"{100 * share / whole:.1f} %" for share in shares)
        rows.append([one["name"], f"{whole:.1f}", *shown])
    header = ["work", "process s", "training", "report", "the rest", "imports", "again, from cache"]
    return (
        "The embedded default: 20 devices, 100 iterations, digits; shares of the process. Training "
        "has its evaluations in it, and the loading of compiled programs; the rest is planning, "
        "data, checkpoints, the last evaluation and statistics. A comparison's report is its page, "
        "its tables and its figures (PNG and SVG, four of each); made again, it finds all its runs "
        "in the cache.\n\n" + table(header, rows)
    )


def main() -> None:
    compared = ", ".join(METHODS)
    cases = [
        case("run", _RUN, "1"),
        case(f"run of {SEEDS} seeds", _RUN, str(SEEDS)),
        case(
            f"comparison of {compared}, {SEEDS} seeds",
            _COMPARE + _AGAIN,
            ",".join(METHODS),
            str(SEEDS),
        ),
    ]
    record = {"machine": machine("jax", "jaxlib"), "cases": cases}
    publish("overhead", TITLE, page(record), record)


if __name__ == "__main__":
    main()
