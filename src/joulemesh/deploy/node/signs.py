"""Signs of life to the neighbours, and the word that spreads with them: who has finished."""

from __future__ import annotations

__all__ = ["Signs"]

from joulemesh.deploy.messages import OVER, Beat
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.lives import Lives
from joulemesh.deploy.node.watch import Watch
from joulemesh.deploy.node.work import Work


class Signs:
    """Tells every neighbour how this device stands."""

    def __init__(self, context: NodeContext, watch: Watch, work: Work, lives: Lives) -> None:
        self._context, self._watch, self._work, self._lives = context, watch, work, lives
        self._flying: set[int] = set()
        self._again: set[int] = set()  # there is news since the sign that is on its way
        self._soon = False
        self._finished: set[int] = set()
        self._over = False  # a neighbour has ended, and knew that the fleet has
        self._all_since: float | None = None

    def to_all(self) -> None:
        """To every neighbour."""
        self._soon = False
        for neighbour in self._context.neighbours:
            self.to(neighbour)

    def to(self, neighbour: int) -> None:
        """To one; if the last sign to it is still on its way, once it has come."""
        if neighbour in self._flying:
            self._again.add(neighbour)
            return
        context, work = self._context, self._work
        self._flying.add(neighbour)
        settled = context.member and not work.supplies.pending
        beat = Beat(
            context.epoch,
            context.view.number,
            context.on_disk.commit.iteration if settled else -1,
            work.phase,
            work.averaging.waiting(),
            tuple(sorted(self._finished)),
            roster=context.roster.number,
        )
        beat = self._lives.stamped(beat, neighbour)
        context.send(neighbour, beat, answered=lambda came: self._answered(neighbour, came))

    def _answered(self, neighbour: int, came: bool) -> None:
        self._flying.discard(neighbour)
        if neighbour in self._again:
            self._again.discard(neighbour)
            if came:  # otherwise the next regular sign will do
                self.to(neighbour)

    def soon(self) -> None:
        """There is news that should not wait for the next regular sign."""
        if not self._soon:
            self._soon = True
            self._context.timer("soon", self._context.settings.tick_s / 8.0)

    def heard(self, beat: Beat) -> None:
        """A neighbour knows who has finished; in another view, that says nothing of this one."""
        context = self._context
        if beat.view != context.view.number:
            return
        if beat.phase == OVER and beat.iteration == context.on_disk.commit.iteration:
            self._over = True
        if not self._finished.issuperset(beat.finished):
            self._finished.update(beat.finished)
            self.soon()

    def installed(self) -> None:
        """Another view: who has finished by its plan has to be heard anew."""
        self._finished.clear()
        self._over, self._all_since = False, None

    def settled(self) -> bool:
        """Have so many finished that no later view can do the last iteration again?

        Whoever is cut off before it knows so has an end that the others may not come to.
        """
        context = self._context
        finished = self._finished.intersection(context.view.members)
        return self._over or len(finished) >= context.settings.needed(context.view)

    def all_done(self) -> bool:
        """This device has finished: has everybody, and does every neighbour know it?

        Whoever has finished stays until then: others may need its average, its vote, or its links.
        """
        context, watch = self._context, self._watch
        if context.device not in self._finished:
            self._finished.add(context.device)
            self.soon()
        members = set(context.view.members)
        if self._over:
            return True
        if not members <= self._finished or context.state.promised is not None:
            self._all_since = None
            return watch.alone() and self.settled()
        if self._all_since is None:
            self._all_since = context.now
            self.to_all()
        known = not self._flying and all(
            members <= set(beat.finished)
            for one, beat in watch.beats.items()
            if one in members and not watch.silent(one)
        )
        return known or context.now - self._all_since > context.settings.patience_s
