"""Signs of life to the neighbours, and the word that spreads with them: who has finished."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from joulemesh.deploy.messages import OVER, Account, Beat, Recall, signed_text
from joulemesh.deploy.node.context import NodeContext, Watch
from joulemesh.deploy.node.work import Work
from joulemesh.deploy.view import FINISHED

_RECENT = 4  # beats: an echo of one of the last so many shows that they arrive
_HEALED = 2.0  # patiences, doubled for each view that has cut a link
_LONGEST = 6  # doublings
_DOUBLE = 2.0  # patiences for which a second epoch must have been seen beside the present one


@dataclass
class _Seen:
    """An epoch that has not echoed yet."""

    since: float  # when it was first seen
    sent: int  # beats that had been sent to the neighbour by then
    told: bool = False  # was it noted as a double?


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
        self._former: dict[int, Account | None] = {}  # what each had said before its present epoch
        self._told: dict[int, int] = {}  # the epoch of each that has got its account
        self._telling: set[int] = set()
        self._accounts = {one.device: one for one in context.state.accounts}
        self._found = context.state  # in the folder, at the start
        self._own: Account | None = None
        self.recalled: set[int] = set()
        """Neighbours that have given back what they remember, in this run."""
        self.vouching: set[int] = set()
        """Those of them that remember all their own votes."""
        self.doubles: list[int] = []
        """Neighbours that were found to run twice, to be named."""

    # Beats ------------------------------------------------------------------------------------

    def stamped(self, beat: Beat, to: int) -> Beat:
        """A beat to a neighbour, with its count, its echo and this device's account."""
        self._sent[to] += 1
        had = self._had.get(to, (0, 0))
        return replace(beat, count=self._sent[to], echo=had, account=self._account())

    def knows(self, sender: int, epoch: int) -> bool:
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
            self._former[sender] = self._accounts.get(sender)
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
        made = Account(
            context.device,
            context.meter.spent_j(),
            disk.commit.iteration,
            disk.incarnation,
            disk.epoch,
            disk.saves,
            context.sure and disk.folder == context.state.folder in ("whole", "lost"),
        )
        if own is None or replace(own, signature="") != made:
            own = replace(made, signature=context.signer.sign(signed_text(made)))
            self._own = own
        return own

    def _remember(self, device: int, account: Account | None) -> None:
        """Keep what a neighbour says of itself, unless it may not know yet what it has lost."""
        known = self._accounts.get(device)
        if account is None or account.device != device:
            return
        told = account.sure and known is not None and account.spent_j >= known.spent_j
        if known is None or known.epoch == account.epoch or told:
            self._accounts[device] = account

    def accounts(self) -> tuple[Account, ...]:
        """What neighbours have said of themselves, to be kept on disk."""
        return tuple(self._accounts[device] for device in sorted(self._accounts))

    def recall_to(self, neighbour: int) -> None:
        """Give a neighbour that was started what it has said of itself before.

        It votes after that: that there was such a run of it is on disk by then.
        """
        epoch = self._epoch[neighbour]
        if self._told.get(neighbour) == epoch or neighbour in self._telling:
            return
        self._telling.add(neighbour)

        def answered(came: bool) -> None:
            self._telling.discard(neighbour)
            if came:
                self._told[neighbour] = epoch

        def send() -> None:
            whole = self._context.on_disk.folder == "whole"
            recall = Recall(self._former.get(neighbour), whole, epoch)
            self._context.send(neighbour, recall, answered=answered)

        self._context.save(self._context.state, send)

    def recall(self, sender: int, said: Recall) -> bool:
        """A neighbour remembers this device; True if it knows of more than the folder holds."""
        context, account = self._context, said.account
        self.recalled.add(sender)
        if said.whole:
            self.vouching.add(sender)
        if account is None:
            return False
        own, text = account.device == context.device, signed_text(account)
        if not own or not context.signer.verify(context.device, text, account.signature):
            context.note("forged", sender=sender, origin=account.device)
            return False
        if account.spent_j > context.meter.spent_j():
            context.note("recalled", spent_j=account.spent_j, by=sender)
            context.meter.recall(account.spent_j)
        return self._is_missing(account)

    def _is_missing(self, account: Account) -> bool:
        """Is it of a state that the folder has never had?"""
        found = self._found
        if account.epoch == self._context.epoch:
            return False
        if account.epoch == found.epoch:
            return account.saves > found.saves
        return account.incarnation >= found.incarnation


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
        """A neighbour knows who has finished.

        In another view, that says nothing of this one, unless this one has no iteration: nothing
        that the neighbour ended with is done again then, and it waits for no gift.
        """
        context = self._context
        over = beat.phase == OVER and beat.iteration == context.on_disk.commit.iteration
        if beat.view != context.view.number and not (over and context.view.digest == FINISHED):
            return
        if over:
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
