"""How far `plan.iterations = "auto"` is from the best number of iterations, over random worlds.

Twelve devices with unequal processors on a geometric graph, a grid or a ring, with equal batteries
or unequal ones (1 : 4), labels by Dirichlet(0.1, 0.5 or 1), Wi-Fi messages or ideal ones. The price
of a round is drawn so that an exchange over 1 MHz costs half a round to four; the battery pays for
40 to 250 rounds, and the total time is 0.7 to 5 times what these and ten exchanges take. Plans are
the product's; training is a loop of its own in NumPy (the same SGD, the same partitions), which
takes a fraction of a second: an MLP 64-32-10 on the digits, learning rate 0.2.

The best number is the best of a grid by half of the seeds, and judged by the others, both ways:
judged by the seeds that chose it, it would look better than it is. Worlds are kept one by one in
.bench/auto, so that the command can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import BENCH, machine, progress, publish, table
from joulemesh.base.errors import JoulemeshError
from joulemesh.data import load, partition
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import Iterations
from joulemesh.planning.static import StaticPlanner
from joulemesh.scenario import Scenario

TITLE = "Iterations that the plan chooses"
FIRST = 100  # the rule was learnt on worlds before
BANDWIDTHS = (0.2e6, 1e6, 5e6, 20e6)
MEDIA: dict[str, dict[str, Any]] = {
    "orthogonal": {},
    "half duplex": {"network.duplex": "half"},
    "shared": {"network.medium": "shared", "network.interference_m": 200.0},
}
DEVICES, HIDDEN, RATE, BATCH = 12, 32, 0.2, 32
GRID, MOST = 10, 600
PAPER = {"plan.rounds": "theorem4", "plan.aggregation": "tree"}
PAPER_N = 100  # the preset's number, where the batteries pay for so many
KEPT = BENCH / "auto"

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


# Worlds -------------------------------------------------------------------------------------------


def drawn(number: int) -> tuple[dict[str, Any], Scenario]:
    """A world: what it is, and its scenario over 1 MHz."""
    rng = np.random.default_rng([7, number])
    battery, time, dear = (
        float(np.exp(rng.uniform(*np.log(span)))) for span in ((40, 250), (0.7, 5), (0.5, 4))
    )
    what = {
        "topology": ("geometric", "grid", "ring", "geometric")[number % 4],
        "alpha": (0.1, 0.5, 1.0)[number % 3],
        "profile": ("ideal", "wifi")[number % 2],
        "unequal": bool(rng.random() < 0.5),
        "rounds": battery,
        "time": time,
        "exchange": dear,
    }
    scenario = Scenario().override(
        {
            "seed": number,
            "devices.count": DEVICES,
            "network.topology": what["topology"],
            "network.profile": what["profile"],
            "network.bandwidth_hz": 1e6,
            "network.mean_degree": 4.0,
            "training.hidden": [HIDDEN],
            "training.alpha": what["alpha"],
        }
    )
    round_j, _, exchange_j, _ = prices(scenario)
    times = exchange_j / (dear * round_j)
    scenario = scenario.override({"devices.cycles_per_sample": [1e5 * times, 3e5 * times]})
    energy_j = battery * prices(scenario)[0]
    spread_j = [0.4 * energy_j, 1.6 * energy_j] if what["unequal"] else energy_j
    return what, scenario.override({"budget.energy_j": spread_j})


def prices(scenario: Scenario) -> tuple[float, float, float, float]:
    """Joules and seconds of a round and of an exchange along a pipelined tree, means of devices."""
    fixed = {"plan.iterations": 1, "plan.aggregation": "tree-chunked"}
    planner = StaticPlanner(Ground.of(scenario.override(fixed)))
    devices = planner.world.devices
    one = planner.prices(planner.ground.ready(1), 1)
    return (
        float(devices.round_energy_j.mean()),
        float(devices.round_latency_s.mean()),
        float(one.exchange_j.mean()),
        float(one.seconds[0]),
    )


def rounds_of(planner: StaticPlanner, n: int) -> IntArray | None:
    """[n, N] rounds of a plan of n iterations; None where there is none."""
    try:
        scheme = planner.ground.ready(n)
        rounds = planner.static(scheme, planner.prices(scheme, n), n).rounds
    except JoulemeshError:
        return None
    return rounds if rounds.any() else None


def plans_of(scenario: Scenario) -> tuple[dict[str, IntArray], int]:
    """Rounds by the name of the plan: a number of the grid, auto, paper; and auto's number."""
    planner = StaticPlanner(Ground.of(scenario.override({"plan.iterations": "auto"})))
    chooser = Iterations(planner)
    most = chooser.longest(None)
    if most < 2:
        return {}, 0
    auto = chooser.chosen()
    grid = np.unique(np.rint(np.geomspace(2, min(most, MOST), GRID)).astype(int)).tolist()
    paper = StaticPlanner(Ground.of(scenario.override(PAPER)))
    n = min(PAPER_N, Iterations(paper).longest(None))
    found = {str(k): rounds_of(planner, k) for k in grid} | {"auto": rounds_of(planner, auto)}
    found["paper"] = rounds_of(paper, n) if n else None
    return {name: rounds for name, rounds in found.items() if rounds is not None}, auto


