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
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.common import ROOT, machine, table
from benchmarks.comparison import figure_of
from joulemesh.scenario import Scenario
from joulemesh.studies.study import Entry, Study
from joulemesh.views.markdown import Markdown, escape

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
    "gossip-pga",
    "merge",
    "led",
)
RATES = (0.05, 0.1, 0.2, 0.4)
EQUAL = {"budget": "the same batteries and the same total time", "time": "the same total time"}
BEGIN, END = "<!-- plans: written by the command -->", "<!-- end of plans -->"


def scenario_of(name: str) -> Scenario:
    """A scenario of the comparison, with the total time of its paper's plan."""
    given = Scenario.load(FOLDER / f"{name}.toml")
    deadline_s, n = given.budget.deadline_s, given.plan.iterations
    assert deadline_s is not None
    assert isinstance(n, int)
    return given.override({"budget.total_s": n * deadline_s, "budget.deadline_s": deadline_s})


def tuned(study: Study) -> Entry:
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

    begun = time.perf_counter()
    methods = [*OURS, *RIVALS]
    made = joulemesh.compare(
        scenario_of(name), methods, equal=equal, seeds=seeds, cache=cache, tune_lr=RATES
    )
    best = tuned(made)
    others = tuple(entry for entry in made.entries if entry is not best)
    study = dataclasses.replace(made, entries=(best, *others))  # differences are against the first
    draft = RESULTS / f"{name}-{equal}.plans"
    study.save(draft)
    for kept, source in {
        "": "table.csv",
        "-rates": "rates.csv",
        "-curves": "comparison.csv",
    }.items():
        shutil.move(draft / source, RESULTS / f"{name}-plans-{equal}{kept}.csv")
    shutil.move(draft / "figure.png", RESULTS / f"{name}-plans-{equal}.png")
    shutil.rmtree(draft)
    seconds = time.perf_counter() - begun
    return {"name": name, "equal": equal, "tuned": best.name, "seconds": seconds}


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
            source = RESULTS / f"{name}-plans-{equal}.csv"
            if source.is_file():
                with open(source, newline="", encoding="utf-8") as file:
                    yield name, equal, {row["method"]: row for row in csv.DictReader(file)}


def glance(equal: str, figure: str) -> str:
    """The tuned plan's figure, and every rival's minus it, paired by seed."""
    rows = []
    for name, terms, found in _results():
        if terms == equal:
            best = next(iter(found.values()))  # the tuned plan comes first
            rows.append(
                [
                    name,
                    f"{best['method']}",
                    figure_of(best, figure, 100),
                    *(_apart(found.get(rival), figure) for rival in RIVALS),
                ]
            )
    return table(["scenario", "tuned plan", "%", *RIVALS], rows)


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
        parts.append(
            f"### {name}: {EQUAL[equal]}\n\n{escape(title)}.\n\n{table(header, rows)}\n\n"
            f"![{name}, {EQUAL[equal]}](results/{name}-plans-{equal}.png)\n"
        )
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


def write_page() -> None:
    """Write the tables into the page, and all details into a page of their own."""
    if not RUNS.is_file():
        return
    record = json.loads(RUNS.read_text("utf-8"))
    where, seconds = record["machine"], sum(run["seconds"] for run in record["runs"])
    origin = (
        f"Made by `python -m benchmarks.plans` on one {record['accelerator'][0]}, Python "
        f"{where['python']}, JAX {where['versions']['jax']}, {record['seeds']} seeds, in "
        f"{seconds:.0f} s for {len(record['runs'])} comparisons. Learning rates tried: "
        f"{', '.join(f'{rate:g}' for rate in record['rates'])}."
    )
    parts = [origin, ""]
    for equal, words in EQUAL.items():
        if any(terms == equal for _, terms, _ in _results()):
            parts += [f"**Mean model, {words}.**", "", glance(equal, "accuracy"), ""]
            parts += [
                f"**Devices' own models, {words}.**",
                "",
                glance(equal, "device_accuracy"),
                "",
            ]
    parts += ["**How many iterations.**", "", by_iterations(), ""]
    page = (FOLDER / "README.md").read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n".join(parts)
    (FOLDER / "README.md").write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", "utf-8")
    head = f"# Comparison within one budget: all tables\n\n{origin}\n\n"
    (FOLDER / "plans.md").write_text(f"{head}{details()}", "utf-8")


if __name__ == "__main__":
    main()
