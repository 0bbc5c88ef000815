"""Nodes with one rule broken each: the simulation must notice every one of them.

Most rules are broken between a node and the world around it, so that the node's code may change.
``python -m tests.deploy.mutations`` prints the first seed that shows each, and what it shows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.device.runner import Runner
from joulemesh.deploy.effects import Durable, Effect, Event, Planned, Received, Save, Saved
from joulemesh.deploy.messages import Beat, Fetch, Flood, Join, NoPlan, Part, Promise
from joulemesh.deploy.node import council
from joulemesh.deploy.node.context import NodeContext, Planbook
from joulemesh.deploy.node.council import Council, next_view
from joulemesh.deploy.node.ending import Requests
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.node.signs import Lives
from joulemesh.deploy.node.work import LearnerWatch, Supplies, Work
from joulemesh.deploy.view import View
from joulemesh.testing.fleets.cases import Case, case_of
from joulemesh.testing.fleets.fleet import Outcome, make_node, simulate
from joulemesh.testing.fleets.hardware import Battery
from joulemesh.testing.fleets.machine import Machine, NodeLike

Make = Callable[[Machine, Case], NodeLike]


def first_seed(name: str, seeds: Iterable[int]) -> Outcome | None:
    """How the first seed went that shows a broken rule."""
    with MUTATIONS[name].broken() as make:
        outcomes = (simulate(case_of(seed), make) for seed in seeds)
        return next((outcome for outcome in outcomes if outcome.broken), None)


class Wrapped:
    """A node between whose events and effects a rule is broken."""

    def __init__(self, machine: Machine, case: Case) -> None:
        self.machine, self.node = machine, make_node(machine, case)
        self.state = machine.disk.state

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = list(self.node.handle(self.before(event), now))
        found: list[Effect] = []
        while effects:
            effect = effects.pop(0)
            found.append(effect)
            if isinstance(effect, Save):
                before, self.state = self.state, effect.state
                if self.hasty(before, effect.state):
                    effects += self.node.handle(Saved(effect.token), now)
        return found

    def before(self, event: Event) -> Event:
        return event

    def hasty(self, before: Durable, state: Durable) -> bool:
        """Go on before the state is on disk?"""
        return False


class CommitsWithoutFsync(Wrapped):
    def hasty(self, before: Durable, state: Durable) -> bool:
        return state.commit is not before.commit


class PromisesWithoutFsync(Wrapped):
    def hasty(self, before: Durable, state: Durable) -> bool:
        return state.promised != before.promised and state.accepted == before.accepted


class AcceptsWithoutFsync(Wrapped):
    def hasty(self, before: Durable, state: Durable) -> bool:
        return state.accepted != before.accepted and state.accepted is not None


class TakesStaleParts(Wrapped):
    """A part of an older view counts as one of the newest."""

    def before(self, event: Event) -> Event:
        if isinstance(event, Received) and isinstance(event.message, Part):
            newest = self.state.views[-1].number
            return Received(event.sender, replace(event.message, view=newest))
        return event


class ComparesNoDigest(Wrapped):
    def before(self, event: Event) -> Event:
        if isinstance(event, Planned) and event.plan is not None and event.view.digest:
            plan: Any = event.plan
            return replace(event, plan=replace(plan, view=event.view))
        return event


class IgnoresCommits(Wrapped):
    """A proposer begins the next view after its own commit, whatever others have committed."""

    def before(self, event: Event) -> Event:
        return _promise(event, iteration=self.state.commit.iteration)


class Unchecked(Battery):
    """A meter that says that everything can be paid for."""

    def left_j(self) -> float:
        return 1e9


def _promise(event: Event, **change: Any) -> Event:
    if isinstance(event, Received) and isinstance(event.message, Flood):
        flood = event.message
        if isinstance(flood.body, Promise):
            return Received(event.sender, replace(flood, body=replace(flood.body, **change)))
    return event


def spends_blindly(machine: Machine, case: Case) -> NodeLike:
    blind = Unchecked(case.setup, machine.device, 0.0)
    true = machine.battery
    with patch.object(machine, "battery", blind):
        node = make_node(machine, case)
    blind.train, blind.send = true.train, true.send  # type: ignore[method-assign]
    return node


def ask_anybody(supplies: Any) -> None:
    """Ask a neighbour for an average, whether it has it or not."""
    wanted, context = supplies._wanted, supplies._context
    if wanted is not None and wanted.gift:
        _ASK(supplies)
    elif wanted is not None:
        supplies._turn += 1
        supplies._asked = context.now
        context.send(context.neighbours[supplies._turn % len(context.neighbours)], wanted)


def give_anything(supplies: Any, fetch: Fetch) -> Vector:
    return supplies._context.state.commit.vector  # type: ignore[no-any-return]


def forget_the_accepted(council: Any, origin: int, said: Promise) -> None:
    """Choose a view as if nobody had accepted one."""
    _PROMISE(council, origin, replace(said, accepted=None))


def price_by_the_newest_plan(runner: Any, kind: str, figures: dict[str, Any]) -> None:
    """As the runner once did, in the callback of a training."""
    if kind == "trained" and runner.plan is not None:
        runner.plan.price(figures["iteration"])
    _WRITE(runner, kind, figures)


def whoever_votes(*given: Any) -> View | None:
    """The next view, whoever hangs."""
    return _NEXT(*given[:5])


def ask_at_once(requests: Any) -> None:
    """Ask to be taken in, whatever the learner does, and however often that was in vain."""
    context, state = requests._context, requests._context.state
    if context.on_disk is state:
        left_j, iteration = context.meter.left_j(), state.commit.iteration
        requests._floods.say(Join(context.view.number, iteration, left_j))


def since_the_start(node: Any, promise: Promise) -> Promise:
    """Time that counts from the start of the process."""
    begun = node.__dict__.setdefault("begun", node._context.now)
    return replace(_STANDING(node, promise), elapsed_s=node._context.now - begun)


def end_for_good(council: Any, origin: int, said: NoPlan) -> None:
    if said.view.number == council._number and council._context.member:
        council._context.end(f"there is no plan for view {said.view.number}", resumable=False)


def done_without_a_part(plans: Any, iteration: int) -> bool:
    """Whoever has no part in the plan any more calls that done."""
    return bool(_DONE(plans, iteration) or plans.aside(iteration))


def votes_at_once(node: Any) -> bool:
    """As soon as any neighbour has spoken, whatever it remembers."""
    return bool(node._lives.recalled)


def without_credit(learner: Any, iteration: int) -> float:
    return 0.0


_ASK, _PROMISE, _WRITE, _NEXT = Supplies._ask, Council.promise, Runner.write, next_view
_STANDING, _DONE = Node._standing, Planbook.done


@dataclass(frozen=True)
class Mutation:
    """A broken rule.

    Attributes:
        seed: one that shows it, for a test that takes no time.
        make: makes the nodes.
        rules: (class or module, attribute, what takes its place), where a rule is an attribute.
    """

    seed: int
    make: Make = make_node
    rules: tuple[tuple[Any, str, Any], ...] = ()

    @contextmanager
    def broken(self) -> Iterator[Make]:
        """The nodes, while the rule is broken."""
        with ExitStack() as stack:
            for rule in self.rules:
                stack.enter_context(patch.object(*rule))
            yield self.make


def _ignore(*_: object) -> None:
    return None


def _always(*_: object) -> bool:
    return True


def _newest_epoch(lives: Any, sender: int, beat: Beat) -> bool:
    """Whoever comes last with a neighbour's name is that neighbour, and the one before is not."""
    epochs = lives.__dict__.setdefault("epochs", {}).setdefault(sender, [])
    if beat.epoch not in epochs:
        epochs.append(beat.epoch)
        lives._epoch[sender], lives._count[sender] = beat.epoch, 0
    return beat.epoch == epochs[-1] and _CURRENT(lives, sender, beat)


