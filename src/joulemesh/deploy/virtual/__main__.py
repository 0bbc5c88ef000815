"""Replay seeds of the simulation.

``python -m joulemesh.deploy.virtual 17`` prints what happens in seed 17 (``--beats``: all of it);
``python -m joulemesh.deploy.virtual 0 10000`` runs the seeds 0 … 9999 and prints those that fail.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

from joulemesh.deploy.virtual.cases import case_of
from joulemesh.deploy.virtual.fleet import Outcome, simulate
from joulemesh.deploy.virtual.trace import Trace, describe


def main(arguments: list[str] | None = None) -> int:
    """Replay one seed or run many.

    Args:
        arguments: of the command line.

    Returns:
        1 if an invariant broke, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m joulemesh.deploy.virtual")
    parser.add_argument("seed", type=int, help="the seed to replay, or the first of many")
    parser.add_argument("stop", type=int, nargs="?", help="run all seeds up to this one")
    parser.add_argument("--beats", action="store_true", help="print signs of life too")
    asked = parser.parse_args(arguments)
    if asked.stop is None:
        return _replay(asked.seed, beats=asked.beats)
    return _many(asked.seed, asked.stop)


def _replay(seed: int, *, beats: bool) -> int:
    case = case_of(seed)
    print(describe(case))
    outcome = simulate(case, watch=Trace(print, beats=beats))
    print(_line(outcome))
    return int(bool(outcome.broken))


def _many(seed: int, stop: int) -> int:
    began, failed, events = perf_counter(), 0, 0
    for one in range(seed, stop):
        outcome = simulate(case_of(one))
        events += outcome.events
        if outcome.broken:
            failed += 1
            print(_line(outcome), flush=True)
    seconds = perf_counter() - began
    print(f"{stop - seed} seeds, {failed} failures, {events} events, {seconds:.1f} s")
    return int(failed > 0)


def _line(outcome: Outcome) -> str:
    how = f"BROKEN: {outcome.broken}" if outcome.broken else "all invariants hold"
    return (
        f"seed {outcome.seed}: {how} ({outcome.events} events in {outcome.seconds:.1f} virtual "
        f"seconds, {outcome.views} changes of view, complete: {list(outcome.complete)})"
    )


if __name__ == "__main__":
    sys.exit(main())
