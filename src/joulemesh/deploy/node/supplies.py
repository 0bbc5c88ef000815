"""Parameters that a device asks a neighbour for: an exact average that it missed, or a gift."""

from __future__ import annotations

__all__ = ["Supplies"]

from collections.abc import Callable

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.messages import Fetch, Given
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.watch import Watch
from joulemesh.deploy.view import governing


class Supplies:
    """Asks for parameters until they come, and gives those that this device has.

    Args:
        context: the node's.
        watch: what is known of its neighbours.
        came: called with the parameters that were asked for.
        poor: called with a reason when the battery does not pay for giving what is asked for.
    """

    def __init__(
        self,
        context: NodeContext,
        watch: Watch,
        came: Callable[[Fetch, Vector], None],
        poor: Callable[[str], None],
    ) -> None:
        self._context, self._watch, self._came, self._poor = context, watch, came, poor
        self._wanted: Fetch | None = None
        self._since = self._asked = 0.0
        self._turn = 0
        self._overdue: set[int] = set()  # views
        self._giving: set[int] = set()
        self._refused: set[tuple[int, int]] = set()  # (iteration, neighbour), for want of joules
        self.within_s = context.settings.patience_s

    @property
    def pending(self) -> bool:
        """Does this device lack its parameters: was it admitted just now, or has it lost them?"""
        view = self._context.view
        if self._context.lost:
            return True
        return self._context.on_disk.commit.view < view.number and any(
            newcomer == self._context.device for newcomer, _ in view.gifts
        )

    def want(self, fetch: Fetch) -> None:
        """Ask for parameters, unless they are asked for already."""
        if fetch != self._wanted:
            self._wanted, self._since = fetch, self._context.now
            self._ask()

    def enough(self) -> None:
        """Nothing is wanted any more."""
        self._wanted = None

    def overdue(self) -> int:
        """In how many views has nobody answered for a long time? 0 if nothing is overdue now."""
        long_s = 4.0 * self._context.settings.patience_s
        if self._wanted is None or self._context.now - self._since <= long_s:
            return 0
        self._overdue.add(self._context.view.number)
        return len(self._overdue)

    def patient(self) -> None:
        """Count from now."""
        self._since = self._context.now

    def tick(self) -> None:
        """Ask again."""
        again_s = self._context.settings.patience_s / 4.0
        if self._wanted is not None and self._context.now - self._asked >= again_s:
            self._ask()

    def _ask(self) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        if wanted.gift:
            holders = [
                giver for one, giver in self._context.view.gifts if one == self._context.device
            ]
        else:
            beats = self._watch.beats
            holders = [
                one
                for one in self._context.neighbours
                if one in beats
                and beats[one].iteration >= wanted.iteration
                and not self._watch.silent(one)
            ]
        if holders:
            self._turn += 1
            self._asked = self._context.now
            self._context.send(holders[self._turn % len(holders)], wanted)

    def asked(self, sender: int, fetch: Fetch) -> None:
        """A neighbour asks; whoever has what it wants gives it, once at a time."""
        vector = self._gift(sender, fetch) if fetch.gift else self._average(fetch)
        if vector is None or sender in self._giving:
            return
        given = Given(fetch.view, fetch.iteration, vector, fetch.gift)
        if self._context.pay(sender, given):
            self._giving.add(sender)
            self._context.send(
                sender,
                given,
                within_s=self.within_s,
                answered=lambda came: self._giving.discard(sender),
            )
        elif (fetch.iteration, sender) not in self._refused:
            self._refused.add((fetch.iteration, sender))
            self._context.note("cannot-give", device=sender, iteration=fetch.iteration)
            if not self.affordable:
                self._poor(f"its battery does not pay for giving iteration {fetch.iteration}")

    @property
    def affordable(self) -> bool:
        """Does the battery pay for giving some neighbour the parameters that this device has?"""
        context, size = self._context, int(self._context.on_disk.commit.vector.nbytes)
        return any(context.affords(context.meter.send_j(to, size)) for to in context.neighbours)

    def _gift(self, newcomer: int, fetch: Fetch) -> Vector | None:
        state, view = self._context.on_disk, self._context.view
        if (newcomer, self._context.device) not in view.gifts or self.pending:
            return None
        if (fetch.view, fetch.iteration) != (view.number, view.start - 1):
            return None  # one of the two lacks a view
        if state.commit.iteration == view.start - 1:
            return state.commit.vector
        if state.gift is not None and state.gift[0] == view.start - 1:
            return state.gift[1]
        return None

    def _average(self, fetch: Fetch) -> Vector | None:
        state = self._context.on_disk
        commit, average = state.commit, state.commit.average
        if self.pending or governing(state.views, fetch.iteration).number != fetch.view:
            return None
        if commit.view < fetch.view:  # it was put out, and the others do that iteration again
            return None
        if commit.iteration == fetch.iteration:  # computed here, or given
            return commit.vector
        return average[1] if average is not None and average[0] == fetch.iteration else None

    def owed(self) -> bool:
        """Does a newcomer still need the parameters that this device held when the view began?"""
        view, beats = self._context.view, self._watch.beats
        return any(
            giver == self._context.device
            and not (
                newcomer in beats
                and beats[newcomer].view >= view.number
                and beats[newcomer].iteration >= view.start - 1
            )
            for newcomer, giver in view.gifts
        )

    def given(self, sender: int, given: Given) -> None:
        """Parameters have come."""
        wanted = self._wanted
        if wanted == Fetch(given.view, given.iteration, given.gift):
            self._context.meter.receive(sender, int(given.payload.nbytes))
            self._wanted = None
            self._overdue.clear()
            kind = "gift" if given.gift else "fetched"
            self._context.note(kind, iteration=given.iteration, giver=sender)
            self._came(wanted, given.payload)