_CURRENT = Lives.current
_HALF = property(lambda view: max(1, len(view.members) // 2))
_NEVER = property(lambda work: False)


def nothing(runner: Runner, error: BaseException) -> None:
    """Nobody hears of it."""


def silence(learner: LearnerWatch) -> str:
    return ""


def for_ever(learner: LearnerWatch, device: int, iteration: int) -> float:
    return 1e9


MUTATIONS = {
    "a commit without its fsync": Mutation(0, CommitsWithoutFsync),
    "a promise without its fsync": Mutation(0, PromisesWithoutFsync),
    "an acceptance without its fsync": Mutation(0, AcceptsWithoutFsync),
    "a view by half of the members": Mutation(3, rules=((View, "majority", _HALF),)),
    "a payment that is not checked": Mutation(0, spends_blindly),
    "a commit after a promise": Mutation(4, rules=((Work, "frozen", _NEVER),)),
    "a part of a stale view": Mutation(16, TakesStaleParts),
    "an average from one that lacks it": Mutation(
        8, rules=((Supplies, "_ask", ask_anybody), (Supplies, "_average", give_anything))
    ),
    "a digest that is not compared": Mutation(257, ComparesNoDigest),
    "a view that ignores others' commits": Mutation(8, IgnoresCommits),
    "joules that nobody remembers": Mutation(7, rules=((Battery, "recall", _ignore),)),
    "a member that does not know what it has lost": Mutation(
        45, rules=((NodeContext, "lost", _NEVER),)
    ),
    "a device that has lost its folder and votes": Mutation(
        331, rules=((Node, "_may_vote", votes_at_once),)
    ),
    "a double that is taken for the device": Mutation(
        19, rules=((Lives, "current", _newest_epoch),)
    ),
    "a double that does not keep still": Mutation(2, rules=((Node, "_acquainted", _always),)),
    "a proposer that forgets an accepted view": Mutation(
        481, rules=((Council, "promise", forget_the_accepted),)
    ),
    "an exception in a callback that is only printed": Mutation(
        15, rules=((Runner, "write", price_by_the_newest_plan), (Runner, "fail", nothing))
    ),
    "a view of whoever votes, and a hung device that asks at once": Mutation(
        19, rules=((council, "next_view", whoever_votes), (Requests, "_ask", ask_at_once))
    ),
    "a learner that nobody watches": Mutation(
        52,
        rules=(
            (LearnerWatch, "overdue", silence),
            (LearnerWatch, "hopeless", silence),
            (LearnerWatch, "allowed_s", for_ever),
        ),
    ),
    "a total that counts from the start of the process": Mutation(
        128, rules=((Node, "_standing", since_the_start),)
    ),
    "a budget that ends a fleet for good": Mutation(7, rules=((Council, "no_plan", end_for_good),)),
    "a training that is paid for twice": Mutation(
        0, rules=((LearnerWatch, "paid", without_credit),)
    ),
    "a device that is done without the last average": Mutation(
        7, rules=((Planbook, "done", done_without_a_part),)
    ),
}

if __name__ == "__main__":
    for each in sys.argv[1:] or MUTATIONS:
        shown = first_seed(each, range(500))
        print(f"{each}: " + (f"seed {shown.seed}: {shown.broken}" if shown else "not noticed"))