# Training -----------------------------------------------------------------------------------------


class Task:
    """The digits, dealt out to the devices of a world, once for each seed."""

    def __init__(self, number: int, alpha: float, seeds: int) -> None:
        data = load("digits")
        self.x, self.x_test = (
            one.reshape(len(one), -1).astype(np.float32) for one in (data.x_train, data.x_test)
        )
        self.y, self.y_test = np.asarray(data.y_train), np.asarray(data.y_test)
        dealt = [
            partition(self.y, DEVICES, kind="dirichlet", alpha=alpha, seed=1000 * number + seed)
            for seed in range(seeds)
        ]
        self.sizes = np.array([one.sizes for one in dealt])  # [S, N]
        self.held = np.zeros((*self.sizes.shape, int(self.sizes.max())), np.int64)
        for s, one in enumerate(dealt):
            for i in range(DEVICES):
                self.held[s, i, : self.sizes[s, i]] = one.indices(i)

    def accuracy(self, rounds: IntArray) -> FloatArray:
        """[S]: test accuracy of the mean model after a plan's iterations, for each seed."""
        rng, seeds = np.random.default_rng(1), len(self.sizes)
        widths = (self.x.shape[1], HIDDEN, 10)
        model = [
            np.repeat(one[None], seeds, 0)
            for fan, out in pairwise(widths)
            for one in (
                rng.normal(size=(fan, out)).astype(np.float32) * np.float32((2 / fan) ** 0.5),
                np.zeros((1, out), np.float32),
            )
        ]
        for tau in rounds:
            busy = np.flatnonzero(tau)
            busy = busy[np.argsort(-tau[busy], kind="stable")]
            own = [np.repeat(one[:, None], len(busy), 1) for one in model]
            for step in range(int(tau.max())):
                some = busy[: int((tau[busy] > step).sum())]
                self._step(rng, [one[:, : len(some)] for one in own], some)
            if len(busy):
                idle = DEVICES - len(busy)
                model = [
                    (mine.sum(1) + idle * one) / DEVICES
                    for mine, one in zip(own, model, strict=True)
                ]
        hidden = np.maximum(self.x_test @ model[0] + model[1], 0)
        right: FloatArray = ((hidden @ model[2] + model[3]).argmax(-1) == self.y_test).mean(-1)
        return right

    def _step(self, rng: np.random.Generator, params: list[Any], some: IntArray) -> None:
        """One step of SGD of some devices, in place; parameters [S, A, ...]."""
        sizes = self.sizes[:, some, None]
        picked = (rng.random((*sizes.shape[:2], BATCH)) * sizes).astype(np.int64)
        batch = np.take_along_axis(self.held[:, some], picked, 2)
        x, y = self.x[batch], np.eye(10, dtype=np.float32)[self.y[batch]]
        weight, bias, weight2, bias2 = params
        before = x @ weight + bias
        hidden = np.maximum(before, 0)
        scores = hidden @ weight2 + bias2
        share = np.exp(scores - scores.max(-1, keepdims=True))
        wrong = (share / share.sum(-1, keepdims=True) - y) / np.float32(BATCH)
        back = (wrong @ np.swapaxes(weight2, -1, -2)) * (before > 0)
        for one, change in (
            (weight2, np.swapaxes(hidden, -1, -2) @ wrong),
            (bias2, wrong.sum(-2, keepdims=True)),
            (weight, np.swapaxes(x, -1, -2) @ back),
            (bias, back.sum(-2, keepdims=True)),
        ):
            one -= np.float32(RATE) * change


def world(number: int, seeds: int) -> list[dict[str, Any]]:
    """All plans of one world, trained: an entry for each bandwidth and medium."""
    what, scenario = drawn(number)
    task, found = Task(number, what["alpha"], seeds), []
    for bandwidth in BANDWIDTHS:
        for medium, changes in MEDIA.items():
            cell = scenario.override({"network.bandwidth_hz": bandwidth, **changes})
            _, round_s, _, exchange_s = prices(cell)
            total_s = what["time"] * (what["rounds"] * round_s + 10 * exchange_s)
            plans, auto = plans_of(cell.override({"budget.total_s": total_s}))
            trained = {
                name: {
                    "n": len(rounds),
                    "rounds": float(rounds.sum(0).mean()),
                    "least": int(rounds.sum(0).min()),
                    "accuracy": task.accuracy(rounds).tolist(),
                }
                for name, rounds in plans.items()
            }
            found.append({"bandwidth": bandwidth, "medium": medium, "chosen": auto, **trained})
    return [{"world": number, **what, **one} for one in found]


