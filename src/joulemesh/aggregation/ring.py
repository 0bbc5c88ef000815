"""Rings: cycles through all devices, found exactly or by growing one; their schemes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from joulemesh.aggregation.peer import RoutePeer, Summed, Vector
from joulemesh.aggregation.route import IntArray, Route, Subgraph
from joulemesh.aggregation.scheme import Case, Conditions, ExactScheme, Fit, SchemeKind
from joulemesh.aggregation.tree import spanning_tree
from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.base.registry import PAPER, Citation
from joulemesh.base.units import counted
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts


def neighbours(edges: IntArray, devices: int) -> list[list[int]]:
    """Adjacency lists of a graph."""
    beside: list[list[int]] = [[] for _ in range(devices)]
    for i, j in edges.tolist():
        beside[i].append(j)
        beside[j].append(i)
    return [sorted(row) for row in beside]


class Obstacle(NamedTuple):
    """Why a graph has no ring: a sentence, and whom it calls ``{device}``."""

    reason: str
    device: int | None = None


def obstacle(edges: IntArray, devices: int) -> Obstacle | None:
    """A reason why the graph cannot contain a ring through all devices, found in linear time."""
    if devices < 3:
        return Obstacle(f"{counted(devices, 'device')} cannot form a ring, 3 are needed")
    degree = np.bincount(edges.ravel(), minlength=devices)
    lonely = int(np.argmin(degree))
    if degree[lonely] < 2:
        links = counted(int(degree[lonely]), "link")
        return Obstacle(f"{{device}} has {links}, a ring needs 2", lonely)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (devices, devices)).tocsr()
    parts = int(connected_components(graph, directed=False)[0])
    if parts > 1:
        return Obstacle(f"the graph falls into {parts} parts")
    cut = _cut_vertex(neighbours(edges, devices))
    if cut is not None:
        return Obstacle("without {device} the graph falls apart", cut)
    order, parent = breadth_first_order(graph, 0, directed=False)
    side = np.zeros(devices, np.int64)
    for v in order[1:].tolist():
        side[v] = 1 - side[parent[v]]
    left = devices - int(side.sum())
    if 2 * left != devices and bool(np.all(side[edges[:, 0]] != side[edges[:, 1]])):
        return Obstacle(f"links run only between {left} devices and the other {devices - left}")
    return None


def _cut_vertex(beside: list[list[int]]) -> int | None:
    """A device whose removal disconnects the connected graph (Hopcroft and Tarjan, 1973)."""
    n = len(beside)
    found, low, parent = [-1] * n, [0] * n, [-1] * n
    rest = [iter(row) for row in beside]
    found[0], clock, path = 0, 1, [0]
    while path:
        v = path[-1]
        w = next(rest[v], None)
        if w is None:
            path.pop()
            up = parent[v]
            if up >= 0:
                low[up] = min(low[up], low[v])
                # Device 0 is the root: it cuts when the first subtree does not hold all the others.
                if (up and low[v] >= found[up]) or (not up and clock < n):
                    return up
        elif found[w] < 0:
            found[w] = low[w] = clock
            parent[w], clock = v, clock + 1
            path.append(w)
        elif w != parent[v]:
            low[v] = min(low[v], found[w])
    return None


@dataclass
class _Choices:
    """Which links are still possible, which are chosen, and the way back."""

    left: list[set[int]]
    chosen: list[list[int]]
    end: list[int]
    taken: list[tuple[int, int, int, int]] = field(default_factory=list)
    trail: list[tuple[int, int] | None] = field(default_factory=list)
    visited: int = 0

    def settle(self, todo: list[tuple[bool, int, int]]) -> bool:
        """Choose or cut the links of ``todo`` and all that follows; False on a contradiction."""
        while todo:
            take, u, v = todo.pop()
            self.visited += 1
            more = self._take(u, v) if take else self._cut(u, v)
            if more is None:
                return False
            todo += more
        return True

    def _take(self, u: int, v: int) -> list[tuple[bool, int, int]] | None:
        chosen, left, n = self.chosen, self.left, len(self.left)
        if v in chosen[u]:
            return []
        if v not in left[u] or len(chosen[u]) == 2 or len(chosen[v]) == 2:
            return None
        a, b = self.end[u], self.end[v]
        if a == v and len(self.taken) < n - 1:
            return None  # would close a ring that misses a device
        chosen[u].append(v)
        chosen[v].append(u)
        self.end[a], self.end[b] = b, a
        self.taken.append((u, v, a, b))
        self.trail.append(None)
        if len(self.taken) == n:
            return []
        more = [(False, w, x) for w in (u, v) if len(chosen[w]) == 2 for x in left[w]]
        more = [item for item in more if item[2] not in chosen[item[1]]]
        if len(self.taken) == n - 1:
            more.append((True, a, b))
        elif b in left[a] and b not in chosen[a]:
            more.append((False, a, b))
        return more

    def _cut(self, u: int, v: int) -> list[tuple[bool, int, int]] | None:
        if v not in self.left[u]:
            return []
        if v in self.chosen[u] or min(len(self.left[u]), len(self.left[v])) == 2:
            return None
        self.left[u].remove(v)
        self.left[v].remove(u)
        self.trail.append((u, v))
        return [(True, w, x) for w in (u, v) if len(self.left[w]) == 2 for x in self.left[w]]

    def undo(self, mark: int) -> None:
        """Take back everything since the trail had length ``mark``."""
        while len(self.trail) > mark:
            cut = self.trail.pop()
            if cut is not None:
                u, v = cut
                self.left[u].add(v)
                self.left[v].add(u)
                continue
            u, v, a, b = self.taken.pop()
            self.chosen[u].pop()
            self.chosen[v].pop()
            self.end[a], self.end[b] = u, v

    def branch(self) -> tuple[int, int]:
        """The next link to try: from the end of the latest stretch to its tightest neighbour."""
        ends = self.taken[-1][2:] if self.taken else tuple(range(len(self.left)))
        head = min(ends, key=lambda v: (len(self.left[v]), v))
        free = [x for x in self.left[head] if x not in self.chosen[head]]
        return head, min(free, key=lambda x: (len(self.left[x]) - len(self.chosen[x]), x))


def exact_cycle(beside: list[list[int]], limit: int) -> tuple[IntArray | None, bool, int]:
    """Search all rings by choosing and cutting links, up to a limit."""
    n = len(beside)
    choices = _Choices([set(row) for row in beside], [[] for _ in beside], list(range(n)))
    todo = [(True, v, w) for v, row in enumerate(beside) if len(row) == 2 for w in row]
    tried: list[tuple[int, int, int]] = []
    while choices.visited <= limit:
        if choices.settle(todo):
            if len(choices.taken) == n:
                return _follow(choices.chosen), False, choices.visited
            head, x = choices.branch()
            tried.append((len(choices.trail), head, x))
            todo = [(True, head, x)]
        elif tried:
            mark, head, x = tried.pop()
            choices.undo(mark)
            todo = [(False, head, x)]
        else:
            return None, True, choices.visited
    return None, False, choices.visited


def _follow(chosen: list[list[int]]) -> IntArray:
    order = [0, min(chosen[0])]
    while len(order) < len(chosen):
        v, w = chosen[order[-1]]
        order.append(w if v == order[-2] else v)
    return np.array(order, np.int64)


_CROSSING_WIDTH = 24
"""Neighbours whose pairs are tried for a crossing: keeps dense graphs from costing degree²."""

_TURNS = 100
"""Rotations tried for one device that no simpler move takes in."""


@dataclass
class _Cycle:
    """A cycle as a doubly linked list; ``after[v]`` is −1 for a device outside it."""

    beside: list[list[int]]
    near: list[set[int]]
    after: list[int]
    before: list[int]

    @classmethod
    def shortest(cls, beside: list[list[int]]) -> _Cycle:
        """The shortest cycle through device 0 and its first neighbour."""
        goal = beside[0][0]
        parent, queue = {0: -1}, deque([0])
        while goal not in parent:
            v = queue.popleft()
            for w in beside[v]:
                if w not in parent and (v, w) != (0, goal):
                    parent[w] = v
                    queue.append(w)
        path = [goal]
        while path[-1]:
            path.append(parent[path[-1]])
        cycle = cls(beside, [set(row) for row in beside], [-1] * len(beside), [-1] * len(beside))
        cycle._join(*path, goal)
        return cycle

    def _join(self, *stops: int) -> None:
        for v, w in pairwise(stops):
            self.after[v], self.before[w] = w, v

    def absorb(self, v: int) -> list[int]:
        """Lengthen the cycle by v, if one of three moves does it; the devices taken in."""
        touch = [a for a in self.beside[v] if self.after[a] >= 0]
        for a in touch:
            b = self.after[a]
            if b in self.near[v]:
                self._join(a, v, b)
                return [v]
        outside = [x for x in self.beside[v] if self.after[x] < 0]
        for a in touch:
            b, c = self.after[a], self.before[a]
            for x in outside:
                if b in self.near[x]:
                    self._join(a, v, x, b)
                    return [v, x]
                if c in self.near[x]:
                    self._join(c, x, v, a)
                    return [v, x]
        for a, b in combinations(touch[:_CROSSING_WIDTH], 2):
            if self.after[b] in self.near[self.after[a]]:
                self._cross(a, v, b)
                return [v]
            if self.before[b] in self.near[self.before[a]]:
                self._cross(self.before[b], v, self.before[a], far=True)
                return [v]
        return []

    def _cross(self, a: int, v: int, b: int, *, far: bool = False) -> None:
        """Turn the stretch from after a to b round and put v at its near or its far joint."""
        first, beyond = self.after[a], self.after[b]
        w = first
        while w != beyond:
            following = self.after[w]
            self.after[w], self.before[w] = self.before[w], following
            w = following
        if far:
            self._join(a, b)
            self._join(first, v, beyond)
        else:
            self._join(a, v, b)
            self._join(first, beyond)

    def rotate(self, v: int, rng: np.random.Generator, turns: int) -> bool:
        """Open the cycle beside a neighbour of v, append v, and turn the far end until it closes.

        Pósa's rotations (Discrete Math. 14(4), 1976). The cycle is unchanged when they fail.
        """
        touch = [a for a in self.beside[v] if self.after[a] >= 0]
        if not touch:
            return False
        first = touch[int(rng.integers(len(touch)))]
        onward = self.after if rng.integers(2) else self.before
        path = np.array([v, *_walk(onward, first)], np.int64)
        position = np.full(len(self.after), len(path), np.int64)
        position[path] = np.arange(len(path))
        for _ in range(turns):
            tail = int(path[-1])
            if v in self.near[tail]:
                self._join(*path.tolist(), v)
                return True
            pivots = [int(k) for k in position[self.beside[tail]] if k < len(path) - 2]
            if not pivots:
                return False
            good = [k for k in pivots if int(path[k + 1]) in self.near[v]] or pivots
            k = good[int(rng.integers(len(good)))] + 1
            path[k:] = path[k:][::-1].copy()
            position[path[k:]] = np.arange(k, len(path))
        return False

    def swap(self, v: int, rng: np.random.Generator) -> int:
        """Replace a cycle device whose two cycle neighbours are both adjacent to v."""
        replaceable = [
            c
            for a in self.beside[v]
            if (c := self.after[a]) >= 0 and self.after[c] in self.near[v] and self.after[c] != a
        ]
        if not replaceable:
            return v
        c = replaceable[int(rng.integers(len(replaceable)))]
        self._join(self.before[c], v, self.after[c])
        self.after[c] = self.before[c] = -1
        return c


def grow_cycle(beside: list[list[int]], limit: int) -> tuple[IntArray | None, int]:
    """Grow a cycle until it holds every device or no move helps."""
    cycle, rng = _Cycle.shortest(beside), np.random.default_rng(0)
    turns = min(_TURNS, len(beside))
    seen = [follower >= 0 for follower in cycle.after]
    inside = [v for v, known in enumerate(seen) if known]
    waiting: deque[int] = deque()
    size, stalled, visited = 0, 0, 0
    while True:
        size += len(inside)
        for v in inside:
            for w in beside[v]:
                if not seen[w]:
                    seen[w] = True
                    waiting.append(w)
        if size == len(beside):
            return _walk(cycle.after, 0), visited
        if visited >= limit or stalled > 5 * (len(waiting) + 20):
            return None, visited
        v = waiting.popleft()
        if cycle.after[v] >= 0:
            inside = []
            continue
        visited += 1
        inside = cycle.absorb(v)
        # Rotations cost much, and swaps undo the growth's order: both only out of a dead end.
        if not inside and stalled > len(waiting):
            visited += turns
            inside = [v] if cycle.rotate(v, rng, turns) else []
            v = v if inside else cycle.swap(v, rng)
        stalled = 0 if inside else stalled + 1
        if not inside:
            waiting.append(v)


def _walk(after: list[int], start: int) -> IntArray:
    order = [start]
    while (v := after[order[-1]]) != start:
        order.append(v)
    return np.array(order, np.int64)


@dataclass(frozen=True, eq=False)
class RingSearch:
    """What a search for a ring through all devices came to.

    Attributes:
        order: int [N]: the devices in ring order, or None.
        exhausted: with ``order`` None: True when the graph has no ring, False when none was found
            within the limit.
        visited: how many search steps were made (devices looked at, links chosen or cut).
        reason: one line: where the ring came from, or why there is none.
        device: whom the reason calls ``{device}``, or None.
    """

    order: IntArray | None
    exhausted: bool
    visited: int
    reason: str
    device: int | None = None


def find_ring(
    edges: IntArray, devices: int, *, hint: ArrayLike | None = None, limit: int = 200_000
) -> RingSearch:
    """Find a ring through all devices (a Hamiltonian cycle), with bounded effort.

    The result depends on the arguments alone; nothing in it is random.
    """
    edges = _checked(edges, devices)
    if hint is not None:
        order = np.asarray(hint, np.int64).reshape(-1)
        if _is_ring(order, edges, devices):
            return RingSearch(order, False, 0, "the topology names a ring")
    found = obstacle(edges, devices)
    if found is not None:
        return RingSearch(None, True, 0, *found)
    beside = neighbours(edges, devices)
    grown, visited = grow_cycle(beside, limit // 2)
    if grown is not None:
        return RingSearch(grown, False, visited, f"a ring was found in {visited} steps")
    cycle, exhausted, more = exact_cycle(beside, limit - visited)
    visited += more
    if cycle is not None:
        return RingSearch(cycle, False, visited, f"a ring was found in {visited} steps")
    if exhausted:
        why = f"a complete search in {visited} steps shows that there is none"
        return RingSearch(None, True, visited, why)
    return RingSearch(None, False, visited, f"no ring was found within {limit} steps")


def ring_route(order: ArrayLike, edges: IntArray, bits: float) -> Route:
    """The paper's ring: each device passes a whole vector to the next, N−1 times.

    In the first step it passes on its own; in the others, what came in the step before.
    """
    size = np.asarray(order).size
    return _along(order, edges, "ring", bits, repeats=size - 1, uses=size - 1)


def chunked_route(order: ArrayLike, edges: IntArray, bits: float) -> Route:
    """Ring-AllReduce: reduce-scatter, then all-gather, of one N-th of the vector at a time."""
    size = max(1, np.asarray(order).size)
    repeats = 2 * (size - 1)
    return _along(order, edges, "ring-chunked", bits / size, repeats=repeats, uses=repeats / size)


def _along(
    order: ArrayLike, edges: IntArray, scheme: str, bits: float, *, repeats: int, uses: float
) -> Route:
    senders = np.asarray(order, np.int64).reshape(-1)
    links = _links(senders, edges)
    lost = np.flatnonzero(links < 0)
    if len(senders) < 3 or len(np.unique(senders)) != len(senders) or len(lost):
        fault = f"no link from device {senders[lost[0]]} to the next" if len(lost) else "no cycle"
        raise ScenarioError(
            f"the order of {len(senders)} devices is not a ring of the graph ({fault}); "
            "take the order that find_ring gives"
        )
    return Route.build(
        scheme,
        edges=edges[links],
        edge=np.arange(len(senders)),
        forward=senders < np.roll(senders, -1),
        step=0,
        bits=bits,
        repeats=repeats,
        uses=uses,
    ).on_links(links)


def _links(order: IntArray, edges: IntArray) -> IntArray:
    """int [N]: the row of the link from each device of the order to the next, −1 where none."""
    following = np.roll(order, -1)
    if not len(edges):
        return np.full(len(order), -1, np.int64)
    base = int(max(edges.max(), order.max(initial=0))) + 1
    keys = edges[:, 0] * base + edges[:, 1]
    wanted = np.minimum(order, following) * base + np.maximum(order, following)
    rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[rows] == wanted, rows, -1)


def _is_ring(order: IntArray, edges: IntArray, devices: int) -> bool:
    return (
        devices >= 3
        and np.array_equal(np.sort(order), np.arange(devices))
        and bool(np.all(_links(order, edges) >= 0))
    )


def _checked(edges: IntArray, devices: int) -> IntArray:
    edges = np.asarray(edges, np.int64).reshape(-1, 2)
    wrong = (edges[:, 0] < 0) | (edges[:, 0] >= edges[:, 1]) | (edges[:, 1] >= devices)
    if np.any(wrong):
        i, j = edges[np.argmax(wrong)].tolist()
        raise ScenarioError(
            f"link ({i}, {j}) does not fit a graph of {devices} devices; "
            f"name two devices i < j in 0..{devices - 1}"
        )
    return edges


@dataclass(frozen=True, eq=False)
class Ring(ExactScheme):
    """Whole vectors travel around a ring.

    Attributes:
        order: int [A]: the devices in ring order, in the subgraph's numbers.
    """

    order: IntArray

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Around the ring, whatever the links cost."""
        return self.graph.in_whole(ring_route(self.order, self.graph.edges, self.bits))

    def peer(self, device: int, route: Route) -> RingPeer:
        """A device of the ring."""
        return RingPeer(device, route)


