"""Drives a node's state machine with real time, a network, a disk, a learner and a planner.

Everything that takes time is done elsewhere, in threads or by the transport, and what comes of it
comes back as an event: beats go on while a device trains or waits for its disk. Time is that of a
clock which nobody sets. What a runner runs on is its `Host`: an event loop in the field, a virtual
clock in `joulemesh.testing.fleets`. Whatever fails in it ends the node, with its reason.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.device.host import Clock, EventLoop, Handle, Host, Works
from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.device.learner import Training
from joulemesh.deploy.device.meter import RunMeter
from joulemesh.deploy.device.store import Ceiling, Store
from joulemesh.deploy.effects import (
    Begin,
    Commit,
    Delivered,
    Durable,
    Effect,
    End,
    Evaluate,
    Event,
    Note,
    Plan,
    Planned,
    Received,
    Save,
    Saved,
    SaveFailed,
    Send,
    SetTimer,
    StopAsked,
    Tick,
    Train,
    Undelivered,
    ViewPlan,
)
from joulemesh.deploy.messages import Beat, Given, Message, Part
from joulemesh.deploy.transport import Transport, TransportError
from joulemesh.deploy.view import View


class Cost(NamedTuple):
    """What local training took."""

    rounds: int
    joules: float
    seconds: float


@dataclass
class _Iteration:
    rounds: int = 0
    train_j: float = 0.0
    train_s: float = 0.0
    trained_at: float | None = None
    spent_j: float = 0.0  # when training was over
    sent: dict[int, list[float]] = field(default_factory=dict)
    received: dict[int, list[int]] = field(default_factory=dict)


@dataclass
class Punctuality:
    """How iterations kept the deadline, since the node was started.

    >>> kept = Punctuality(0.5)
    >>> for seconds in (0.25, 0.75, 4.0):
    ...     kept.took(seconds)
    >>> print(kept)
    2 of 3 iterations took longer than the deadline of 0.5 s, the worst 8 times as long
    """

    deadline_s: float | None = None  # seconds that an iteration may take; None without a limit
    timed: int = 0  # iterations that were timed
    late: int = 0  # those of them that took longer
    worst: float = 0.0  # how many times the deadline the longest took

    def took(self, seconds: float) -> None:
        """An iteration is over; one that was given took no time."""
        if self.deadline_s and seconds > 0.0:
            self.timed += 1
            self.late += seconds > self.deadline_s
            self.worst = max(self.worst, seconds / self.deadline_s)

    def figures(self) -> dict[str, Any]:
        """For the journal; none without a deadline."""
        if not self.deadline_s:
            return {}
        return {"timed": self.timed, "late": self.late, "worst": round(self.worst, 3)}

    def __str__(self) -> str:
        return (
            f"{self.late:,} of {self.timed:,} iterations took longer than the deadline of "
            f"{self.deadline_s:.3g} s, the worst {self.worst:.3g} times as long"
        )


class Tally:
    """Counts by iteration, since messages of the next one may come early.

    >>> tally = Tally()
    >>> tally.trained(1, Cost(4, joules=2.0, seconds=0.5), now=10.0, spent_j=2.0)
    >>> for now in (10.0, 10.125):
    ...     tally.sending(3, now)
    >>> for now in (10.25, 10.5):
    ...     tally.sent(1, 3, 50)
    ...     tally.answered(1, 3, now)
    >>> took = tally.costs(Commit(1, None, spent_j=2.5), now=11.0)
    >>> took["exchange_s"], took["exchange_j"], tally.traffic(1)["sent"]
    (1.0, 0.5, {'3': [100, 0.5, 2]})
    >>> tally.costs(Commit(2, None, spent_j=2.75), now=11.5)["exchange_j"]  # nothing was trained
    0.25
    """

    def __init__(self) -> None:
        self._done: tuple[float | None, float] = (
            None,
            0.0,
        )  # when the last iteration was, and joules
        self._of: dict[int, _Iteration] = {}
        self.sent_bytes: dict[int, int] = {}
        self.received_bytes: dict[int, int] = {}
        self._under_way: dict[int, tuple[int, float]] = {}  # how many, and since when

    def begin(self, spent_j: float) -> None:
        """The node is started; so much was spent before."""
        self._done = None, spent_j

    def _at(self, iteration: int) -> _Iteration:
        return self._of.setdefault(iteration, _Iteration())

    def trained(self, iteration: int, cost: Cost, *, now: float, spent_j: float) -> None:
        """Local rounds are over; those that had to be repeated are added up."""
        one = self._at(iteration)
        one.rounds, one.trained_at, one.spent_j = cost.rounds, now, spent_j
        one.train_j += cost.joules
        one.train_s += cost.seconds

    def sending(self, to: int, now: float) -> None:
        """A message of an exchange goes out to a neighbour."""
        under_way, since = self._under_way.get(to, (0, now))
        self._under_way[to] = (under_way + 1, since if under_way else now)

    def answered(self, iteration: int, to: int, now: float) -> None:
        """It is under way no more: seconds are those in which any was, however many at once."""
        under_way, since = self._under_way[to]
        self._under_way[to] = (under_way - 1, now)
        link = self._at(iteration).sent.setdefault(to, [0, 0.0, 0])
        link[1] = round(link[1] + now - since, 6)

    def sent(self, iteration: int, to: int, payload_bytes: int) -> None:
        """A message of an exchange has been acknowledged."""
        link = self._at(iteration).sent.setdefault(to, [0, 0.0, 0])
        link[0] += payload_bytes
        link[2] += 1
        self.sent_bytes[to] = self.sent_bytes.get(to, 0) + payload_bytes

    def received(self, iteration: int, sender: int, payload_bytes: int) -> None:
        link = self._at(iteration).received.setdefault(sender, [0, 0])
        link[0] += payload_bytes
        link[1] += 1
        self.received_bytes[sender] = self.received_bytes.get(sender, 0) + payload_bytes

    def costs(self, commit: Commit, now: float) -> dict[str, Any]:
        """What an iteration took that has just been done; earlier ones are forgotten."""
        for stale in [number for number in self._of if number < commit.iteration]:
            del self._of[stale]
        one = self._at(commit.iteration)
        at, spent_j = self._done if one.trained_at is None else (one.trained_at, one.spent_j)
        self._done = now, commit.spent_j
        return {
            "rounds": one.rounds,
            "train_j": one.train_j,
            "train_s": one.train_s,
            "exchange_j": max(0.0, commit.spent_j - spent_j),
            "exchange_s": 0.0 if at is None else round(now - at, 6),
        }

    def traffic(self, iteration: int) -> dict[str, Any]:
        """What was sent and received in an iteration, by neighbour."""
        one = self._of.get(iteration, _Iteration())
        return {
            "sent": {str(to): link for to, link in sorted(one.sent.items())},
            "received": {str(sender): link for sender, link in sorted(one.received.items())},
        }


_LATE_S = 1.0
_GRACE_S = 0.25


class Timers:
    """Calls back when time is up. A process that slept reads what came meanwhile first.

    A timer that is late by more than a second has missed messages that wait to be read: a node
    that was stopped for a minute must not suspect everybody whose signs of life it has not read.

    >>> async def example() -> list[str]:
    ...     rung = []
    ...     timers = Timers(rung.append, asyncio.get_running_loop())
    ...     timers.set("tea", 60.0)
    ...     timers.set("tea", 0.0)
    ...     await asyncio.sleep(0.01)
    ...     return rung
    >>> import asyncio
    >>> asyncio.run(example())
    ['tea']
    """

    def __init__(self, ring: Callable[[str], None], clock: Clock) -> None:
        self._ring, self._clock = ring, clock
        self._set: dict[str, Handle] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._set

    def set(self, name: str, after_s: float) -> None:
        """Ring after so many seconds; a timer of the same name is replaced."""
        self.cancel(name)
        due = self._clock.time() + max(0.0, after_s)
        self._set[name] = self._clock.call_at(due, self._up, name, due + _LATE_S)

    def cancel(self, name: str) -> None:
        before = self._set.pop(name, None)
        if before is not None:
            before.cancel()

    def close(self) -> None:
        for name in tuple(self._set):
            self.cancel(name)

    def _up(self, name: str, late: float) -> None:
        now = self._clock.time()
        if now > late:
            self._set[name] = self._clock.call_at(now + _GRACE_S, self._up, name, math.inf)
            return
        del self._set[name]
        self._ring(name)


class Machine(Protocol):
    """A node's rules: see `effects`."""

    def handle(self, event: Event, now: float) -> list[Effect]: ...