# The record ---------------------------------------------------------------------------------------


def distance(cell: dict[str, Any]) -> float:
    """Points of accuracy that the best of the grid is ahead of auto, judged by other seeds."""
    tried = np.array([one["accuracy"] for name, one in cell.items() if name.isdigit()])
    auto = np.array(cell["auto_plan"]["accuracy"])
    half = len(auto) // 2
    parts = [(slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))]
    ahead = [
        tried[tried[:, choose].mean(1).argmax(), judge].mean() - auto[judge].mean()
        for choose, judge in parts
    ]
    return 100 * float(np.mean(ahead))


def lead(cell: dict[str, Any]) -> tuple[float, float] | None:
    """Points that auto is ahead of the paper's plan, and half the 95 % interval; None without."""
    if "paper" not in cell:
        return None
    from scipy import stats

    apart = 100 * (np.array(cell["auto_plan"]["accuracy"]) - cell["paper"]["accuracy"])
    half = stats.t.ppf(0.975, len(apart) - 1) * apart.std(ddof=1) / len(apart) ** 0.5
    return float(apart.mean()), float(half)


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Of some cells: distances to the best, and leads over the paper's plan."""
    far = np.array([distance(cell) for cell in cells])
    leads = [one for one in map(lead, cells) if one is not None]
    ahead = np.array([one[0] for one in leads])
    return {
        "cells": len(cells),
        "mean": float(far.mean()),
        "ninth": float(np.quantile(far, 0.9)),
        "worst": float(far.max()),
        "paper": len(leads),
        "lead": float(ahead.mean()) if leads else None,
        "behind": sum(mean < -half for mean, half in leads),
    }


def measured(seeds: int) -> dict[str, Any]:
    """The record, from the worlds that have been trained."""
    cells, empty = [], 0
    for path in sorted(KEPT.glob(f"{seeds}-*.json")):
        for cell in json.loads(path.read_text("utf-8")):
            known = "auto" in cell
            if known:
                cells.append(cell | {"auto_plan": cell["auto"]})
            else:
                empty += 1
    parts = {
        f"{bandwidth / 1e6:g} MHz, {medium}": summary(some)
        for bandwidth in BANDWIDTHS
        for medium in MEDIA
        if (some := [c for c in cells if (c["bandwidth"], c["medium"]) == (bandwidth, medium)])
    }
    by_world = [
        float(np.mean([lead(c)[0] for c in cells if c["world"] == w and lead(c)]))  # type: ignore[index]
        for w in sorted({c["world"] for c in cells})
        if any(c["world"] == w and lead(c) for c in cells)
    ]
    half = 1.96 * float(np.std(by_world, ddof=min(1, len(by_world) - 1))) / len(by_world) ** 0.5
    return {
        "module": "benchmarks.auto",
        "machine": machine(),
        "seeds": seeds,
        "worlds": len({c["world"] for c in cells}),
        "unpaid": empty,
        "all": summary(cells),
        "lead_by_world": [float(np.mean(by_world)), half],
        "parts": parts,
    }


def page(record: dict[str, Any]) -> str:
    """The page's body."""

    def row(name: str, one: dict[str, Any]) -> list[str]:
        figures = [f"{one[key]:.1f}" for key in ("mean", "ninth", "worst")]
        ahead = "–" if one["lead"] is None else f"{one['lead']:.1f}"
        return [name, str(one["cells"]), *figures, ahead, f"{one['behind']} of {one['paper']}"]

    header = ["", "plans", "mean", "9 of 10", "worst", "over the paper's", "behind it"]
    rows = [row(name, one) for name, one in record["parts"].items()]
    mean, half = record["lead_by_world"]
    about = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    return "\n\n".join(
        [
            f"{record['worlds']} worlds, {record['seeds']} seeds each. {about}",
            "*mean*, *9 of 10*, *worst*: points of test accuracy that the best number of the grid "
            "is ahead of `auto` (a negative distance is chance). *over the paper's*: points that "
            "`auto` is ahead of Theorem 4 on the plain tree with 100 iterations, or as many as "
            "batteries pay for; *behind it*: plans whose 95 % interval lies below. "
            f"{record['unpaid']} combinations pay for less than two exchanges.",
            table(header, [*rows, row("all", record["all"])]),
            f"Over the paper's plan, by worlds: {mean:.1f} ± {half:.1f} points.",
        ]
    )


def main() -> None:
    """Train the worlds that have not been trained, and write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.auto")
    parser.add_argument("--worlds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    for number in range(FIRST, FIRST + (0 if given.page else given.worlds)):
        path = KEPT / f"{given.seeds}-{number}.json"
        if not path.exists():
            progress(f"world {number}")
            found = world(number, given.seeds)
            path.write_text(json.dumps(found) + "\n", "utf-8")
    record = measured(given.seeds)
    publish("auto", TITLE, page(record), record)


if __name__ == "__main__":
    main()
