"""What a virtual device is made of: a learner, a battery and a disk."""

from __future__ import annotations

__all__ = ["Battery", "Disk", "Memory", "VirtualSigner", "train"]

import hashlib
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.aggregation.route import Route
from joulemesh.deploy.effects import Commit, Durable, Save, Send, Train
from joulemesh.deploy.messages import Given, Part
from joulemesh.deploy.virtual.setup import Setup

Memory = Mapping[str, NDArray[Any]]


def train(device: int, iteration: int, rounds: int, start: Commit) -> tuple[Vector, Memory]:
    """Pretend to train: a function of its arguments that forgets little and repeats nothing.

    Args:
        device: whose data it is.
        iteration: which one, from 1.
        rounds: number of local rounds.
        start: the parameters and the optimiser's memory to start from.

    Returns:
        (parameters, memory) afterwards.

    >>> train(0, 1, 2, Commit(0, np.zeros(2)))[0].round(3).tolist()
    [0.869, 1.738]
    """
    vector = start.vector
    before = start.memory.get("momentum")
    momentum: Vector = np.zeros_like(vector) if before is None else before
    for turn in range(rounds):
        aim = np.arange(1.0, len(vector) + 1.0) * (1.0 + 0.7 * device + 0.1 * iteration + turn)
        momentum = 0.5 * momentum + 0.5 * (aim - vector)
        vector = vector + 0.5 * momentum
    return vector, {"momentum": momentum}


class VirtualSigner:
    """Signs with a keyed digest instead of a pair of keys: nobody here looks up another's key.

    >>> one, other = VirtualSigner(1), VirtualSigner(2)
    >>> one.verify(2, b"text", other.sign(b"text")), one.verify(2, b"text", one.sign(b"text"))
    (True, False)
    """

    def __init__(self, device: int) -> None:
        self._device = device

    def sign(self, text: bytes) -> str:
        """A signature with this device's key."""
        return _signature(self._device, text)

    def verify(self, device: int, text: bytes, signature: str) -> bool:
        """Did that device sign this text?"""
        return signature == _signature(device, text)


def _signature(device: int, text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=12, key=str(device).encode()).hexdigest()


class Battery:
    """A battery and its meter, which knows exactly what was spent; it outlives crashes.

    Args:
        setup: prices.
        device: whose it is.
        capacity_j: joules that it held at first.
    """

    def __init__(self, setup: Setup, device: int, capacity_j: float) -> None:
        self._setup, self._device, self.capacity_j = setup, device, capacity_j
        self._spent_j = 0.0
        self.forgot_at_j = -1.0  # what was used when a folder was lost
        self.untold_j = 0.0  # spent just before a folder was lost, as far as nobody may know
        self.used_j = 0.0  # by what was really done, which must have been metered

    def left_j(self) -> float:
        """Joules that may still be spent."""
        return self.capacity_j - self._spent_j

    def spent_j(self) -> float:
        """Joules metered so far."""
        return self._spent_j

    def train_j(self, rounds: int) -> float:
        """Joules of local rounds."""
        return rounds * self._setup.round_j(self._device)

    def exchange(self, route: Route, iteration: int) -> None:
        """Every message is paid for by itself, whatever the route."""

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        """Joules of a message."""
        return payload_bytes * self._setup.byte_j(self._device, to)

    def train(self, rounds: int) -> None:
        """Meter local rounds."""
        self._spent_j += self.train_j(rounds)

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        """Meter a message."""
        self._spent_j += self.send_j(to, payload_bytes)

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None:
        """Receiving takes nothing."""

    def recall(self, spent_j: float) -> None:
        """At least so many were spent before."""
        self._spent_j = max(self._spent_j, spent_j)

    def forget(self, spent_j: float, told_j: float) -> None:
        """The meter's own record is lost, or is an older one; neighbours know of so much."""
        self._spent_j, self.forgot_at_j = spent_j, self.used_j
        self.untold_j = self.used_j - told_j

    def use(self, effect: Train | Send) -> None:
        """Really train or send."""
        if isinstance(effect, Train):
            self.used_j += self.train_j(effect.rounds)
        elif isinstance(effect.message, Part | Given):
            self.used_j += self.send_j(effect.to, effect.message.payload.nbytes)


class Disk:
    """Holds the last state that was written; what is on its way is lost in a crash, or is not.

    Args:
        state: before anything is written.
        random: draws how long a write takes, and what a crash leaves.
        latency_s: (shortest, longest) time of a write.
    """

    def __init__(self, state: Durable, random: Random, latency_s: tuple[float, float]) -> None:
        self.state, self.full = state, False
        self._random, self._latency_s = random, latency_s
        self._pending: list[Save] = []
        self._free_at = 0.0

    def write(self, save: Save, now: float) -> float:
        """Begin to write; how long that takes, after the writes before it."""
        low, high = self._latency_s
        self._free_at = max(self._free_at, now) + low + self._random.random() * (high - low)
        self._pending.append(save)
        return self._free_at - now

    def finish(self, save: Save) -> bool:
        """The write is over; False if there was no room."""
        self._pending.remove(save)
        if self.full:
            return False
        self.state = save.state
        return True

    def crash(self) -> list[Durable]:
        """Power is gone: some of the writes on their way had got through, in order."""
        through = self._random.randint(0, len(self._pending)) if not self.full else 0
        survived = [save.state for save in self._pending[:through]]
        self._pending.clear()
        self._free_at = 0.0
        if survived:
            self.state = survived[-1]
        return survived
