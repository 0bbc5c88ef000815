"""Each method's own learning rate: from one grid, at equal effort, on seeds that no result uses.

One learning rate for all favours the methods that it happens to suit. So every method is trained at
every rate of one grid, on the same few seeds, and takes the rate of the highest final accuracy of
the mean model; the comparison itself is made on other seeds.
"""

from __future__ import annotations

__all__ = ["TUNING_SEEDS", "Rates", "rates_of", "tuning_seeds"]

import math
from collections.abc import Sequence

from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario

Rates = bool | str | Sequence[float] | None

TUNING_SEEDS = 2
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the scenario's own rate
_FURTHER = 500_000  # from the scenario's seed; other worlds' seeds are whole millions away


def rates_of(scenario: Scenario, wanted: Rates) -> tuple[float, ...]:
    """The grid of learning rates, ascending; empty for no tuning.

    Args:
        scenario: whose own rate is in the middle of the grid, if none is given.
        wanted: whether to tune; or the rates themselves, as numbers or in one text with commas.

    Raises:
        ScenarioError: something that is not a rate, or the same rate twice.

    >>> rates_of(Scenario.preset("adaptive"), True)
    (0.025, 0.05, 0.1, 0.2, 0.4, 0.8)
    >>> rates_of(Scenario.preset("adaptive"), "0.1, 0.05")
    (0.05, 0.1)
    """
    if wanted is None or wanted is False:
        return ()
    if wanted is True:
        return tuple(scenario.training.learning_rate * times for times in _MULTIPLES)
    pieces = wanted.split(",") if isinstance(wanted, str) else wanted
    try:
        rates = sorted(float(piece) for piece in pieces)
    except (TypeError, ValueError):
        rates = []
    if not rates or not all(0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise ScenarioError(
            f"the grid of learning rates is {wanted!r}: give different numbers above 0, "
            'for instance "0.05,0.1,0.2"'
        )
    return tuple(rates)


def tuning_seeds(scenario: Scenario, count: int, used: Sequence[int]) -> tuple[int, ...]:
    """Seeds for choosing a learning rate, the same for all methods.

    Args:
        scenario: they are half a million away from its seed.
        count: how many.
        used: the seeds of the result, none of which is among them.

    >>> tuning_seeds(Scenario.preset("adaptive"), 2, (0, 1, 500_000))
    (500001, 500002)
    """
    if count < 1:
        raise ScenarioError(f"tune_seeds = {count} is out of range: use 1 or more")
    first = scenario.seed + _FURTHER
    free = (seed for seed in range(first, first + count + len(used)) if seed not in set(used))
    return tuple(seed for _, seed in zip(range(count), free, strict=False))
