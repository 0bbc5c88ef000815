"""How a fleet agrees on its views: single-decree Paxos for each number.

The acceptors for view v+1 are the members of view v, a majority of which decides. A member that
has promised commits nothing until the view is decided, so that the commits which a proposer hears
of are the ones that the view begins from. Everybody hears the floods and counts by itself.
"""

from __future__ import annotations

__all__ = ["Council"]

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from joulemesh.deploy.effects import Plan, Planned
from joulemesh.deploy.messages import Accept, Accepted, Ballot, Prepare, Promise
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.floods import Floods
from joulemesh.deploy.node.membership import next_view
from joulemesh.deploy.node.planbook import Planbook
from joulemesh.deploy.node.triggers import Triggers
from joulemesh.deploy.view import FINISHED, REFUSED, UNHELD, View

_NONE: Ballot = (0, -1)
_KEPT = 32  # views that are remembered for those who were away
_SLOWEST = 16  # patiences between two attempts, at most


@dataclass(eq=False)
class _Proposal:
    ballot: Ballot
    since: float
    said: float
    again_s: float  # everybody answers what is said again: not too often
    promises: dict[int, Promise] = field(default_factory=dict)
    candidate: View | None = None  # its plan is being made
    value: View | None = None


class Council:
    """One node's part in the agreement: it proposes, promises, accepts, and learns.

    Args:
        context: the node's.
        floods: how everybody is told.
        triggers: why another view is wanted.
        plans: of the views.
        hooks: what the council needs of the rest of the node.
    """

    def __init__(
        self,
        context: NodeContext,
        floods: Floods,
        triggers: Triggers,
        plans: Planbook,
        hooks: Hooks,
    ) -> None:
        self._context, self._floods, self._triggers = context, floods, triggers
        self._plans, self._hooks = plans, hooks
        self._forget()

    def _forget(self) -> None:
        """Nothing is known of the next number."""
        self._proposal: _Proposal | None = None
        self._seen: Ballot = _NONE
        self._values: dict[Ballot, View] = {}
        self._accepted: dict[Ballot, set[int]] = {}
        self._due: float | None = None  # when this device proposes, unless another does
        self.since: float | None = None  # when another view was first wanted

    @property
    def _number(self) -> int:
        return self._context.view.number + 1

    @property
    def wanted(self) -> bool:
        """Is another view wanted, or one under way?"""
        return self._context.state.promised is not None or self._triggers.any()

    # Proposing --------------------------------------------------------------------------------

    def consider(self) -> None:
        """Propose another view if one is wanted and it is this device's turn."""
        context = self._context
        if not context.member or not self.wanted:
            self._due = self.since = None
            return
        if self.since is None:
            self.since = context.now
        if self._due is None:
            self._due = context.now + self._rank() * context.settings.patience_s / 2.0
        if context.now >= self._due and self._plans.last() is not None:
            self._propose()

    def _rank(self) -> int:
        members = [one for one in self._context.view.members if one not in self._triggers.suspected]
        return (
            members.index(self._context.device) if self._context.device in members else len(members)
        )

    def _propose(self) -> None:
        context = self._context
        highest = max(self._seen, context.state.promised or _NONE)
        ballot = (highest[0] + 1, context.device)
        self._proposal = _Proposal(
            ballot, context.now, context.now, context.settings.patience_s / 4.0
        )
        self._see(ballot)
        self._floods.say(Prepare(self._number, ballot))
        self.prepare(Prepare(self._number, ballot))

    def _see(self, ballot: Ballot) -> None:
        """A ballot that is higher than all before gives its proposer time."""
        if ballot <= self._seen:
            return
        self._seen = ballot
        patience_s = self._context.settings.patience_s
        wait_s = patience_s * min(2 ** (ballot[0] - 1), _SLOWEST)
        self._due = self._context.now + wait_s + self._rank() * patience_s / 2.0
        if self._proposal is not None and self._proposal.ballot < ballot:
            self._proposal = None

    def tick(self) -> None:
        """Say again what is not decided, and take over from a proposer that is gone."""
        proposal, context = self._proposal, self._context
        if proposal is not None:
            self._gather()
            if context.now - proposal.said >= proposal.again_s:
                proposal.said, proposal.again_s = context.now, 2.0 * proposal.again_s
                if proposal.value is not None:
                    self._floods.say(Accept(proposal.ballot, proposal.value))
                else:
                    self._floods.say(Prepare(self._number, proposal.ballot))
        self.consider()

    def _gather(self) -> None:
        """Choose the view, once a majority has promised and the others had their time."""
        proposal, context = self._proposal, self._context
        if proposal is None or proposal.candidate is not None or proposal.value is not None:
            return
        if len(proposal.promises) < context.view.majority:
            return
        missing = (
            set(context.view.members) - proposal.promises.keys() - self._triggers.suspected.keys()
        )
        if missing and context.now - proposal.since < context.settings.patience_s:
            return
        accepted = [said.accepted for said in proposal.promises.values() if said.accepted]
        if accepted:
            self._offer(max(accepted, key=lambda one: one[0])[1])
        else:
            self._choose(proposal)

    def _choose(self, proposal: _Proposal) -> None:
        triggers, last = self._triggers, self._plans.last()
        view = next_view(
            self._context.view,
            proposal.promises,
            triggers.joining(),
            triggers.leaving.keys(),
            self._context.links,
        )
        if view is None:
            self._end_without_parameters(proposal)
        elif last is not None and view.start > last:
            self._offer(replace(view, digest=FINISHED))
        else:
            proposal.candidate = view
            self._context.emit(Plan(view))

    def _end_without_parameters(self, proposal: _Proposal) -> None:
        """Nobody who holds the parameters stays: end for good if all say so, else wait for others.

        A member that has not answered may hold them; those that leave never come back.
        """
        context, promises = self._context, proposal.promises
        if set(context.view.members) - promises.keys():
            context.end("no device that holds the parameters of the fleet can be reached")
            return
        context.note("unheld", view=self._number)
        view = replace(
            context.view,
            number=self._number,
            start=max(context.view.start, *(1 + said.iteration for said in promises.values())),
            left_j=tuple(promises[one].left_j for one in context.view.members),
            elapsed_s=max(said.elapsed_s for said in promises.values()),
            gifts=(),
            digest=UNHELD,
        )
        self._offer(view)

    def planned(self, event: Planned) -> bool:
        """The plan of the view that this device proposes; False if it is another's."""
        proposal = self._proposal
        if event.view.digest:
            return False
        if proposal is None or proposal.candidate != event.view:
            return True  # given up in the meantime
        proposal.candidate = None
        if event.plan is not None:
            self._plans.prepared = event.plan
            self._offer(replace(event.view, digest=event.plan.view.digest))
        elif self._triggers.turn_away():  # once more without those who ask for something
            self._choose(proposal)
        else:
            self._context.note("infeasible", view=event.view.number, reason=event.refusal)
            self._offer(replace(event.view, digest=REFUSED))
        return True

    def _offer(self, view: View) -> None:
        proposal = self._proposal
        assert proposal is not None
        proposal.value, proposal.said = view, self._context.now
        proposal.again_s = self._context.settings.patience_s / 4.0
        self._floods.say(Accept(proposal.ballot, view))
        self.accept(Accept(proposal.ballot, view))

    # Accepting --------------------------------------------------------------------------------

    def prepare(self, said: Prepare) -> None:
        """A proposer asks for a promise."""
        context = self._context
        if said.number != self._number or not context.member:
            return
        promised = context.state.promised or _NONE
        self._see(said.ballot)
        if said.ballot > promised:
            context.save(
                replace(context.state, promised=said.ballot), lambda: self._promise(said.ballot)
            )
            self._hooks.froze()
        else:  # a lost promise is said again; a late proposer learns what was promised since
            self._promise(promised)

    def _promise(self, ballot: Ballot) -> None:
        context = self._context
        if context.state.promised != ballot or context.on_disk.promised != ballot:
            return  # not on disk yet, or there is a later one
        accepted = context.on_disk.accepted
        promise = self._hooks.standing(Promise(self._number, ballot, accepted, 0, 0.0, 0.0))
        self._floods.say(promise)
        self.promise(context.device, promise)

    def promise(self, origin: int, said: Promise) -> None:
        """A member has promised, to this device or to another."""
        if said.number != self._number or origin not in self._context.view.members:
            return
        self._see(said.ballot)
        if self._proposal is not None and self._proposal.ballot == said.ballot:
            self._proposal.promises[origin] = said
            self._gather()

    def accept(self, said: Accept) -> None:
        """A proposer has chosen."""
        context = self._context
        if said.view.number != self._number:
            return
        self._see(said.ballot)
        self._values[said.ballot] = said.view
        if context.member and said.ballot >= (context.state.promised or _NONE):
            accepted = (said.ballot, said.view)
            if context.state.accepted == accepted:
                self._say_accepted(said.ballot)
            else:
                state = replace(context.state, promised=said.ballot, accepted=accepted)
                context.save(state, lambda: self._say_accepted(said.ballot))
                self._hooks.froze()
        self._count(said.ballot)

    def _say_accepted(self, ballot: Ballot) -> None:
        accepted = self._context.on_disk.accepted
        if (
            accepted is not None
            and accepted[0] == ballot
            and self._context.state.accepted == accepted
        ):
            said = Accepted(self._number, ballot)
            self._floods.say(said)
            self.accepted(self._context.device, said)

    # Learning ---------------------------------------------------------------------------------

    def accepted(self, origin: int, said: Accepted) -> None:
        """A member has accepted."""
        if said.number == self._number and origin in self._context.view.members:
            self._accepted.setdefault(said.ballot, set()).add(origin)
            self._count(said.ballot)

    def _count(self, ballot: Ballot) -> None:
        view = self._values.get(ballot)
        if view is not None and len(self._accepted.get(ballot, ())) >= self._context.view.majority:
            self.learn((view,))

    def learn(self, views: tuple[View, ...]) -> None:
        """Views that are decided."""
        context = self._context
        new = tuple(view for view in views if view.number > context.view.number)
        if not new:
            return
        kept = (*context.state.views, *new)[-_KEPT:]
        context.save(replace(context.state, views=kept, promised=None, accepted=None))
        for view in new:
            context.note(
                "view",
                number=view.number,
                start=view.start,
                members=list(view.members),
                cut=[list(link) for link in view.cut],
                gifts=[list(gift) for gift in view.gifts],
                left_j=list(view.left_j),
                elapsed_s=view.elapsed_s,
                digest=view.digest,
            )
        self._forget()
        self._triggers.forget()
        self._hooks.installed(new[-1])


@dataclass(frozen=True)
class Hooks:
    """What the council needs of the rest of the node.

    Attributes:
        standing: fills in how this device stands in a promise.
        froze: this device commits nothing until a view is decided.
        installed: a view is installed.
    """

    standing: Callable[[Promise], Promise]
    froze: Callable[[], None]
    installed: Callable[[View], None]
