"""Who is alive: what a node hears of its neighbours."""

from __future__ import annotations

__all__ = ["Watch"]

from collections.abc import Callable, Iterator

from joulemesh.deploy.messages import Beat
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.view import View


class Watch:
    """Remembers when each neighbour was heard, and what it said that it was doing."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._begun = 0.0
        self._heard: dict[int, float] = {}
        self._met: dict[int, float] = {}  # heard of, from whomever
        self._training: dict[int, tuple[tuple[int, int], float]] = {}
        self.beats: dict[int, Beat] = {}

    def begin(self) -> None:
        """From now on neighbours are listened for."""
        self._begun = self._context.now

    def hear(self, sender: int) -> None:
        """Any message is a sign of life."""
        self._heard[sender] = self._met[sender] = self._context.now

    def meet(self, device: int) -> None:
        """A device has said something to everybody."""
        self._met[device] = self._context.now

    def known(self) -> set[int]:
        """The neighbours that have been heard since the start, and are not silent now."""
        return {one for one in self._heard if not self.silent(one)}

    def met(self, within_s: float) -> set[int]:
        """The devices of which anything was heard lately."""
        return {one for one, at in self._met.items() if self._context.now - at < within_s}

    def listened(self, seconds: float) -> bool:
        """Has this device listened for so long?"""
        return self._context.now - self._begun > seconds

    def begun(self, view: View) -> bool:
        """Have all neighbours that are members of a view all that they need to begin it?"""
        said = {one: self.beats.get(one) for one in self._context.neighbours if one in view.members}
        return all(
            beat is not None and beat.view >= view.number and beat.iteration >= view.start - 1
            for beat in said.values()
        )

    def beat(self, sender: int, beat: Beat) -> None:
        """Take a sign of life."""
        self.hear(sender)
        self.beats[sender] = beat
        if beat.phase != "training":
            self._training.pop(sender, None)
        elif self._training.get(sender, (None, 0.0))[0] != (beat.epoch, beat.iteration):
            self._training[sender] = (beat.epoch, beat.iteration), self._context.now

    def patient(self, device: int | None = None) -> None:
        """Count patience from now, with one neighbour or all: this device was away itself."""
        now = self._context.now
        for neighbour in self._heard if device is None else (device,):
            if neighbour in self._context.neighbours:
                self._heard[neighbour] = now
        self._training = {one: (what, now) for one, (what, _) in self._training.items()}
        self._begun = now if device is None else self._begun

    def linked(self) -> list[int]:
        """The neighbours with which the view exchanges."""
        view, device = self._context.view, self._context.device
        return [
            other
            for other in self._context.neighbours
            if other in view.members and (min(device, other), max(device, other)) not in view.cut
        ]

    def silent(self, neighbour: int) -> bool:
        """Has it not been heard for too long?"""
        settings, heard = self._context.settings, self._heard.get(neighbour)
        if heard is None:
            return self._context.now - self._begun > settings.starting_s
        return self._context.now - heard > settings.patience_s

    def cut(self) -> tuple[int, ...]:
        """The neighbours that are not heard."""
        return tuple(one for one in self._context.neighbours if self.silent(one))

    def complete(self) -> bool:
        """Has every linked neighbour been heard, or had its time to start?"""
        return all(one in self._heard or self.silent(one) for one in self.linked())

    def alone(self) -> bool:
        """Has no neighbour been heard for a long time?"""
        last = max(
            (self._heard.get(one, self._begun) for one in self._context.neighbours), default=0
        )
        return self._context.now - last > 2.0 * self._context.settings.patience_s

    def suspects(self, allowed_s: Callable[[int, int], float]) -> Iterator[tuple[int, str, bool]]:
        """Linked neighbours that seem to have failed: who, why, and whether its training hangs.

        A device whose training hangs says so itself; this is for one that cannot.

        Args:
            allowed_s: seconds that a device's training of an iteration may take.
        """
        settings, now = self._context.settings, self._context.now
        for one in self.linked():
            if self.silent(one):
                yield one, f"not heard for {settings.patience_s:g} s", False
            elif one in self._training:
                (_, iteration), since = self._training[one]
                limit_s = allowed_s(one, iteration + 1) + settings.patience_s
                if now - since > limit_s:
                    yield one, f"training iteration {iteration + 1} for {limit_s:.0f} s", True
