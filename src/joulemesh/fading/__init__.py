"""Fading models by name. In: a name as the scenario writes it, links and their mean gains. Out: the
gains of every coherence block, and a forecast of those to come.
May not know: scenarios (``scenario``), or what is sent over the links (``aggregation``).
"""

from __future__ import annotations

from joulemesh.fading.distributions import distribution
from joulemesh.fading.model import Fading, FadingModel, Links, find, spellings

__all__ = ["Fading", "FadingModel", "Links", "distribution", "find", "spellings"]
