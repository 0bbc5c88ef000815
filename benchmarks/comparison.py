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
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, machine, table

FOLDER = ROOT / "docs" / "comparison"
METHODS = ("adaptive", "fixed:3", "inverse", "gossip-learning", "balanced", "pens", "d-psgd")
EQUAL = ("iterations", "energy", "time")


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
    shutil.rmtree(draft)
    return {"name": name, "seconds": time.perf_counter() - begun, "computed": study.computed}


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks comparison")
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--page", action="store_true", help="only write tables.md from the results")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return
    import jax

    done = []
    for path in sorted(FOLDER.glob("*.toml"), reverse=True):
        for equal in EQUAL if arguments.only in path.stem else ():
            done.append(compare_one(path, equal, arguments.seeds, arguments.cache))
            print(json.dumps(done[-1]), flush=True)
    record = {
        "machine": machine("jax"),
        "accelerator": [device.device_kind for device in jax.local_devices()],
        "seeds": arguments.seeds,
        "runs": done,
    }
    (FOLDER / "results" / "runs.json").write_text(json.dumps(record, indent=1) + "\n")
    write_page()


def _figure(row: dict[str, str], name: str, scale: float = 1.0, digits: int = 1) -> str:
    if not row[name]:
        return "–"
    half = row[f"{name}_ci95"]
    spread = f" ± {float(half) * scale:.{digits}f}" if half and float(half) > 1e-12 else ""
    return f"{float(row[name]) * scale:.{digits}f}{spread}"


def write_page() -> None:
    """tables.md: every result as a table, with its figure."""
    header = ["method", "accuracy %", "vs adaptive", "devices' own %", "iterations", "energy J"]
    header += ["time s", "J to target"]
    parts = ["# Comparison: all tables\n\nMade by `make comparison`; 95 % intervals over seeds.\n"]
    for path in sorted(FOLDER.glob("*.toml")):
        for equal in EQUAL:
            source = FOLDER / "results" / f"{path.stem}-{equal}.csv"
            if not source.is_file():
                continue
            with open(source, newline="") as file:
                rows = [_row(row) for row in csv.DictReader(file)]
            parts.append(
                f"## {path.stem}, equal {equal}\n\n{table(header, rows)}\n\n"
                f"![{path.stem}, equal {equal}](results/{path.stem}-{equal}.png)\n"
            )
    (FOLDER / "tables.md").write_text("\n".join(parts))


def _row(row: dict[str, str]) -> list[str]:
    if row["status"] != "ran":
        return [row["method"], row["status"], *["–"] * 6]
    return [
        row["method"],
        _figure(row, "accuracy", 100),
        _figure(row, "accuracy_difference", 100),
        _figure(row, "device_accuracy", 100),
        row["iterations"],
        _figure(row, "energy_j", 1, 0),
        _figure(row, "time_s"),
        _figure(row, "energy_to_target_j", 1, 0),
    ]


if __name__ == "__main__":
    main()
