"""The ways in which a user's request can be refused."""

from __future__ import annotations

__all__ = ["Edit", "InfeasibleError", "JoulemeshError", "Remedy", "ScenarioError", "UnitError"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PHRASES = {
    "raise": "raise {field} to at least {value}",
    "lower": "set {field} to at most {value}",
    "set": "set {field} = {value}",
    "scale": "multiply {field} by {value}",
}


@dataclass(frozen=True)
class Edit:
    """One change of one field of a scenario, which a sentence can name and a program can make.

    Attributes:
        field: by its full name.
        value: the least that is needed (``"raise"``), the most that is possible (``"lower"``), the
            value (``"set"``; None leaves the field out), or a factor (``"scale"``).
        how: one of these.
        device: whose value it is, where devices have each their own; otherwise everybody's.

    >>> Edit("budget.energy_j", 79680.0, "raise").text, Edit("plan.iterations", 40, "lower").text
    ('raise budget.energy_j to at least 79680', 'set plan.iterations to at most 40')
    """

    field: str
    value: Any
    how: str = "set"
    device: int | None = None

    @property
    def text(self) -> str:
        """What a refusal advises; a figure is printed with all its digits."""
        value = self.value
        if value is None:
            return f"leave {self.field} out"
        if isinstance(value, str):
            value = f'"{value}"'
        elif isinstance(value, float):
            value = f"{value:.12g}"
        return _PHRASES[self.how].format(field=self.field, value=value)


Remedy = tuple[Edit, ...]
"""Changes that mend a refusal together."""


class JoulemeshError(ValueError):
    """Any error that the user can correct; the text says what is wrong, the figure and the fix.

    >>> import joulemesh
    >>> try:
    ...     joulemesh.Scenario.preset("defualt")
    ... except joulemesh.JoulemeshError as error:
    ...     print(type(error).__name__)
    ScenarioError

    Args:
        message: what is wrong.
        remedies: changes of which any one mends it; the text names them after the message.
    """

    def __init__(self, message: str = "", *, remedies: Sequence[Remedy] = ()) -> None:
        super().__init__(message)
        self.offer(message, remedies)

    def offer(self, reason: str, remedies: Sequence[Remedy]) -> None:
        """Say what is wrong, and offer some changes in place of those offered before."""
        ways = ", or ".join(" and ".join(edit.text for edit in one) for one in remedies)
        self.args = (f"{reason}; {ways}" if ways else reason,)
        self.reason, self.remedies = reason, tuple(remedies)


class ScenarioError(JoulemeshError):
    """The scenario (or a file that it names) is malformed: which field, and what to write.

    >>> import joulemesh
    >>> joulemesh.Scenario().override({"devices.count": 0})
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: devices.count: input should be greater than or equal to 1 ...
    """


class UnitError(ScenarioError):
    """A quantity's text has the wrong unit, or none that is known; its text begins with it."""


class InfeasibleError(JoulemeshError):
    """The scenario is well-formed but cannot be carried out: who, which constraint, the remedy.

    Attributes:
        reason: what is wrong, without what would mend it.
        remedies: changes of the scenario of which any one mends it.
        device: index of the device that cannot meet the constraint, or None.
        constraint: ``"energy"``, ``"deadline"`` or what else is violated.

    >>> import joulemesh
    >>> try:
    ...     joulemesh.plan(joulemesh.Scenario().override({"budget.deadline_s": "1 us"}))
    ... except joulemesh.InfeasibleError as error:
    ...     print(error.constraint)
    deadline
    """

    def __init__(
        self,
        message: str,
        *,
        device: int | None = None,
        constraint: str | None = None,
        remedies: Sequence[Remedy] = (),
    ) -> None:
        super().__init__(message, remedies=remedies)
        self.device = device
        self.constraint = constraint
