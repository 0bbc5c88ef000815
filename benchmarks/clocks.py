"""What slower processors bring to plans, how far these are from the bound, and what they take.

Plans alone: nothing is trained. With ``just-in-time`` rounds, messages and seconds are those at
full clock, so that what is learned is the same to the bit.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh
from benchmarks.common import ROOT, machine, measure, progress, publish, table
from joulemesh import JoulemeshError, Plan, Scenario

TITLE = "Slower clocks: joules, rounds and the bound"
RANGES = (0.3, 0.5)  # lowest clocks
TUNED = 700  # iterations of the tuned spread in the published comparison
DRAWN = 320  # random scenarios
LARGE = 100_000


def scenarios() -> dict[str, Scenario]:
    """The default, the paper's preset, and the comparison as planned there and with spread."""
    made = {"default": Scenario(), "preset paper": Scenario.preset("paper")}
    for path in sorted(Path(ROOT, "docs", "comparison").glob("*.toml")):
        one = made[path.stem] = Scenario.load(path)
        total_s = (one.budget.deadline_s or 0.0) * 100
        spread = {"plan.rounds": "spread", "plan.iterations": TUNED, "plan.aggregation": "auto"}
        spread |= {"budget.deadline_s": None, "budget.total_s": total_s}
        made[f"{path.stem}, spread:{TUNED}"] = one.override(spread)
    return made


def figures(plan: Plan) -> dict[str, float]:
    """What a plan comes to."""
    found = plan.certificate
    return {
        "iterations": plan.iterations,
        "rounds": int(plan.rounds.sum()),
        "compute_j": float(plan.compute_total_j.sum()),
        "total_j": float(plan.spent_j.sum()),
        "seconds": plan.time_s,
        "clock": float(plan.clock_share.mean()),
        "more": found.more,
        "saved": found.saved,
    }


def compared(name: str, scenario: Scenario, lowest: float) -> dict[str, Any]:
    """One scenario at full clock, just in time, planned, and for the least joules."""
    ranged = scenario.override({"devices.clock_range": [lowest, 1.0]})

    def plan(**changes: Any) -> Plan:
        return joulemesh.plan(ranged.override({f"plan.{k}": v for k, v in changes.items()}))

    full, paced = plan(clock="full"), plan(clock="just-in-time")
    assert np.array_equal(full.rounds, paced.rounds)
    assert np.array_equal(full.latency_s, paced.latency_s)
    same_n: dict[str, Any] = {"clock": "auto", "iterations": full.iterations}
    made = {"full": full, "just-in-time": paced, "auto": plan(**same_n)}
    made["least joules"] = plan(clock="auto", goal="joules")
    return {"scenario": name, "lowest": lowest, **{k: figures(v) for k, v in made.items()}}


# Random scenarios --------------------------------------------------------------------------------


def drawn(seed: int) -> Scenario:
    """A scenario at random: devices, links, batteries, time, policy, clocks."""
    rng = np.random.default_rng(seed)
    count, n = int(rng.integers(4, 21)), int(rng.integers(5, 60))
    each_s = float(10 ** rng.uniform(-2.5, -0.5))

    def each(low: float, high: float) -> dict[str, list[float]]:
        return {"values": rng.uniform(low, high, count).tolist()}

    scale_j = n * 10 ** rng.uniform(-2.0, 0.3)
    timed = rng.random() < 0.7
    policy = str(rng.choice(["spread", "spread", "theorem4", "uniform"]))
    return Scenario().override(
        {
            "seed": seed,
            "devices.count": count,
            "devices.cycles_per_sample": each(2e4, 2e5),
            "devices.clock_range": [float(rng.uniform(0.2, 0.7)), 1.0],
            "network.profile": "ideal",
            "network.topology": str(rng.choice(["ring", "complete", "geometric"])),
            "network.mean_degree": min(4.0, count - 1),
            "network.area_m": 100.0,
            "budget.energy_j": each(0.3 * scale_j, scale_j),
            "budget.deadline_s": None if timed else each_s,
            "budget.total_s": n * each_s if timed else None,
            "plan.iterations": n,
            "plan.rounds": policy,
            **({"devices.idle_w": float(rng.uniform(0.0, 0.3))} if rng.random() < 0.3 else {}),
        }
    )


def gaps() -> list[dict[str, Any]]:
    """Gaps to the bound of random scenarios that can be planned."""
    found: list[dict[str, Any]] = []
    seed = 0
    while len(found) < DRAWN:
        scenario, seed = drawn(seed), seed + 1
        try:
            plans = {
                clock: joulemesh.plan(scenario.override({"plan.clock": clock}))
                for clock in ("full", "auto")
            }
        except JoulemeshError:
            continue
        auto = plans["auto"]
        found.append(
            {
                "policy": scenario.plan.rounds,
                "per_iteration": float(auto.rounds.mean()),
                "full": plans["full"].certificate.more,
                "auto": auto.certificate.more,
                "rounds": int(auto.rounds.sum()) / int(plans["full"].rounds.sum()),
            }
        )
    return found


# Size --------------------------------------------------------------------------------------------

_LARGE = """
import sys, time
import joulemesh
scenario = joulemesh.Scenario.preset("adaptive").override({
    "devices.count": int(sys.argv[1]), "network.topology": "geometric",
    "network.area_m": 500 * (int(sys.argv[1]) / 20) ** 0.5, "network.mean_degree": 20.0,
    "plan.iterations": 50, "budget.deadline_s": 10.0, "devices.clock_range": [0.3, 1.0],
    "plan.rounds": sys.argv[3], "plan.clock": sys.argv[2]})
start = time.perf_counter()
plan = joulemesh.plan(scenario)
planned = time.perf_counter() - start
plan.spent_j, plan.certificate
print(planned, time.perf_counter() - start)
"""


