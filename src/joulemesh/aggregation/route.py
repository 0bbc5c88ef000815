"""A route: who sends how many bits to whom, in which step.

Every scheme is described in this one form so that one ledger can price it. A route is a *pattern*
of transmissions played ``repeats`` times: a whole-vector ring is N transmissions played N−1 times,
which keeps a route of N² messages as small as N.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["IntArray", "Route", "Transmission"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Transmission = tuple[int, int, int, float]
"""(step, sender, receiver, bits)"""


@dataclass(frozen=True)
class Route:
    """One exchange, as a pattern of transmissions played ``repeats`` times.

    Transmissions of one step are sent from what the senders held before that step. ``step`` is
    sorted; ``forward`` says whether a transmission runs along its edge as stored (from
    ``edges[e, 0]`` to ``edges[e, 1]``) or against it.

    Attributes:
        scheme: name of the scheme that made the route.
        edges: int [E', 2]: the links that the route uses, as rows of the graph's edge list.
        edge: int [M]: index into ``edges`` of each transmission's link.
        forward: bool [M]: direction of each transmission on its link.
        step: int [M]: when it is sent, counted within the pattern.
        bits: float [M]: how much is sent.
        repeats: how often the pattern is played.
        link_index: int [E']: position of each used link in the graph's edge list.
        uses: the paper's K of eqs. `tcp` and `ecp`: how often each link is used.
        root: if sums gather along a tree and the mean is broadcast back, the tree's root; −1
            otherwise.

    >>> route = Route.build("ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
    ...                     forward=[True, True, False], bits=8.0, repeats=2, uses=2)
    >>> list(route.messages())[:3]
    [(0, 0, 1, 8.0), (0, 1, 2, 8.0), (0, 2, 0, 8.0)]
    >>> route.count
    6
    """

    scheme: str
    edges: IntArray
    edge: IntArray
    forward: NDArray[np.bool_]
    step: IntArray
    bits: FloatArray
    repeats: int
    link_index: IntArray
    uses: float
    root: int = -1

    @classmethod
    def build(
        cls,
        scheme: str,
        *,
        edges: object,
        edge: object,
        forward: object,
        step: object,
        bits: object,
        repeats: int,
        uses: float,
        link_index: object = None,
        root: int = -1,
    ) -> Route:
        """A route from anything array-like; ``bits`` may be one number for all transmissions."""
        edges_ = np.asarray(edges, np.int64).reshape(-1, 2)
        edge_ = np.asarray(edge, np.int64).reshape(-1)
        index = np.arange(len(edges_)) if link_index is None else link_index
        return cls(
            scheme=scheme,
            edges=edges_,
            edge=edge_,
            forward=np.broadcast_to(np.asarray(forward, np.bool_), edge_.shape),
            step=np.broadcast_to(np.asarray(step, np.int64), edge_.shape),
            bits=np.broadcast_to(np.asarray(bits, np.float64), edge_.shape),
            repeats=int(repeats),
            link_index=np.asarray(index, np.int64).reshape(-1),
            uses=float(uses),
            root=int(root),
        )

    @property
    def sender(self) -> IntArray:
        """int [M]: the sending device of each transmission of the pattern."""
        return self.edges[self.edge, np.where(self.forward, 0, 1)]

    @property
    def receiver(self) -> IntArray:
        """int [M]: the receiving device of each transmission of the pattern."""
        return self.edges[self.edge, np.where(self.forward, 1, 0)]

    @property
    def steps(self) -> int:
        """Number of steps in one play of the pattern."""
        return int(self.step[-1]) + 1 if len(self.step) else 0

    @property
    def count(self) -> int:
        """Number of transmissions in the whole exchange."""
        return len(self.edge) * self.repeats

    def messages(self) -> Iterator[Transmission]:
        """Every transmission of the exchange, one by one, in order."""
        rows = list(
            zip(
                self.step.tolist(),
                self.sender.tolist(),
                self.receiver.tolist(),
                self.bits.tolist(),
                strict=True,
            )
        )
        for play in range(self.repeats):
            for step, sender, receiver, bits in rows:
                yield play * self.steps + step, sender, receiver, bits
