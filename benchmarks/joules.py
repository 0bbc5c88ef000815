"""Joule for joule: what `adaptive` and `fixed:3` spend until they reach one accuracy.

The scenarios of the comparison on the paper's terms (docs/comparison) that learn Fashion-MNIST, at
equal batteries, evaluated in every iteration
on all test samples, so that the joules to the target are known to one iteration. Takes minutes on a
CPU.
"""

from __future__ import annotations

import json
import time

from benchmarks.common import ROOT, machine, progress

FOLDER = ROOT / "docs" / "comparison"
SCENARIOS = ("fashion-grid-0.1", "fashion-grid-1.0", "fashion-ring-0.1", "fashion-ring-1.0")
METHODS = ["adaptive", "fixed:3"]


def main(seeds: int = 5) -> None:
    """Measure, and write a table for each scenario beside the other results."""
    import jax

    import joulemesh

    done = []
    for name in SCENARIOS:
        progress(name)
        begun = time.perf_counter()
        scenario = joulemesh.Scenario.load(FOLDER / f"{name}.toml").override(
            {"training.eval_every": 1}
        )
        study = joulemesh.compare(scenario, METHODS, equal="batteries", seeds=seeds)
        (FOLDER / "results" / f"{name}-joules.csv").write_text(study.table_csv(), "utf-8")
        done.append({"name": name, "seconds": time.perf_counter() - begun})
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
