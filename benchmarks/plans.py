"""The second comparison of docs/comparison: tuned plans and every rival, within one budget.

Every method has the same batteries and the same total time, and its own learning rate of one grid.
The spread plan is tried with several numbers of iterations; the one that is best on the seeds on
which learning rates are chosen, which no result uses, is *the tuned plan*. The same again at equal
time, where rivals may overdraw batteries.

It wants an accelerator. Runs are cached by content, so it can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.common import ROOT, machine, table
from benchmarks.comparison import figure_of
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import ASSUMED
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Entry
from joulemesh.study.statistics import band
from joulemesh.views.markdown import Markdown, escape
from joulemesh.views.printing import CURVES as PALETTE
from joulemesh.views.style import save_figure, styled

FOLDER = ROOT / "docs" / "comparison"
RESULTS = FOLDER / "results"
RUNS = RESULTS / "plans.json"
SCENARIOS = (
    "fashion-ring-0.1",
    "fashion-ring-1.0",
    "fashion-grid-0.1",
    "fashion-grid-1.0",
    "fashion-ring-equal",
    "fashion-geometric-50",
    "cifar-ring-0.1",
)
OURS = ("spread", "spread:200", "spread:400", "spread:700", "spread:1400")
RIVALS = (
    "adaptive",
    "fixed:3",
    "inverse",
    "gossip-learning",
    "balanced",
    "pens",
    "d-psgd",
    "skiptrain",
    "skiptrain:tau=1",
    "gossip-pga",
    "merge",
    "led",
    "led:3",
)
RATES = (0.05, 0.1, 0.2, 0.4)
TOLD, STORY = "fashion-ring-0.1", RESULTS / "three-plans.csv"
BESIDE = ("adaptive", "d-psgd")
WORDS = {
    "adaptive": "the paper's plan, {} iterations",
    "d-psgd": "d-psgd, {} until a battery is empty",
}
EQUAL = {"budget": "the same batteries and the same total time", "time": "the same total time"}
FILED = {"budget": "plans-budget", "time": "plans-overdrawn"}
BEGIN, END = "<!-- plans: written by the command -->", "<!-- end of plans -->"


def scenario_of(name: str, **changes: Any) -> Scenario:
    """A scenario of the comparison, changed, with the total time of its paper's plan."""
    given = Scenario.load(FOLDER / f"{name}.toml")
    deadline_s, n = given.budget.deadline_s, given.plan.iterations
    assert deadline_s is not None
    assert isinstance(n, int)
    time = {"budget.total_s": n * deadline_s, "budget.deadline_s": deadline_s}
    timed = given.override(time | changes)
    # The file's number of iterations is the paper plan's; `spread` alone chooses its own.
    return timed.with_origins({"plan.iterations": ASSUMED})


def tuned(study: Comparison) -> Entry:
    """The spread plan that is best on the seeds on which learning rates are chosen."""
    ran = [entry for entry in study.entries if entry.name in OURS and entry.ran]
    return max(ran, key=_promise)


def _promise(entry: Entry) -> float:
    assert entry.tuned is not None
    means = entry.tuned.accuracy.mean(axis=1)
    return float(np.nanmax(means))


def compare_one(name: str, equal: str, seeds: int, cache: str | None) -> dict[str, Any]:
    """Compare all methods on one scenario, and keep tables, curves and figure."""
    import joulemesh

    methods = [*OURS, *RIVALS]
    made = joulemesh.compare(
        scenario_of(name), methods, equal=equal, seeds=seeds, cache=cache, tune_lr=RATES
    )
    best = tuned(made)
    others = tuple(entry for entry in made.entries if entry is not best)
    study = dataclasses.replace(made, entries=(best, *others))  # differences are against the first
    draft = RESULTS / f"{name}-{FILED[equal]}.folder"
    study.save(draft)
    shutil.move(draft / "table.csv", RESULTS / f"{name}-{FILED[equal]}.csv")
    shutil.move(draft / "rates.csv", RESULTS / f"{name}-{FILED[equal]}-rates.csv")
    if equal == "budget":
        shutil.move(draft / "figure.png", RESULTS / f"{name}-{FILED[equal]}.png")
        if name == TOLD:
            _keep_story(draft / "comparison.csv", best.name)
    shutil.rmtree(draft)
    return {"name": name, "equal": equal, "tuned": best.name}


