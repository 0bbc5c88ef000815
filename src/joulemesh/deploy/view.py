"""Views: who takes part, from which iteration on, and what a new plan is made from."""

from __future__ import annotations

__all__ = ["View"]

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A numbered agreement about who takes part. All that re-planning needs is in it.

    View 0 is the plan's own: all devices, from iteration 1 on. The iterations from ``start`` on
    follow the plan that is made from the newest view; those before it are finished as they were
    begun: an exact average is fetched from a device that has it, and a mixing with neighbours goes
    on without those that are gone.

    Attributes:
        number: 0, 1, 2, … in the order in which views are installed.
        start: the first iteration (from 1) that follows the plan of this view.
        members: the devices that take part, ascending.
        cut: links between members that carry nothing, each (lower, higher), ascending.
        left_j: joules that each member has left before iteration ``start``, in their order.
        elapsed_s: seconds that the fleet has taken so far, of those that a total limits.
        gifts: (newcomer, giver): a member that was away and the neighbour whose parameters, as of
            iteration ``start`` − 1, it takes up.
        digest: of the plan that follows from all this.
    """

    number: int
    start: int
    members: tuple[int, ...]
    cut: tuple[tuple[int, int], ...] = ()
    left_j: tuple[float, ...] = ()
    elapsed_s: float = 0.0
    gifts: tuple[tuple[int, int], ...] = ()
    digest: str = ""

    @property
    def majority(self) -> int:
        """Members that must agree to the view that follows this one.

        >>> View(0, 1, (0, 1, 2, 3)).majority
        3
        """
        return len(self.members) // 2 + 1
