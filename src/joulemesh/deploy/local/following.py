"""How devices of this machine stand, followed through their journals while they are written."""

from __future__ import annotations

__all__ = ["Follower", "Planned"]

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.bounded import JOURNAL, JOURNAL_LINE, open_bounded, parse_json
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.costs import planned

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan


# What a device does after a line of this kind.
_PHASES = {
    "start": "starting",
    "trained": "exchanging",
    "committed": "training",
    "end": "ended",
}


@dataclass(frozen=True, eq=False)
class Planned:
    """What the plan gives a device up to each iteration.

    Attributes:
        joules: float64 [n + 1], of all iterations up to each; 0 at the beginning.
        seconds: float64 [n + 1], of the fleet.
        battery_j: what it may spend.
    """

    joules: NDArray[np.float64]
    seconds: NDArray[np.float64]
    battery_j: float

    @classmethod
    def of(cls, plan: Plan, device: int) -> Planned:
        """The part of one device in a plan.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> mine = Planned.of(made, 3)
        >>> len(mine.joules), bool(abs(mine.joules[-1] - made.spent_j[3]) < 1e-9)
        (101, True)
        """
        joules = np.nan_to_num(planned(plan).joules[:, device])
        return cls(_summed(joules), _summed(plan.latency_s), float(plan.energy_budget_j[device]))


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values)])


class Follower:
    """Follows one device.

    Args:
        folder: where it writes ``journal.jsonl``.
        standing: its number and name.
        planned: what the plan gives it.
    """

    def __init__(self, folder: Path, standing: Standing, planned: Planned) -> None:
        self._path = folder / "journal.jsonl"
        self._planned = planned
        self._at: tuple[int, int] = (0, 0)  # the file's number and how far it was read
        self.started_at = 0.0
        self.standing = replace(
            standing, iterations=len(planned.joules) - 1, battery_j=planned.battery_j
        )

    def look(self) -> Standing:
        """How it stands now: what has been written since the last look is read."""
        for line in self._new_lines():
            with suppress(ValueError, TypeError, LookupError, AttributeError):  # cut short
                self._heed(parse_json(line))
        return self.standing

    def started_since(self, launched: float) -> bool:
        """Has it been started after a moment, in seconds since the epoch?"""
        self.look()
        return self.started_at >= launched

    def _new_lines(self) -> list[bytes]:
        """Whole lines; a journal that was put aside goes on in a new file."""
        try:
            with open_bounded(self._path, JOURNAL.now) as file:
                found = os.fstat(file.fileno())
                number, place = self._at
                if number != found.st_ino or place > found.st_size:
                    place = 0
                file.seek(place)
                text = file.read(JOURNAL_LINE.now)
        except (OSError, ScenarioError):  # not yet there
            return []
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == JOURNAL_LINE.now:
            whole = len(text)  # no line of ours is as long
        self._at = (found.st_ino, place + whole)
        return text[:whole].splitlines()

    def _heed(self, line: dict[str, Any]) -> None:
        kind, now = line["kind"], self.standing
        changes: dict[str, Any] = {}
        if kind in _PHASES:
            changes["phase"] = _PHASES[kind]
        if kind == "start":
            self.started_at = float(line["at"])
            changes["trouble"] = ""
        if kind in ("start", "committed"):
            iteration = min(int(line["iteration"]), now.iterations)
            changes["iteration"] = iteration
            changes["planned_j"] = float(self._planned.joules[iteration])
            changes["planned_s"] = float(self._planned.seconds[iteration])
        for figure in ("spent_j", "elapsed_s"):
            if figure in line:
                changes[figure] = float(line[figure])
        if kind == "view":
            changes["view"] = int(line["number"])
        if kind == "evaluated" and "accuracy" in line:
            changes["accuracy"] = float(line["accuracy"])
        if kind == "end" and not line.get("complete"):
            changes["trouble"] = str(line.get("reason", ""))
        if kind in ("not-saved", "not-trained"):
            changes["trouble"] = str(line.get("reason", ""))
        self.standing = replace(now, **changes)
