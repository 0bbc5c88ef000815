"""`python -m benchmarks [NAME ...]`: run benchmarks, print tables, write docs/benchmarks."""

from __future__ import annotations

import sys

from benchmarks import planner

BENCHMARKS = {"planner": planner.main}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"unknown benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


main()
