"""`python -m benchmarks [NAME ...] [--quick | --page]`: run benchmarks, write docs/benchmarks.

`--quick` tries the longer ones at reduced sizes and writes to .bench/quick instead. `--page` runs
nothing and writes the pages again from the records in docs/benchmarks.
"""

from __future__ import annotations

import sys
from importlib import import_module

BENCHMARKS = (
    "planner",
    "training",
    "peers",
    "scale",
    "overhead",
    "faults",
    "trees",
    "slots",
    "power",
    "clocks",
    "consensus",
    "bits",
    "drag",
    "studio",
    "deploy",
    "long",
    "install",
)
HAVE_QUICK = ("training", "peers")


def main() -> None:
    options = {word for word in sys.argv[1:] if word.startswith("--")}
    if "--page" in options:
        from benchmarks.pages import PAGES, rewrite

        known = tuple(PAGES)
    else:
        known = HAVE_QUICK if "--quick" in options else BENCHMARKS
    names = [name for name in sys.argv[1:] if name not in options] or list(known)
    for word in (*names, *options - {"--quick", "--page"}):
        if word not in known:
            sys.exit(f"unknown benchmark {word!r}; there are {', '.join(known)}")
    for name in names:
        if "--page" in options:
            rewrite(name)
            continue
        # Only what is measured is imported: a child's peak memory counts its parent's at the start.
        benchmark = import_module(f"benchmarks.{name}")
        benchmark.main(**({"quick": "--quick" in options} if name in HAVE_QUICK else {}))


main()
