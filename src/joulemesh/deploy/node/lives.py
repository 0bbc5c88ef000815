"""The lives of neighbours: which run of a neighbour's process is the present one, and what it had.

A run is named by a random epoch: a folder that was removed, restored from a copy or cloned knows
nothing of it. Which epoch is the present one shows in beats: it is the one that echoes what was
sent to the neighbour's address since its epoch was first seen. A second process with the same
folder elsewhere can send, but nothing is sent to it: it never echoes, and is named a double.

Neighbours also remember what a device has said and signed of itself, its `Account`, and give it
back to a device that is started: a device that has lost its folder neither spends its joules nor
votes a second time.
"""

from __future__ import annotations

__all__ = ["Lives"]

from collections import Counter
from dataclasses import dataclass, replace

from joulemesh.deploy.messages import (
    Accept,
    Accepted,
    Account,
    Ballot,
    Beat,
    Flood,
    Promise,
    Recall,
)
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.signing import signed_text
from joulemesh.deploy.view import View, fingerprint

_OFFERS = 8
_RECENT = 4  # beats: an echo of one of the last so many shows that they arrive
_HEALED = 2.0  # patiences, doubled for each view that has cut a link
_LONGEST = 6  # doublings
_DOUBLE = 2.0  # patiences for which a second epoch must have been seen beside the present one


@dataclass
class _Seen:
    """An epoch that has not echoed yet.

    Attributes:
        since: when it was first seen.
        sent: beats that had been sent to the neighbour by then.
        told: was it noted as a double?
    """

    since: float
    sent: int
    told: bool = False


