"""`python -m benchmarks.sweep [--kept]`: how long a sweep takes, and again with its runs kept.

3 numbers of devices × 3 partitions × 2 methods × 3 seeds on digits: 54 runs of the default model.
Nothing is kept from before, neither runs nor compiled programs, unless `--kept` leaves the latter.
"""

from __future__ import annotations

__all__ = ["main"]

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SWEEP = (
    "--vary", "devices.count=10,20,50", "--vary", "training.alpha=0.1,0.3,1",
    "--methods", "adaptive,fixed:3", "--seeds", "3",
)  # fmt: skip


def _seconds(place: Path, environment: dict[str, str]) -> float:
    """Seconds of the whole command: start, planning, training, tables, figure and page."""
    command = [sys.executable, "-m", "joulemesh", "sweep", *_SWEEP]
    command += ["--cache", str(place / "runs"), "--out", str(place / "sweep")]
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun


def main() -> None:
    """Time the command from beginning to end, twice."""
    with tempfile.TemporaryDirectory() as folder:
        place, environment = Path(folder), dict(os.environ)
        if "--kept" not in sys.argv:
            environment["XDG_CACHE_HOME"] = str(place / "cache")
        first = _seconds(place, environment)
        table = (place / "sweep" / "table.csv").read_bytes()
        again = _seconds(place, environment)
        same = (place / "sweep" / "table.csv").read_bytes() == table
        kept = len(list((place / "runs").rglob("*.run")))
    print(f"3 × 3 combinations × 2 methods × 3 seeds: {kept} runs in {first:.1f} s")
    print(f"again, with all runs kept: {again:.1f} s, {'the same' if same else 'another'} table")


if __name__ == "__main__":
    main()
