"""Figures of a device, measured. In: a scenario, a learner and an energy meter. Out: a
`Calibration`: seconds and joules of a training step and watts at rest, with intervals and sources.
May not know: how its figures are shown (``views``), or contests that use them (``methods``).
"""

from __future__ import annotations

from joulemesh.calibration.calibration import (
    Bench,
    Calibration,
    Figure,
    Method,
    calibrate,
    write_row,
)

__all__ = ["Bench", "Calibration", "Figure", "Method", "calibrate", "write_row"]
