"""Comparisons made up of known figures; nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joulemesh.metrics import reported
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Entry


def entry(
    name: str, final: Sequence[float], joules: float = 100.0, score: str = "accuracy"
) -> Entry:
    """A method that comes to its final accuracies in four evaluations, at a steady price."""
    accuracy = np.asarray(final, np.float64)
    iteration = np.array([1, 2, 3, 4])
    curve = np.linspace(0.25, 1.0, 4)[:, None] * accuracy
    spent = np.linspace(0.25, 1.0, 4)[:, None] * np.full(len(accuracy), joules)
    names = column_names((), score)
    devices = np.full((len(accuracy), 2), joules / 2)
    return Entry(
        name,
        iteration,
        dict.fromkeys(names, curve),
        dict.fromkeys(names, accuracy),
        spent,
        spent / 50,
        devices,
        devices,
        np.ones((len(accuracy), 4)),
        score=score,
    )


def study(
    finals: Mapping[str, Sequence[float]],
    refused: Sequence[str] = (),
    joules: Mapping[str, float] | None = None,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Comparison:
    """A comparison of methods by their final accuracies or other scores, one for each seed."""
    few = {"devices.count": 4, "plan.iterations": 3}
    scenario = Scenario.preset("adaptive").override({**few, **(changes or {})})
    prices, score = joules or {}, reported(scenario.training).score
    made = [entry(name, final, prices.get(name, 100.0), score) for name, final in finals.items()]
    count = len(next(iter(finals.values())))
    made += [Entry.refused(name, "no battery pays for it", count, 2) for name in refused]
    said: dict[str, Any] = {"dataset": "digits", "model": "mlp", "parameters": 4810}
    return Comparison(scenario, "batteries", tuple(range(count)), tuple(made), **said, **options)
