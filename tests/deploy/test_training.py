"""Who evaluates when."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import numpy as np

from joulemesh.deploy.device.host import Worker
from joulemesh.deploy.device.learner import Training
from joulemesh.deploy.effects import Evaluate
from tests.deploy.loopback import ToyLearner


def evaluated(devices: tuple[int | None, ...], holders: tuple[int, ...]) -> dict[int, list[int]]:
    """By iteration, the places of those who evaluate, of 12 iterations and every second one."""
    found: dict[int, list[int]] = defaultdict(list)

    async def all_of_them() -> None:
        for place, device in enumerate(devices):

            def tell(kind: str, figures: dict[str, Any], place: int = place) -> None:
                assert kind == "evaluated"
                found[figures["iteration"]].append(place)

            training = Training(ToyLearner(), 2, device)
            training.begin(Worker("learner"), tell)
            training.last = 12
            for t in range(1, 13):
                training.evaluate(Evaluate(t, np.zeros(3), holders))
                await training.evaluated(5.0)
            training.close()

    asyncio.run(all_of_them())
    return dict(found)


def test_devices_that_hold_the_same_evaluate_in_turn_and_at_the_end_all() -> None:
    every = evaluated((4, 7, 9), holders=(4, 7, 9))
    assert every == {2: [1], 4: [2], 6: [0], 8: [1], 10: [2], 12: [0, 1, 2]}


def test_whoever_holds_its_own_or_has_samples_of_its_own_evaluates_itself() -> None:
    both = {t: [0, 1] for t in (2, 4, 6, 8, 10, 12)}
    assert evaluated((4, 7), holders=()) == both
    assert evaluated((None, None), holders=(4, 7)) == both
