"""`python -m benchmarks.tuning [prices | many | tune]`: how long tuning takes, part by part.

`prices`: candidates per second, priced and pruned, of the default scenario's whole space. `many`:
prices for 100,000 devices, with the memory they take. `tune`: the default scenario from beginning
to end, with no run kept from before and compiled programs as they are in the cache.
"""

from __future__ import annotations

__all__ = ["main"]

import resource
import sys
import tempfile
import time

import joulemesh
from joulemesh.study.pricing import Candidate, Pricing
from joulemesh.study.search import Space

_MANY = {
    "devices.count": 100_000,
    "plan.iterations": 20,
    "budget.deadline_s": 1000.0,
    "network.topology": "geometric",
    "network.mean_degree": 12,
    "network.area_m": 20_000.0,
}


def prices() -> None:
    """Price and prune the default space on 20 devices."""
    scenario = joulemesh.Scenario.preset("adaptive")
    begun = time.perf_counter()
    offer = Pricing(scenario).offer(Space.default(scenario), 10_000)
    taken = time.perf_counter() - begun
    count = len(offer.kept) + len(offer.dropped)
    print(f"{count} candidates of 20 devices priced and pruned in {taken:.2f} s: "
          f"{count / taken:.0f} per second, {len(offer.kept)} kept")  # fmt: skip


def many() -> None:
    """Price plans of 100,000 devices, one after another."""
    pricing = Pricing(joulemesh.Scenario.preset("adaptive").override(_MANY))
    space = Space.of(
        {
            "plan.aggregation": ["tree", "tree-chunked"],
            "plan.rounds": ["spread", "theorem4"],
            "plan.iterations": [10, 20, 40],
        }
    )
    for number, point in enumerate(space.points()):
        begun = time.perf_counter()
        found = pricing.price(Candidate(number, point))
        taken = time.perf_counter() - begun
        print(f"{found.candidate.name}: {type(found).__name__} in {taken:.1f} s, "
              f"{_peak_mb()} MB at most so far", flush=True)  # fmt: skip


def tune() -> None:
    """Tune the default scenario from beginning to end."""
    begun, busy = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        found = joulemesh.tune(joulemesh.Scenario.preset("adaptive"), cache=folder)
    print(f"{found.computed} runs of {len(found.offer.kept)} candidates in "
          f"{time.perf_counter() - begun:.1f} s ({time.process_time() - busy:.1f} s of processor "
          f"time, {_peak_mb()} MB); winner: {found.winner.candidate.name}")  # fmt: skip


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000


def main() -> None:
    """Run the parts that are named, or all."""
    parts = {"prices": prices, "many": many, "tune": tune}
    for name in sys.argv[1:] or list(parts):
        if name not in parts:
            sys.exit(f"unknown part {name!r}; there are {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
