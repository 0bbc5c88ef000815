"""A device of the pipelined tree."""

from __future__ import annotations

import numpy as np

from joulemesh.aggregation.peer import Message, Vector
from joulemesh.aggregation.route import IntArray, Route
from joulemesh.aggregation.tree import branch_sizes

__all__ = ["TreeChunkedPeer"]


class TreeChunkedPeer:
    """Adds its own chunk to those of its children, passes it on, and takes that of the mean.

    It needs no step to be over: a chunk can go as soon as it is complete (`due`), and a message may
    arrive at any time. Chunks are added up in the order of their senders, so that sums do not
    depend on which came first.

    Args:
        device: its number in the whole graph.
        route: to a root and back, in chunks.

    >>> route = Route.build("tree-chunked", edges=[[0, 1]], edge=[0, 0], forward=[True, False],
    ...                     step=[0, 1], bits=8.0, repeats=1, uses=2).rooted(1).in_chunks(2)
    >>> peer = TreeChunkedPeer(1, route)
    >>> peer.start(np.array([3.0, 5.0]))
    >>> peer.receive(1, 0, np.array([1.0]))  # its second chunk came first
    >>> peer.due()
    [(2, 0, array([3.]))]
    >>> peer.send(1)
    Traceback (most recent call last):
    ...
    RuntimeError: device 1 lacks a message of chunk 0 that it needs in step 1; wait for it
    """

    def __init__(self, device: int, route: Route) -> None:
        self.device, self.chunks = device, route.chunks
        self._root = device == route.root
        self._route = route
        self._count = len(np.unique(route.edges))
        sender, receiver = route.sender, route.receiver
        half = route.steps // 2  # steps of the way up; the others are the way down
        self._to = self._steps(route, sender, receiver)
        self._from = self._steps(route, receiver, sender)
        self._children = sorted(other for other, step in self._from.items() if step < half)
        self._up = {other for other, step in self._to.items() if step < half}

    def _steps(self, route: Route, own: IntArray, other: IntArray) -> dict[int, int]:
        """The devices at the other end of this device's messages, each with its step."""
        rows = np.flatnonzero(own == self.device)
        return dict(zip(other[rows].tolist(), route.step[rows].tolist(), strict=True))

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P], of which some chunks may be empty."""
        self._own = np.array_split(own, self.chunks)
        self._arrived: list[dict[int, Vector]] = [{} for _ in range(self.chunks)]
        self._sum: dict[int, Vector] = {}
        self._mean: dict[int, Vector] = {}
        self._complete: list[tuple[int, bool]] = []  # chunks not given by `due`: sum, or mean?
        for chunk in range(self.chunks):
            self._add_up(chunk)

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        """Take a message that was sent in a step."""
        chunk = step - self._from.get(sender, step + 1)
        if not 0 <= chunk < self.chunks or sender in self._arrived[chunk]:
            raise RuntimeError(
                f"device {self.device} expects no message of device {sender} in step {step} of "
                "the exchange; carry each message of the route once"
            )
        self._arrived[chunk][sender] = payload
        if sender in self._children:
            self._add_up(chunk)
        else:
            self._mean[chunk] = payload
            self._complete.append((chunk, False))

    def lose(self, step: int, sender: int) -> None:
        """Go on without a chunk that was lost, as the devices of the plain tree do."""
        chunk = step - self._from.get(sender, step + 1)
        if not 0 <= chunk < self.chunks:
            raise RuntimeError(
                f"device {self.device} awaits no message of device {sender} in step {step} of the "
                "exchange, and cannot lose it"
            )
        sizes = branch_sizes(self._route)
        if sender in self._children:
            self.receive(step, sender, sizes[sender] * self._own[chunk])
        else:
            self.receive(step, sender, self._sum[chunk] / sizes[self.device])

    def _add_up(self, chunk: int) -> None:
        """The sum of the devices below and this one, once all children have sent theirs."""
        arrived = self._arrived[chunk]
        if any(child not in arrived for child in self._children):
            return
        total = self._own[chunk]
        for child in self._children:
            total = total + arrived[child]
        self._sum[chunk] = total
        self._complete.append((chunk, True))
        if self._root:
            self._mean[chunk] = total / self._count
            self._complete.append((chunk, False))

    def _payload(self, chunk: int, to: int) -> Vector | None:
        """What is sent of a chunk: the sum to the parent, the mean to a child; None as yet."""
        return (self._sum if to in self._up else self._mean).get(chunk)

    def send(self, step: int) -> list[Message]:
        """The messages of this device in a step."""
        found = []
        for to, first in self._to.items():
            chunk = step - first
            if 0 <= chunk < self.chunks:
                payload = self._payload(chunk, to)
                if payload is None:
                    raise RuntimeError(
                        f"device {self.device} lacks a message of chunk {chunk} that it needs in "
                        f"step {step}; wait for it"
                    )
                found.append((to, payload))
        return found

    def due(self) -> list[tuple[int, int, Vector]]:
        """Messages that can go now, each given once: (step, receiver, what is sent to it)."""
        complete, self._complete = self._complete, []
        return [
            (first + chunk, to, (self._sum if up else self._mean)[chunk])
            for chunk, up in complete
            for to, first in self._to.items()
            if (to in self._up) == up
        ]

    def finish(self) -> Vector:
        """The device's parameters after the exchange, [P]."""
        if not self._from:  # alone, or not on the route: nothing to average
            return np.concatenate(self._own)
        if len(self._mean) < self.chunks:
            raise RuntimeError(
                f"device {self.device} has {len(self._mean)} of {self.chunks} chunks of the mean; "
                "wait for the others"
            )
        return np.concatenate([self._mean[chunk] for chunk in range(self.chunks)])
