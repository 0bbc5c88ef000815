"""What the user says. In: a TOML or JSON file, or values. Out: one immutable, validated `Scenario`,
of which every field has its unit in its name, a default and a description.
May not know: what is done with it (``data``, ``world``, ``planning``, ``training``).
"""

from __future__ import annotations

from joulemesh.scenario.complete import profile_notes
from joulemesh.scenario.given import Origin
from joulemesh.scenario.scenario import PRESETS, Scenario
from joulemesh.scenario.sections import (
    SECTIONS,
    Bounds,
    Budget,
    Devices,
    Network,
    PlanOptions,
    Training,
)

__all__ = [
    "PRESETS",
    "SECTIONS",
    "Bounds",
    "Budget",
    "Devices",
    "Network",
    "Origin",
    "PlanOptions",
    "Scenario",
    "Training",
    "profile_notes",
]
