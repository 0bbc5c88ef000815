"""When a node ends: asked to stop, gone from its fleet, or finished with everybody."""

from __future__ import annotations

__all__ = ["COMPLETE", "RETIRED", "Ending", "succeeded"]

from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.requests import Requests
from joulemesh.deploy.node.signs import Signs
from joulemesh.deploy.node.triggers import Triggers
from joulemesh.deploy.node.watch import Watch
from joulemesh.deploy.node.work import Work
from joulemesh.deploy.view import LATE, UNHELD

COMPLETE = "all iterations are done"
RETIRED = "the operator has retired it"
_DEADLOCK = 4.0  # times as long as a minority waits
_UNHELD = (
    "the devices that held the fleet's parameters have left, and the others lack them; the newest "
    "are in their folders"
)


def succeeded(ended: str) -> bool:
    """Does a device that ended for this reason hold the model that the fleet ended with?

    >>> succeeded(COMPLETE), succeeded("its battery does not pay"), succeeded("")
    (True, False, False)
    """
    return ended == COMPLETE or ended.startswith(LATE)


class Ending:
    """Lets a node go only when nobody needs it any more, as far as it can wait for that."""

    def __init__(
        self,
        context: NodeContext,
        watch: Watch,
        work: Work,
        signs: Signs,
        requests: Requests,
        triggers: Triggers,
    ) -> None:
        self._context, self._watch, self._work = context, watch, work
        self._signs, self._requests, self._triggers = signs, requests, triggers
        self._reason, self._stop_by, self._said_so = "", 0.0, False
        self._gone_since: float | None = None

    def stop(self, reason: str) -> None:
        """Stop at the next moment at which nothing is lost; when asked again, at once."""
        if self._reason:
            self._context.end(reason)
        self._reason, self._work.halting = reason, True
        self._stop_by = self._context.now + self._context.settings.patience_s
        self._work.advance()

    def check(self) -> None:
        """End if it is time."""
        if self._context.ended:
            return
        if self._context.on_disk.views[-1].digest == UNHELD:
            self._context.end(self._requests.leaving or _UNHELD, resumable=False)
        elif self._reason:
            self._maybe_stop()
        elif self._requests.leaving:
            self._maybe_gone()
        elif self._work.at_end and self._signs.all_done():
            self._context.end(COMPLETE, complete=True)

    def _maybe_stop(self) -> None:
        """Stop once the neighbours have what they need of this device, or time is up."""
        if self._work.halted and not self._said_so:
            self._said_so = True
            self._signs.to_all()
        waited_for = self._work.averaging.outbox.receivers() - set(self._watch.cut())
        if (self._work.halted and not waited_for) or self._context.now >= self._stop_by:
            self._context.end(self._reason)

    def _maybe_gone(self) -> None:
        """A device that leaves serves those that are behind, and then it goes."""
        context, reason = self._context, self._requests.leaving
        if context.member:
            if self._triggers.leaving.keys() >= set(context.view.members):
                context.end(reason, resumable=not self._requests.for_good)
            return
        if self._gone_since is None:
            self._gone_since = context.now
        overdue = context.now - self._gone_since > 2.0 * context.settings.patience_s
        if overdue or self._watch.begun(context.view):
            context.end(reason, resumable=not self._requests.for_good)

    def give_up(self, since: float | None) -> None:
        """A minority stops: it must not go on by itself.

        Args:
            since: when another view was first wanted.
        """
        context, view, long_s = self._context, self._context.view, self._context.settings.minority_s
        met = self._watch.met(long_s)
        reached = len((met | {context.device}) & set(view.members))
        needed = context.settings.needed(view)
        if since is not None and context.now - since > long_s and reached < needed:
            if self._work.at_end and self._signs.settled():
                context.end(COMPLETE, complete=True)
            context.end(
                f"only {reached} of {len(view.members)} devices of view {view.number} can be "
                f"reached, and {needed} have to agree to go on; everything is saved: "
                "start it again when the others are back"
            )
        elif since is not None and context.now - since > _DEADLOCK * long_s:
            context.end(
                f"the devices of view {view.number} have not agreed on another for "
                f"{context.now - since:.0f} s; everything is saved: give all the same version of "
                "Joulemesh and the same fleet folder, and start them again"
            )
        waited_s = long_s + context.settings.starting_s if context.member else long_s
        if not met and self._watch.listened(waited_s):
            context.end("no neighbour can be reached; start it again when the others are back")