class RingPeer(RoutePeer):
    """Passes on what came, and adds everything up in the end, in the order of the devices.

    Partial sums, which are of the same size, would be added up from another device on by each, and
    the devices' means would differ in their last bits.
    """

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        before = dict(zip(route.receiver.tolist(), route.sender.tolist(), strict=True))
        self._origin: list[int] = []  # of what comes, by step
        for _ in range(self.steps):
            self._origin.append(before[self._origin[-1] if self._origin else device])

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P]."""
        super().start(own)
        self._vectors = {self.device: own}

    def summed(self, step: int, to: int) -> Summed:
        """A device's own vector."""
        return Summed(0, 1, 1.0)

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Keep what came, which is sent next."""
        (self.held,) = arrived.values()
        self._vectors[self._origin[step]] = self.held

    def instead(self, step: int, sender: int) -> Vector:
        """This device's own vector, which it passes on in the place of the lost one."""
        return self._vectors[self.device]

    def result(self) -> Vector:
        """The mean of all devices."""
        first, *others = [self._vectors[device] for device in sorted(self._vectors)]
        return sum(others, start=first) / len(self._vectors)


def fit_ring(graph: Subgraph, options: PlanOptions) -> Fit:
    """Look for a ring through all devices, within ``plan.ring_search_limit`` steps."""
    search = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=options.ring_search_limit)
    if search.order is not None:
        return Fit(reason=search.reason, order=search.order)
    doubt = "" if search.exhausted else ", which does not prove that none exists"
    more = "" if search.exhausted else ", or a larger plan.ring_search_limit find one"
    return Fit(
        possible=False,
        reason=search.reason,
        device=search.device,
        refusal=f"needs a ring through all devices: {search.reason}{doubt} (more links may make "
        f"one{more})",
        remedies=((Edit("plan.aggregation", "tree"),),),  # every connected graph has one
    )


