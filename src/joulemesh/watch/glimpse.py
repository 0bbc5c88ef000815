"""What is known of a device of a fleet at the moment."""

from __future__ import annotations

__all__ = ["Glimpse"]

from dataclasses import dataclass
from typing import Any

from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import History


@dataclass(frozen=True, eq=False)
class Glimpse:
    """What is known of one device.

    Attributes:
        standing: what it said when it last answered; only number and name if it never did.
        history: what its journal tells, as far as it could be read.
        answers: does it answer at the moment?
        heard_at: when it last did, in Unix seconds; 0 if it never did.
        why: why it does not answer, or why its journal cannot be read; empty if neither.
        asked: has it been asked at all?
    """

    standing: Standing
    history: History
    answers: bool = True
    heard_at: float = 0.0
    why: str = ""
    asked: bool = True

    @property
    def state(self) -> str:
        """What it does, in a word or two.

        >>> from joulemesh.deploy.record.history import history_of
        >>> silent = history_of((), 0, "gate")
        >>> Glimpse(Standing(0, "gate", "training"), silent).state
        'training'
        >>> Glimpse(Standing(0, "gate"), silent, answers=False).state
        'not seen'
        >>> Glimpse(Standing(0, "gate", "training"), silent, answers=False, heard_at=5.0).state
        'silent'
        """
        if self.answers:
            return self.standing.phase or "up"
        if not self.asked:
            return "being asked"
        end = self.history.end
        if end is not None:
            return "ended" if end.figures.get("complete") else "stopped"
        return "silent" if self.heard_at or self.history.events else "not seen"

    def figures(self) -> dict[str, Any]:
        """Joules and seconds so far, from whichever source is newer: the device or its journal."""
        now, past = self.standing, self.history
        known: dict[str, Any] = {
            name: getattr(now, name) for name in ("iteration", "view", "spent_j", "accuracy")
        }
        if len(past.iterations) and past.iterations[-1] >= now.iteration:
            known["iteration"] = int(past.iterations[-1])
            known["view"] = max(now.view, int(past.column("view")[-1]))
            known["spent_j"] = max(now.spent_j, float(past.column("spent_j")[-1]))
        if len(past.evaluations) and known["accuracy"] is None:
            known["accuracy"] = float(past.evaluations[-1, 1])
        return known
