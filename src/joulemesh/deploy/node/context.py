"""What the parts of a node share: the time, its durable state, and the effects they ask for."""

from __future__ import annotations

__all__ = ["NodeContext"]

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from joulemesh.deploy.effects import Durable, Effect, End, Note, Save, Send, SetTimer
from joulemesh.deploy.messages import Account, FleetRoster, Given, Message, Part
from joulemesh.deploy.plans import Meter
from joulemesh.deploy.settings import Settings
from joulemesh.deploy.signing import Signer
from joulemesh.deploy.view import View

_CLOSE = 1e-9  # of a battery: sums of the same joules in another order are the same


class NodeContext:
    """Effects go out from here, and their answers come back to whoever asked.

    Args:
        device: the node's number.
        links: all links of the fleet's graph.
        state: what is on disk.
        meter: what the battery holds.
        settings: the fleet's.
        signer: signs as this device, and verifies the others.
        epoch: names this run of the device's process; drawn at random.
        spares: devices that belong to the fleet only once its roster says so.
    """

    def __init__(
        self,
        device: int,
        links: tuple[tuple[int, int], ...],
        state: Durable,
        meter: Meter,
        settings: Settings,
        signer: Signer,
        epoch: int,
        spares: tuple[int, ...] = (),
    ) -> None:
        self.device, self.links, self.meter, self.settings = device, links, meter, settings
        self.signer, self.epoch = signer, epoch
        self._spares = frozenset(spares)
        self.state = state  # as it will be once all that is asked for is saved
        self.on_disk = state  # what others may hear of
        self.now = 0.0
        self.ended = False
        self.sure = False  # are folder and what neighbours remember compared, as far as they are?
        self.accounts: Callable[[], tuple[Account, ...]] = lambda: state.accounts
        self._effects: list[Effect] = []
        self._token = 0
        self._sendings: dict[int, Callable[[bool], None]] = {}
        self._savings: list[tuple[int, Durable, Callable[[], None] | None]] = []
        self._unsaved_since: float | None = None
        self.neighbours: tuple[int, ...] = ()
        self.enrol()

    def enrol(self) -> None:
        """Take up the roster: a spare place that is not taken is nobody's neighbour."""
        linked = {a + b - self.device for a, b in self.links if self.device in (a, b)}
        absent = self._spares.difference(self.roster.added)
        self.neighbours = tuple(sorted(linked - absent))

    @property
    def roster(self) -> FleetRoster:
        """The newest roster that is on disk."""
        return self.on_disk.roster

    def may_join(self, device: int) -> bool:
        """Does a device belong to the fleet?"""
        taken = device not in self._spares or device in self.roster.added
        return taken and device not in self.roster.retired

    @property
    def view(self) -> View:
        """The newest view that is known."""
        return self.state.views[-1]

    @property
    def lost(self) -> bool:
        """Has this device lost its folder, and was not taken in since?"""
        return self.state.folder == "lost"

    @property
    def member(self) -> bool:
        """Does the device take part in it?"""
        return self.device in self.view.members

    def take(self) -> list[Effect]:
        """What is to be done, in order; each effect is given once."""
        effects, self._effects = self._effects, []
        return effects

    def emit(self, effect: Effect) -> None:
        """Ask for an effect."""
        if not self.ended:
            self._effects.append(effect)

    def note(self, kind: str, **figures: Any) -> None:
        """A line for the journal."""
        self.emit(Note(kind, figures))

    def timer(self, name: str, after_s: float) -> None:
        """A tick after some seconds."""
        self.emit(SetTimer(name, after_s))

    def end(self, reason: str, *, complete: bool = False, resumable: bool = True) -> None:
        """Stop; if it is for good, that is saved first."""
        if self.ended or self.state.ended:
            return
        if resumable and not complete:
            self._end(End(reason, complete, resumable))
        else:
            last = End(reason, complete, resumable=False)
            self.save(replace(self.state, ended=reason), lambda: self._end(last))

    def _end(self, last: End) -> None:
        self.emit(last)
        self.ended = True

    def refuse_to_go_on(self, reason: str) -> None:
        """Stop until the user has changed something; then it can be started again."""
        if not (self.ended or self.state.ended):
            self._end(End(reason, complete=False, resumable=False))

    # Messages ---------------------------------------------------------------------------------

    def send(
        self,
        to: int,
        message: Message,
        *,
        within_s: float | None = None,
        answered: Callable[[bool], None] | None = None,
    ) -> None:
        """Carry a message to a neighbour, and hear whether it has come."""
        self._token += 1
        if answered is not None:
            self._sendings[self._token] = answered
        if within_s is None:
            within_s = self.settings.patience_s / 2.0
        self.emit(Send(self._token, to, message, within_s))

    def answered(self, token: int, came: bool) -> None:
        """A message has come through, or has not in time."""
        answer = self._sendings.pop(token, None)
        if answer is not None:
            answer(came)

    # Joules -----------------------------------------------------------------------------------

    def affords(self, joules: float) -> bool:
        """Does the battery hold so much?"""
        left, spent = self.meter.left_j(), self.meter.spent_j()
        return left >= joules - _CLOSE * (abs(left) + spent)

    def pay(self, to: int, message: Part | Given, step: int | None = None) -> bool:
        """Pay for a message with parameters; False if the battery does not hold enough.

        Args:
            to: the neighbour that it goes to.
            message: what is sent.
            step: of the exchange, if it is sent for the first time.
        """
        size = int(message.payload.nbytes)
        if not self.affords(self.meter.send_j(to, size, step)):
            return False
        self.meter.send(to, size, step)
        return True

    # The disk ---------------------------------------------------------------------------------

    def save(self, state: Durable, then: Callable[[], None] | None = None) -> None:
        """Make a state durable, and go on when it is.

        Every state holds all that earlier ones held: once a later one is on disk, so are they.
        """
        self.state = replace(state, accounts=self.accounts(), saves=self.state.saves + 1)
        self._save(then)

    def _save(self, then: Callable[[], None] | None = None) -> None:
        self._token += 1
        self._savings.append((self._token, self.state, then))
        self.emit(Save(self._token, self.state))

    def saved(self, token: int) -> None:
        """The state of a token is on disk."""
        self._unsaved_since = None
        while self._savings and self._savings[0][0] <= token:
            _, self.on_disk, then = self._savings.pop(0)
            if then is not None:
                then()

    def not_saved(self, reason: str) -> None:
        """It is not; it is tried again with the next chores, until patience runs out."""
        if self._unsaved_since is None:
            self._unsaved_since = self.now
            self.note("unsaved", reason=reason)
        elif self.now - self._unsaved_since > 3.0 * self.settings.patience_s:
            self._end(End(f"the state cannot be saved: {reason}", complete=False))

    def save_again(self) -> None:
        """Try again what could not be saved."""
        if self._unsaved_since is not None:
            self._save()
