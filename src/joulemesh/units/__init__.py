"""Quantities with units. In: numbers, and texts as people write them. Out: SI values, and texts as
people say them. May not know: what is measured (``scenario``, ``world``, ``planning``).

In a file, a field's name holds its SI unit (``energy_j``) and a plain number is in that unit; a
text may give another ("100 Wh"). In print there are two forms:

- **Sentences and summaries** use `energy` (joules with a prefix), `duration` (seconds with a prefix
  below a minute, then the two largest of days, hours, minutes and seconds), and `si` for everything
  else. Each keeps about three digits; refusals, in which two nearly equal figures may stand side by
  side, keep six.
- **Tables** keep SI units: `column` gives all cells of a column one prefix, and its name goes into
  the header, so that figures in one column can be compared at a glance.
"""

from __future__ import annotations

from joulemesh.units.reading import example, is_quantity, parse, unit_of
from joulemesh.units.saying import column, counted, duration, energy, prefixed, si

__all__ = [
    "column",
    "counted",
    "duration",
    "energy",
    "example",
    "is_quantity",
    "parse",
    "prefixed",
    "si",
    "unit_of",
]
