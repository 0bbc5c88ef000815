"""Who sends what to whom in one exchange, and the part of the graph in which it happens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.world.links import LinkCosts, packets_of
from joulemesh.world.topology import Graph

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

Transmission = tuple[int, int, int, float]
"""(step, sender, receiver, bits)"""


@dataclass(frozen=True, eq=False)
class Route:
    """One exchange, as a pattern of transmissions played ``repeats`` times.

    Transmissions of one step are sent from what the senders held before that step. ``step`` is
    sorted; ``forward`` says whether a transmission runs along its edge as stored (from
    ``edges[e, 0]`` to ``edges[e, 1]``) or against it.

    A pipelined route (``chunks`` > 1) cuts what it sends into that many equal chunks. Each chunk
    travels the whole pattern, one step behind the chunk before it; it waits for nothing but its own
    earlier messages and for its links, which carry the chunks in order. Messages of one step that
    meet at a device in half duplex take turns in the order of their links in ``edges``.

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
        chunks: number of chunks in which the pattern is sent; with more than one, the pattern is
            played once, and uses each link at most once in each direction.
        same_to_all: is all that a device sends in one step the same, so that one broadcast can
            carry it to all of its receivers?
        often: float [M]: how often each transmission is sent, over the number that its costs
            expect; None for once.

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
    chunks: int = 1
    same_to_all: bool = False
    often: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.chunks == 1:
            return
        if self.chunks < 1 or self.repeats != 1:
            raise ValueError(
                f"a route of {self.chunks} chunks that is played {self.repeats} times; give at "
                "least one chunk, and play a pipelined route once"
            )
        if np.bincount(2 * self.edge + self.forward).max(initial=0) > 1:
            raise ValueError(
                "a pipelined route uses a link twice in one direction, so that its chunks would "
                "meet there; use each direction once, or send one chunk"
            )

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
    ) -> Route:
        """A route from anything array-like; ``bits`` may be one number for all transmissions.

        It runs over all links of a graph, in their order; see `on_links`, `rooted`, `in_chunks` and
        `for_all`.
        """
        edges_ = np.asarray(edges, np.int64).reshape(-1, 2)
        edge_ = np.asarray(edge, np.int64).reshape(-1)
        return cls(
            scheme=scheme,
            edges=edges_,
            edge=edge_,
            forward=np.broadcast_to(np.asarray(forward, np.bool_), edge_.shape),
            step=np.broadcast_to(np.asarray(step, np.int64), edge_.shape),
            bits=np.broadcast_to(np.asarray(bits, np.float64), edge_.shape),
            repeats=int(repeats),
            link_index=np.arange(len(edges_)),
            uses=float(uses),
        )

    def on_links(self, link_index: object) -> Route:
        """This route over some links of a graph: ``edges`` are its links of these numbers."""
        return replace(self, link_index=np.asarray(link_index, np.int64).reshape(-1))

    def rooted(self, root: int) -> Route:
        """This route, which gathers sums along a tree to a root and broadcasts the mean back."""
        return replace(self, root=int(root))

    def in_chunks(self, chunks: int) -> Route:
        """This route, pipelined in so many chunks."""
        return replace(self, chunks=int(chunks))

    def for_all(self) -> Route:
        """This route, in which a device sends the same to all of its receivers of a step."""
        return replace(self, same_to_all=True)

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
    def length(self) -> int:
        """Number of steps in the whole exchange."""
        return self.steps * self.repeats + self.chunks - 1 if len(self.step) else 0

    @property
    def count(self) -> int:
        """Number of transmissions in the whole exchange."""
        return len(self.edge) * self.repeats * self.chunks

    @property
    def message_bits(self) -> FloatArray:
        """float64 [M]: size of the messages of each transmission: of a chunk, if it has several."""
        return self.bits if self.chunks == 1 else self.bits / self.chunks

    def seconds(self, costs: LinkCosts) -> FloatArray:
        """float64 [M]: time that each transmission of the pattern takes, all chunks together."""
        return self._of(costs, costs.forward_s, costs.backward_s, "s")

    def joules(self, costs: LinkCosts) -> FloatArray:
        """float64 [M]: energy that each transmission of the pattern takes, all chunks together."""
        return self._of(costs, costs.forward_j, costs.backward_j, "j")

    def receive_joules(self, costs: LinkCosts) -> FloatArray | None:
        """float64 [M]: energy that receiving each transmission takes; None where it is free."""
        forward, backward = costs.forward_receive_j, costs.backward_receive_j
        if forward is None or backward is None:
            if costs.message is None or costs.message.forward_receive_j is None:
                return None
            forward = backward = np.zeros_like(costs.forward_s)
        return self._of(costs, forward, backward, "receive_j")

    def _of(
        self, costs: LinkCosts, forward: FloatArray, backward: FloatArray, figure: str
    ) -> FloatArray:
        """float64 [M]: a figure of each transmission, from that of a bit in both directions."""
        link, bits = self.link_index[self.edge], self.bits
        if costs.packet is not None:
            packets = self.chunks * packets_of(self.message_bits, costs.packet_bits)
            bits = bits + packets * costs.packet[link, np.where(self.forward, 0, 1)]
        if self.often is not None:
            bits = bits * self.often
        total = np.where(self.forward, forward[link], backward[link]) * bits
        if costs.message is None:
            return total
        there, back = (getattr(costs.message, f"{way}_{figure}") for way in ("forward", "backward"))
        if there is None:
            return total
        handled: FloatArray = np.where(self.forward, there[link], back[link]) * self.chunks
        return total + (handled if self.often is None else handled * self.often)

    def messages(self) -> Iterator[Transmission]:
        """Every transmission of the exchange, one by one, in order."""
        if self.chunks > 1:
            for step, _, sender, receiver, bits in self.chunk_messages():
                yield step, sender, receiver, bits
            return
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

    def chunk_messages(self) -> Iterator[tuple[int, int, int, int, float]]:
        """`messages` of a pipelined route: (step, chunk, sender, receiver, bits of the chunk)."""
        sender, receiver, bits = self.sender, self.receiver, self.bits / self.chunks
        for step, chunk, row in self.chunk_rows():
            yield step, chunk, int(sender[row]), int(receiver[row]), float(bits[row])

    def chunk_rows(self) -> Iterator[tuple[int, int, int]]:
        """The order of `chunk_messages`: (step, chunk, row of the pattern)."""
        for step in range(self.length):  # every chunk is at another step of the pattern
            low, high = np.searchsorted(self.step, [step - self.chunks + 1, step + 1])
            for row in (low + np.argsort(self.edge[low:high], kind="stable")).tolist():
                yield step, step - int(self.step[row]), row


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Some devices of a graph and the links among them, under their own numbers.

    Attributes:
        devices: number A of devices.
        edges: int64 [E', 2], i < j < A, sorted.
        ring: a ring that is known to run through all of them, or None.
        part: `members` and `links`; None for the whole graph, which needs no other numbers.
    """

    devices: int
    edges: IntArray
    ring: IntArray | None
    part: tuple[IntArray, IntArray] | None = None

    @classmethod
    def of(
        cls,
        graph: Graph,
        active: NDArray[np.bool_] | None = None,
        cut: NDArray[np.bool_] | None = None,
    ) -> Subgraph:
        """The subgraph of the active devices (all of them by default).

        Args:
            graph: the whole.
            active: bool [N]: who takes part.
            cut: bool [E]: links that carry nothing; none by default.

        >>> graph = Graph(3, np.array([[0, 1], [0, 2], [1, 2]]), np.zeros((3, 2)))
        >>> part = Subgraph.of(graph, np.array([True, False, True]))
        >>> part.edges.tolist(), part.members.tolist(), part.links.tolist()
        ([[0, 1]], [0, 2], [1])
        """
        whole = cut is None or not cut.any()
        if whole and (active is None or active.all()):
            return cls(graph.devices, graph.edges, graph.ring)
        active = np.ones(graph.devices, np.bool_) if active is None else active
        members = np.flatnonzero(active)
        number = np.full(graph.devices, -1)
        number[members] = np.arange(len(members))
        joined = active[graph.edges].all(axis=1)
        links = np.flatnonzero(joined if cut is None else joined & ~cut)
        return cls(len(members), number[graph.edges[links]], None, (members, links))

    @property
    def members(self) -> IntArray:
        """int64 [A]: each device's number in the whole graph."""
        return np.arange(self.devices) if self.part is None else self.part[0]

    @property
    def links(self) -> IntArray:
        """int64 [E']: each link's position in the whole graph's edge list."""
        return np.arange(len(self.edges)) if self.part is None else self.part[1]

    def own(self, costs: LinkCosts) -> LinkCosts:
        """Select this subgraph's links from costs given for the whole graph."""
        return costs if self.part is None else costs.take(self.part[1])

    def in_whole(self, route: Route) -> Route:
        """A route of this subgraph under the whole graph's numbers."""
        if self.part is None:
            return route
        members, links = self.part
        return dataclasses.replace(
            route,
            edges=members[route.edges],
            link_index=links[route.link_index],
            root=int(members[route.root]) if route.root >= 0 else -1,
        )
