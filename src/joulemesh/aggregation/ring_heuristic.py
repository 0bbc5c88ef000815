"""A quick heuristic for a Hamiltonian cycle: grow a cycle by one or two devices at a time.

Made for graphs with many short cycles, such as devices scattered over an area, where every device
has a neighbour link to slip into and thousands of devices take a fraction of a second.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from joulemesh.aggregation.route import IntArray

__all__ = ["grow_cycle"]

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
        """Replace a cycle device whose two cycle neighbours are both adjacent to v.

        Returns:
            The device removed, or v if there is none.
        """
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
    """Grow a cycle until it holds every device or no move helps.

    Args:
        beside: adjacency lists of a graph without ``obstacle``.
        limit: how many devices may be looked at, a device counting each time.

    Returns:
        The devices in ring order, or None; and how many were looked at.

    >>> grow_cycle([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], limit=100)[0].tolist()
    [0, 3, 1, 2]
    """
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
