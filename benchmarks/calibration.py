"""A device calibrated three times in a row: does each interval cover the next run's mean?

    python -m benchmarks.calibration NAME [--runs 3] [--samples 8] [--block 3] [--watts W]
    python -m benchmarks.calibration --page

Measures a training step of the MLP and of the CNN on this machine: seconds always, joules by the
meter that suits it, or by declared watts. Noise of the data sets' shapes, batch 32. Writes
docs/benchmarks/calibration-NAME.json (or another --out) and, if that is where it lies, the page
docs/benchmarks/calibration.md of all machines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OUT, machine, progress, table

TITLE = "Calibration"
PAGE = OUT / "calibration.md"
BATCH, SAMPLES = 32, 2000
# Model, options of its own, shape of a sample.
MODELS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "mlp": ({"hidden": [200]}, (28, 28, 1)),
    "cnn": ({}, (32, 32, 3)),
}
NAMES = {"mlp": "MLP 784-200-10", "cnn": "CNN, 73,418 parameters"}
FIGURES = ("step_s", "step_j", "idle_w")


def noise(folder: Path, shape: tuple[int, ...]) -> Path:
    """Samples without meaning: what a step costs does not depend on what they show."""
    drawn = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part, count in (("train", SAMPLES), ("test", 100)):
        arrays[f"x_{part}"] = drawn.random((count, *shape), np.float32)
        arrays[f"y_{part}"] = drawn.integers(10, size=count).astype(np.int32)
    path = folder / "noise.npz"
    np.savez(path, **arrays)
    return path


def calibrated(model: str, runs: int, samples: int, block_s: float, watts: float | None) -> Any:
    """Some calibrations of one model, one after another."""
    from joulemesh import Scenario, calibrate
    from joulemesh.calibration import Method

    options, shape = MODELS[model]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        data = noise(Path(folder), shape)
        training = {"model": model, "dataset": str(data), "batch_size": BATCH, **options}
        scenario = Scenario(training=training, devices={"count": 4})
        for run in range(runs):
            method = Method(samples, block_s, warm_up_s=1.5, settle_s=0.5, seed=run)
            one = calibrate(scenario, watts=watts, method=method, name=model)
            progress(f"{model}, run {run + 1}: {_said(one)}")
            found.append({**one.to_dict(), "load": _load()})
            found[-1]["work"]["dataset"] = f"noise {shape}"
    return found


def _said(one: Any) -> str:
    return ", ".join(f"{name} {f.mean:.4g} ±{f.relative:.1%}" for name, f in one.figures.items())


def _load() -> float | None:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def checks(runs: list[dict[str, Any]]) -> list[tuple[str, int, bool]]:
    """Figure, run (from 1), and whether its interval covers the next run's mean."""
    found = []
    for name in FIGURES:
        for number, (one, after) in enumerate(pairwise(runs), start=1):
            mine, other = one[name], after[name]
            declared = name == "step_j" and mine and mine["source"].startswith("declared")
            if mine and other and mine["blocks"] and not declared:  # else it repeats step_s
                found.append((name, number, mine["low"] <= other["mean"] <= mine["high"]))
    return found


def page(records: list[dict[str, Any]]) -> str:
    """The page of all machines, from their records."""
    parts = [
        f"# {TITLE}",
        "Made by `python -m benchmarks.calibration`: a training step of the MLP and of the CNN "
        "(noise of the data sets' shapes, batch 32, float32), calibrated several times in a row. "
        "An interval is that in which the mean of another calibration is expected with 95 % "
        "(Student's t over blocks, [how](../how-to/measure.md)); *covers* says whether the next "
        "run's mean lies in it. Joules of a step are those above rest.",
        *(_machine(record) for record in records),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(record: dict[str, Any]) -> str:
    where, first = record["machine"], record["cases"]["mlp"][0]
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items() if v)
    accelerator = first["conditions"]["accelerator"]
    what = f"{where['cores']} cores of {where['processor']}"
    what += f" and one {accelerator}" if accelerator else ""
    found = [check for runs in record["cases"].values() for check in checks(runs)]
    covered = sum(covers for _, _, covers in found)
    loads = [run["load"] for runs in record["cases"].values() for run in runs if run["load"]]
    method = first["method"]
    lines = [
        f"## {record['name']}",
        f"`{record['command']}` on {what}, Python {where['python']}, {versions}. "
        f"{method['samples']} blocks of {method['block_s']:g} s. Joules: {first['meter']}.",
        record["remark"],
        _rows(record["cases"]),
        f"The interval covers the next run's mean in {covered} of {len(found)} cases. The load "
        f"average of the machine was {min(loads):g} to {max(loads):g}."
        if loads
        else f"The interval covers the next run's mean in {covered} of {len(found)} cases.",
    ]
    return "\n\n".join(line for line in lines if line)


def _rows(cases: dict[str, list[dict[str, Any]]]) -> str:
    from joulemesh.base.units import si

    header = ["model", "run", "step", "±", "joules of a step", "±", "watts at rest", "covers"]
    rows = []
    for model, runs in cases.items():
        known = {(name, run): covers for name, run, covers in checks(runs)}
        for number, run in enumerate(runs, start=1):
            cells = [NAMES[model], str(number)]
            for name, unit in (("step_s", "s"), ("step_j", "J")):
                figure = run[name]
                cells += ["–", "–"] if figure is None else [
                    si(figure["mean"], unit),
                    f"{(figure['high'] - figure['mean']) / figure['mean']:.1%}",
                ]  # fmt: skip
            rest = run["idle_w"]
            cells.append("–" if rest is None or not rest["blocks"] else si(rest["mean"], "W"))
            said = [
                f"{name} {'yes' if known[name, number] else 'NO'}"
                for name in FIGURES
                if (name, number) in known
            ]
            rows.append([*cells, ", ".join(said) or "–"])
    return table(header, rows)


def records() -> list[dict[str, Any]]:
    """All that lie in docs/benchmarks, by name."""
    paths = sorted(OUT.glob("calibration-*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="of this machine")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--block", type=float, default=10.0, help="seconds")
    parser.add_argument("--watts", type=float, help="declared, in place of a meter")
    parser.add_argument("--remark", default="", help="a sentence for the page")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the record")
    given = parser.parse_args()
    if not given.page:
        if not given.name:
            parser.error("name this machine")
        cases = {
            model: calibrated(model, given.runs, given.samples, given.block, given.watts)
            for model in MODELS
        }
        words = [word for word in sys.argv[1:] if word not in ("--remark", given.remark)]
        kept = [word for word in words if not word.startswith(("--out", str(given.out)))]
        record = {
            "name": given.name,
            "command": " ".join(["python -m benchmarks.calibration", *kept]),
            "machine": machine("jax", "jaxlib", "nvidia-ml-py"),
            "remark": given.remark,
            "cases": cases,
        }
        text = json.dumps(record, indent=1) + "\n"
        (given.out / f"calibration-{given.name}.json").write_text(text, "utf-8")
        print(_machine(record))
    if given.out == OUT:
        PAGE.write_text(page(records()), "utf-8")


if __name__ == "__main__":
    main()
