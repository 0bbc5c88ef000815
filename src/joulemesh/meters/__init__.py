"""Energy meters by name. In: where the system shows its sensors, or a figure or file that the user
gives. Out: joules counted since a meter was opened, and words for where they come from.
May not know: what the joules are spent on (``training``, ``deploy``), or scenarios (``scenario``).
"""

from __future__ import annotations

from joulemesh.meters.meter import (
    METERS,
    Choice,
    Finding,
    Meter,
    MeterError,
    MeterKind,
    MeterOptions,
    choose,
    findings,
    open_meter,
)

__all__ = [
    "METERS",
    "Choice",
    "Finding",
    "Meter",
    "MeterError",
    "MeterKind",
    "MeterOptions",
    "choose",
    "findings",
    "open_meter",
]
