"""`python -m benchmarks [NAME ...] [--quick]`: run benchmarks, print tables, write docs/benchmarks.

`--quick` tries the longer ones at reduced sizes and writes to .bench/quick instead.
"""

from __future__ import annotations

import sys

from benchmarks import overhead, peers, planner, scale, training

BENCHMARKS = {
    "planner": planner.main,
    "training": training.main,
    "peers": peers.main,
    "scale": scale.main,
    "overhead": overhead.main,
}
HAVE_QUICK = ("training", "peers")


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    known = HAVE_QUICK if quick else tuple(BENCHMARKS)
    names = [name for name in sys.argv[1:] if name != "--quick"] or known
    for name in names:
        if name not in known:
            sys.exit(f"unknown benchmark {name!r}; there are {', '.join(known)}")
    for name in names:
        if name in HAVE_QUICK:
            BENCHMARKS[name](quick=quick)
        else:
            BENCHMARKS[name]()


main()
