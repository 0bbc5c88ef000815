"""Messages within one process, under a virtual clock: a network whose every fault is drawn.

It is what tests drive nodes through. Nothing here waits: time moves to the next thing that happens.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, TypeAlias

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.messages import Given, Message, Part

Told: TypeAlias = Callable[[str], None]
"""Called once for a message: with ``""`` when it was acknowledged, with a reason otherwise."""

Take: TypeAlias = Callable[[int, Message, Callable[[], None]], None]
"""(sender, message, acknowledge): the receiver's process calls the last when it takes a message."""


class Clock:
    """Virtual time. What is due at one instant happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = count()

    def after(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._asked), act, arguments))

    def step(self, until: float = float("inf")) -> bool:
        if not self._due or self._due[0][0] > until:
            return False
        self.now, _, act, arguments = heapq.heappop(self._due)
        act(*arguments)
        return True


@dataclass(frozen=True)
class Weather:
    """How a network treats messages."""

    # (shortest, longest) time of a message and of an acknowledgement
    delay_s: tuple[float, float] = (0.001, 0.01)
    loss: float = 0.0  # probability that either of them is lost
    twice: float = 0.0  # probability that a message comes twice
    held: float = 0.0  # probability that a message is held up for up to ``held_s`` more
    held_s: float = 0.0

    def calm(self) -> Weather:
        return replace(self, loss=0.0, twice=0.0, held=0.0)


class MemoryNetwork:
    """Carries messages between the devices of one process."""

    # Messages overtake each other, get lost, come twice or too late, as the weather has it; none
    # passes a link that is cut. The receiver is given a copy of a payload, which cannot be changed.

    def __init__(self, clock: Clock, random: Random, weather: Weather | None = None) -> None:
        self.weather = weather or Weather()
        self._clock, self._random = clock, random
        self._attached: dict[int, Take] = {}
        self._cut: set[tuple[int, int]] = set()

    def attach(self, device: int, take: Take) -> None:
        self._attached[device] = take

    def detach(self, device: int) -> None:
        self._attached.pop(device, None)

    def cut(self, links: Iterable[tuple[int, int]]) -> None:
        """These directed links, and only these, carry nothing from now on."""
        self._cut = set(links)

    def send(self, sender: int, to: int, message: Message, within_s: float, told: Told) -> None:
        weather, random = self.weather, self._random
        sending = _Sending(self._clock, self._clock.now + within_s, to, told)
        if random.random() < weather.loss or (sender, to) in self._cut:
            sending.expire()
            return
        carried = _copied(message)
        times = 2 if weather.twice and random.random() < weather.twice else 1
        for _ in range(times):
            delay = self._delay()
            if weather.held and random.random() < weather.held:
                delay += random.random() * weather.held_s
            self._clock.after(delay, self._arrive, sender, carried, sending)
            if delay > within_s:
                sending.expire()

    def _arrive(self, sender: int, message: Message, sending: _Sending) -> None:
        take = self._attached.get(sending.to)
        if (sender, sending.to) in self._cut:
            sending.expire()
        elif take is None:
            sending.refuse(self._delay())
        else:
            take(sender, message, lambda: self._acknowledge(sender, sending))
            if not sending.answered:  # its process is frozen
                sending.expire()

    def _acknowledge(self, sender: int, sending: _Sending) -> None:
        sending.answered = True
        if self._random.random() < self.weather.loss or (sending.to, sender) in self._cut:
            sending.expire()
        else:
            sending.answer(self._delay())

    def _delay(self) -> float:
        low, high = self.weather.delay_s
        return low + self._random.random() * (high - low)


class _Sending:
    """One message on its way, until its sender is told what became of it."""

    __slots__ = ("_by", "_clock", "_expiring", "_told", "answered", "to")

    def __init__(self, clock: Clock, by: float, to: int, told: Told) -> None:
        self._clock, self._by, self._told, self.to = clock, by, told, to
        self._expiring = self.answered = False

    def answer(self, after_s: float) -> None:
        if self._clock.now + after_s > self._by:
            self.expire()
        else:
            self._clock.after(after_s, self._tell, "")

    def refuse(self, after_s: float) -> None:
        after_s = min(after_s, max(self._by - self._clock.now, 0.0))
        self._clock.after(after_s, self._tell, f"device {self.to} is not reachable")

    def expire(self) -> None:
        if not self._expiring:
            self._expiring = True
            wait_s = max(self._by - self._clock.now, 0.0)
            self._clock.after(wait_s, self._tell, f"device {self.to} did not answer in time")

    def _tell(self, reason: str) -> None:
        told, self._told = self._told, _nobody
        told(reason)


def _nobody(reason: str) -> None: ...


def _copied(message: Message) -> Message:
    if isinstance(message, Part):
        return Part(message.view, message.iteration, message.step, _frozen(message.payload))
    if isinstance(message, Given):
        return Given(message.view, message.iteration, _frozen(message.payload), message.gift)
    return message


def _frozen(payload: Vector) -> Vector:
    copied = np.array(payload)
    copied.flags.writeable = False
    return copied
