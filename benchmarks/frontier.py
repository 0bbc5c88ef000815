"""Accuracy over joules in the same seconds: each choice of the whole plan added in turn.

    python -m benchmarks.frontier            measure what is missing, and write the page
    python -m benchmarks.frontier --page     only write the page again

Twelve devices on a geometric graph learn the digits, whose labels are skewed, once with links on
which an exchange costs a thirtieth of a round and once where it costs two. Batteries hold a
quarter, half and all of their joules; the total time stays. The learning rate is chosen for every
rung of the ladder by itself, on seeds that no result uses. Each cell is kept as soon as it is made,
so that the command can be stopped and started again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from math import inf
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.common import OUT, machine, page_text, progress, table
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.scenario import Scenario

TITLE = "What each choice of the plan buys"
RECORD, FIGURE = OUT / "frontier.json", OUT / "frontier.svg"

BASE: dict[str, Any] = {
    "devices.count": 12,
    "network.profile": "ideal",
    "network.topology": "geometric",
    "network.mean_degree": 5,
    "network.area_m": 300,
    "devices.transmit_power_w": 1.0,
    "budget.total_s": 0.65,
    "training.alpha": 0.1,
}
BATTERY_J = (1.0, 3.0)
SHARES = (0.25, 0.5, 1.0)
REGIMES = {
    "exchanges are cheap (20 MHz)": {"network.bandwidth_hz": 20e6},
    "exchanges are dear (0.25 MHz)": {"network.bandwidth_hz": 0.25e6},
}
PAPER = {
    "plan.rounds": "theorem4",
    "plan.aggregation": "theorem3",
    "plan.iterations": "longest",
    "plan.tree": "least",
}
CLOCKS = {"devices.clock_range": [0.3, 1.0], "plan.clock": "auto"}
POWERS = {"devices.power_range_w": [0.01, 1.0], "plan.power": "auto"}
CAUTIOUS = {
    "devices.clock_range": [0.5, 1.0],
    "devices.power_range_w": [0.01, 1.0],
    "devices.circuit_w": 0.1,
}
# Each rung has what those above it have. "plan.iterations" of the second is filled in.
LADDER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("spread, iterations as before", {"plan.tree": "least"}),
    ("+ iterations = auto", {"plan.iterations": "auto"}),
    ("+ tree", {"plan.tree": "auto"}),
    ("+ clocks", CLOCKS),
    ("+ powers", POWERS),
    ("+ 8 bits", {"plan.bits": 8}),
    ("+ batches of 8", {"training.batch_size": 8}),
)
ALL = "all, clocks from one half, 0.1 W of circuits"
RATES = (0.05, 0.1, 0.2)
WORLDS, SEEDS, TUNING = (0, 1, 2), (1, 2, 3, 4, 5), (101, 102)


def rungs() -> dict[str, dict[str, Any]]:
    """What each rung sets, by its name."""
    found, so_far = {"the paper's plan": dict(PAPER)}, dict[str, Any]()
    for name, changes in LADDER:
        so_far = {**so_far, **changes}
        found[name] = so_far
    return {**found, ALL: {**so_far, **CAUTIOUS}}


def former_iterations(scenario: Scenario) -> int:
    """The n of the former rule: least 1/Q + 1/n, for the mean rounds Q beside n exchanges."""
    import joulemesh

    def value(n: int) -> float:
        try:
            plan = joulemesh.plan(scenario.override({"plan.iterations": n}))
        except InfeasibleError:
            return np.inf
        rounds = plan.rounds.sum(axis=0)
        return float(1 / max(rounds.mean(), 1e-9) + 1 / min(n, max(1, rounds.max())))

    grid = np.unique(np.rint(np.geomspace(1, 600, 24)).astype(int)).tolist()
    return int(min(grid, key=value))


def scenario_of(regime: str, rung: str, share: float, world: int) -> Scenario:
    """A cell of the table."""
    battery = [share * joules for joules in BATTERY_J]
    common = {**BASE, **REGIMES[regime], "budget.energy_j": battery}
    made = Scenario(seed=world).override({**common, **rungs()[rung]})
    if rung == LADDER[0][0]:
        made = made.override({"plan.iterations": former_iterations(made)})
    return made


def trained(scenario: Scenario, seeds: tuple[int, ...]) -> dict[str, Any]:
    """Accuracy of each seed, joules and seconds."""
    import joulemesh

    try:
        result = joulemesh.run(scenario, seeds=seeds)
    except (InfeasibleError, ScenarioError) as error:
        return {"why": str(error)}
    plan = result.plan
    return {
        "accuracy": np.atleast_1d(result.accuracy[-1]).round(6).tolist(),
        "course": float(np.mean(result.accuracy).round(6)),  # the mean over all evaluations
        "joules": float(plan.spent_j.sum()),
        "seconds": float(plan.latency_s.sum()),
        "iterations": plan.iterations,
        "rounds": int(plan.rounds.sum()),
    }


def _task(task: tuple[str, str, Scenario, tuple[int, ...]]) -> tuple[str, str, dict[str, Any]]:
    part, key, scenario, seeds = task
    return part, key, {"digest": _digest(scenario, seeds), **trained(scenario, seeds)}


def _digest(scenario: Scenario, seeds: tuple[int, ...]) -> str:
    return hashlib.sha256(f"{scenario.model_dump_json()} {seeds}".encode()).hexdigest()[:16]


def measure(only: str, jobs: int, stop_s: float) -> None:
    """Fill in what the record lacks, in so many processes and no longer than so many seconds."""
    record: dict[str, Any] = {"machine": machine("jax"), "module": "benchmarks.frontier"}
    record |= {"rates": {}, "cells": {}}
    if RECORD.is_file():
        before = json.loads(RECORD.read_text("utf-8"))
        record |= {"rates": before["rates"], "cells": before["cells"]}
    begun = time.monotonic()
    wanted = [(r, rung) for r in REGIMES for rung in rungs() if only in f"{r}: {rung}"]

    def fill(tasks: Sequence[tuple[str, str, Scenario, tuple[int, ...]]]) -> None:
        left = [
            (part, key, scenario, seeds)
            for part, key, scenario, seeds in tasks
            if record[part].get(key, {}).get("digest") != _digest(scenario, seeds)
        ]
        if not left:
            return
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            waiting = {pool.submit(_task, task) for task in left}
            while waiting and time.monotonic() - begun < stop_s:
                done, waiting = wait(waiting, timeout=5.0, return_when=FIRST_COMPLETED)
                for one in done:
                    part, key, found = one.result()
                    progress(key)
                    record[part][key] = found
                RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
            pool.shutdown(wait=False, cancel_futures=True)

    def rate_key(regime: str, rung: str, rate: float) -> str:
        return f"{regime}: {rung}: rate {rate:g}"

    fill(
        [
            (
                "rates",
                rate_key(regime, rung, rate),
                scenario_of(regime, rung, 0.5, WORLDS[0]).override(
                    {"training.learning_rate": rate}
                ),
                TUNING,
            )
            for regime, rung in wanted
            for rate in RATES
        ]
    )
    cells = []
    for regime, rung in wanted:
        known = [record["rates"].get(rate_key(regime, rung, rate), {}) for rate in RATES]
        reached = [one.get("course", 0.0) for one in known]
        rate = RATES[int(np.argmax(reached))]
        for share in SHARES:
            for world in WORLDS:
                scenario = scenario_of(regime, rung, share, world)
                scenario = scenario.override({"training.learning_rate": rate})
                key = f"{regime}: {rung}: {share:g} of the joules: world {world}"
                cells.append(("cells", key, scenario, SEEDS))
    fill(cells)


def _cells(record: dict[str, Any], regime: str, rung: str, share: float) -> list[dict[str, Any]]:
    keys = [f"{regime}: {rung}: {share:g} of the joules: world {world}" for world in WORLDS]
    return [record["cells"][key] for key in keys if "accuracy" in record["cells"].get(key, {})]


def _by_world(cells: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    return np.array([100 * np.mean(cell["accuracy"]) for cell in cells])


def page(record: dict[str, Any]) -> str:
    """What the record says."""
    parts = [
        "Twelve devices on a geometric graph learn the digits with a Dirichlet(0.1) skew, in "
        f"{BASE['budget.total_s']:g} s; {len(WORLDS)} worlds, {len(SEEDS)} seeds each. Every row "
        "has the choices of the rows above it; the learning rate is chosen for each row from "
        f"{', '.join(f'{rate:g}' for rate in RATES)} by the accuracy over the whole course of two "
        "seeds that no result uses. A batch of 8 is priced as a quarter of one of 32: steps have "
        "no cost of their own in this model, so that row is an upper bound. Clocks may go "
        "down to 0.3 of full speed (cubic law) and powers to 10 mW, without circuits: ideal "
        "physics. The last row allows no clock below one half and adds 0.1 W of circuits to every "
        "transmission. Accuracy of the mean model in per cent; ± is half a 95 % interval over "
        "worlds; the difference is to the row above it in the same worlds and seeds.\n"
    ]
    for regime in REGIMES:
        rows, before = [], None
        for rung in rungs():
            row = [rung]
            for share in SHARES:
                cells = _cells(record, regime, rung, share)
                row.append(_interval(_by_world(cells)) if cells else "no plan")
            full = _cells(record, regime, rung, SHARES[-1])
            now = _by_world(full)
            known = before is not None and len(before) == len(now) > 1
            row.append(_interval(now - before, signed=True) if known else "")
            row.append(f"{np.mean([cell['joules'] for cell in full]):.3g} J" if full else "")
            row.append(f"{np.mean([cell['iterations'] for cell in full]):.0f}" if full else "")
            row.append(f"{np.mean([cell['rounds'] for cell in full]):,.0f}" if full else "")
            rows.append(row)
            before = now
        head = ["plan", *(f"{100 * share:g} % of the joules" for share in SHARES)]
        head += ["difference, all joules", "spent", "iterations (communication rounds)"]
        head += ["local rounds"]
        parts.append(f"## {regime[0].upper()}{regime[1:]}\n\n{table(head, rows)}\n")
    return "\n".join([*parts, "![Accuracy over joules](frontier.svg)"])


def _interval(values: np.ndarray[Any, Any], *, signed: bool = False) -> str:
    mean = float(values.mean())
    text = f"{mean:+.1f}" if signed else f"{mean:.1f}"
    if len(values) < 2:
        return text
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{text} ± {half:.1f}"


def draw(record: dict[str, Any]) -> None:
    """The same as a figure."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(REGIMES), figsize=(10, 4), sharey=True, layout="tight")
    for axis, regime in zip(axes, REGIMES, strict=True):
        for number, rung in enumerate(rungs()):
            points = []
            for share in SHARES:
                cells = _cells(record, regime, rung, share)
                if cells:
                    joules = float(np.mean([cell["joules"] for cell in cells]))
                    points.append((joules, float(_by_world(cells).mean())))
            if points:
                style = "--" if rung == ALL or number == 0 else "-"
                axis.plot(*zip(*points, strict=True), style, marker="o", markersize=3, label=rung)
        axis.set_title(regime, fontsize=10)
        axis.set_xlabel("joules of all devices")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy of the mean model, %")
    axes[1].legend(fontsize=7)
    matplotlib.rcParams["svg.hashsalt"] = "frontier"
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.frontier")
    parser.add_argument("--only", default="", help='"REGIME: RUNG" contains this')
    parser.add_argument("--jobs", type=int, default=1, help="processes, one core each")
    parser.add_argument("--stop", type=float, default=inf, help="seconds after which it stops")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    asked = parser.parse_args()
    if not asked.page:
        measure(asked.only, asked.jobs, asked.stop)
    record = json.loads(RECORD.read_text("utf-8"))
    text = page_text("frontier", TITLE, page(record), record)
    (OUT / "frontier.md").write_text(text, "utf-8")
    draw(record)
    print(text)


if __name__ == "__main__":
    main()
