"""A network within one event loop, and small stand-ins for what a node is driven with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.device.learner import Training
from joulemesh.deploy.device.meter import Modelled, Tariff
from joulemesh.deploy.device.runner import Planner, Tools
from joulemesh.deploy.device.store import Ceiling, Owner, Store
from joulemesh.deploy.effects import Planned
from joulemesh.deploy.messages import Message
from joulemesh.deploy.transport import Reason, Receive, TransportError
from joulemesh.deploy.view import View


class Loopback:
    """A device's place in a network that is a dictionary."""

    def __init__(self, device: int, network: dict[int, Receive]) -> None:
        self.device, self.network = device, network

    async def start(self, receive: Receive) -> None:
        self.network[self.device] = receive

    async def send(self, to: int, message: Message, within_s: float) -> None:
        until = asyncio.get_running_loop().time() + within_s
        await asyncio.sleep(0)
        while to not in self.network:
            if asyncio.get_running_loop().time() > until:
                raise TransportError(Reason.LATE, f"device {to} is away")
            await asyncio.sleep(0.005)
        self.network[to](self.device, message)

    async def close(self) -> None:
        self.network.pop(self.device, None)


class ToyLearner:
    """Moves its parameters by what it is told, and remembers how often."""

    def __init__(self, device: int = 0, size: int = 3) -> None:
        self.device, self.at, self.count = device, np.zeros(size), 0

    def parameters(self) -> NDArray[Any]:
        return self.at

    def load(self, parameters: NDArray[Any]) -> None:
        self.at = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        for step in range(rounds):
            draw = np.random.default_rng([self.device, iteration, step])
            self.at += draw.normal(size=self.at.shape)
        self.count += 1

    def evaluate(self) -> Mapping[str, float]:
        return {"accuracy": float(self.at.sum())}

    def save(self) -> Mapping[str, NDArray[Any]]:
        return {"count": np.array(self.count)}

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        self.count = int(memory["count"]) if memory else 0


class NoPlans:
    def answer(self, view: View) -> Planned:
        return Planned(view, None, "none here")


FREE = Tariff(1.0, lambda to, t, bits: 0.5, lambda sender, t, bits: 0.0)


def tools(
    folder: Path,
    *,
    learner: Any = None,
    network: dict[int, Receive] | None = None,
    planner: Planner | None = None,
) -> Tools:
    return Tools(
        transport=Loopback(0, {} if network is None else network),
        store=Store(folder, Owner("fleet", "plan", 0)),
        training=Training(learner or ToyLearner()),
        planner=planner or NoPlans(),
        meter=Modelled(100.0, FREE),
        ceiling=Ceiling(folder),
        journal=Journal(folder),
    )
