"""The comparison of methods that docs/comparison shows: every scenario there, on equal terms.

Fashion-MNIST takes minutes on an accelerator and about an hour on 2 cores; CIFAR-10 wants an
accelerator. Runs are cached by content, so it can be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, machine, table
from joulemesh.models.curves import CURVES
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Record, entry_of
from joulemesh.views.figures import comparison_figure
from joulemesh.views.markdown import Markdown, escape
from joulemesh.views.style import save_figure

FOLDER = ROOT / "docs" / "comparison"
METHODS = ("adaptive", "fixed:3", "inverse", "gossip-learning", "balanced", "pens", "d-psgd")
SCENARIOS = (
    "fashion-ring-1.0",
    "fashion-ring-0.1",
    "fashion-grid-1.0",
    "fashion-grid-0.1",
    "cifar-ring-0.1",
)
EQUAL = ("iterations", "batteries", "time")
RUNS = FOLDER / "results" / "runs.json"
CURVES_ON = "all test samples"
BEGIN, END = "<!-- at a glance: written by the command -->", "<!-- end -->"


def compare_one(path: Path, equal: str, seeds: int, cache: str | None) -> dict[str, Any]:
    import joulemesh

    scenario = joulemesh.Scenario.load(path)
    begun = time.perf_counter()
    study = joulemesh.compare(scenario, list(METHODS), equal=equal, seeds=seeds, cache=cache)
    name = f"{path.stem}-{equal}"
    results = FOLDER / "results"
    results.mkdir(parents=True, exist_ok=True)
    draft = results / f"{name}.folder"
    study.save(draft)
    shutil.move(draft / "table.csv", results / f"{name}.csv")
    shutil.move(draft / "figure.png", results / f"{name}.png")
    shutil.move(draft / "comparison.csv", results / f"{name}-curves.csv")  # to draw it again
    shutil.rmtree(draft)
    return {"name": name, "seconds": time.perf_counter() - begun, "computed": study.computed}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks comparison")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", default=None)
    parser.add_argument(
        "--page", action="store_true", help="only write the tables again from the results"
    )
    parser.add_argument(
        "--figures", action="store_true", help="only draw the figures again from the results"
    )
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
    if arguments.figures:
        draw_figures()
    if arguments.page or arguments.figures:
        return
    import jax

    done = []
    for path in _scenarios():
        for equal in EQUAL if arguments.only in path.stem else ():
            done.append(compare_one(path, equal, arguments.seeds, arguments.cache))
            print(json.dumps(done[-1]), flush=True)
    record = {
        "machine": machine("jax"),
        "accelerator": [device.device_kind for device in jax.local_devices()],
        "seeds": arguments.seeds,
        "curves": CURVES_ON,
    }
    RUNS.write_text(json.dumps({**record, "runs": with_earlier(record, done)}, indent=1) + "\n")
    write_page()


def with_earlier(record: dict[str, Any], done: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """These comparisons, and those made before on the same terms: it may be done in pieces.

    Args:
        record: machine, accelerator and seeds of these.
        done: these comparisons, as `compare_one` reports them.

    Returns:
        Comparisons in the order of the page, each once.
    """
    before = json.loads(RUNS.read_text("utf-8")) if RUNS.is_file() else {}
    same = all(before.get(name) == value for name, value in record.items())
    each = {run["name"]: run for run in [*(before["runs"] if same else []), *done]}
    names = [f"{path.stem}-{equal}" for path in _scenarios() for equal in EQUAL]
    return [each[name] for name in names if name in each]


def _scenarios() -> list[Path]:
    return [FOLDER / f"{name}.toml" for name in SCENARIOS]


def figure_of(row: dict[str, str], name: str, scale: float = 1.0, digits: int = 1) -> str:
    if not row[name]:
        return "–"
    half = row[f"{name}_ci95"]
    spread = f" ± {float(half) * scale:.{digits}f}" if half and float(half) > 1e-12 else ""
    return _minus(f"{float(row[name]) * scale:.{digits}f}") + spread


def _minus(number: str) -> str:
    """A number with a true minus sign, and none before zero."""
    return number.replace("-", "−") if float(number) else number.lstrip("-")


def _results() -> Iterator[tuple[Path, str, list[dict[str, str]]]]:
    """Scenario, terms and rows of every comparison that has been made."""
    for path in _scenarios():
        for equal in EQUAL:
            source = FOLDER / "results" / f"{path.stem}-{equal}.csv"
            if source.is_file():
                with open(source, newline="", encoding="utf-8") as file:
                    yield path, equal, list(csv.DictReader(file))


def study_of(path: Path, equal: str) -> Comparison:
    """A comparison as far as its curves tell: accuracies and costs, no batteries."""
    with open(FOLDER / "results" / f"{path.stem}-{equal}-curves.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    seeds = tuple(dict.fromkeys(int(row["seed"]) for row in rows))
    entries = []
    for name in dict.fromkeys(row["method"] for row in rows):
        records = {}
        for seed in seeds:
            mine = [row for row in rows if (row["method"], row["seed"]) == (name, str(seed))]
            curves = np.array([[float(row[curve]) for curve in CURVES] for row in mine])
            joules, seconds = (
                np.array([float(row[column]) for row in mine]) for column in ("energy_j", "time_s")
            )
            iteration = np.array([int(row["iteration"]) for row in mine])
            records[seed] = Record(iteration, curves, curves[-1], joules, seconds, joules[-1:])
        entries.append(entry_of(name, records, np.zeros(1)))
    return Comparison(Scenario.load(path), equal, seeds, tuple(entries))


def draw_figures() -> None:
    """Draw every figure again from its curves."""
    for path in _scenarios():
        for equal in EQUAL:
            if (FOLDER / "results" / f"{path.stem}-{equal}-curves.csv").is_file():
                drawn = comparison_figure(study_of(path, equal))
                save_figure(drawn, FOLDER / "results" / f"{path.stem}-{equal}", "png")


def _title(path: Path) -> str:
    """The scenario in words: its file's first line."""
    return path.read_text("utf-8").splitlines()[0].lstrip("# ").rstrip(".")


