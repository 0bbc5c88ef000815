"""What happened to a fleet, as far as its parameters depend on it: what a replay needs."""

from __future__ import annotations

__all__ = ["Course", "Done", "Place", "course_of", "course_of_histories"]

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from joulemesh.deploy.device.continuation import first_view
from joulemesh.deploy.record.chronicle import views_of
from joulemesh.deploy.record.history import History
from joulemesh.deploy.view import FINISHED, UNHELD, View, governing

Place: TypeAlias = tuple[int, int]
"""(iteration, device)"""


@dataclass(frozen=True)
class Course:
    """What happened to a fleet, as far as its parameters depend on it.

    Attributes:
        views: those that were installed, ascending, view 0 included.
        absent: the messages that a device's exchange went without: (step, sender).
        rounds: local rounds, where they were not those of the plan: what was trained before a
            change of view is kept.
        lost: iterations that a member never finished: it was gone, and what it had done was not
            committed. What its own exchange went without is then known to nobody: a device that
            missed a message, passed on what followed from that, and then was lost, is played as if
            it had missed none.
    """

    views: tuple[View, ...]
    absent: Mapping[Place, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    rounds: Mapping[Place, int] = field(default_factory=dict)
    lost: frozenset[Place] = frozenset()

    def view(self, iteration: int) -> View:
        """The view whose plan an iteration follows: the newest that has begun by then."""
        return governing(self.views, iteration)

    def gifts(self, iteration: int) -> tuple[tuple[int, int], ...]:
        """(newcomer, giver): who takes up whose parameters before an iteration."""
        if self.view(iteration).start != iteration:
            return ()
        begun = (view for view in self.views if view.start == iteration)
        return tuple(gift for view in begun for gift in view.gifts)


@dataclass(frozen=True)
class Done:
    """An iteration that a device committed.

    Attributes:
        view: number of the view by whose plan it was done, or in which it was given.
        rounds: local rounds that were run.
        absent: (step, sender): messages that its exchange went without.
    """

    view: int
    rounds: int
    absent: tuple[tuple[int, int], ...] = ()


def course_of(views: Sequence[View], done: Mapping[Place, Done]) -> Course:
    """What happened, from what was committed.

    Args:
        views: those that were installed, view 0 included.
        done: every commit, gifts included; of one iteration, what the device computed itself.

    >>> views = (View(0, 1, (0, 1)), View(1, 3, (0, 1), gifts=((1, 0),)))
    >>> done = {(1, 0): Done(0, 5), (2, 0): Done(0, 5), (1, 1): Done(0, 4), (2, 1): Done(1, 0)}
    >>> sorted(course_of(views, done).lost)  # what device 1 has of iteration 2 was given to it
    [(2, 1)]
    """
    planned = sorted(
        (view for view in views if view.digest not in (FINISHED, UNHELD)),
        key=lambda view: view.number,
    )
    start = {view.number: view.start for view in planned}
    last = max((iteration for iteration, _ in done), default=0)
    members = {(t, device) for t in range(1, last + 1) for device in governing(planned, t).members}
    # A gift is of the iteration before its view begins: nobody computes that by the view's plan.
    kept = {place: one for place, one in done.items() if start.get(one.view, 0) <= place[0]}
    kept = {place: one for place, one in kept.items() if place in members}
    return Course(
        tuple(planned),
        absent={place: one.absent for place, one in kept.items() if one.absent},
        rounds={place: one.rounds for place, one in kept.items()},
        lost=frozenset(members - set(kept)),
    )


def course_of_histories(
    histories: Sequence[History], devices: int, spares: Collection[int] = ()
) -> Course:
    """What happened, as the journals of all devices tell it.

    Args:
        histories: of all devices; one that is missing counts as lost.
        devices: number of devices of the fleet.
        spares: those that were not there at the start.
    """
    views = (first_view(devices, spares), *(seen.view for seen in views_of(histories)))
    done = {
        (iteration, one.device): Done(int(view), int(rounds), one.absent.get(iteration, ()))
        for one in histories
        for iteration, view, rounds in zip(
            one.iterations.tolist(), one.column("view"), one.column("rounds"), strict=True
        )
    }
    return course_of(views, done)
