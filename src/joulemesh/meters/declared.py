"""Watts that the user declares: from a data sheet, a label or a wall meter's display."""

from __future__ import annotations

__all__ = ["Declared"]

import math

from joulemesh.errors import ScenarioError
from joulemesh.meters.choose import METERS
from joulemesh.meters.meter import Finding, MeterKind, MeterOptions

_MOST_W = 1e5


class Declared:
    """Counts the seconds since it was opened, at so many watts.

    Args:
        options: with the watts and the clock.

    Raises:
        ScenarioError: there are no watts, or they are no power.

    >>> clock = iter([10.0, 12.0]).__next__
    >>> meter = Declared(MeterOptions(watts=6.5, clock=clock))
    >>> meter.joules(), meter.source
    (13.0, 'declared 6.5 W')
    """

    name = "declared"

    def __init__(self, options: MeterOptions) -> None:
        watts = options.watts
        if watts is None:
            raise ScenarioError("--meter declared needs the watts: add --watts 6.5")
        if not (math.isfinite(watts) and 0 < watts <= _MOST_W):
            raise ScenarioError(
                f"--watts {watts:g} is no power that a device draws: write more than 0 and at most "
                f"{_MOST_W:,.0f}"
            )
        self.watts, self._clock = watts, options.clock
        self.source = f"declared {watts:g} W"
        self._begun = self._clock()

    def joules(self) -> float:
        """Watts times seconds since the meter was opened."""
        return self.watts * (self._clock() - self._begun)

    def close(self) -> None:
        """Do nothing: there is no sensor."""


def _find(options: MeterOptions) -> Finding:
    if options.watts is None:
        return Finding(False, "no watts are declared", "add --watts 6.5")
    return Finding(True, f"{options.watts:g} W")


METERS.register(
    MeterKind(
        name="declared",
        description="Watts that you declare, times seconds.",
        find=_find,
        open=Declared,
        sees="what you say",
        suits=lambda options: False,
        least_s=0.0,
    )
)
