"""Many devices, whole runs: plan, train on a tree, evaluate, report.

Every run is a process of its own, the second of two, so that it finds its programs compiled. The
data are digits, of which each device draws 4: what is measured is what devices cost.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.common import OUT, machine, measure, progress, publish, table

TITLE = "Many devices on one machine"
SIZES = (1_000, 10_000, 100_000)
ITERATIONS, ROUNDS, HIDDEN = 3, 2, 200

_RUN = """
import json, sys, tempfile, time
import joulemesh
from joulemesh.study import folder
count, iterations, rounds, hidden = map(int, sys.argv[1:])
scenario = joulemesh.Scenario.preset("adaptive").override({
    "devices.count": count, "devices.samples": 4, "network.topology": "geometric",
    "network.area_m": 30.0 * count**0.5, "network.mean_degree": 10.0, "plan.aggregation": "tree",
    "plan.iterations": iterations, "plan.rounds": "fixed", "plan.fixed_rounds": rounds,
    "budget.energy_j": 1e6, "budget.deadline_s": 1e6, "training.partition": "resample",
    "training.hidden": [hidden], "training.eval_every": iterations})
spent, write = [], folder.RunFolder.write_report
def timed(self, result):
    start = time.perf_counter()
    write(self, result)
    spent.append(time.perf_counter() - start)
folder.RunFolder.write_report = timed
start = time.perf_counter()
with tempfile.TemporaryDirectory() as out:
    result = joulemesh.run(scenario, out=out + "/run")
print(json.dumps({
    "run_s": time.perf_counter() - start, "report_s": spent[0],
    "train_s": sum(chunk.wall_s for chunk in result.chunks),
    "parameters": sum(leaf.size for leaf in result.params.values()),
    "accuracy": float(result.accuracy[-1])}))
"""

_PLAN = """
import json, sys, time
import joulemesh
count, exchange, change = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
scenario = joulemesh.Scenario.preset("adaptive").override({
    "devices.count": count, "devices.samples": 4, "network.topology": "geometric",
    "network.area_m": 30.0 * count**0.5, "network.mean_degree": 20.0, "network.medium": "shared",
    "plan.aggregation": "tree-chunked", "plan.exchange": exchange, "plan.iterations": 3,
    "plan.rounds": "fixed", "plan.fixed_rounds": 2, "budget.energy_j": 1e6,
    "budget.deadline_s": 1e6, "training.partition": "resample", **change})
start, cpu = time.perf_counter(), time.process_time()
plan = joulemesh.plan(scenario)
print(json.dumps({
    "plan_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu,
    "links": len(plan.world.graph.edges), "messages": plan.timeline.route.count,
    "exchange_s": float(plan.timeline.exchange_s[0])}))
"""
SHARED_DEVICES, RANGE_M = 100_000, 75.0  # about as far as links reach


def shared_plans() -> list[dict[str, Any]]:
    """Plans for 100,000 devices and 1,000,000 links in a shared medium."""
    kinds = [(exchange, one) for exchange in ("exact", "neighbours") for one in (False, True)]
    return [shared_plan(exchange, broadcast) for exchange, broadcast in kinds]


def shared_plan(exchange: str, broadcast: bool) -> dict[str, Any]:
    progress(f"{SHARED_DEVICES:,} devices, shared medium, {exchange}, {broadcast=}")
    change = json.dumps({"network.interference_m": RANGE_M, "network.broadcast": broadcast})
    command = [sys.executable, "-c", _PLAN, str(SHARED_DEVICES), exchange, change]
    wall, peak, output = measure(*command)
    said = {"exchange": exchange, "broadcast": broadcast, "process_s": wall}
    return said | {"peak_mib": peak, **json.loads(output)}


def _shared_page(plans: list[dict[str, Any]]) -> str:
    if not plans:
        return ""
    rows = [
        [
            "neighbours" if one["exchange"] == "neighbours" else "tree-chunked",
            "broadcasts" if one["broadcast"] else "messages",
            f"{one['links']:,}",
            f"{one['messages']:,}",
            f"{one['process_s']:.1f}",
            f"{one['cpu_s']:.1f}",
            f"{one['peak_mib']:,.0f}",
            f"{one['exchange_s']:.3g}",
        ]
        for one in plans
    ]
    header = ["exchange", "sent as", "links", "messages of an exchange", "process s", "CPU s"]
    return (
        "\n\n## Plans in a shared medium\n\n"
        f"`joulemesh.plan` for {SHARED_DEVICES:,} devices in a shared medium with interference up "
        f"to {RANGE_M:g} m, about as far as links reach: every message has a slot. Time and peak "
        "memory are of the whole process.\n\n"
        + table([*header, "peak MiB", "seconds of the exchange"], rows)
    )


def whole_run(count: int) -> dict[str, Any]:
    command = [sys.executable, "-c", _RUN, *map(str, (count, ITERATIONS, ROUNDS, HIDDEN))]
    progress(f"{count:,} devices")
    measure(*command)
    wall, peak, output = measure(*command)
    return {"devices": count, "process_s": wall, "peak_mib": peak, **json.loads(output)}


def page(record: dict[str, Any]) -> str:
    runs = record["runs"]
    least = runs[0]
    rows = []
    for run in runs:
        steps = run["devices"] * ITERATIONS * ROUNDS
        stacked = run["devices"] * run["parameters"] * 4 / 2**20
        rows.append(
            [
                f"{run['devices']:,}",
                f"{steps:,}",
                f"{run['run_s']:.1f}",
                f"{run['train_s']:.1f}",
                f"{1e6 * run['train_s'] / steps:.1f}",
                f"{run['report_s']:.1f}",
                f"{run['peak_mib']:,.0f}",
                f"{100 * (run['peak_mib'] / least['peak_mib'] - 1):+.0f} %",
                f"{stacked:,.0f}",
            ]
        )
    header = ["devices", "device-steps", "run s", "training s", "µs per device-step", "report s"]
    header += ["peak MiB", "above the least", "MiB of all devices' parameters"]
    each = (runs[-1]["peak_mib"] - least["peak_mib"]) * 2**20
    each /= runs[-1]["devices"] - least["devices"]
    return (
        f"`joulemesh.run` of an MLP 64-{HIDDEN}-10 on a spanning tree: {ITERATIONS} iterations of "
        f"{ROUNDS} rounds, batch 32, planning, checkpoints, evaluation and report included. Time "
        "and peak memory are of the whole process.\n\n"
        + table(header, rows)
        + f"\n\nA device more takes {each:,.0f} bytes: links, plan, ledger and samples. Its "
        f"parameters, {least['parameters'] * 4:,} bytes, are never kept: plain SGD with an exact "
        "mean trains each device from the shared start and adds up."
        + _shared_page(record.get("shared", []))
    )


def main(only_shared: bool = False) -> None:
    if only_shared:  # beside the runs that are recorded
        record = json.loads((OUT / "scale.json").read_text("utf-8"))
        record["shared"] = shared_plans()
    else:
        runs = [whole_run(count) for count in SIZES]
        record = {"machine": machine("jax", "jaxlib"), "runs": runs, "shared": shared_plans()}
    publish("scale", TITLE, page(record), record)


if __name__ == "__main__":
    main(only_shared="--shared" in sys.argv)
