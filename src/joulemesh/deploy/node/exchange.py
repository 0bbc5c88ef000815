"""One device's exchange, driven by whatever arrives and in whatever order.

A scheme's `Peer` says what is sent and what is kept. Here is what surrounds it on a real network:
which messages it awaits, which step it is in, what may go out now, and when it is done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from joulemesh.aggregation.peer import Peer, QuantisedPeer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.effects import ViewPlan
from joulemesh.deploy.messages import Absent, Beat, Fetch, Part
from joulemesh.deploy.node.context import NodeContext, Planbook
from joulemesh.deploy.view import governing, stays

Outgoing: TypeAlias = tuple[int, int, Vector]
"""(step, receiver, what is sent to it)"""


class Awaited:
    """The messages that a route has for one device.

    >>> route = Route.build("tree", edges=[[0, 1]], edge=[0, 0], forward=[True, False],
    ...                     step=[0, 1], bits=8.0, repeats=1, uses=2).in_chunks(2)
    >>> Awaited(route, 1).of(0), Awaited(route, 1).total, (1, 0) in Awaited(route, 1)
    ([0, 1], 2, True)
    """

    def __init__(self, route: Route, device: int) -> None:
        self.length, self.chunks = route.length, route.chunks
        self._pattern = max(route.steps, 1)
        mine = np.flatnonzero(route.receiver == device)
        senders, steps = route.sender[mine].tolist(), route.step[mine].tolist()
        self._steps: dict[int, list[int]] = {}
        self._senders: dict[int, list[int]] = {}
        for sender, step in zip(senders, steps, strict=True):
            self._steps.setdefault(sender, []).append(step)
            self._senders.setdefault(step, []).append(sender)
        self.total = len(mine) * route.repeats * route.chunks

    def senders(self, step: int) -> list[int]:
        """The senders of a step; of a route in chunks, those of its first chunk."""
        return self._senders.get(step % self._pattern, [])

    def of(self, sender: int) -> list[int]:
        """The steps in which a device sends to this one."""
        steps = self._steps.get(sender, [])
        if self.chunks > 1:
            return [step + chunk for step in steps for chunk in range(self.chunks)]
        return [at + step for at in range(0, self.length, self._pattern) for step in steps]

    @property
    def neighbours(self) -> Iterable[int]:
        return self._steps.keys()

    def __contains__(self, message: tuple[int, int]) -> bool:
        step, sender = message
        if not 0 <= step < self.length:
            return False
        if self.chunks > 1:
            return any(0 <= step - first < self.chunks for first in self._steps.get(sender, ()))
        return sender in self.senders(step)


class Exchange:
    """Pumps a peer: takes what arrives, and gives what can be sent.

    >>> from joulemesh.aggregation.ring import RingPeer
    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
    ...                     forward=[True, True, False], bits=8.0, repeats=2, uses=2)
    >>> exchange = Exchange(RingPeer(1, route), Awaited(route, 1), np.array([3.0]))
    >>> exchange.begin()
    [(0, 2, array([3.]))]
    >>> exchange.receive(1, 0, np.array([7.0])), exchange.waiting()  # the later one came first
    ([], [(0, 0)])
    >>> exchange.receive(0, 0, np.array([6.0]))
    [(1, 2, array([6.]))]
    >>> exchange.done, exchange.finish()
    (True, array([5.33333333]))
    """

    def __init__(self, peer: Peer, awaited: Awaited, own: Vector) -> None:
        self._peer, self.awaited, self._own = peer, awaited, own
        self._due: Any = getattr(peer, "due", None)  # a pipelined peer needs no step to be over
        self._had: set[tuple[int, int]] = set()
        self._step, self._sent = 0, False
        self.absent: list[tuple[int, int]] = []
        self._alone, self._after = False, own

    def begin(self) -> list[Outgoing]:
        """What can be sent before anything has come."""
        self._peer.start(self._own)
        return self._pump()

    @property
    def done(self) -> bool:
        if self._alone or self._due is not None:
            return self._alone or len(self._had) == self.awaited.total
        return self._step >= self.awaited.length

    def takes(self, step: int, sender: int) -> bool:
        """Is this a message that the exchange still awaits?"""
        return (
            not self._alone and (step, sender) not in self._had and (step, sender) in self.awaited
        )

    def receive(self, step: int, sender: int, payload: Vector) -> list[Outgoing]:
        """Take a message that the exchange awaits (`takes`); what can be sent now."""
        self._had.add((step, sender))
        self._peer.receive(step, sender, payload)
        return self._pump()

    def go_without(self, sender: int) -> list[Outgoing]:
        """Nothing more will come from a device: do without it; what can be sent now."""
        missing = [step for step in self.awaited.of(sender) if self.takes(step, sender)]
        if not missing or self.done:
            return []
        self.absent += [(step, sender) for step in missing]
        if not getattr(self._peer, "skips", False):  # all weight stays with oneself
            self._alone = True
            return []
        skip: Any = self._peer
        for step in missing:
            self._had.add((step, sender))
            skip.skip(step, sender)
        return self._pump()

    def waiting(self) -> list[tuple[int, int]]:
        """(neighbour, step): the first message of each neighbour that holds the exchange up."""
        if self.done:
            return []
        if self._due is None:
            missing = [s for s in self.awaited.senders(self._step) if self.takes(self._step, s)]
            return [(sender, self._step) for sender in missing]
        firsts = (
            (sender, next((s for s in self.awaited.of(sender) if self.takes(s, sender)), None))
            for sender in self.awaited.neighbours
        )
        return [(sender, step) for sender, step in firsts if step is not None]

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        return self._own if self._alone else self._after

    def _pump(self) -> list[Outgoing]:
        found = self._ready()
        if self.done:
            self._after = self._peer.finish()
        return found

    def _ready(self) -> list[Outgoing]:
        if self._due is not None:
            return list(self._due())
        found: list[Outgoing] = []
        while self._step < self.awaited.length:
            step = self._step
            if not self._sent:
                found += [(step, to, payload) for to, payload in self._peer.send(step)]
                self._sent = True
            if any((step, sender) not in self._had for sender in self.awaited.senders(step)):
                break
            self._step, self._sent = step + 1, False
        return found


Key = tuple[int, int]
"""(view, iteration)"""

_AHEAD = 2  # exchanges of one sender: it cannot go on from the next one without this device


class Early:
    """Keeps them, within bounds that nobody can make it exceed.

    Of an exchange whose route is known, what the route has is kept; of one that is not known yet,
    as much of each sender as two whole models. What is dropped is sent again when it is missed.

    >>> import numpy as np
    >>> early = Early()
    >>> early.keep(3, Part(1, 8, 0, np.ones(2)), None, limit_bytes=16)
    ''
    >>> early.keep(3, Part(1, 8, 1, np.ones(2)), None, limit_bytes=16)
    'too much, too early'
    >>> early.take((1, 8))
    [(0, 3, array([1., 1.]))]
    """

    def __init__(self) -> None:
        self._kept: dict[Key, dict[tuple[int, int], Vector]] = {}

    def keep(self, sender: int, part: Part, awaited: Awaited | None, limit_bytes: int) -> str:
        """Keep a message; why it is not kept, if it is not."""
        key, name = (part.view, part.iteration), (part.step, sender)
        own = [k for k, kept in self._kept.items() if any(who == sender for _, who in kept)]
        if key not in own and len(own) >= _AHEAD:
            return "too far ahead"
        kept = self._kept.setdefault(key, {})
        if name in kept:
            return "came before"
        if awaited is not None:
            if name not in awaited:
                return "not on the route"
        elif part.payload.nbytes + self._bytes_of(sender) > limit_bytes:
            return "too much, too early"
        kept[name] = part.payload
        return ""

    def _bytes_of(self, sender: int) -> int:
        return sum(
            payload.nbytes
            for kept in self._kept.values()
            for (_, who), payload in kept.items()
            if who == sender
        )

    def take(self, key: Key) -> list[tuple[int, int, Vector]]:
        """(step, sender, payload) of an exchange, in order of steps and senders."""
        kept = self._kept.pop(key, {})
        return [(*name, kept[name]) for name in sorted(kept)]

    def prune(self, over: Callable[[Key], bool]) -> None:
        """Drop the messages of exchanges that will not take place."""
        self._kept = {key: kept for key, kept in self._kept.items() if not over(key)}


class Inbox:
    """Keeps what comes early, and refuses, with a reason and a count, what is not wanted."""

    def __init__(self, context: NodeContext, plans: Planbook) -> None:
        self._context, self._plans = context, plans
        self._early = Early()
        self._awaited: tuple[Route, Awaited] | None = None
        self._refused: Counter[tuple[int, str]] = Counter()

    def awaited(self, route: Route) -> Awaited:
        """The messages that a route has for this device."""
        if self._awaited is None or self._awaited[0] is not route:
            self._awaited = route, Awaited(route, self._context.device)
        return self._awaited[1]

    def keep(self, sender: int, part: Part) -> None:
        """A message of an exchange that this device has not begun."""
        reason = self._too_late(part) or self._keep(sender, part)
        if reason:
            self.refuse(sender, reason)

    def _too_late(self, part: Part) -> str:
        state = self._context.state
        if part.iteration <= state.commit.iteration:
            return "of an iteration that is done"
        if part.view < governing(state.views, part.iteration).number:
            return "of a view that is over"
        return ""

    def _keep(self, sender: int, part: Part) -> str:
        known = part.view <= self._context.view.number
        plan = self._plans.get(part.view) if known else None
        awaited = None
        if plan is not None:
            route = plan.route(part.iteration) if part.iteration <= plan.last else None
            if route is None:
                return "of an iteration without an exchange"
            awaited = self.awaited(route)
        limit_bytes = 2 * int(self._context.state.commit.vector.nbytes)
        return self._early.keep(sender, part, awaited, limit_bytes)

    def take(self, key: Key) -> list[tuple[int, int, Vector]]:
        """(step, sender, payload) of an exchange that begins."""
        return self._early.take(key)

    def refuse(self, sender: int, reason: str) -> None:
        """Count what is not wanted; the journal has the 1st, 2nd, 4th, 8th, …"""
        self._refused[sender, reason] += 1
        count = self._refused[sender, reason]
        if count & (count - 1) == 0:
            self._context.note("refused", sender=sender, reason=reason, count=count)

    def forget(self) -> None:
        state = self._context.state
        self._early.prune(
            lambda key: (
                key[1] <= state.commit.iteration or key[0] < governing(state.views, key[1]).number
            )
        )


"""(view, iteration)"""


@dataclass(eq=False)
class _Sending:
    to: int
    part: Part
    since: float  # when it was first sent
    within_s: float
    paid: bool = False  # before: a plan that broadcasts pays once for all who receive it
    flying: bool = False
    delivered: float | None = None  # when


class Outbox:
    """What a device sends in its exchanges.

    A message is sent again until the receiver's process has it. Even then the receiver may be
    started again and lack it, so that messages are kept until the receiver has committed their
    iteration; it names what it waits for in its signs of life.
    """

    def __init__(self, context: NodeContext, broke: Callable[[], None]) -> None:
        self._context, self._broke = context, broke
        self._sendings: dict[Key, dict[tuple[int, int], _Sending]] = {}
        self._exact: set[Key] = set()

    def put(self, to: int, part: Part, within_s: float) -> None:
        sending = _Sending(to, part, self._context.now, within_s)
        self._sendings.setdefault((part.view, part.iteration), {})[part.step, to] = sending
        self._send(sending)

    def remember(self) -> None:
        """Have what was sent before a restart, in case that it is asked for."""
        for to, part in self._context.state.sent:
            kept = self._sendings.setdefault((part.view, part.iteration), {})
            within_s = self._context.settings.patience_s
            kept[part.step, to] = _Sending(
                to, part, self._context.now, within_s, paid=True, delivered=-math.inf
            )

    def mixed(self) -> tuple[tuple[int, Part], ...]:
        """(receiver, message) of all that is kept, except of exact averages."""
        return tuple(
            (sending.to, sending.part)
            for key, sendings in self._sendings.items()
            if key not in self._exact
            for sending in sendings.values()
        )

    def receivers(self) -> set[int]:
        return {sending.to for sendings in self._sendings.values() for sending in sendings.values()}

    def _send(self, sending: _Sending) -> None:
        step = None if sending.paid else sending.part.step
        if not self._context.pay(sending.to, sending.part, step):
            self._cannot(sending)
            return
        sending.paid = True
        sending.flying, sending.delivered = True, None

        def answered(came: bool) -> None:
            sending.flying = False
            if came:
                sending.delivered = self._context.now

        self._context.send(sending.to, sending.part, within_s=sending.within_s, answered=answered)

    def _cannot(self, sending: _Sending) -> None:
        """The battery does not hold enough: of an iteration that is done, the receiver is told."""
        part = sending.part
        if part.iteration > self._context.state.commit.iteration:
            self._broke()
            return
        self._sendings.get((part.view, part.iteration), {}).pop((part.step, sending.to), None)
        if (part.view, part.iteration) not in self._exact:
            self._context.send(sending.to, Absent(part.view, part.iteration))

    def tick(self) -> None:
        for sendings in list(self._sendings.values()):
            for sending in list(sendings.values()):
                if not sending.flying and sending.delivered is None:
                    self._send(sending)

    def again(self, to: int, iteration: int, step: int) -> bool:
        """A receiver says that it waits for a step; False if nothing of it is kept.

        What was delivered lately may not have been taken in when it spoke.
        """
        found = False
        settled = self._context.now - self._context.settings.patience_s / 2.0
        for (_, number), sendings in list(self._sendings.items()):
            for sending in list(sendings.values()) if number == iteration else ():
                if sending.to == to and sending.part.step >= step:
                    found = True
                    if sending.delivered is not None and sending.delivered < settled:
                        self._send(sending)
        return found

    def stuck(self, patience_s: float) -> list[int]:
        """Receivers that have taken nothing for so long after a message's deadline."""
        return sorted(
            {
                sending.to
                for sendings in self._sendings.values()
                for sending in sendings.values()
                if sending.delivered is None
                and self._context.now - sending.since > sending.within_s + patience_s
            }
        )

    def patient(self) -> None:
        """Count patience from now: this device was away itself."""
        for sendings in self._sendings.values():
            for sending in sendings.values():
                sending.since = self._context.now

    def forget(self, over: Callable[[Key, int], bool]) -> None:
        """Drop the messages of exchanges that are over for their receivers."""
        for key in list(self._sendings):
            kept = {k: p for k, p in self._sendings[key].items() if not over(key, p.to)}
            if kept:
                self._sendings[key] = kept
            else:
                del self._sendings[key]

    def averaged(self, key: Key) -> None:
        """An exact average is committed: who lacks messages of it can fetch the result instead."""
        kept = {k: p for k, p in self._sendings.pop(key, {}).items() if p.delivered is None}
        if kept:
            self._sendings[key] = kept
        self._exact = {key, *(one for one in self._exact if one in self._sendings)}


