"""Replay seeds of the simulation.

``python -m joulemesh.testing.fleets 17`` prints what happens in seed 17 (``--beats``: all of it);
``python -m joulemesh.testing.fleets 0 10000`` runs the seeds 0 … 9999 and prints those that fail.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from time import perf_counter
from typing import Any

import numpy as np

from joulemesh.deploy.effects import Durable, Effect, Event, Received, Send
from joulemesh.deploy.messages import Beat, Flood
from joulemesh.testing.fleets.cases import case_of
from joulemesh.testing.fleets.fleet import Outcome, simulate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m joulemesh.testing.fleets")
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


def describe(thing: Any) -> str:
    """An event, an effect, a message or anything in them, in one line without what is empty.

    >>> from joulemesh.deploy.messages import Absent
    >>> describe(Received(2, Absent(0, 3)))
    'Received(sender=2, message=Absent(iteration=3))'
    >>> from joulemesh.deploy.view import View
    >>> describe(View(1, 4, (0, 2), digest="c0ffee" * 9))
    'View(number=1, start=4, members=(0, 2), digest=c0ffee)'
    """
    if isinstance(thing, Durable):
        return _state(thing)
    if isinstance(thing, np.ndarray):
        return "[" + " ".join(f"{number:.4g}" for number in thing.ravel()[:3]) + " …]"
    if hasattr(thing, "exchanges"):
        return "…"  # a plan
    if is_dataclass(thing):
        shown = [(one.name, getattr(thing, one.name)) for one in fields(thing)]
        parts = [f"{name}={describe(value)}" for name, value in shown if not _empty(value)]
        return f"{type(thing).__name__}({', '.join(parts)})"
    if isinstance(thing, tuple):
        inside = ", ".join(map(describe, thing))
        return f"({inside},)" if len(thing) == 1 else f"({inside})"
    if isinstance(thing, dict):
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in thing.items()) + "}"
    if isinstance(thing, float):
        return f"{thing:.4g}"
    if isinstance(thing, str) and len(thing) > 40 and " " not in thing:
        return thing[:6]
    return str(thing)


def _state(state: Durable) -> str:
    commit, newest = state.commit, state.views[-1]
    told = [f"committed {commit.iteration} by view {commit.view}", f"newest {describe(newest)}"]
    told += [f"absent {commit.absent}"] if commit.absent else []
    told += [f"trained {state.trained[0]}"] if state.trained else []
    told += [f"gift of {state.gift[0]}"] if state.gift else []
    told += [f"promised {state.promised}"] if state.promised else []
    told += [f"accepted {describe(state.accepted)}"] if state.accepted else []
    told += [f"ended: {state.ended}"] if state.ended else []
    return f"[{'; '.join(told)}]"


def _empty(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.size == 0
    return value is None or (not isinstance(value, bool) and not value)


class Trace:
    """Prints each event and what follows from it."""

    def __init__(self, say: Callable[[str], None], *, beats: bool = False) -> None:
        self._say, self._beats = say, beats

    def __call__(self, now: float, device: int, event: Event, effects: Sequence[Effect]) -> None:
        follows = [effect for effect in effects if self._beats or not _routine(effect, device)]
        if not follows and not self._beats and _routine(event, device):
            return
        self._say(f"{now:9.4f}  device {device}  {describe(event)}")
        said = set()
        for effect in follows:
            if isinstance(effect, Send) and isinstance(effect.message, Flood) and not self._beats:
                if effect.message.sequence in said:
                    continue
                said.add(effect.message.sequence)
            self._say(f"{'':22}→ {describe(effect)}")


def _routine(thing: Event | Effect, device: int) -> bool:
    """Signs of life, acknowledgements, timers, and floods of others."""
    if isinstance(thing, Send | Received):
        message = thing.message
        passed_on = isinstance(message, Flood) and message.origin != device
        return isinstance(message, Beat) or passed_on
    return type(thing).__name__ in ("Delivered", "SetTimer", "Tick")


if __name__ == "__main__":
    sys.exit(main())