def glance() -> str:
    """How far every method is from adaptive, in points of accuracy, for all comparisons."""
    rows = []
    for path, equal, found in _results():
        methods = {row["method"]: row for row in found if row["status"] == "ran"}
        adaptive = figure_of(methods["adaptive"], "accuracy", 100)
        rows.append([path.stem, equal, adaptive, *(_apart(methods.get(m)) for m in METHODS[1:])])
    return table(["scenario", "equal", "adaptive %", *METHODS[1:]], rows)


def _apart(row: dict[str, str] | None) -> str:
    """A difference; bold where the method is ahead beyond its interval."""
    if row is None:
        return "–"
    words = figure_of(row, "accuracy_difference", 100)
    ahead = float(row["accuracy_difference"]) > float(row["accuracy_difference_ci95"] or 0)
    return Markdown(f"**+{words}**") if ahead else words


def _record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RUNS.read_text("utf-8"))
    return found


def _origin() -> str:
    record = _record()
    where = record["machine"]
    seconds = sum(run["seconds"] for run in record["runs"])
    return (
        f"Made by `make comparison` on one {record['accelerator'][0]} ({where['cores']} cores of "
        f"{where['processor']}), Python {where['python']}, JAX {where['versions']['jax']}, "
        f"{record['seeds']} seeds, in {seconds:.0f} s for {len(record['runs'])} comparisons."
    )


def pages() -> dict[Path, str]:
    """tables.md: every result as a table, with its figure; and README.md with its summary."""
    header = ["method", "accuracy %", "vs adaptive", "devices' own %", "iterations", "energy J"]
    header += ["time s", "J to target"]
    parts = [
        f"# Comparison: all tables\n\n{_origin()}\n",
        "Means over seeds ± the half-width of their 95 % interval; differences are paired by seed. "
        "Accuracy is that of the mean of the devices' models on all test samples, *devices' own* "
        "that of each device's model. The target, the dotted line in the figures, is 95 % of the "
        "best method's final accuracy; joules to it are given where all seeds get there. Curves "
        f"and tables are measured on {_record()['curves']}.\n",
    ]
    for path, equal, rows in _results():
        parts.append(
            f"## {path.stem}, equal {equal}\n\n{escape(_title(path))}.\n\n"
            f"{table(header, [_row(row) for row in rows])}\n\n"
            f"![{path.stem}, equal {equal}](results/{path.stem}-{equal}.png)\n"
        )
    page = (FOLDER / "README.md").read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {
        FOLDER / "tables.md": "\n".join(parts),
        FOLDER / "README.md": f"{before}{BEGIN}\n\n{glance()}\n\n{END}{after}",
    }


def write_page() -> None:
    """Write both pages from the results."""
    for path, text in pages().items():
        path.write_text(text, "utf-8")


def _row(row: dict[str, str]) -> list[str]:
    if row["status"] != "ran":
        return [row["method"], row["status"], *["–"] * 6]
    return [
        row["method"],
        figure_of(row, "accuracy", 100),
        figure_of(row, "accuracy_difference", 100),
        figure_of(row, "device_accuracy", 100),
        row["iterations"],
        figure_of(row, "energy_j", 1, 0),
        figure_of(row, "time_s"),
        figure_of(row, "energy_to_target_j", 1, 0),
    ]


if __name__ == "__main__":
    main()