def size(count: int, clock: str, policy: str) -> dict[str, Any]:
    """Seconds and MiB of a plan, with its totals and its certificate."""
    _, peak, output = measure(sys.executable, "-c", _LARGE, str(count), clock, policy)
    planned, whole = map(float, output.split())
    said = {"devices": count, "clock": clock, "policy": policy}
    return {**said, "planning_s": planned, "whole_s": whole, "peak_mib": peak}


def small_s() -> dict[str, float]:
    """Seconds of the default plan of 20 devices with a given number of iterations."""
    scenario = Scenario().override({"devices.clock_range": [0.3, 1.0], "plan.iterations": 100})
    found = {}
    for clock in ("full", "just-in-time", "auto"):
        one = scenario.override({"plan.clock": clock})
        times = []
        for _ in range(5):
            start = time.perf_counter()
            joulemesh.plan(one).certificate  # noqa: B018
            times.append(time.perf_counter() - start)
        found[clock] = min(times)
    return found


# The page ----------------------------------------------------------------------------------------


def _times(value: float, base: float) -> str:
    return f"× {value / base:.2f}"


def _compared(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        full, paced, auto, least = (
            row[k] for k in ("full", "just-in-time", "auto", "least joules")
        )
        cells.append(
            [
                row["scenario"],
                f"{full['compute_j']:,.0f} of {full['total_j']:,.0f}",
                _times(paced["compute_j"], full["compute_j"]),
                _times(paced["total_j"], full["total_j"]),
                _times(least["compute_j"], full["compute_j"]),
                _times(least["seconds"], full["seconds"]),
                _times(auto["rounds"], full["rounds"]),
                _times(auto["total_j"], full["total_j"]),
                f"{100 * auto['more']:.1f} %",
            ]
        )
    head = ["scenario", "full: J of computing, in all", "just in time: computing", "in all"]
    head += ["least joules: computing", "seconds", "auto: rounds", "J in all", "bound"]
    return table(head, cells)


def _gaps(rows: list[dict[str, Any]]) -> str:
    groups = {
        "all": rows,
        "spread": [row for row in rows if row["policy"] == "spread"],
        "spread, 3 rounds or more per iteration": [
            row for row in rows if row["policy"] == "spread" and row["per_iteration"] >= 3
        ],
        "spread, fewer": [
            row for row in rows if row["policy"] == "spread" and row["per_iteration"] < 3
        ],
        "theorem4, uniform": [row for row in rows if row["policy"] != "spread"],
    }
    cells = []
    for name, some in groups.items():
        for clock in ("full", "auto"):
            more = 100 * np.array([row[clock] for row in some])
            cells.append(
                [
                    name,
                    clock,
                    f"{len(some):,}",
                    *(f"{x:.1f} %" for x in (np.median(more), np.quantile(more, 0.9), more.max())),
                ]
            )
    return table(["policy", "clock", "scenarios", "median", "90 of 100", "worst"], cells)


def page(record: dict[str, Any]) -> str:
    parts = [
        "Plans at full clock, and with processors that can run slower (cubic law, modelled). "
        "**Just in time**: the same rounds, messages and seconds, so the same model to the bit. "
        '**Least joules** (`plan.goal = "joules"`): the same rounds, in all the time that the '
        "budget allows. **Auto**: as many iterations, and as many rounds as the same batteries "
        "and the same time allow. *Bound*: no plan with these exchanges has more rounds than "
        f"auto's by more than that. `spread:{TUNED}` is the tuned plan of the comparison.",
    ]
    for lowest in RANGES:
        rows = [row for row in record["scenarios"] if row["lowest"] == lowest]
        parts += [f"## Clocks from {lowest:g} of full speed", _compared(rows)]
    parts += [
        "## Distance to the bound",
        f"{len(record['gaps']):,} random scenarios (4 to 20 devices, 5 to 59 iterations, three "
        "topologies, a deadline or a total time, some with power at rest): by how much rounds "
        "could grow at the most. At full clock the bound is that at full clock. The bound lets "
        "rounds be fractions, and knows no policy: `theorem4` wants more rounds in late "
        "iterations, and pays for that with faster clocks.",
        _gaps(record["gaps"]),
        "## Seconds and memory",
        "20 devices and 100 iterations take "
        + ", ".join(f"{1e3 * s:.0f} ms ({clock})" for clock, s in record["small_s"].items())
        + ", certificate included. 50 iterations of many devices on a geometric graph:",
        table(
            ["devices", "policy", "clock", "planning s", "with totals and bound s", "peak MiB"],
            [
                [
                    f"{row['devices']:,}",
                    row["policy"],
                    row["clock"],
                    f"{row['planning_s']:.1f}",
                    f"{row['whole_s']:.1f}",
                    f"{row['peak_mib']:.0f}",
                ]
                for row in record["sizes"]
            ],
        ),
    ]
    return "\n\n".join(parts)


def main() -> None:
    rows = []
    for name, scenario in scenarios().items():
        progress(name)
        rows += [compared(name, scenario, lowest) for lowest in RANGES]
    progress("random scenarios")
    found = gaps()
    progress("sizes")
    kinds = [("full", "theorem4"), ("just-in-time", "theorem4"), ("auto", "theorem4")]
    sizes = [size(LARGE, clock, policy) for clock, policy in (*kinds, ("auto", "spread"))]
    record = {
        "machine": machine(),
        "scenarios": rows,
        "gaps": found,
        "small_s": small_s(),
        "sizes": sizes,
    }
    publish("clocks", TITLE, page(record), record)


if __name__ == "__main__":
    main()