def _keep_story(curves: Path, best: str) -> None:
    """The curves of three plans, as far as the figure needs them."""
    columns = ("method", "seed", "iteration", "energy_j", "time_s", "test_accuracy")
    with open(curves, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] in (best, *BESIDE)]
    with open(STORY, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def draw_story() -> None:
    """Draw the same batteries and the same seconds, three plans."""
    with open(STORY, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with styled():
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for colour, name in zip(
            PALETTE, dict.fromkeys(row["method"] for row in rows), strict=False
        ):
            mine = [row for row in rows if row["method"] == name]
            seeds = dict.fromkeys(row["seed"] for row in mine)
            accuracy = np.array(
                [[float(r["test_accuracy"]) for r in mine if r["seed"] == one] for one in seeds]
            ).T
            mean, half = band(100 * accuracy)
            first = [row for row in mine if row["seed"] == next(iter(seeds))]
            for panel, column in zip(panels, ("time_s", "energy_j"), strict=True):
                x = np.array([float(row[column]) for row in first])
                words = WORDS.get(name, "spread, {} iterations").format(first[-1]["iteration"])
                panel.plot(x, mean, color=colour, label=words, linewidth=1.2)
                panel.fill_between(
                    x, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0
                )
                panel.plot(x[-1], mean[-1], "o", color=colour, markersize=4)
        panels[0].set(xlabel="simulated time [s]", ylabel="test accuracy [%]", ylim=(60, 90))
        panels[1].set(xlabel="energy of all devices [J]")
        panels[0].grid(alpha=0.3, linewidth=0.4)
        panels[1].grid(alpha=0.3, linewidth=0.4)
        panels[1].legend(loc="lower right", frameon=False)
    save_figure(figure, ROOT / "docs" / "figures" / "three-plans", "png")


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.plans")
    parser.add_argument("--only", default="", help="comparisons whose NAME-TERMS contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    if not arguments.page:
        measure(arguments.only, arguments.seeds, arguments.cache)
    write_page()
    draw_story()


def measure(only: str, seeds: int, cache: str | None) -> None:
    """Make the comparisons, and record each as soon as it is made."""
    import jax

    record = {
        "machine": machine("jax"),
        "accelerator": [device.device_kind for device in jax.local_devices()],
        "seeds": seeds,
        "rates": list(RATES),
    }
    before = json.loads(RUNS.read_text("utf-8")) if RUNS.is_file() else {}
    same = all(before.get(key) == value for key, value in record.items())
    runs = {(run["name"], run["equal"]): run for run in (before["runs"] if same else [])}
    for equal in EQUAL:
        for name in SCENARIOS:
            if only not in f"{name}-{equal}":
                continue
            runs[name, equal] = compare_one(name, equal, seeds, cache)
            print(json.dumps(runs[name, equal]), flush=True)
            text = json.dumps({**record, "runs": list(runs.values())}, indent=1)
            RUNS.write_text(f"{text}\n", "utf-8")


def _results() -> Iterator[tuple[str, str, dict[str, dict[str, str]]]]:
    """Scenario, terms and rows by method of every comparison that has been made."""
    for equal in EQUAL:
        for name in SCENARIOS:
            source = RESULTS / f"{name}-{FILED[equal]}.csv"
            if source.is_file():
                with open(source, newline="", encoding="utf-8") as file:
                    yield name, equal, {row["method"]: row for row in csv.DictReader(file)}


def glance(equal: str, figure: str) -> str:
    """The tuned plan's figure, and every rival's minus it, paired by seed."""
    found = {name: rows for name, terms, rows in _results() if terms == equal}
    best = {name: next(iter(rows.values())) for name, rows in found.items()}  # it comes first
    lines: list[list[Any]] = [
        ["tuned plan", *(row["method"] for row in best.values())],
        ["its accuracy %", *(figure_of(row, figure, 100) for row in best.values())],
    ]
    lines += [
        [rival, *(_apart(rows.get(rival), figure) for rows in found.values())] for rival in RIVALS
    ]
    return table(["", *found], lines)


def _apart(row: dict[str, str] | None, figure: str) -> Any:
    """A rival's difference; bold where it is ahead beyond its interval."""
    if row is None or row["status"] != "ran":
        return "–" if row is None else row["status"]
    words = figure_of(row, f"{figure}_difference", 100)
    half = float(row[f"{figure}_difference_ci95"] or 0)
    ahead = float(row[f"{figure}_difference"]) > half
    return Markdown(f"**+{words}**") if ahead else words


def by_iterations() -> str:
    """The spread plan by its number of iterations: as the rule chooses it, and as tried."""
    rows = []
    for name, equal, found in _results():
        if equal == "budget":
            chosen = found["spread"]
            cells = [
                figure_of(found[one], "accuracy", 100)
                if found[one]["status"] == "ran"
                else found[one]["status"]
                for one in OURS
            ]
            rows.append([name, chosen["iterations"], *cells])
    header = ["scenario", 'n by "auto"', '"auto" %', *(f"n = {one[7:]}" for one in OURS[1:])]
    return table(header, rows)


def details() -> str:
    """One table for each comparison."""
    header = ["method", "accuracy %", "vs tuned plan", "devices' own %", "learning rate"]
    header += ["iterations", "energy J", "time s", "overdrawn"]
    parts = []
    for name, equal, found in _results():
        title = (
            (FOLDER / f"{name}.toml").read_text("utf-8").splitlines()[0].lstrip("# ").rstrip(".")
        )
        rows = [_row(row) for row in found.values()]
        parts.append(f"## {name}: {EQUAL[equal]}\n\n{escape(title)}.\n\n{table(header, rows)}\n")
        if equal == "budget":
            parts.append(f"![{name}, {EQUAL[equal]}](results/{name}-{FILED[equal]}.png)\n")
    return "\n".join(parts)


def _row(row: dict[str, str]) -> list[str]:
    if row["status"] != "ran":
        return [row["method"], row["status"], *["–"] * 7]
    return [
        row["method"],
        figure_of(row, "accuracy", 100),
        figure_of(row, "accuracy_difference", 100),
        figure_of(row, "device_accuracy", 100),
        f"{float(row['learning_rate']):g}",
        row["iterations"],
        figure_of(row, "energy_j", 1, 0),
        figure_of(row, "time_s"),
        row.get("overdrawn", ""),
    ]


def pages() -> dict[Path, str]:
    """README.md with the tables in it, and plans.md with all details."""
    record = json.loads(RUNS.read_text("utf-8"))
    where = record["machine"]
    origin = (
        f"Made by `python -m benchmarks.plans` on one {record['accelerator'][0]}, Python "
        f"{where['python']}, JAX {where['versions']['jax']}, {record['seeds']} seeds, "
        f"{len(record['runs'])} comparisons. Learning rates tried: "
        f"{', '.join(f'{rate:g}' for rate in record['rates'])}."
    )
    parts = [origin, ""]
    for equal, words in EQUAL.items():
        for figure, whose in (("accuracy", "Mean model"), ("device_accuracy", "Devices' own")):
            parts += [f"**{whose}, {words}.**", "", glance(equal, figure), ""]
    parts += ["**How many iterations.**", "", by_iterations(), ""]
    page = (FOLDER / "README.md").read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(parts)
    head = f"# Comparison within one budget: all tables\n\n{origin}\n\n"
    return {
        FOLDER / "README.md": f"{before}{BEGIN}\n\n{text}\n{END}{after}",
        FOLDER / "plans.md": f"{head}{details()}",
    }


def write_page() -> None:
    """Write both pages from the results."""
    for path, text in pages().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
