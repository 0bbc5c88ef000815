"""Values of a scenario's fields, with their units, in few characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from joulemesh.planning.figures import Figure
from joulemesh.units import duration, energy, si, unit_of

__all__ = ["by_section", "figure_words", "value_words"]


def value_words(field: str, value: Any) -> str:
    """A field's value as people say it.

    Args:
        field: its name, which ends in its unit.
        value: as in a scenario.

    >>> value_words("energy_j", (6.0, 30.0)), value_words("deadline_s", 0.04)
    ('6 J to 30 J', '40 ms')
    >>> value_words("cycles_per_sample", 3e5), value_words("capacitance", 1e-27)
    ('300,000', '1e-27')
    >>> value_words("hidden", (64, 32)), value_words("topology", "ring")
    ('[64, 32]', 'ring')
    """
    if isinstance(value, dict):
        value = value["values"]
    elif isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, float) for v in value):
        return f"{value_words(field, value[0])} to {value_words(field, value[1])}"
    if isinstance(value, tuple):
        return f"[{len(value)} values]" if len(value) > 4 else str(list(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    unit = unit_of(field)
    if unit == "J":
        return energy(value)
    if unit == "s":
        return duration(value)
    if unit in ("dBm/Hz", "dB"):
        return f"{value:g} {unit}"
    if unit is not None:
        return si(value, unit)
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.3g}"


def figure_words(field: str, figure: Figure) -> str:
    """A figure's value, what it means, and how far from it a measured one may be.

    >>> from joulemesh.scenario import Origin
    >>> figure_words("step_s", Figure("devices.step_s", 0.02, Origin("given"), 0.031))
    '20 ms (95 % interval within ±3.1 %)'
    """
    words = value_words(field, figure.value)
    if figure.means:
        return f"{words} ({figure.means})"
    if figure.within is None:
        return words
    return f"{words} (95 % interval within ±{100 * figure.within:.2g} %)"


def by_section(figures: Iterable[Figure]) -> str:
    """Figures with their values, under the names of their sections.

    >>> from joulemesh.scenario import Scenario
    >>> from joulemesh.planning.figures import figures
    >>> by_section(figures(Scenario())[:3])
    '[budget] total_s 4 s, energy_j 6 J to 30 J; [devices] count 20'
    """
    groups: dict[str, list[str]] = {}
    for figure in figures:
        section, _, field = figure.name.partition(".")
        groups.setdefault(section, []).append(f"{field} {figure_words(field, figure)}")
    return "; ".join(f"[{section}] {', '.join(words)}" for section, words in groups.items())
