"""Hamiltonian cycles, exactly: simple proofs that there is none, and a complete search.

``obstacle`` proves in linear time that a graph has no ring. ``exact_cycle`` chooses and cuts links
one by one, with everything that follows from each choice, and takes a wrong choice back: at its
best on sparse graphs, and the only way to prove that a graph without obstacle has no ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from joulemesh.aggregation.route import IntArray
from joulemesh.units import counted

__all__ = ["Obstacle", "exact_cycle", "neighbours", "obstacle"]


def neighbours(edges: IntArray, devices: int) -> list[list[int]]:
    """Adjacency lists of a graph.

    Args:
        edges: int [E, 2], each link once.
        devices: number of devices N.

    Returns:
        For each device its neighbours in ascending order.

    >>> neighbours(np.array([[0, 1], [1, 2]]), 3)
    [[1], [0, 2], [1]]
    """
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
    """A reason why the graph cannot contain a ring through all devices, found in linear time.

    Args:
        edges: int [E, 2], each link once.
        devices: number of devices N.

    Returns:
        The obstacle, or None when none of the simple ones is present.

    >>> obstacle(np.array([[0, 1], [1, 2]]), 3)
    Obstacle(reason='{device} has 1 link, a ring needs 2', device=0)
    """
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
    """Search all rings by choosing and cutting links, up to a limit.

    Args:
        beside: adjacency lists; every device has at least two neighbours.
        limit: how many links may be chosen or cut, counting again after a wrong choice.

    Returns:
        The devices in ring order, or None; whether None is a proof; how many links were handled.

    >>> exact_cycle([[1, 3], [0, 2], [1, 3], [0, 2]], limit=100)
    (array([0, 1, 2, 3]), False, 9)
    """
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
