"""How a fleet agrees on its views: single-decree Paxos for each number.

The acceptors for view v+1 are the members of view v, a majority of which decides. A member that
has promised commits nothing until the view is decided, so that the commits which a proposer hears
of are the ones that the view begins from. Everybody hears the floods and counts by itself.

Floods are signed, so that nobody votes for another. A member accepts a view only if it can be one
(`soundness`) and if the member makes the same plan of it; a view that a device learns of from a
neighbour comes with its proof, a majority's signed acceptances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from joulemesh.deploy.effects import Plan, Planned
from joulemesh.deploy.messages import (
    Accept,
    Accepted,
    Ballot,
    Flood,
    Join,
    NoPlan,
    Prepare,
    Promise,
    Signer,
    signed_text,
)
from joulemesh.deploy.node.context import NodeContext, Planbook
from joulemesh.deploy.node.floods import Floods, Triggers
from joulemesh.deploy.view import FINISHED, UNHELD, Proof, View, Vote, fingerprint
from joulemesh.planning.walk import givers

_Links = Collection[tuple[int, int]]


def next_view(
    view: View,
    promises: Mapping[int, Promise],
    joins: Mapping[int, Join],
    leaving: Collection[int],
    links: _Links,
    hung: Collection[int] = (),
) -> View | None:
    """The view that follows from a majority's promises, without its digest.

    Its members are those who promised and do not leave, and those who ask to join, be it because
    they have lost their folder, as far as they are connected, and as somebody can pay for giving
    them the parameters that they lack. Whoever votes while its training hangs is left out, unless
    half of the members do so: then the plan is at fault, and all are given more time. It begins
    after the last iteration that anybody of the majority has committed: an iteration that a
    majority has committed is among these, whoever it was. If those that have committed it cannot
    pay for giving it to the others, and are not enough for it to be a majority's, it is done again
    without them. Nobody goes back behind what it has committed: a newcomer that is ahead has to
    wait.

    >>> links = [(0, 1), (1, 2), (2, 3), (0, 3)]
    >>> def promise(iteration):
    ...     return Promise(1, (1, 0), None, iteration, left_j=5.0, elapsed_s=1.0)
    >>> said = {0: promise(7), 1: promise(6), 3: promise(7)}
    >>> after = next_view(View(0, 1, (0, 1, 2, 3)), said, {}, (), links)
    >>> after.members, after.start
    ((0, 1, 3), 8)
    """
    at = {device: said.iteration for device, said in promises.items() if not said.pending}
    if not at:
        return None
    miserly = _miserly(view, promises, at)
    at = {device: iteration for device, iteration in at.items() if device not in miserly}
    start = 1 + max(at.values())
    settled = {d for d in at if at[d] == start - 1 or not promises[d].behind}
    newcomers = {d: said.left_j for d, said in promises.items() if d not in settled}
    newcomers = {d: left_j for d, left_j in newcomers.items() if d not in miserly}
    ahead = {d for d, said in promises.items() if said.pending and said.iteration >= start}
    ahead |= miserly
    for device, join in joins.items():
        newcomers[device] = join.left_j
        if join.iteration >= start:
            ahead.add(device)
    left_j = {d: _left_j(said, start) for d, said in promises.items()} | newcomers
    pace = {d: said.pace for d, said in promises.items()}
    pace |= {d: join.pace for d, join in joins.items()}
    candidates = left_j.keys() - set(leaving) - ahead
    at_work = candidates - set(hung)
    if 2 * len(candidates & set(hung)) < len(view.members) and len(at_work & settled) >= 2:
        candidates = at_work
    cut = {
        (min(device, other), max(device, other))
        for device, said in promises.items()
        for other in said.cut
    }
    live = [link for link in links if link not in cut]
    poor = {device for device in settled if not promises[device].gives}
    unpaid = [link for link in live if poor & {*link} and newcomers.keys() & {*link}]
    giving = [link for link in live if link not in unpaid]
    while True:
        parts = [part for part in _parts(candidates, live) if part & settled]
        if not parts:
            return None
        members = max(parts, key=lambda part: (len(part), -min(part)))
        asking = newcomers.keys() & members
        gifts = givers({one: left_j[one] for one in members}, asking, giving)
        if len(gifts) == len(asking):
            break
        candidates -= asking - dict(gifts).keys()
    paces = tuple(pace[device] for device in sorted(members))
    return View(
        number=view.number + 1,
        start=start,
        members=tuple(sorted(members)),
        cut=tuple(sorted(link for link in cut if link in links and members.issuperset(link))),
        left_j=tuple(left_j[device] for device in sorted(members)),
        elapsed_s=max(said.elapsed_s for said in promises.values()),
        gifts=gifts,
        pace=paces if max(paces) > 1.0 else (),
        lives=tuple(sorted((one, join.epoch) for one, join in joins.items() if one in members)),
    )


def _miserly(view: View, promises: Mapping[int, Promise], at: Mapping[int, int]) -> set[int]:
    """Members that are ahead of all others and cannot pay for giving them what they have."""
    left, found = dict(at), set[int]()
    while len(left) > 1:
        first = max(left.values())
        holders = {device for device in left if left[device] == first}
        silent = len(view.members) - len(promises)
        others = len(promises) > len(found) + len(holders)
        if not others or any(promises[one].gives for one in holders):
            break
        if len(found) + len(holders) + silent >= view.majority or holders == left.keys():
            break
        found |= holders
        left = {device: iteration for device, iteration in left.items() if device not in holders}
    return found


def _left_j(said: Promise, start: int) -> float:
    """What a member has left for a view: a training of its first iteration is paid for already."""
    iteration, joules = said.paid
    return said.left_j + (joules if iteration == start else 0.0)


def _neighbours(devices: Collection[int], links: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {device: [] for device in sorted(devices)}
    for a, b in links:
        if a in found and b in found:
            found[a].append(b)
            found[b].append(a)
    return {device: sorted(others) for device, others in found.items()}


def _parts(devices: Collection[int], links: Iterable[tuple[int, int]]) -> list[set[int]]:
    near, left, parts = _neighbours(devices, links), set(devices), []
    while left:
        part, edge = set(), {min(left)}
        while edge:
            part |= edge
            edge = {other for device in edge for other in near[device]} - part
        parts.append(part)
        left -= part
    return parts


def fault_of(
    view: View, before: View, links: Collection[tuple[int, int]], last: int | None
) -> str | None:
    """What is wrong with a view, in a few words; None if nothing is.

    All devices judge alike: nothing counts here that one of them knows and another does not.

    >>> links = [(0, 1), (1, 2), (0, 2)]
    >>> first, left_j = View(0, 1, (0, 1, 2)), (5.0, 5.0)
    >>> fault_of(View(1, 4, (0, 2), left_j=left_j), first, links, 9) is None
    True
    >>> fault_of(View(1, 4, (0, 77), left_j=left_j), first, links, 9)
    'its members are not devices of the fleet, in ascending order'
    >>> fault_of(View(1, 2**40, (0, 2), left_j=left_j), first, links, 9)
    'it starts at iteration 1099511627776, and the plan has 9'
    """
    members, devices = set(view.members), {device for link in links for device in link}
    linked = {link for link in links if members.issuperset(link)}
    newcomers = [newcomer for newcomer, _ in view.gifts]
    if view.number <= before.number:
        return f"its number {view.number} is not beyond {before.number}"
    if not members or not members <= devices or tuple(sorted(members)) != view.members:
        return "its members are not devices of the fleet, in ascending order"
    if view.start < 1:
        return f"it starts at iteration {view.start}"
    if last is not None and view.start > last + 1:
        return f"it starts at iteration {view.start}, and the plan has {last}"
    if last is not None and view.digest == FINISHED and view.start <= last:
        return f"it ends the run before iteration {view.start} of {last}"
    if len(view.left_j) != len(view.members) or -math.inf in view.left_j:
        return f"it has {len(view.left_j)} batteries for {len(view.members)} members"
    if view.pace and len(view.pace) != len(view.members):
        return f"it has {len(view.pace)} paces for {len(view.members)} members"
    if not all(0.0 < pace < math.inf for pace in view.pace):
        return f"it has the paces {view.pace}"
    if not 0.0 <= view.elapsed_s < math.inf:
        return f"it begins after {view.elapsed_s} s"
    if len(view.pace) not in (0, len(view.members)) or not all(0 < p < math.inf for p in view.pace):
        return f"it has {len(view.pace)} paces for {len(view.members)} members"
    if not linked.issuperset(view.cut) or tuple(sorted(set(view.cut))) != view.cut:
        return "it cuts links that its members do not have"
    if len(set(newcomers)) < len(newcomers) or not members > set(newcomers):
        return "its newcomers have nobody to take their parameters from"
    if not all((min(gift), max(gift)) in linked for gift in view.gifts):
        return "its newcomers have no neighbours to take their parameters from"
    if not set(newcomers).issuperset(one for one, _ in view.lives):
        return "it names runs of devices that are no newcomers"
    return None


def is_proven(view: View, before: View, signer: Signer, needed: int) -> bool:
    """Have as many members of an earlier view as are needed signed its acceptance of this one?

    That earlier view is the one before it, or an older one for a device that was away for long:
    what a majority of the members that it knows has accepted, it may accept, too.
    """
    if view.proof is None or len(view.proof.votes) > len(before.members):
        return False
    voted = Accepted(view.number, view.proof.ballot, fingerprint(view))
    voters = {
        vote.origin
        for vote in view.proof.votes
        if vote.origin in before.members
        and signer.verify(
            vote.origin,
            signed_text(Flood(vote.origin, vote.epoch, vote.sequence, voted)),
            vote.signature,
        )
    }
    return len(voters) >= needed


_Value = tuple[Ballot, str]
"""A ballot, and the fingerprint of what was offered in it."""

UNREACHED = "no device that holds the parameters of the fleet can be reached"

_NONE: Ballot = (0, -1)
_KEPT = 32  # views that are remembered for those who were away
_SLOWEST = 4  # attempts after which the wait between two does not grow any more
_FARTHEST = 1000  # attempts beyond the highest one known: nobody can have missed so many
_VOTES = 128  # in one message, of a few hundred bytes each
_OFFERS = 64  # views of one number that are remembered


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
    """One node's part in the agreement: it proposes, promises, accepts, and learns."""

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
        self._noted: set[tuple[str, int, int]] = set()
        self._forget()

    def _forget(self) -> None:
        self._proposal: _Proposal | None = None
        self._seen: Ballot = _NONE
        self._values: dict[_Value, View] = {}
        self._votes: dict[_Value, dict[int, Vote]] = {}
        self._offers: dict[Ballot, Accept] = {}  # whose plans are being made
        self._refusals: dict[int, NoPlan] = {}  # of views whose plans are being made
        self._told_j = math.inf  # what this device has said that it has left, at the least
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
        # A ballot of a device that has lost its folder may be one that it has used before.
        if not context.member or context.lost or not self.wanted or not self._hooks.votes():
            self._due = self.since = None
            return
        if self.since is None:
            self.since = context.now
        if self._due is None:
            self._due = context.now + self._rank() * context.settings.patience_s / 2.0
        planning = self._proposal is not None and self._proposal.candidate is not None
        if context.now >= self._due and self._plans.last() is not None and not planning:
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
        self.prepare(context.device, Prepare(self._number, ballot))

    def _see(self, ballot: Ballot) -> None:
        """A ballot that is higher than all before gives its proposer time."""
        if ballot <= self._seen:
            return
        self._seen = ballot
        patience_s = self._context.settings.patience_s
        wait_s = patience_s * 2 ** min(ballot[0] - 1, _SLOWEST)
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
        if len(proposal.promises) < context.settings.needed(context.view):
            return
        if context.device not in proposal.promises:
            return  # not on disk yet: started again, it might use the same ballot once more
        expected = set(context.view.members) - self._triggers.joining().keys()
        missing = expected - proposal.promises.keys() - self._triggers.suspected.keys()
        if missing and context.now - proposal.since < context.settings.patience_s:
            return
        accepted = [said.accepted for said in proposal.promises.values() if said.accepted]
        for _, view in sorted(accepted, key=lambda one: one[0], reverse=True):
            valid = self._fault(view) is None and self._plans.agrees(view)
            if valid is None:
                return  # until its plan is made
            if valid:
                self._offer(replace(view, proof=None))
                return
        # What is left out here no majority can have accepted: every member judges it alike.
        self._choose(proposal)

    def _choose(self, proposal: _Proposal, refused: Planned | None = None) -> None:
        """Choose a view, once more without some after another was refused a plan."""
        triggers, last = self._triggers, self._plans.last()
        view = next_view(
            self._context.view,
            proposal.promises,
            triggers.joining(),
            triggers.going(),
            self._context.links,
            triggers.hung,
        )
        if view is None and refused is not None:  # without those who are short, who do not leave
            self._say_no_plan(refused)
        elif view is None:
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
            context.end(UNREACHED)
            return
        context.note("unheld", view=self._number)
        view = replace(
            context.view,
            number=self._number,
            start=max(context.view.start, *(1 + said.iteration for said in promises.values())),
            proof=None,
            left_j=tuple(promises[one].left_j for one in context.view.members),
            elapsed_s=max(said.elapsed_s for said in promises.values()),
            gifts=(),
            lives=(),
            digest=UNHELD,
        )
        self._offer(view)

    def planned(self, event: Planned) -> bool:
        """The plan of the view that this device proposes; False if it is another's."""
        if event.view.digest:
            return False
        self._plans.check(event)
        for offer in list(self._offers.values()):
            if replace(offer.view, digest="") == event.view:
                self._consider_offer(self._offers.pop(offer.ballot))
        for origin in list(self._refusals):
            self.no_plan(origin, self._refusals.pop(origin))
        proposal = self._proposal
        if proposal is None or proposal.candidate != event.view:
            self._gather()
            return True
        proposal.candidate = None
        if event.plan is not None:
            self._offer(replace(event.view, digest=event.plan.view.digest))
        elif self._triggers.turn_away():  # once more without those who ask for something
            self._choose(proposal, event)
        else:
            self._say_no_plan(event)
        return True

    def _say_no_plan(self, event: Planned) -> None:
        said = NoPlan(event.view, event.refusal)
        self._floods.say(said)
        self.no_plan(self._context.device, said)

    def no_plan(self, origin: int, said: NoPlan) -> None:
        """There is no plan for what is left: stop, and propose again when started again.

        A member finds out for itself whether that is so.
        """
        context, number = self._context, said.view.number
        if number != self._number or not context.member or origin not in context.view.members:
            return
        view = replace(said.view, digest="", proof=None)
        sound = self._fault(view) is None and not self._is_poorer(view)
        sound = sound and not self._is_later(view.elapsed_s)
        refuses = sound and self._plans.refuses(view)
        if refuses is None:
            self._refusals[origin] = said
        elif refuses:
            context.note("infeasible", view=number, reason=said.reason)
            context.end(f"there is no plan for view {number}: {said.reason}; everything is saved")

    def _offer(self, view: View) -> None:
        proposal = self._proposal
        assert proposal is not None
        proposal.value, proposal.said = view, self._context.now
        proposal.again_s = self._context.settings.patience_s / 4.0
        self._floods.say(Accept(proposal.ballot, view))
        self.accept(self._context.device, Accept(proposal.ballot, view))

    # Accepting --------------------------------------------------------------------------------

    def prepare(self, origin: int, said: Prepare) -> None:
        context = self._context
        if said.number != self._number or not context.member or not self._hooks.votes():
            return
        if not self._may_offer(origin, said.ballot):
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
        self._told_j = min(self._told_j, promise.left_j)
        self._floods.say(promise)
        self.promise(context.device, promise)

    def promise(self, origin: int, said: Promise) -> None:
        """A member has promised, to this device or to another."""
        if said.number != self._number or origin not in self._context.view.members:
            return
        if said.ballot[1] not in self._context.view.members or self._is_far(said.ballot):
            return
        self._see(said.ballot)
        if not said.pending and self._is_ahead(said.iteration):
            reason = f"it says that it has done iteration {said.iteration}"
            self._note_once("unsound", origin, said.number, reason)
            return
        if not said.pending and self._is_later(said.elapsed_s):
            reason = f"it says that its iterations took {said.elapsed_s:g} s"
            self._note_once("unsound", origin, said.number, reason)
            return
        if self._proposal is not None and self._proposal.ballot == said.ballot:
            self._proposal.promises[origin] = said
            self._gather()

    def accept(self, origin: int, said: Accept) -> None:
        if said.view.number != self._number or not self._may_offer(origin, said.ballot):
            return
        fault = self._fault(said.view)
        if fault is not None:
            self._note_once("unsound", origin, said.view.number, fault)
            return
        said = replace(said, view=replace(said.view, proof=None))
        self._see(said.ballot)
        value = (said.ballot, fingerprint(said.view))
        self._values[value] = said.view
        for one in sorted(self._values)[:-_OFFERS]:  # of a proposer that floods
            del self._values[one]
        self._consider_offer(said)
        self._count(value)

    def _may_offer(self, proposer: int, ballot: Ballot) -> bool:
        """Is it a ballot of that member, and one that may follow those before?"""
        return (
            proposer == ballot[1]
            and proposer in self._context.view.members
            and not self._is_far(ballot)
        )

    def _is_far(self, ballot: Ballot) -> bool:
        highest = max(self._seen, self._context.state.promised or _NONE)
        return not 0 < ballot[0] <= highest[0] + _FARTHEST

    def _fault(self, view: View) -> str | None:
        return fault_of(view, self._context.view, self._context.links, self._plans.last())

    def _note_once(self, kind: str, sender: int, number: int, reason: str) -> None:
        if (kind, sender, number) not in self._noted:
            self._noted.add((kind, sender, number))
            self._context.note(kind, sender=sender, view=number, reason=reason)

    def _consider_offer(self, said: Accept) -> None:
        """Accept a view, unless something later was promised or this device knows better."""
        context, accepted = self._context, (said.ballot, said.view)
        if not context.member or said.ballot < (context.state.promised or _NONE):
            return
        if not self._hooks.votes():
            return
        if context.state.accepted == accepted:
            self._say_accepted(said.ballot)
            return
        if context.state.accepted is not None and context.state.accepted[0] == said.ballot:
            return  # a proposer that says one thing here and another there
        agrees = self._plans.agrees(said.view)
        objection = self._objection(said.view, agrees)
        if objection is not None:
            self._note_once("unsound", said.ballot[1], said.view.number, objection)
        elif agrees is None:
            self._offers[said.ballot] = said
        else:
            state = replace(context.state, promised=said.ballot, accepted=accepted)
            context.save(state, lambda: self._say_accepted(said.ballot))
            self._hooks.froze()

    def _objection(self, view: View, agrees: bool | None) -> str | None:
        """Why this device, by what it knows itself, does not accept a view; None if it does."""
        context = self._context
        done, holds = context.on_disk.commit.iteration, self._hooks.holds()
        newcomers = [newcomer for newcomer, _ in view.gifts]
        stays = holds and context.device in view.members and context.device not in newcomers
        if stays and view.start <= done:
            return f"it starts at {view.start}, and this device has done {done}"
        if self._is_ahead(view.start - 1):
            return f"it starts at {view.start}, and this device has done {done}"
        if self._is_later(view.elapsed_s):
            return f"it starts after {view.elapsed_s:g} s, which the plan does not take"
        if self._is_poorer(view):
            return "it leaves this device fewer joules than it has"
        if view.digest == UNHELD and holds:
            return "this device holds the parameters, and stays"
        return "this device makes another plan of it" if agrees is False else None

    def _is_poorer(self, view: View) -> bool:
        """Does a view leave this device less than it has said that it has?"""
        left_j = dict(zip(view.members, view.left_j, strict=True)).get(self._context.device)
        return left_j is not None and left_j < self._told_j < math.inf

    def _is_ahead(self, iteration: int) -> bool:
        """Can nobody have done an iteration, by how far this device is, which takes part?

        Nobody gets further ahead than there are devices between: each waits for its neighbours,
        unless the plan has no part for them.
        """
        done = self._context.on_disk.commit.iteration
        return self._keeps_up() and iteration > done + len(self._context.view.members)

    def _keeps_up(self) -> bool:
        """Does this device take part in the present iterations, so that its own count says much?"""
        context = self._context
        done = context.on_disk.commit.iteration
        if not context.member or not self._hooks.holds():
            return False
        return not (self._plans.done(done + 1) or self._plans.aside(done + 1))

    def _is_later(self, elapsed_s: float) -> bool:
        """Can nobody's iterations have taken so long by the plan's clock, which all share?

        Nobody is further ahead than in `_is_ahead`; what was done again may have taken longer by
        the plan of an older view.
        """
        view, before_s = self._context.view, self._context.on_disk.commit.planned_s
        if elapsed_s <= before_s or not self._keeps_up():
            return False
        more = len(view.members) + view.number + 1
        return elapsed_s > before_s + more * self._plans.longest_s()

    def _say_accepted(self, ballot: Ballot) -> None:
        accepted = self._context.on_disk.accepted
        if (
            accepted is not None
            and accepted[0] == ballot
            and self._context.state.accepted == accepted
        ):
            said = Accepted(self._number, ballot, fingerprint(accepted[1]))
            self.accepted(self._floods.say(said), said)

    # Learning ---------------------------------------------------------------------------------

    def accepted(self, flood: Flood, said: Accepted) -> None:
        origin, value = flood.origin, (said.ballot, said.value)
        if said.number != self._number or origin not in self._context.view.members:
            return
        vote = Vote(origin, flood.epoch, flood.sequence, flood.signature)
        if sum(origin in votes for votes in self._votes.values()) < _OFFERS:
            self._votes.setdefault(value, {})[origin] = vote
            self._count(value)

    def _count(self, value: _Value) -> None:
        view, votes = self._values.get(value), self._votes.get(value, {})
        context = self._context
        if view is not None and len(votes) >= context.settings.needed(context.view):
            self._install((replace(view, proof=Proof(value[0], tuple(votes.values()))),))

    def since_view(self, number: int) -> tuple[View, ...]:
        """The views after one, with their proofs, as many as one message holds."""
        views, votes = list[View](), 0
        for view in self._context.state.views:
            if view.number > number and view.proof is not None:
                votes += len(view.proof.votes)
                if views and votes > _VOTES:
                    break
                views.append(view)
        return tuple(views)

    def learn(self, views: tuple[View, ...], sender: int) -> None:
        """Views that are decided, as a neighbour says: they are taken as far as they are proven."""
        before, new = self._context.view, list[View]()
        for view in views:
            if view.number <= before.number:
                self._compare(view)
                continue
            fault = fault_of(view, before, self._context.links, self._plans.last())
            if fault is None and not self._is_proven(view, before):
                fault = f"no majority of view {before.number} has signed it"
            if fault is not None:
                self._note_once("unsound", sender, view.number, fault)
                break
            new.append(view)
            before = view
        if new:
            self._install(tuple(new))

    def _compare(self, view: View) -> None:
        """Two views of one number that are both proven: some member has voted for both."""
        known = {one.number: one for one in self._context.state.views}
        own, before = known.get(view.number), known.get(view.number - 1)
        if own is None or own == view or before is None or own.proof is None:
            return
        if self._is_proven(view, before) and view.proof is not None:
            both = {vote.origin for vote in own.proof.votes}
            twice = sorted(both & {vote.origin for vote in view.proof.votes})
            for device in twice:
                self._note_once("voted-twice", device, view.number, "for two views of one number")
            if not twice:  # one of two went on, and so did the other
                reason = f"devices {list(view.members)} have gone on by themselves"
                self._note_once("split", view.members[0], view.number, reason)

    def _is_proven(self, view: View, before: View) -> bool:
        needed = self._context.settings.needed(before)
        return is_proven(view, before, self._context.signer, needed)

    def _install(self, new: tuple[View, ...]) -> None:
        context = self._context
        state = replace(context.state, views=(*context.state.views, *new)[-_KEPT:])
        if any((context.device, context.epoch) in view.lives for view in new):
            state = replace(state, folder="whole")
        context.save(replace(state, promised=None, accepted=None))
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
                pace=list(view.pace),
                digest=view.digest,
            )
        self._forget()
        self._triggers.forget()
        self._hooks.installed(new[-1])


@dataclass(frozen=True)
class Hooks:
    """What the council needs of the rest of the node."""

    standing: Callable[[Promise], Promise]  # fills in how this device stands in a promise
    froze: Callable[[], None]  # this device commits nothing until a view is decided
    installed: Callable[[View], None]  # a view is installed
    holds: Callable[[], bool]  # does this device hold the fleet's parameters, and stay?
    # may it vote? Not if it may have voted before and have forgotten that
    votes: Callable[[], bool]
