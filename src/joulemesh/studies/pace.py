"""How long a sweep will take on this machine, by timing a little of it."""

from __future__ import annotations

__all__ = ["Pace", "seconds_left", "timed"]

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from joulemesh.methods import Contender
from joulemesh.studies.compare import Options, Prepared
from joulemesh.studies.contest import Contest
from joulemesh.studies.outlook import Asked, Outlook, device_steps, prepared
from joulemesh.training.driver import chunks
from joulemesh.training.learner import Learner

_REPEATS = 5  # of a chunk, unless they take long:
_ENOUGH_S = 0.5


@dataclass(frozen=True)
class Pace:
    """How fast this machine trains one method.

    Attributes:
        compile_s: seconds before the first iteration of a program that was not compiled before;
            none where a method before it in the list has the same program.
        step_s: seconds of a device-step, with its share of exchanges and evaluations.
    """

    compile_s: float
    step_s: float


def timed(asked: Asked, ahead: Sequence[Outlook], **options: Unpack[Options]) -> dict[str, Pace]:
    """Train the first chunk of every method that has runs missing, and keep nothing of it.

    Methods differ in what surrounds a step: one that exchanges after every step takes many times
    as long for it as one that exchanges after twenty. They share compiled programs, too.

    Args:
        asked: the sweep.
        ahead: what its combinations take.
        options: as in `joulemesh.compare`.

    Returns:
        By method; empty if nothing is missing.
    """
    found: dict[str, Pace] = {}
    for one in ahead:
        untimed = {name for name, steps in one.steps_of.items() if steps} - found.keys()
        if not untimed:
            continue
        ready = prepared(asked, one.combination, options)
        for made in ready.ready:
            if not isinstance(made, str) and made.name in untimed:
                found[made.name] = _pace(made, ready)
    return found


def _pace(made: Contender, ready: Prepared) -> Pace:
    contest = Contest(ready.bench.learning, made, ready.bench.setting)
    learner: Learner[Any] = contest.learner(ready.seeds)
    took: list[float] = []
    while len(took) < 2 or (len(took) <= _REPEATS and sum(took[1:]) < _ENOUGH_S):
        begun = time.perf_counter()
        state, _ = next(chunks(learner))
        np.asarray(state.iteration)  # waits for what is under way
        took.append(time.perf_counter() - begun)
    chunk_s = statistics.median(took[1:])  # the first time it is compiled
    steps = len(ready.seeds) * int(device_steps(made, ready)[: int(state.iteration)].sum())
    return Pace(max(0.0, took[0] - chunk_s), chunk_s / max(steps, 1))


def seconds_left(ahead: Sequence[Outlook], paces: Mapping[str, Pace]) -> float:
    """Seconds that the runs take that are missing: compiling each shape once, then training.

    Args:
        ahead: what its combinations take.
        paces: of this machine, by method.
    """
    shapes = {(name, _shape(one)) for one in ahead for name, steps in one.steps_of.items() if steps}
    compiling_s = sum(paces[name].compile_s for name, _ in shapes)
    training_s = sum(
        paces[name].step_s * steps for one in ahead for name, steps in one.steps_of.items() if steps
    )
    return compiling_s + training_s


def _shape(one: Outlook) -> tuple[Any, ...]:
    """What a compiled program depends on, as far as a sweep usually varies it."""
    scenario = one.combination.scenario
    assert scenario is not None
    training = scenario.training
    return scenario.devices.count, training.model, training.hidden, training.batch_size
