"""Closing the loop on one machine: `python -m benchmarks.loop`.

Eight processes are calibrated as they will run, all at once (`joulemesh deploy local --calibrate`):
seconds of a training step, rates of their links, and what an iteration takes besides. The plan
made with these figures is carried out, and the measured seconds of an iteration are set against
the planned ones. On a machine that does something else meanwhile, the figure says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import machine, progress, publish, table

WITHIN = 0.15
TITLE = "Closing the loop on one machine"

# The deadline decides on the rounds, alike for all: batteries do not bind.
SETTINGS = {
    "devices.count": 8,
    "budget.energy_j": 1e6,
    "budget.deadline_s": "400 ms",
    "plan.rounds": "theorem4",
    "plan.iterations": 60,
}


def measure(folder: Path, devices: int) -> dict[str, Any]:
    """One calibration, one plan, one deployment."""
    wanted, load = {**SETTINGS, "devices.count": devices}, os.getloadavg()[0]
    scenario = folder / "loop.toml"
    scenario.write_text(_toml(wanted), "utf-8")
    command = [sys.executable, "-m", "joulemesh", "deploy", "local", str(scenario), "--json"]
    out = folder / "fleet"
    said = subprocess.run(
        [*command, "--calibrate", "--out", str(out)], stdout=subprocess.PIPE, check=True
    )
    came = json.loads(said.stdout)
    receipt = json.loads((out / "receipt.json").read_text("utf-8"))
    rounds = [one for one in receipt["devices"][0]["rounds"]["planned"] if one is not None]
    return {
        "devices": devices,
        "load": load,
        "iterations": came["devices"][0]["iterations"],
        "rounds": sum(rounds) / len(rounds),
        "complete": came["complete"],
        "planned_s": receipt["iteration_s"]["planned"],
        "measured_s": receipt["iteration_s"]["measured"],
        "ratio": receipt["iteration_s"]["ratio"],
    }


def _toml(wanted: dict[str, Any]) -> str:
    sections: dict[str, list[str]] = {}
    for field, value in wanted.items():
        section, _, name = field.partition(".")
        sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items()) + "\n"


def page(record: dict[str, Any]) -> str:
    """The page's body."""
    header = [
        "run",
        "load before",
        "devices",
        "rounds",
        "planned ms",
        "measured ms",
        "measured / planned",
    ]
    cells = [
        [
            str(number),
            "–" if one["load"] is None else f"{one['load']:.1f}",
            str(one["devices"]),
            f"{one['rounds']:.3g}",
            f"{1e3 * one['planned_s']:.1f}",
            f"{1e3 * one['measured_s']:.1f}",
            f"{one['ratio']:.3f}",
        ]
        for number, one in enumerate(record["runs"], start=1)
    ]
    return (
        "`joulemesh deploy local --calibrate`: processes of one machine are calibrated all at "
        "once, the plan is made with what was measured, and carried out. Seconds are those of a "
        f"whole iteration; {WITHIN:.0%} is what the two may differ by on a machine that does "
        "nothing else. The load is the number of processes that wanted to run before the run "
        "began: beyond a few tenths, the figures tell of those.\n\n" + table(header, cells)
    )


def main() -> None:
    """Measure, print, and publish if asked to; the exit code is 1 if a ratio is out of bounds."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.loop")
    options.add_argument("--devices", type=int, default=8)
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--publish", action="store_true", help="write docs/benchmarks/loop.md")
    asked = options.parse_args()
    runs = []
    for number in range(asked.runs):
        progress(f"loop: run {number + 1} of {asked.runs}, {asked.devices} devices")
        with tempfile.TemporaryDirectory(prefix="joulemesh-") as place:
            runs.append(measure(Path(place), asked.devices))
        one = runs[-1]
        print(
            f"an iteration of {one['rounds']:.3g} rounds: {1e3 * one['measured_s']:.1f} ms "
            f"measured, {1e3 * one['planned_s']:.1f} ms planned, ratio {one['ratio']:.3f}"
        )
    record = {
        "machine": machine("jax", "grpcio"),
        "module": "benchmarks.loop --publish",
        "runs": runs,
    }
    if asked.publish:
        publish("loop", TITLE, page(record), record)
    if not all(one["complete"] and abs(one["ratio"] - 1) <= WITHIN for one in runs):
        sys.exit(f"an iteration took more than {WITHIN:.0%} more or less than planned")


if __name__ == "__main__":
    main()