class Planner(Protocol):
    """Makes plans of views; called in a thread of its own."""

    def answer(self, view: View) -> Planned:
        """The plan of a view, or why there is none."""


@dataclass(frozen=True)
class Tools:
    """What a node is driven with."""

    transport: Transport  # carries messages
    store: Store  # keeps the state
    training: Training  # the learner, and when to evaluate
    planner: Planner  # makes plans
    meter: RunMeter  # counts joules
    ceiling: Ceiling  # what may have been spent by the time of a crash
    journal: Journal  # is told what happens


_FLUSH, _REST = "flush", "rest"
_FLUSH_S = 1.0  # what a power cut may take of the journal's ordinary lines
_REST_S = 3.0
_LINGER_S = 2.0
_EVALUATE_S = 60.0
_ORDINARY = ("trained", "committed", "evaluated", "refused", "undelivered")


class Runner:
    """Runs one node until it ends."""

    def __init__(
        self,
        node: Machine,
        tools: Tools,
        tell: Callable[[str, dict[str, Any]], None] = lambda kind, figures: None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._node, self._tools, self._tell, self._dtype = node, tools, tell, dtype
        self.tally, self.punctuality = Tally(), Punctuality()
        self.plan: ViewPlan | None = None
        self.view, self.iteration, self.elapsed_s = 0, 0, 0.0
        self.beat: Beat | None = None
        self.heard: set[int] = set()
        """Neighbours from which anything has come since the start."""
        self.saved: Durable | None = None
        """The state that is on disk; None before the first save of this start."""
        self.figures: dict[str, float] = {}
        self.trouble, self.ended = "", ""
        self._line: dict[str, Any] | None = None
        self._unanswered = Counter[int]()
        self._early: list[tuple[int, Message]] | None = []  # what comes before the node begins
        self._tell_end: Callable[[End | BaseException], None] | None = None
        self._carry: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Train: self._train,
            Save: self._save,
            Plan: self._make_plan,
            Evaluate: tools.training.evaluate,
            SetTimer: lambda effect: self._timers.set(effect.name, effect.after_s),
            Note: lambda effect: self.write(effect.kind, dict(effect.figures)),
            End: self._end,
        }

    def begin(self, host: Host, over: Callable[[End | BaseException], None]) -> None:
        tools, self._host, self._tell_end = self._tools, host, over
        self._timers = Timers(lambda name: self.take(Tick(name)), host)
        self._chores = Timers(self._chore, host)
        self._disk: Works = host.worker("store")
        self._planning: Works = host.worker("planner")
        self.tally.begin(tools.meter.spent_j())
        learner = host.worker("learner")
        tools.training.begin(learner, self._learner_note, lambda: self._chores.set(_REST, _REST_S))
        self.take(Begin())
        early, self._early = self._early or [], None
        for sender, message in early:
            self.received(sender, message)

    async def run(self) -> End:
        """Begin on the running event loop, and go on until the node ends."""
        loop, tools = asyncio.get_running_loop(), self._tools
        ended: asyncio.Future[End] = loop.create_future()

        def over(how: End | BaseException) -> None:
            if isinstance(how, End):
                ended.set_result(how)
            else:
                ended.set_exception(how)

        host = EventLoop(tools.transport, self.fail)
        await tools.transport.start(self.received)
        try:
            self.begin(host, over)
            end = await ended
            await host.linger(_LINGER_S)
            if end.complete:  # the last evaluation is the one that everybody asks for
                await tools.training.evaluated(_EVALUATE_S)
            self._write_end(end)
        except Exception as error:
            self._write_failure(error)
            raise
        finally:
            await self._close(host)
        return end

    async def _close(self, host: EventLoop) -> None:
        self._timers.close()
        self._chores.close()
        await host.close()
        written = asyncio.get_running_loop().create_future()
        self._disk.do(self.write_last, lambda value, error: written.set_result(error))
        await written
        for worker in (self._disk, self._planning):
            worker.close()
        self._tools.training.close()

    def write_last(self) -> None:
        """Write what a node that ends in order owes: the exact joules, and the last lines."""
        try:
            self._tools.ceiling.settle(self._tools.meter.spent_j())
        finally:
            self._tools.journal.flush()

    @property
    def _over(self) -> bool:
        return self._tell_end is None

    def stop(self, reason: str) -> None:
        if self._over:
            return
        self.write("stopped", {"reason": reason})
        self.take(StopAsked(reason))

    @property
    def busy(self) -> bool:
        """Is a thread still training, which nobody waits for?"""
        return self._tools.training.busy

    # Events -------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Let the node handle an event, and carry out what follows."""
        if self._over:
            return
        try:
            effects = self._node.handle(event, self._host.time())
            self._pay(effects)
            for effect in effects:
                self._carry[type(effect)](effect)
        except Exception as error:
            self.fail(error)

    def _pay(self, effects: list[Effect]) -> None:
        """Before anything is spent beyond the ceiling, raise it on the disk."""
        for effect in effects:
            if isinstance(effect, Train):
                self._tools.meter.iteration = effect.iteration
        spent_j = self._tools.meter.spent_j()
        if spent_j > self._tools.ceiling.joules:
            self._tools.ceiling.raise_over(spent_j, self._exchange_j())

    def _exchange_j(self) -> float:
        """Joules of the exchange that comes next, as planned."""
        if self.plan is None or self.iteration >= self.plan.last:
            return 0.0
        return self.plan.price(max(self.iteration + 1, self.plan.view.start)).exchange_j

    def received(self, sender: int, message: Message) -> None:
        if self._early is not None:
            self._early.append((sender, message))
            return
        self.heard.add(sender)
        if isinstance(message, Part | Given):
            numbers = message.payload.dtype.kind == "f"  # not those that were packed
            if self._dtype is not None and numbers and message.payload.dtype != self._dtype:
                message = replace(message, payload=message.payload.astype(self._dtype))
            self.tally.received(message.iteration, sender, message.payload.nbytes)
        self.take(Received(sender, message))

    # Effects ------------------------------------------------------------------------------------

    def _send(self, effect: Send) -> None:
        if isinstance(effect.message, Beat):
            self.beat = effect.message
        message, began = effect.message, self._host.time()
        part = message if isinstance(message, Part | Given) else None
        if part is not None:
            self._unanswered[part.iteration] += 1
            self.tally.sending(effect.to, began)
        self._host.send(
            effect.to, message, effect.within_s, lambda error: self._told(effect, error)
        )

    def _told(self, effect: Send, error: TransportError | None) -> None:
        message = effect.message
        part = message if isinstance(message, Part | Given) else None
        if error is None:
            event: Event = Delivered(effect.token)
            if part is not None:
                self.tally.sent(part.iteration, effect.to, part.payload.nbytes)
        else:
            event = Undelivered(effect.token, str(error))
            if not self._over:
                kind, reason = type(message).__name__.lower(), str(error.reason)
                self.write("undelivered", {"to": effect.to, "message": kind, "reason": reason})
        if part is not None:
            self.tally.answered(part.iteration, effect.to, self._host.time())
            self._unanswered -= Counter([part.iteration])  # which drops what has come to 0
            self._write_commit(unless_sending=True)
        self.take(event)

    def _train(self, effect: Train) -> None:
        self._chores.cancel(_REST)
        began, before_j = self._host.time(), self._tools.meter.spent_j()

        def then(event: Event) -> None:
            meter = self._tools.meter
            now, spent_j = self._host.time(), meter.spent_j()
            # A model was charged when training was decided on; a sensor has seen it happen.
            joules = spent_j - before_j if meter.measures else meter.train_j(effect.rounds)
            cost = Cost(effect.rounds, joules, round(now - began, 6))
            self.tally.trained(effect.iteration, cost, now=now, spent_j=spent_j)
            meter.rest(effect.iteration, effect.iteration_s)
            self.write("trained", {"iteration": effect.iteration, **cost._asdict()})
            self._chores.set(_REST, _REST_S)
            self.take(event)

        self._tools.training.train(effect, then)

    def _save(self, effect: Save) -> None:
        commit, line = effect.state.commit, None
        if commit.iteration > self.iteration:
            line = {
                "iteration": commit.iteration,
                "view": effect.state.views[-1].number,
                "iteration_s": max(0.0, commit.elapsed_s - self.elapsed_s),
                **self.tally.costs(commit, self._host.time()),
                "spent_j": commit.spent_j,
                "left_j": self._tools.meter.left_j(),
                "elapsed_s": commit.elapsed_s,
                "absent": commit.absent,
            }

        def then(_: Any, error: BaseException | None) -> None:
            if error is not None:
                self.trouble = str(error)
                self.write("not-saved", {"reason": self.trouble})
                self.take(SaveFailed(effect.token, self.trouble))
                return
            self.trouble, self.view = "", effect.state.views[-1].number
            self.saved = effect.state
            self.iteration = max(self.iteration, commit.iteration)
            self.elapsed_s, self.ended = commit.elapsed_s, effect.state.ended
            if line is not None:
                self.punctuality.took(line["iteration_s"])
                self._write_commit()
                self._line = line
                self._write_commit(unless_sending=True)
            self.take(Saved(effect.token))

        self._disk.do(lambda: self._tools.store.save(effect.state), then)

    def _write_commit(self, unless_sending: bool = False) -> None:
        """Write the line of the last commit, once its messages are acknowledged if possible."""
        line = self._line
        if line is None or (unless_sending and self._unanswered[line["iteration"]]):
            return
        self._line = None
        self.write("committed", {**line, **self.tally.traffic(line["iteration"])})

    def _make_plan(self, effect: Plan) -> None:
        def then(planned: Planned | None, error: BaseException | None) -> None:
            if error is not None and not isinstance(error, JoulemeshError):
                self.fail(error)
                return
            if planned is None:
                planned = Planned(effect.view, None, " ".join(str(error).split()))
            if planned.plan is not None:
                self.plan = planned.plan
                self._tools.training.last = planned.plan.last
            self.take(planned)

        self._planning.do(lambda: self._tools.planner.answer(effect.view), then)

    def _learner_note(self, kind: str, figures: dict[str, Any]) -> None:
        if kind == "evaluated":
            self.figures = {name: one for name, one in figures.items() if name != "iteration"}
        self.write(kind, figures)

    def _end(self, effect: End) -> None:
        self._finish(effect)

    def _finish(self, how: End | BaseException) -> None:
        tell, self._tell_end = self._tell_end, None
        if tell is not None:
            tell(how)

    def _write_end(self, end: End) -> None:
        self._write_commit()
        meter = self._tools.meter
        figures = {"reason": end.reason, "complete": end.complete, "resumable": end.resumable}
        joules = {"spent_j": meter.spent_j(), "left_j": meter.left_j()}
        self.write(
            "end",
            {**figures, "iteration": self.iteration, **joules, **self.punctuality.figures()},
        )

    def _write_failure(self, error: Exception) -> None:
        """What the node failed by, for whoever reads its journal."""
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        course = "".join(traceback.format_exception(error))[-4000:]
        self._write_commit()
        figures = {"reason": reason, "iteration": self.iteration, "traceback": course}
        self.write("failed", figures)

    def fail(self, error: BaseException) -> None:
        """Something that nobody has caught ends the node."""
        self._finish(error)

    # The journal, and rest ----------------------------------------------------------------------

    async def flushed(self) -> None:
        """Wait until all lines of the journal so far are on disk, or cannot be written."""
        if not self._over:
            done = asyncio.get_running_loop().create_future()
            self._disk.do(self._tools.journal.flush, lambda value, error: done.set_result(None))
            await done

    def write(self, kind: str, figures: dict[str, Any]) -> None:
        """Add a line to the journal; ordinary ones may wait a second for the disk."""
        self._tools.journal.write(kind, figures)
        self._tell(kind, figures)
        if kind not in _ORDINARY:
            self._chores.set(_FLUSH, 0.0)
        elif _FLUSH not in self._chores:
            self._chores.set(_FLUSH, _FLUSH_S)

    def _chore(self, name: str) -> None:
        if name == _REST:
            self._host.rest()
        else:
            self._disk.do(self._tools.journal.flush, self._flushed)

    def _flushed(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self.trouble = f"the journal cannot be written: {error}"
