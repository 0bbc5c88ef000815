"""How the devices of a fleet treat each other."""

from __future__ import annotations

__all__ = ["Settings"]

from dataclasses import dataclass
from typing import Literal

from joulemesh.deploy.view import View


@dataclass(frozen=True)
class Settings:
    """Patience and what follows when it runs out.

    Attributes:
        patience_s: seconds without a sign of life after which a device is suspected.
        slack: factor by which training and exchanges may take longer than planned.
        quorum: who must agree to go on: a ``"majority"`` of the members, or, of two members,
            ``"one"``: then each goes on by itself where only the link between them is broken.
        on_failure: ``"go-on"`` without devices that fail, or ``"stop"`` at the first failure.
        starting_s: seconds that a neighbour may take to be heard for the first time.
        hang_s: seconds that training may take beyond what is planned (a first compilation).
        minority_s: seconds after which a device that cannot reach a majority stops.
        reserve: share of each battery that a plan made after a fault leaves alone, for the next
            one; what would otherwise not be paid for may be paid from it.

    >>> Settings(patience_s=8.0).tick_s
    1.0
    """

    patience_s: float = 10.0
    slack: float = 3.0
    on_failure: Literal["go-on", "stop"] = "go-on"
    quorum: Literal["majority", "one"] = "majority"
    starting_s: float = 120.0
    hang_s: float = 120.0
    minority_s: float = 120.0
    reserve: float = 0.01

    def needed(self, view: View) -> int:
        """Members of a view that must agree to the one that follows it.

        >>> pair, one = View(0, 1, (0, 1)), Settings(quorum="one")
        >>> Settings().needed(pair), one.needed(pair), one.needed(View(0, 1, (0, 1, 2)))
        (2, 1, 2)
        """
        alone = self.quorum == "one" and len(view.members) == 2
        return 1 if alone else view.majority

    @property
    def tick_s(self) -> float:
        """Period of a node's chores; every second time it sends signs of life."""
        return self.patience_s / 8.0
