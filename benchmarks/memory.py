"""`python -m benchmarks.memory [MODELS]`: resident memory of a process that trains many models.

Every model differs from all others (the width of its hidden layer), so that each is compiled by
itself. The process is to stay below 1.5 GB whatever the number of models: programs of models that
were not used for long are let go of.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

MOST_MB = 1500
_TOLD_EVERY = 20


def resident_mb() -> float:
    """Megabytes (10^6 bytes) of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def largest_mb(models: int) -> float:
    """Train so many models one after another, and return the most memory seen after a run."""
    import joulemesh

    few = {
        "devices.count": 3,
        "plan.iterations": 2,
        "training.model": "mlp",
        "training.batch_size": 4,
        "training.eval_every": 2,
    }
    base = joulemesh.Scenario.preset("adaptive").override(few)
    most, begun = 0.0, time.perf_counter()
    for k in range(models):
        joulemesh.run(base.override({"training.hidden": [4 + k]}))
        most = max(most, resident_mb())
        if (k + 1) % _TOLD_EVERY == 0 or k + 1 == models:
            seconds = time.perf_counter() - begun
            print(f"{k + 1} models, {resident_mb():.0f} MB, {seconds:.0f} s", flush=True)
    return most


def main() -> None:
    models = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    # Nothing is found in, or left behind in, the user's own cache of compiled programs.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        most = largest_mb(models)
    print(f"{models} models in one process: {most:.0f} MB resident at most (limit {MOST_MB} MB)")
    sys.exit(most >= MOST_MB)


if __name__ == "__main__":
    main()
