"""`python -m benchmarks [NAME ...] [--quick | --page]`: run benchmarks, write docs/benchmarks.

`--quick` tries the longer ones at reduced sizes and writes to .bench/quick instead. `--page` runs
nothing and writes the pages again from the records in docs/benchmarks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import (
    deploy,
    drag,
    faults,
    install,
    long,
    overhead,
    peers,
    planner,
    scale,
    slots,
    studio,
    training,
    trees,
)
from benchmarks.pages import PAGES, rewrite

BENCHMARKS: dict[str, Callable[..., None]] = {
    "planner": planner.main,
    "training": training.main,
    "peers": peers.main,
    "scale": scale.main,
    "overhead": overhead.main,
    "faults": faults.main,
    "trees": trees.main,
    "slots": slots.main,
    "drag": drag.main,
    "studio": studio.main,
    "deploy": deploy.main,
    "long": long.main,
    "install": install.main,
}
HAVE_QUICK = ("training", "peers")


def main() -> None:
    options = {word for word in sys.argv[1:] if word.startswith("--")}
    known = HAVE_QUICK if "--quick" in options else PAGES if "--page" in options else BENCHMARKS
    names = [name for name in sys.argv[1:] if name not in options] or list(known)
    for word in (*names, *options - {"--quick", "--page"}):
        if word not in known:
            sys.exit(f"unknown benchmark {word!r}; there are {', '.join(known)}")
    for name in names:
        if "--page" in options:
            rewrite(name)
        elif name in HAVE_QUICK:
            BENCHMARKS[name](quick="--quick" in options)
        else:
            BENCHMARKS[name]()


main()
