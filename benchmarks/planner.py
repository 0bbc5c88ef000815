"""The planner: start-up against its own libraries, and time and memory as devices grow."""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import machine, measure, publish, table

TITLE = "Planner: start-up and scale"
SIZES = (20, 100, 1_000, 3_000, 10_000, 30_000, 100_000)
REPEATS = 7
LIBRARIES = "import numpy, scipy.sparse.csgraph, pydantic"


def start_up() -> dict[str, float]:
    """Median wall times, the three measured in turn so that a noisy moment hits all of them."""
    commands = {
        "libraries": [sys.executable, "-c", LIBRARIES],
        "import": [sys.executable, "-c", "import joulemesh; joulemesh.plan"],
        "plan": [sys.executable, "-m", "joulemesh", "plan"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(REPEATS + 1):
        for name, command in commands.items():
            times[name].append(measure(*command)[0])
    return {name: statistics.median(values[1:]) for name, values in times.items()}


_PLAN = """
import sys, time
import joulemesh
joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
count, side, out = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
start = time.perf_counter()
scenario = joulemesh.Scenario.preset("adaptive").override({
    "devices.count": count, "network.topology": "geometric", "network.area_m": side,
    "network.mean_degree": 20.0, "plan.iterations": 50, "budget.deadline_s": 10.0})
plan = joulemesh.plan(scenario)
plan.save(out)
print(time.perf_counter() - start, len(plan.world.graph.edges))
"""


def scale(count: int, folder: Path) -> dict[str, float]:
    """Seconds (of planning and of the whole process) and MiB, from a scenario to plan.npz."""
    side = 500 * math.sqrt(count / 20)
    command = [sys.executable, "-c", _PLAN, str(count), str(side), str(folder / "plan.npz")]
    wall, peak, output = measure(*command)
    inner, links = output.split()
    return {
        "devices": count,
        "links": int(links),
        "planning_s": float(inner),
        "process_s": wall,
        "peak_mib": peak,
    }


def page(record: dict[str, Any]) -> str:
    start = record["start_up_s"]
    base = next(row for row in record["scale"] if row["devices"] == 1_000)
    rows = []
    for row in record["scale"]:
        count = row["devices"]
        grown = row["planning_s"] / base["planning_s"]
        allowed = count * math.log(count) / (1_000 * math.log(1_000))
        rows.append(
            [
                f"{count:,}",
                f"{row['links']:,}",
                f"{row['planning_s']:.3f}",
                f"{row['process_s']:.2f}",
                f"{row['peak_mib']:.0f}",
                f"{grown:.1f}",
                f"{allowed:.1f}",
            ]
        )
    header = ["devices", "links", "planning s", "process s", "peak MiB", "growth", "n log n"]
    return (
        f"`joulemesh plan` on the default takes {record['ratio']:.2f} times as long as "
        f'`python -c "{LIBRARIES}"` ({start["plan"]:.2f} s against {start["libraries"]:.2f} s, '
        f"median of {REPEATS}); importing `joulemesh.plan` takes "
        f"{start['import'] / start['libraries']:.2f} times.\n\n"
        "Geometric graphs of mean degree 20, 50 iterations, from the scenario to `plan.npz`. "
        "Growth is the planning time against that of 1,000 devices, beside that of n log n.\n\n"
        + table(header, rows)
    )


def main() -> None:
    start = start_up()
    ratio = start["plan"] / start["libraries"]
    with tempfile.TemporaryDirectory() as folder:
        grown = [scale(count, Path(folder)) for count in SIZES]
    record = {"machine": machine("pydantic"), "start_up_s": start, "ratio": ratio, "scale": grown}
    publish("planner", TITLE, page(record), record)