class Lives:
    """Knows the present epoch of each neighbour, and what each has said of itself."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._sent: Counter[int] = Counter()
        self._epoch: dict[int, int] = {}
        self._count: dict[int, int] = {}
        self._at: dict[int, float] = {}  # when the present epoch of each was heard last
        self._both_ways: dict[int, float] = {}  # since when beats and their echoes have come
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._had: dict[int, tuple[int, int]] = {}  # (epoch, count) of the last beat of each
        self._told: dict[int, int] = {}  # the epoch of each that has got its account
        self._telling: set[int] = set()
        self._votes: dict[int, dict[type, Flood]] = {}
        self._offers: dict[str, View] = {}
        self._accounts = {one.device: one for one in context.state.accounts}
        self._own: Account | None = None
        self.recalled: set[int] = set()
        """Neighbours that have given back what they remember, in this life."""
        self.doubles: list[int] = []
        """Neighbours that were found to run twice, to be named."""

    # Beats ------------------------------------------------------------------------------------

    def stamped(self, beat: Beat, to: int) -> Beat:
        """A beat to a neighbour, with its count, its echo and this device's account."""
        self._sent[to] += 1
        had = self._had.get(to, (0, 0))
        return replace(beat, count=self._sent[to], echo=had, account=self._account())

    def knows(self, sender: int, epoch: int) -> bool:
        """Is it the present epoch of a neighbour?"""
        return self._epoch.get(sender) == epoch

    def current(self, sender: int, beat: Beat) -> bool:
        """Is a beat of the present run of its sender's process, and newer than those before?"""
        epoch, now = beat.epoch, self._context.now
        self._had[sender] = (epoch, beat.count)
        if not self.knows(sender, epoch):
            first = _Seen(now, self._sent[sender])
            seen = self._seen.setdefault((sender, epoch), first)
            if beat.echo[0] != self._context.epoch or beat.echo[1] <= seen.sent:
                self._suspect_double(sender, seen)
                return False
            self._epoch[sender], self._count[sender] = epoch, 0
            self._seen = {key: one for key, one in self._seen.items() if key[0] != sender}
        if beat.count <= self._count[sender]:
            return False
        self._count[sender], self._at[sender] = beat.count, now
        if beat.echo[0] == self._context.epoch and beat.echo[1] > self._sent[sender] - _RECENT:
            self._both_ways.setdefault(sender, now)
        else:
            self._both_ways.pop(sender, None)
        self._remember(sender, beat.account)
        return True

    def healed(self) -> list[int]:
        """Neighbours whose links the view has cut, and that carry signs of life both ways again.

        A link that was cut before has to hold for twice as long each time.
        """
        context, found = self._context, []
        for one, since in self._both_ways.items():
            link = (min(one, context.device), max(one, context.device))
            times = sum(link in view.cut for view in context.state.views)
            held_s = _HEALED * context.settings.patience_s * 2.0 ** min(times, _LONGEST)
            heard = context.now - self._at[one] < context.settings.patience_s
            if link in context.view.cut and heard and context.now - since > held_s:
                found.append(one)
        return found

    def _suspect_double(self, sender: int, seen: _Seen) -> None:
        """Two epochs at a time, for long, and only one that is reached at the neighbour's address.

        A process that was started again is reached at once, or the one before it is silent.
        """
        now, patience_s = self._context.now, self._context.settings.patience_s
        lives = now - self._at.get(sender, -patience_s) < patience_s
        if lives and not seen.told and now - seen.since > _DOUBLE * patience_s:
            seen.told = True
            self.doubles.append(sender)

    # Accounts ---------------------------------------------------------------------------------

    def _account(self) -> Account:
        context, disk, own = self._context, self._context.on_disk, self._own
        known = context.recalled
        iteration = max(disk.commit.iteration, known.iteration if known and context.lost else 0)
        made = Account(
            context.device,
            context.meter.spent_j(),
            iteration,
            disk.views[-1].number + 1,
            disk.promised,
            disk.accepted,
        )
        if own is None or replace(own, signature="") != made:
            own = replace(made, signature=context.signer.sign(signed_text(made)))
            self._own = own
        return own

    def _remember(self, device: int, account: Account | None) -> None:
        known = self._accounts.get(device)
        if account is None or account.device != device:
            return
        # What says less is older, or comes from a device that has lost its folder.
        if known is None or _extent(account) >= _extent(known):
            self._accounts[device] = account

    def accounts(self) -> tuple[Account, ...]:
        """What neighbours have said of themselves, to be kept on disk with the next commit."""
        return tuple(self._accounts[device] for device in sorted(self._accounts))

    def recall_to(self, neighbour: int, epoch: int) -> None:
        """Give a neighbour that was started what it has said of itself before."""
        if self._told.get(neighbour) == epoch or neighbour in self._telling:
            return
        self._telling.add(neighbour)

        def answered(came: bool) -> None:
            self._telling.discard(neighbour)
            if came:
                self._told[neighbour] = epoch

        votes = self._votes.get(neighbour, {})
        values = {one.body.value for one in votes.values() if isinstance(one.body, Accepted)}
        views = tuple(self._offers[value] for value in values if value in self._offers)
        recall = Recall(self._accounts.get(neighbour), tuple(votes.values()), views)
        self._context.send(neighbour, recall, answered=answered)

    def voted(self, flood: Flood) -> None:
        """Remember the last votes of a neighbour, and what was offered."""
        body = flood.body
        if isinstance(body, Accept):
            self._offers[fingerprint(body.view)] = replace(body.view, proof=None)
            for value in list(self._offers)[:-_OFFERS]:
                del self._offers[value]
        elif isinstance(body, Promise | Accepted) and flood.origin in self._context.neighbours:
            votes = self._votes.setdefault(flood.origin, {})
            last = votes.get(type(body))
            if last is None or _when(last) <= _when(flood):
                votes[type(body)] = flood

    def recall(self, sender: int, said: Recall) -> bool:
        """A neighbour remembers this device; True if it remembers more than this device has."""
        context = self._context
        self.recalled.add(sender)
        for one in (*((said.account,) if said.account else ()), *said.votes):
            device = one.device if isinstance(one, Account) else one.origin
            own = device == context.device
            if not own or not context.signer.verify(device, signed_text(one), one.signature):
                context.note("forged", sender=sender, origin=device)
                return False
        found = said.account or Account(context.device, 0.0, 0, 0)
        views = {fingerprint(view): view for view in said.views}
        for vote in said.votes:
            found = _both(found, _account_of(vote, views))
        before = context.recalled
        context.recalled = found if before is None else _both(before, found)
        if found.spent_j > context.meter.spent_j():
            context.note("recalled", spent_j=found.spent_j, by=sender)
            context.meter.recall(found.spent_j)
        return context.lost and (before is None or found.iteration > before.iteration)


def _extent(account: Account) -> tuple[float, int, Ballot, int]:
    promised = account.promised or (0, -1)
    return account.spent_j, account.number, promised, account.iteration


def _when(flood: Flood) -> tuple[int, Ballot]:
    body = flood.body
    return (body.number, body.ballot) if isinstance(body, Promise | Accepted) else (0, (0, -1))


def _account_of(vote: Flood, views: dict[str, View]) -> Account:
    """What a vote says of the device that gave it."""
    body, none = vote.body, Account(vote.origin, 0.0, 0, 0)
    if isinstance(body, Promise):
        return replace(
            none, number=body.number, promised=body.ballot, accepted=body.accepted,
            iteration=0 if body.pending else body.iteration,
        )  # fmt: skip
    if isinstance(body, Accepted) and body.value in views:
        accepted = (body.ballot, views[body.value])
        return replace(none, number=body.number, promised=body.ballot, accepted=accepted)
    return none


def _both(one: Account, other: Account) -> Account:
    """What follows from two accounts of one device."""
    number = max(one.number, other.number)
    last = [each for each in (one, other) if each.number == number]
    accepted = [each.accepted for each in last if each.accepted is not None]
    return Account(
        one.device,
        max(one.spent_j, other.spent_j),
        max(one.iteration, other.iteration),
        number,
        max((each.promised for each in last if each.promised is not None), default=None),
        max(accepted, key=lambda each: each[0], default=None),
    )
