"""What a refusal advises, as changes of the scenario that a program can make.

A refusal's text names its remedies in a few fixed phrases ("raise budget.deadline_s to at least
0.31", "set plan.iterations to at most 40"). Here they are read back, so that a page can offer each
as a button and a script can follow one.
"""

from __future__ import annotations

__all__ = ["Edit", "Remedy", "apply_edits", "remedies_in"]

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from joulemesh.scenario import SECTIONS, Scenario
from joulemesh.scenario.typed import typed_value
from joulemesh.units import duration, energy, si, unit_of
from joulemesh.world.quantities import resolve

_FIELD = r"(?P<field>[a-z]+\.[a-z_]+)"
_FIGURE = r"(?P<value>[-+0-9.,e]*[0-9])"
_PHRASES = (
    ("raise", re.compile(rf"raise {_FIELD} to at least {_FIGURE}")),
    ("set", re.compile(rf"(?:set|lower|raise) {_FIELD} to (?:at most |at least )?{_FIGURE}")),
    ("set", re.compile(rf"lower {_FIELD} to {_FIGURE} at most")),
    ("set", re.compile(rf'set {_FIELD} = (?P<value>"[^"]*"|true|false|[-+0-9.e]*[0-9])')),
)
_WORDS = {
    "budget.deadline_s": "the deadline",
    "budget.total_s": "the total time",
    "budget.energy_j": "the batteries",
    "plan.iterations": "the number of iterations",
    "devices.count": "the number of devices",
}


@dataclass(frozen=True)
class Edit:
    """One change of one field.

    Attributes:
        field: by its full name.
        value: what to set it to; for ``"raise"`` the least that each device needs.
        how: ``"set"``, or ``"raise"``: what is larger already stays.

    >>> Edit("budget.deadline_s", 0.31, "raise").words
    'raise the deadline to 310 ms'
    """

    field: str
    value: Any
    how: str = "set"

    @property
    def words(self) -> str:
        """What a button says."""
        name = _WORDS.get(self.field, self.field)
        return f"{self.how} {name} to {_written(self.field, self.value)}"


@dataclass(frozen=True)
class Remedy:
    """Changes that belong together.

    Attributes:
        edits: all of them are needed.
    """

    edits: tuple[Edit, ...]

    @property
    def words(self) -> str:
        """What a button says."""
        return " and ".join(edit.words for edit in self.edits)


def _written(field: str, value: Any) -> str:
    """A value as people say it.

    >>> _written("budget.energy_j", 12.5), _written("plan.iterations", 1200)
    ('12.5 J', '1,200')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return str(value)
    unit = unit_of(field)
    if unit is None:
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    if unit == "J":
        return energy(value, digits=4)
    return duration(value, digits=4) if unit == "s" else si(value, unit)


def remedies_in(text: str) -> list[Remedy]:
    """The remedies that a refusal names, of which any one will do.

    Args:
        text: of an `InfeasibleError` or a `ScenarioError`.

    Returns:
        None for a text that only says what to look at.

    >>> for one in remedies_in("too late; raise budget.deadline_s to at least 0.31 and raise "
    ...                        'budget.total_s to at least 9, or set plan.on_depletion = "leave"'):
    ...     print(one.words)
    raise the deadline to 310 ms and raise the total time to 9 s
    set plan.on_depletion to leave
    """
    starts = [found.start() for _, phrase in _PHRASES for found in phrase.finditer(text)]
    if not starts:
        return []
    advice = text[min(starts) :].rstrip(". ")
    found = []
    for way in re.split(r",? or (?=raise |set |lower )", advice):
        edits = [_edit(part) for part in way.split(" and ")]
        known = [edit for edit in edits if edit is not None]
        if len(known) == len(edits):
            found.append(Remedy(tuple(known)))
    return found


def _edit(phrase: str) -> Edit | None:
    for how, pattern in _PHRASES:
        found = pattern.fullmatch(phrase.strip())
        if found is None:
            continue
        section, _, field = found["field"].partition(".")
        if section in SECTIONS and field in SECTIONS[section].model_fields:
            return Edit(found["field"], typed_value(found["value"].replace(",", "")), how)
    return None


def apply_edits(scenario: Scenario, edits: Iterable[Edit]) -> Scenario:
    """The scenario with some changes made.

    A quantity that devices have each their own of is raised where it is too small, and stays where
    it is enough.

    >>> from joulemesh.scenario import Scenario
    >>> one = Scenario(devices={"count": 3}, budget={"energy_j": [1.0, 9.0, 2.0]})
    >>> apply_edits(one, [Edit("budget.energy_j", 4.0, "raise")]).budget.energy_j
    (4.0, 9.0, 4.0)
    """
    return scenario.override({edit.field: _value(scenario, edit) for edit in edits})


def _value(scenario: Scenario, edit: Edit) -> Any:
    section, _, field = edit.field.partition(".")
    now = getattr(getattr(scenario, section), field)
    if edit.how == "set" or now is None:
        return edit.value
    if isinstance(now, int | float):
        return max(now, edit.value)
    return {"values": np.maximum(resolve(scenario, field, now), edit.value).tolist()}
