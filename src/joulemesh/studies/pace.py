"""How long a sweep will take on this machine, by timing a little of it."""

from __future__ import annotations

__all__ = ["Pace", "seconds_left", "timed"]

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from joulemesh.studies.compare import Options
from joulemesh.studies.contest import Contest
from joulemesh.studies.outlook import Asked, Outlook, device_steps, prepared
from joulemesh.training.driver import chunks
from joulemesh.training.learner import Learner


@dataclass(frozen=True)
class Pace:
    """How fast this machine trains.

    Attributes:
        compile_s: seconds before the first iteration of a program that was not compiled before.
        step_s: seconds of a device-step.
    """

    compile_s: float
    step_s: float


def timed(asked: Asked, ahead: Sequence[Outlook], **options: Unpack[Options]) -> Pace | None:
    """Train the first chunk of the first run that is missing, twice, and keep nothing of it.

    Args:
        asked: the sweep.
        ahead: what its combinations take.
        options: as in `joulemesh.compare`.

    Returns:
        None if nothing is missing.
    """
    first = next((one for one in ahead if one.missing), None)
    if first is None:
        return None
    ready = prepared(asked, first.combination, options)
    made = next(one for one in ready.ready if not isinstance(one, str))
    contest = Contest(ready.bench.learning, made, ready.bench.setting)
    learner: Learner[Any] = contest.learner(ready.seeds)
    took = []
    for _ in range(2):  # the first time it is compiled
        begun = time.perf_counter()
        state, _ = next(chunks(learner))
        np.asarray(state.iteration)  # waits for what is under way
        took.append(time.perf_counter() - begun)
    steps = len(ready.seeds) * int(device_steps(made, ready)[: int(state.iteration)].sum())
    return Pace(max(0.0, took[0] - took[1]), took[1] / max(steps, 1))


def seconds_left(asked: Asked, ahead: Sequence[Outlook], pace: Pace) -> float:
    """Seconds that the runs take that are missing: compiling each shape once, then training.

    Args:
        asked: the sweep.
        ahead: what its combinations take.
        pace: of this machine.
    """
    shapes = {_shape(one) for one in ahead if one.missing}
    return pace.compile_s * len(shapes) * len(asked.methods) + pace.step_s * sum(
        one.steps for one in ahead
    )


def _shape(one: Outlook) -> tuple[Any, ...]:
    """What a compiled program depends on, as far as a sweep usually varies it."""
    scenario = one.combination.scenario
    assert scenario is not None
    training = scenario.training
    return scenario.devices.count, training.model, training.hidden, training.batch_size