_NEVER: Key = (-1, -1)


class Averaging:
    """Opens the exchange of an iteration, feeds it with what comes, and sends what it gives."""

    def __init__(self, context: NodeContext, plans: Planbook, short: Callable[[str], None]) -> None:
        self._context, self._plans, self._short = context, plans, short
        self.outbox = Outbox(context, lambda: short("its battery does not pay for a message"))
        self._inbox = Inbox(context, plans)
        self._exchange: Exchange | None = None
        self._quantised: QuantisedPeer | None = None
        self._key = _NEVER
        self._progress = 0.0
        self.within_s = context.settings.patience_s

    @property
    def under_way(self) -> bool:
        """Is there an exchange, and not only an iteration without one?"""
        return self._exchange is not None

    def begin(self, plan: ViewPlan, iteration: int, own: Vector) -> bool:
        """Begin the exchange of an iteration, with what has come of it already."""
        key = (plan.view.number, iteration)
        if key == self._key:
            return True
        peer, route, price = plan.peer(iteration), plan.route(iteration), plan.price(iteration)
        if peer is not None and not self._context.affords(price.exchange_j):
            self._short(f"its battery does not pay for the exchange of iteration {iteration}")
            return False
        self.close()
        self._key, self._progress = key, self._context.now
        if peer is not None and route is not None:
            settings = self._context.settings
            self.within_s = price.exchange_s * settings.slack + settings.patience_s
            self._quantised = peer if isinstance(peer, QuantisedPeer) else None
            if self._quantised is not None:
                commit = self._context.state.commit
                self._quantised.continues(commit.shared, commit.owed)
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

    @property
    def owed(self) -> Vector | None:
        """What this device's messages have lost, if they are quantised and there are any."""
        return None if self._quantised is None else self._quantised.owed

    def close(self) -> None:
        self._key, self._exchange, self._quantised = _NEVER, None, None

    def forget(self) -> None:
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
