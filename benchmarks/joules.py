"""Joule for joule: what `adaptive` and `fixed:3` spend until they reach one accuracy.

The scenarios of docs/comparison on Fashion-MNIST, at equal batteries, evaluated in every iteration
on all test samples, so that the joules to the target are known to one iteration. Takes minutes on a
CPU.
"""

from __future__ import annotations

import json
import time

from benchmarks.common import ROOT, machine, progress

FOLDER = ROOT / "docs" / "comparison"
METHODS = ["adaptive", "fixed:3"]


def main(seeds: int = 5) -> None:
    """Measure, and write a table for each scenario beside the other results."""
    import jax

    import joulemesh

    done = []
    for path in sorted(FOLDER.glob("fashion-*.toml")):
        progress(path.stem)
        begun = time.perf_counter()
        scenario = joulemesh.Scenario.load(path).override({"training.eval_every": 1})
        study = joulemesh.compare(scenario, METHODS, equal="batteries", seeds=seeds)
        (FOLDER / "results" / f"{path.stem}-joules.csv").write_text(study.table_csv(), "utf-8")
        done.append({"name": path.stem, "seconds": time.perf_counter() - begun})
        progress(json.dumps(done[-1]))
    record = {
        "machine": machine("jax"),
        "accelerator": [device.device_kind for device in jax.local_devices()],
        "seeds": seeds,
        "curves": "all test samples, in every iteration",
        "runs": done,
    }
    text = json.dumps(record, indent=1) + "\n"
    (FOLDER / "results" / "joules.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
