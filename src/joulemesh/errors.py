"""The ways in which a user's request can be refused."""

from __future__ import annotations

__all__ = ["InfeasibleError", "JoulemeshError", "ScenarioError", "UnitError"]


class JoulemeshError(ValueError):
    """Any error that the user can correct; the text says what is wrong, the figure and the fix.

    >>> import joulemesh
    >>> try:
    ...     joulemesh.Scenario.preset("defualt")
    ... except joulemesh.JoulemeshError as error:
    ...     print(type(error).__name__)
    ScenarioError
    """


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
        self, message: str, *, device: int | None = None, constraint: str | None = None
    ) -> None:
        super().__init__(message)
        self.device = device
        self.constraint = constraint
