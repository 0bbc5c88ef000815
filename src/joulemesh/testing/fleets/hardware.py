"""What a virtual device is made of: a learner, a battery and a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.effects import Commit, Durable
from joulemesh.deploy.messages import Given, Message, Part
from joulemesh.testing.fleets.setup import Setup

Memory = Mapping[str, NDArray[Any]]


def train(device: int, iteration: int, rounds: int, start: Commit) -> tuple[Vector, Memory]:
    """Pretend to train: a function of its arguments that forgets little and repeats nothing.

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


AUTHORITY = -1
"""Signs as the fleet's authority, in the place of a device."""


class VirtualSigner:
    """Signs with a keyed digest instead of a pair of keys: nobody here looks up another's key.

    >>> one, other = VirtualSigner(1), VirtualSigner(2)
    >>> one.verify(2, b"text", other.sign(b"text")), one.verify(2, b"text", one.sign(b"text"))
    (True, False)
    """

    def __init__(self, device: int) -> None:
        self._device = device

    def sign(self, text: bytes) -> str:
        return _signature(self._device, text)

    def verify(self, device: int, text: bytes, signature: str) -> bool:
        return signature == _signature(device, text)

    def authorised(self, text: bytes, signature: str) -> bool:
        """Did the fleet's authority sign this text?"""
        return signature == _signature(AUTHORITY, text)


def _signature(device: int, text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=12, key=str(device).encode()).hexdigest()


class Battery:
    """A battery and its meter: a `RunMeter`."""

    iteration, measures, source = 1, False, "virtual"

    def __init__(self, setup: Setup, device: int, capacity_j: float) -> None:
        self._setup, self._device, self.capacity_j = setup, device, capacity_j
        self._spent_j = 0.0
        self.forgot_at_j = -1.0  # what was used when a folder was lost
        self.untold_j = 0.0  # spent just before a folder was lost, as far as nobody may know
        self.used_j = 0.0  # by what was really done, whatever was metered
        self.when_unread: Callable[[str], None] = lambda reason: None

    def begin(self, spent_j: float) -> None:
        """The process is started, and knows what may have been spent before."""
        self._spent_j = spent_j

    def left_j(self) -> float:
        return self.capacity_j - self._spent_j

    def spent_j(self) -> float:
        return self._spent_j

    def train_j(self, rounds: int) -> float:
        return rounds * self._setup.round_j(self._device)

    def exchange(self, route: Route, iteration: int) -> None:
        """Every message is paid for by itself, whatever the route."""

    def rest(self, iteration: int, seconds: float) -> None: ...

    def close(self) -> None: ...

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        return payload_bytes * self._setup.byte_j(self._device, to)

    def train(self, rounds: int) -> None:
        self._spent_j += self.train_j(rounds)

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        self._spent_j += self.send_j(to, payload_bytes)

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None: ...

    def recall(self, spent_j: float) -> None:
        self._spent_j = max(self._spent_j, spent_j)

    def forget(self, spent_j: float, told_j: float) -> None:
        """The meter's own record is lost, or is an older one; neighbours know of so much."""
        self._spent_j, self.forgot_at_j = spent_j, self.used_j
        self.untold_j = max(0.0, self.used_j - told_j)

    def use_to_train(self, rounds: int) -> None:
        self.used_j += self.train_j(rounds)

    def use_to_send(self, to: int, message: Message) -> None:
        if isinstance(message, Part | Given):
            self.used_j += self.send_j(to, message.payload.nbytes)


class Ceiling:
    """What may have been spent by the time of a crash; see `joulemesh.deploy.device.store`."""

    def __init__(self, capacity_j: float) -> None:
        self.joules, self._far_j, self._stride_j = 0.0, 0.0, capacity_j / 200.0

    def raise_over(self, spent_j: float, ahead_j: float = 0.0) -> None:
        """Make room for spending, before it is done."""
        if spent_j > self.joules:
            self.joules = spent_j + ahead_j
            if self.joules > self._far_j:
                self._far_j = self.joules + self._stride_j

    def settle(self, spent_j: float) -> None:
        self.joules = self._far_j = spent_j

    def crash(self, *, power_cut: bool) -> None:
        """What outlives a process, and what outlives the machine."""
        if power_cut:
            self.joules = self._far_j


class VirtualLearner:
    """Pretends to train, in virtual time.

    Attributes:
        slow: factor of its seconds
        hangs: does its training never end?
        raises: does it fail?
        iteration: the last that it was asked to train
    """

    def __init__(self, setup: Setup, device: int, battery: Battery) -> None:
        self._setup, self._device, self._battery = setup, device, battery
        self.slow, self.hangs, self.raises, self.iteration = 1.0, False, False, 0
        self._random = Random(f"learner {device}")
        self._time = 0.0
        self._vector: Vector = np.zeros(setup.size)
        self._memory: Memory = {}

    def time(self) -> float:
        return self._time

    def parameters(self) -> Vector:
        return self._vector

    def load(self, parameters: Vector) -> None:
        self._vector = parameters

    def train(self, iteration: int, rounds: int) -> None:
        self.iteration = iteration
        self._battery.use_to_train(rounds)
        seconds = rounds * self._setup.round_s(self._device) * self.slow
        self._time += seconds * (0.8 + 0.4 * self._random.random())
        if self.raises:
            raise RuntimeError("it diverged")
        start = Commit(iteration - 1, self._vector, self._memory)
        self._vector, self._memory = train(self._device, iteration, rounds, start)

    def evaluate(self) -> Mapping[str, float]:
        return {}

    def save(self) -> Memory:
        return self._memory

    def restore(self, memory: Memory) -> None:
        self._memory = memory


class Disk:
    """Holds the last state that was written; what is on its way is lost in a crash, or is not."""

    def __init__(self, state: Durable, random: Random, latency_s: tuple[float, float]) -> None:
        self.state, self.full = state, False
        self._random, self._latency_s = random, latency_s
        self._pending: list[Callable[[], Any]] = []
        self._free_at = 0.0

    def write(self, action: Callable[[], Any], now: float) -> float:
        """Begin to write; how long that takes, after the writes before it."""
        low, high = self._latency_s
        self._free_at = max(self._free_at, now) + low + self._random.random() * (high - low)
        self._pending.append(action)
        return self._free_at - now

    def finish(self, action: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        self._pending.remove(action)
        try:
            return action(), None
        except ScenarioError as error:
            return None, error

    def finish_all(self) -> None:
        """A process that ends in order waits for what it has given to the disk."""
        while self._pending:
            self.finish(self._pending[0])
        self._free_at = 0.0

    def crash(self) -> None:
        """Power is gone: some of the writes on their way had got through, in order."""
        through = self._random.randint(0, len(self._pending)) if not self.full else 0
        for action in self._pending[:through]:
            action()
        self._pending.clear()
        self._free_at = 0.0