def order_of(fit: Fit) -> IntArray:
    """The ring that `fit_ring` found."""
    assert fit.order is not None
    return fit.order


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Ring:
    graph, bits, width = conditions.graph, conditions.bits, conditions.width
    return Ring(RING, reason, graph, bits, order_of(fit), width=width)


RING = SCHEMES.register(
    SchemeKind(
        "ring",
        "whole vectors travel around a ring of all devices",
        _ready,
        words="around a ring",
        fit=fit_ring,
        quantises=True,
        case=Case(
            2,
            "the channel is unknown, so that links cannot be chosen by their energy, and the "
            "graph contains a ring: {fit} (Theorem 3, case 2)",
        ),
        citation=PAPER,
    )
)


@dataclass(frozen=True, eq=False)
class RingChunked(ExactScheme):
    """Chunks of the vectors travel around a ring, twice.

    Attributes:
        order: int [A]: the devices in ring order, in the subgraph's numbers.
    """

    order: IntArray

    def parts(self, route: Route) -> int:
        """As many chunks as devices."""
        return self.graph.devices

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Around the ring, whatever the links cost."""
        bits = self.bits_in(self.graph.devices)
        return self.graph.in_whole(chunked_route(self.order, self.graph.edges, bits))

    def peer(self, device: int, route: Route) -> RingChunkedPeer:
        """A device of the ring."""
        return RingChunkedPeer(device, route)


class RingChunkedPeer(RoutePeer):
    """Adds its own to a chunk and passes it on; then passes on chunks that are complete."""

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        order = route.sender.tolist()
        self._count, self._position = len(order), order.index(device)

    def start(self, own: Vector) -> None:
        """Begin with this device's own parameters, [P], of which some chunks may be empty."""
        super().start(own)
        self._chunks = np.array_split(own, self._count)

    def summed(self, step: int, to: int) -> Summed:
        """A chunk of a sum, on its way and when it is complete."""
        return Summed(self._chunk(self._position, step), self._count, 1.0)

    def payload(self, step: int) -> Vector:
        """The chunk that this device sends in a step."""
        return self._chunks[self._chunk(self._position, step)]

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Add to the chunk that came, or replace it if it is complete."""
        (payload,) = arrived.values()
        chunk = self._chunk(self._position - 1, step)
        gathered = step >= self._count - 1
        self._chunks[chunk] = payload if gathered else self._chunks[chunk] + payload

    def instead(self, step: int, sender: int) -> Vector:
        """The device's own chunk for each vector in a lost sum; or the sum as it left this device.

        What it lacks to a sum of all N is made up by its mean.
        """
        count, chunk = self._count, self._chunk(self._position - 1, step)
        if step < count - 1:
            return (step + 1) * self._chunks[chunk]
        came = (self._position - 1 - chunk) % count  # the step of reduce-scatter in which it did
        added = came + 2 if came < count - 1 else 1
        return self._chunks[chunk] * (count / added)

    def result(self) -> Vector:
        """All chunks are complete sums."""
        return np.concatenate(self._chunks) / self._count

    def _chunk(self, position: int, step: int) -> int:
        """Which chunk the device at a position of the ring sends in a step.

        It begins with its own; the last that it completes is the first that it spreads.
        """
        count = self._count
        turn = step if step < count - 1 else step - count
        return (position - turn) % count


def _ready_in_chunks(conditions: Conditions, fit: Fit, reason: str) -> RingChunked:
    graph, bits, width = conditions.graph, conditions.bits, conditions.width
    return RingChunked(RING_CHUNKED, reason, graph, bits, order_of(fit), width=width)


def _least(conditions: Conditions) -> tuple[float, float]:
    """Joules and seconds of an exchange at the least, whichever ring is found.

    Every device sends over one of its links. A ring less one link is a spanning tree, so that its
    slowest link is not faster than that of the tree whose slowest link is the fastest.
    """
    graph = conditions.graph
    count = graph.devices
    own = graph.own(conditions.costs).for_messages(conditions.bits / count)
    cheapest = np.full(count, np.inf)
    forward_j, backward_j = own.both_ends_j()
    np.minimum.at(cheapest, graph.edges[:, 0], forward_j)
    np.minimum.at(cheapest, graph.edges[:, 1], backward_j)
    faster = np.minimum(own.forward_s, own.backward_s)
    slowest = faster[spanning_tree(graph.edges, faster, count)].max()
    bits = conditions.bits * 2 * (count - 1) / count
    return float(bits * cheapest.sum()), float(bits * slowest)


RING_CHUNKED = SCHEMES.register(
    SchemeKind(
        "ring-chunked",
        "Ring-AllReduce: chunks of the vectors are summed and spread around a ring",
        _ready_in_chunks,
        words="around a ring in chunks",
        fit=fit_ring,
        advised=True,
        quantises=True,
        least=_least,
        citation=Citation(
            "Patarasuk, Yuan",
            "Bandwidth Optimal All-Reduce Algorithms for Clusters of Workstations",
            2009,
            "Journal of Parallel and Distributed Computing 69(2):117-124",
            doi="10.1016/j.jpdc.2008.09.002",
            names="Patarasuk, Pitch and Yuan, Xin",
        ),
    )
)
