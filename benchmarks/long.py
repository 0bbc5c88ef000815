"""Long runs and large folders: does the last iteration cost what the first did, and verifying?

A run of 100,000 iterations, each evaluated, kept in a folder and passed on to a logger; and
`joulemesh verify` of a folder with 100 checkpoints.

    python -m benchmarks long              both, in processes of their own; publishes the page
    python -m benchmarks.long run          the long run alone: the last line printed is its record
    python -m benchmarks.long verify       verifying alone, likewise
    python -m benchmarks.long keep PART FILE WHERE
                                           publishes a record that another machine printed: PART is
                                           run or verify, FILE what was printed, WHERE a JSON file
                                           that says on which machine (`benchmarks.common.machine`)
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import OUT, machine, measure, own_peak_mib, progress, publish, table

TITLE = "Long runs and large folders"
ITERATIONS, WINDOW, CHUNK = 100_000, 1000, 50
CHECKPOINTS = 100
VERIFIED = 5  # times
SCENARIO = {
    "devices.count": 4,
    "plan.iterations": ITERATIONS,
    "budget.energy_j": 1e6,
    "training.model": "logistic",
    "training.chunk_iterations": CHUNK,
    "training.eval_every": 1,
}


def long_run() -> dict[str, Any]:
    """Rates of every thousand iterations, and what the run took and left."""
    import joulemesh

    rows, clock = 0, [(0, time.perf_counter())]

    def told(row: Any) -> None:
        nonlocal rows
        rows += 1

    def step(now: joulemesh.Progress) -> None:
        clock.append((now.completed, time.perf_counter()))
        if now.completed % (10 * WINDOW) == 0:
            progress(f"{now.completed} of {now.iterations} iterations")

    from joulemesh.base.files import verified

    scenario = joulemesh.Scenario.preset("adaptive").override(SCENARIO)
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "run")
        joulemesh.run(scenario, out=out, on_progress=step, on_metrics=told)
        sizes = {name: (out / name).stat().st_size for name in ("metrics.csv", "manifest.jsonl")}
        commits = verified(out).commits
    steady = clock[1:]  # the first chunk is compiled
    return {
        "first": _rate([at for at in steady if at[0] <= steady[0][0] + WINDOW]),
        "last": _rate([at for at in steady if at[0] >= ITERATIONS - WINDOW]),
        "thousands": [
            _rate([at for at in steady if k <= at[0] <= k + WINDOW])
            for k in range(WINDOW, ITERATIONS, WINDOW)
        ],
        "rows": rows,
        "bytes": sizes,
        "commits": commits,
        "peak_mib": own_peak_mib(),
    }


def _rate(moments: list[tuple[int, float]]) -> float:
    """Iterations a second: the median over chunks, which the machine's other work hardly moves."""
    return statistics.median((b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(moments))


def folder_of_checkpoints(place: Path) -> int:
    """Make a run folder whose manifest names many checkpoints of an MLP; the bytes in it."""
    import joulemesh
    from joulemesh.study import folder
    from joulemesh.study import run as run_module

    before = folder._KEPT, run_module.SAVE_EVERY_S
    folder._KEPT, run_module.SAVE_EVERY_S = CHECKPOINTS, 0.0  # keep all, one after every chunk
    changes: dict[str, Any] = {"plan.iterations": 4 * CHECKPOINTS, "training.chunk_iterations": 4}
    # Moments make a checkpoint hold every device's parameters.
    changes |= {"budget.energy_j": 1e6, "training.optimizer": "adam"}
    try:
        joulemesh.run(joulemesh.Scenario.preset("adaptive").override(changes), out=place)
    finally:
        folder._KEPT, run_module.SAVE_EVERY_S = before
    made = list((place / "checkpoint").iterdir())
    assert len(made) == CHECKPOINTS, len(made)
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def verifying() -> dict[str, Any]:
    """Seconds of `joulemesh verify`, start-up included and excluded."""
    place = Path(tempfile.mkdtemp())
    try:
        size = folder_of_checkpoints(place / "run")
        command = [sys.executable, "-m", "joulemesh", "verify", str(place / "run")]
        within = (
            "import sys, time; from pathlib import Path; from joulemesh.base.files import "
            "verified; start = time.perf_counter(); assert verified(Path(sys.argv[1])).intact; "
            "print(time.perf_counter() - start); assert 'jax' not in sys.modules"
        )
        inside = [sys.executable, "-c", within, str(place / "run")]
        return {
            "bytes": size,
            "command_s": [measure(*command)[0] for _ in range(VERIFIED)],
            "inside_s": [float(measure(*inside)[2]) for _ in range(VERIFIED)],
        }
    finally:
        shutil.rmtree(place)


def page(record: dict[str, Any]) -> str:
    """The page's body; a part that was measured on another machine says on which."""
    parts = [(_long_text, record.get("long")), (_verify_text, record.get("verify"))]
    return "\n\n".join(text(part) for text, part in parts if part)


def _long_text(long: dict[str, Any]) -> str:
    mib = {name: size / 2**20 for name, size in long["bytes"].items()}
    thousands = long["thousands"]
    rows = [
        ["the first thousand (after the first chunk, which is compiled)", f"{long['first']:.0f}"],
        ["the slowest thousand", f"{min(thousands):.0f}"],
        ["the median thousand", f"{statistics.median(thousands):.0f}"],
        ["the last thousand", f"{long['last']:.0f}"],
    ]
    return (
        f"## A run of {ITERATIONS:,} evaluations\n\n"
        f"Four devices, logistic regression, an evaluation after each of {ITERATIONS:,} "
        "iterations, kept in a run folder and passed on to a logger (`on_metrics`). Rates are "
        f"medians over chunks of {CHUNK} iterations.\n\n"
        + table(["iterations", "per second"], rows)
        + f"\n\nThe last thousand ran at {100 * long['last'] / long['first']:.0f} % of the rate of "
        f"the first. In the end `metrics.csv` had {mib['metrics.csv']:.1f} MiB, the manifest "
        f"{mib['manifest.jsonl']:.1f} MiB in {long['commits']:,} commits; {long['rows']:,} rows "
        f"were passed on, and the process had taken {long['peak_mib']:.0f} MiB at most."
    )


def _verify_text(verify: dict[str, Any]) -> str:
    times = [
        ["the command, start-up included", f"{statistics.median(verify['command_s']):.2f} s"],
        ["verifying alone", f"{statistics.median(verify['inside_s']):.2f} s"],
    ]
    return (
        f"## Verifying {CHECKPOINTS} checkpoints\n\n"
        f"`joulemesh verify` of a run folder with {CHECKPOINTS} checkpoints, "
        f"{verify['bytes'] / 2**20:.0f} MiB in all; medians of {VERIFIED}{_elsewhere(verify)}.\n\n"
        + table(["", "time"], times)
    )


def _elsewhere(part: dict[str, Any]) -> str:
    where = part.get("machine")
    return f"; on {where['cores']} cores of {where['processor']}" if where else ""


def main() -> None:
    """Measure both, in processes of their own."""
    progress("verifying 100 checkpoints")
    verify = json.loads(measure(sys.executable, "-m", "benchmarks.long", "verify")[2])
    progress(f"{ITERATIONS} iterations")
    long = json.loads(measure(sys.executable, "-m", "benchmarks.long", "run")[2])
    record = {"machine": machine("jax"), "long": long, "verify": verify}
    publish("long", TITLE, page(record), record)


def keep(part: str, printed: Path, where: Path) -> None:
    """Publish what another machine printed, beside what is published of the other part."""
    kept = OUT / "long.json"
    record = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    found = json.loads(printed.read_text("utf-8").strip().splitlines()[-1])
    place = json.loads(where.read_text("utf-8"))
    if part == "run":
        record |= {"machine": place, "long": found}
    else:
        found |= {"machine": place} if record.get("machine", place) != place else {}
        record = {"machine": place, **record, "verify": found}
    publish("long", TITLE, page(record), record)


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        keep(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        print(json.dumps(verifying() if sys.argv[1:] == ["verify"] else long_run()))
