"""The exchange of an iteration, from its first message to its result."""

from __future__ import annotations

__all__ = ["Averaging"]

from collections.abc import Callable

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.messages import Absent, Beat, Fetch, Part
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.early import Key
from joulemesh.deploy.node.exchange import Exchange, Outgoing
from joulemesh.deploy.node.inbox import Inbox
from joulemesh.deploy.node.outbox import Outbox
from joulemesh.deploy.node.planbook import Planbook
from joulemesh.deploy.plans import ViewPlan
from joulemesh.deploy.view import governing, stays

_NEVER: Key = (-1, -1)


class Averaging:
    """Opens the exchange of an iteration, feeds it with what comes, and sends what it gives.

    Args:
        context: the node's.
        plans: of the views.
        short: called with a reason when the battery does not hold enough.
    """

    def __init__(self, context: NodeContext, plans: Planbook, short: Callable[[str], None]) -> None:
        self._context, self._plans, self._short = context, plans, short
        self.outbox = Outbox(context, lambda: short("its battery does not pay for a message"))
        self._inbox = Inbox(context, plans)
        self._exchange: Exchange | None = None
        self._key = _NEVER
        self._progress = 0.0
        self.within_s = context.settings.patience_s

    @property
    def under_way(self) -> bool:
        """Is there an exchange, and not only an iteration without one?"""
        return self._exchange is not None

    def begin(self, plan: ViewPlan, iteration: int, own: Vector) -> bool:
        """Begin the exchange of an iteration, with what has come of it already.

        Returns:
            False if the battery does not hold enough for it.
        """
        key = (plan.view.number, iteration)
        if key == self._key:
            return True
        peer, route, price = plan.peer(iteration), plan.route(iteration), plan.price(iteration)
        if peer is not None and not self._context.affords(price.exchange_j):
            self._short(f"its battery does not pay for the exchange of iteration {iteration}")
            return False
        self._key, self._progress, self._exchange = key, self._context.now, None
        if peer is not None and route is not None:
            settings = self._context.settings
            self.within_s = price.exchange_s * settings.slack + settings.patience_s
            self._exchange = Exchange(peer, self._inbox.awaited(route), own)
            self._context.meter.exchange(route, iteration)
            self._send(self._exchange.begin())
            for step, sender, payload in self._inbox.take(key):
                self._feed(step, sender, payload)
            self._go_without_the_gone()
        return self._key == key

    def done(self, plan: ViewPlan, iteration: int) -> bool:
        """Has everything come that the exchange of an iteration waits for?"""
        if (plan.view.number, iteration) != self._key:
            return False
        return self._exchange is None or self._exchange.done

    def result(self, own: Vector) -> tuple[Vector, tuple[tuple[int, int], ...]]:
        """The parameters after it, and the messages that it went without."""
        if self._exchange is None:
            return own, ()
        return self._exchange.finish(), tuple(self._exchange.absent)

    def close(self) -> None:
        """It is over."""
        self._key, self._exchange = _NEVER, None

    def forget(self) -> None:
        """Drop messages that have become too late."""
        self._inbox.forget()

    def _send(self, outgoing: list[Outgoing]) -> None:
        view, iteration = self._key
        for step, to, payload in outgoing:
            if stays(self._context.state.views, view, self._context.device, to):
                self.outbox.put(to, Part(view, iteration, step, payload), self.within_s)

    def _feed(self, step: int, sender: int, payload: Vector) -> bool:
        exchange = self._exchange
        if exchange is None or not exchange.takes(step, sender):
            return False
        self._progress = self._context.now
        self._context.meter.receive(sender, int(payload.nbytes), step)
        try:
            outgoing = exchange.receive(step, sender, payload)
        except ScenarioError:  # what this device would send is too large for the wire
            raise
        except (ValueError, RuntimeError) as error:  # of another size than the others
            self._begin_again(sender, error)
            return False
        self._send(outgoing)
        return True

    def _begin_again(self, sender: int, error: Exception) -> None:
        """A message that the scheme cannot use has spoiled the exchange: the rest comes again."""
        self._inbox.refuse(sender, f"cannot be used: {error}")
        self.close()

    # What others say --------------------------------------------------------------------------

    def part(self, sender: int, part: Part) -> bool:
        """A message of an exchange has come; True if that changes what is to be done."""
        if (part.view, part.iteration) != self._key:
            self._inbox.keep(sender, part)
            return False
        if self._feed(part.step, sender, part.payload):
            return self._exchange is not None and self._exchange.done
        if self._exchange is None:
            return True  # to be begun again
        self._inbox.refuse(sender, "came before, or is not on the route")
        return False

    def absent(self, sender: int, absent: Absent) -> bool:
        """A neighbour has nothing more for a mixing; True if it is the one that is under way."""
        plan, exchange = self._plans.get(absent.view), self._exchange
        if (absent.view, absent.iteration) != self._key or plan is None or exchange is None:
            return False
        if plan.exact(absent.iteration):
            return False
        self._go_without(exchange, sender)
        return True

    def beat(self, sender: int, beat: Beat) -> None:
        """A neighbour says how far it is, and what it waits for."""
        wanted, done = beat.iteration + 1, self._context.state.commit.iteration
        for step in (step for device, step in beat.waiting if device == self._context.device):
            if self.outbox.again(sender, wanted, step) or wanted > done:
                continue
            plan = self._plans.of(wanted)
            if plan is not None and not plan.exact(wanted):
                self._context.send(sender, Absent(plan.view.number, wanted))
        self.outbox.forget(
            lambda key, to: to == sender and key[1] <= beat.iteration and key[0] <= beat.view
        )

    def waiting(self) -> tuple[tuple[int, int], ...]:
        """(neighbour, step): what holds this device up."""
        return tuple(self._exchange.waiting()) if self._exchange is not None else ()

    def stalled(self) -> Fetch | None:
        """What to ask for instead, if nothing has come of an exact average for long."""
        exchange, (number, iteration) = self._exchange, self._key
        plan, patience_s = self._plans.get(number), self._context.settings.patience_s
        if exchange is None or exchange.done or plan is None or not plan.exact(iteration):
            return None
        overdue = self._context.now - self._progress > patience_s / 2.0
        return Fetch(number, iteration) if overdue else None

    # Views ------------------------------------------------------------------------------------

    def installed(self) -> None:
        """Another view governs the iterations from its start on."""
        views, device = self._context.state.views, self._context.device

        def over(key: Key) -> bool:
            return governing(views, key[1]).number != key[0]

        self._inbox.forget()
        self.outbox.forget(lambda key, to: over(key) or not stays(views, key[0], device, to))
        if over(self._key):
            self.close()
        self._go_without_the_gone()

    def _go_without_the_gone(self) -> None:
        """A mixing of the past goes on without those that are gone since."""
        exchange, (number, iteration) = self._exchange, self._key
        plan = self._plans.get(number)
        if exchange is None or plan is None or plan.exact(iteration):
            return
        for sender in list(exchange.awaited.neighbours):
            if not stays(self._context.state.views, number, self._context.device, sender):
                self._go_without(exchange, sender)

    def _go_without(self, exchange: Exchange, sender: int) -> None:
        before = len(exchange.absent)
        outgoing = exchange.go_without(sender)
        missed = [list(one) for one in exchange.absent[before:]]
        if missed:
            view, iteration = self._key
            self._context.note("absent", view=view, iteration=iteration, missed=missed)
        self._send(outgoing)
