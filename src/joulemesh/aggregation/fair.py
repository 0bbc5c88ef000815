"""Spanning trees by whose battery pays: the least worst share of a battery, in one tree or in turn.

A device pays for its links of a tree, so that the minimum spanning tree empties the batteries of
its hubs first. What counts here is the largest share of any battery that an exchange takes. It is
minimised over mixtures of trees as a zero-sum game: devices set prices, the tree that is cheapest
at these prices answers, and prices rise where its shares are large (multiplicative weights). Each
answer is a minimum spanning tree. Its cost at those prices is a bound that no mixture of trees goes
below (notes: fair-trees). The best single answer is improved link by link; in rotation, trees are
added one by one where the shares so far ask for them, so that every beginning is even.
"""

from __future__ import annotations

__all__ = ["ROTATED", "LinkShares", "TreeRule", "fair_tree", "fair_trees"]

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from joulemesh.world.links import LinkCosts

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Spanning = Callable[[FloatArray], IntArray]
"""The minimum spanning tree by some weights of the links: sorted positions of its links."""

ROTATED = 8  # trees in rotation
_STEPS = 32  # of the game
_LOOKS = 2_000_000  # at links, in all steps of a game on a large graph
_FEWEST = 6
_RATE, _TURN = 0.7, 2.5  # how fast prices rise, in the game and in rotation
_TOGETHER = 1e-3  # of the price: joules of all devices, so that free batteries waste nothing
_IMPROVED = 400  # devices up to which single trees are improved link by link
_STARTS = 4  # trees that are improved
_LESS = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class LinkShares:
    """What one bit both ways on each link takes of the batteries at its two ends."""

    edges: IntArray  # [E, 2]
    share: FloatArray  # [E, 2]: of the battery of each end
    joules: FloatArray  # [E]
    devices: int

    @classmethod
    def of(
        cls, edges: IntArray, costs: LinkCosts, battery_j: FloatArray, devices: int
    ) -> LinkShares:
        """By the price of a bit, and what each device may spend, [N]."""
        first, second = costs.forward_j, costs.backward_j
        if costs.forward_receive_j is not None and costs.backward_receive_j is not None:
            first = first + costs.backward_receive_j
            second = second + costs.forward_receive_j
        # An empty battery cannot pay, whatever the tree; it counts as the smallest of the others.
        charged = battery_j[battery_j > 0]
        held_j = np.maximum(battery_j, charged.min() if len(charged) else 1.0)
        both = np.stack([first, second], axis=1)
        return cls(edges, both / held_j[edges], both.sum(axis=1), devices)

    def by_device(self, links: IntArray) -> FloatArray:
        """[N] share of each battery that a tree takes, of one bit."""
        ends, share = self.edges[links].ravel(), self.share[links].ravel()
        return np.asarray(np.bincount(ends, share, self.devices), np.float64)

    def weights(self, price: FloatArray) -> FloatArray:
        """[E] what links cost if each device has a price on its share."""
        cost = (price[self.edges] * self.share).sum(axis=1)
        return np.asarray(cost + self.joules * (_TOGETHER * cost.sum() / self.joules.sum()))


def _prices(logarithm: FloatArray) -> FloatArray:
    price = np.exp(logarithm - logarithm.max())
    return np.asarray(price / price.sum())


def _played(
    shares: LinkShares, spanning: Spanning, start: IntArray
) -> tuple[list[IntArray], FloatArray]:
    """The trees that answered, and the logarithms of the prices in the end."""
    logarithm, answers = np.zeros(shares.devices), [start]
    steps = max(_FEWEST, min(_STEPS, _LOOKS // max(len(shares.edges), 1)))
    for _ in range(steps):
        taken = shares.by_device(answers[-1])
        logarithm = logarithm + _RATE * taken / taken.max()
        answers.append(spanning(shares.weights(_prices(logarithm))))
    return answers, logarithm


def fair_tree(shares: LinkShares, spanning: Spanning, start: IntArray) -> IntArray:
    """A tree with a small worst share, never larger than that of the tree to start from."""
    answers, _ = _played(shares, spanning, start)

    def worst(links: IntArray) -> tuple[float, float]:
        return float(shares.by_device(links).max()), float(shares.joules[links].sum())

    different = {links.tobytes(): links for links in answers}
    best = sorted(different.values(), key=worst)[: _STARTS if shares.devices <= _IMPROVED else 1]
    if shares.devices <= _IMPROVED:
        best = [_improved(shares, links) for links in best]
    return min(best, key=worst)


def fair_trees(
    shares: LinkShares, spanning: Spanning, start: IntArray, count: int = ROTATED
) -> tuple[IntArray, ...]:
    """Trees whose shares even out when they take turns, the fairest beginning first."""
    answers, logarithm = _played(shares, spanning, start)
    mean = np.mean([shares.by_device(links) for links in answers[len(answers) // 2 :]], axis=0)
    turns: list[IntArray] = []
    for _ in range(count):
        turns.append(spanning(shares.weights(_prices(logarithm))))
        logarithm = logarithm + _TURN * shares.by_device(turns[-1]) / mean.max()
    if all(np.array_equal(links, turns[0]) for links in turns):
        return (turns[0],)
    return tuple(turns)


def _improved(shares: LinkShares, links: IntArray) -> IntArray:
    """The tree after exchanges of links that lower the share of its worst device, one by one."""
    links = links.copy()
    for _ in range(4 * shares.devices):
        taken = shares.by_device(links)
        worst = int(np.argmax(taken))
        swap = _swap(shares, links, taken, worst)
        if swap is None:
            break
        links[swap[0]] = swap[1]
    return np.sort(links)


def _swap(
    shares: LinkShares, links: IntArray, taken: FloatArray, worst: int
) -> tuple[int, int] | None:
    """(place in the tree, link in its stead) that lowers the worst share most, if any does."""
    edges, found, least = shares.edges, None, float(taken[worst]) * _LESS
    for place in np.flatnonzero((edges[links] == worst).any(axis=1)).tolist():
        without = taken.copy()
        np.subtract.at(without, edges[links[place]], shares.share[links[place]])
        side = _side(edges[np.delete(links, place)], int(edges[links[place], 0]), shares.devices)
        across = np.flatnonzero(side[edges[:, 0]] != side[edges[:, 1]])
        across = across[across != links[place]]
        if not len(across):
            continue
        # What is larger: the two ends of the new link, or the worst of all others.
        ends = (without[edges[across]] + shares.share[across]).max(axis=1)
        after = np.maximum(ends, float(without.max()))
        best = int(np.argmin(after))
        if after[best] < least:
            found, least = (place, int(across[best])), float(after[best])
    return found


def _side(edges: IntArray, start: int, devices: int) -> NDArray[np.bool_]:
    """bool [N]: the devices that some links join to one of them."""
    inside = np.zeros(devices, np.bool_)
    inside[start] = True
    while True:
        touched = inside[edges]
        new = edges[touched[:, 0] != touched[:, 1]].ravel()
        if not len(new):
            return inside
        inside[new] = True


@dataclass(frozen=True, eq=False)
class TreeRule:
    """Whose batteries a tree spares: one fair tree, or several in turn.

    Attributes:
        name: ``"fair"`` or ``"rotate"``.
        battery_j: float64 [A]: what the devices may spend.
        slack: how much slower than the slowest link of the least tree a link may be, as a share.
    """

    name: str
    battery_j: FloatArray
    slack: float
    _kept: list[tuple[LinkCosts, tuple[IntArray, ...]]] = field(default_factory=list, repr=False)

    @property
    def turns(self) -> bool:
        """Do exchanges differ?"""
        return self.name == "rotate"

    def trees(
        self, edges: IntArray, costs: LinkCosts, spanning: Spanning, least: IntArray
    ) -> tuple[IntArray, ...]:
        """The trees by some costs of a bit, as sorted positions of their links."""
        seconds, devices = costs.forward_s + costs.backward_s, len(self.battery_j)
        # A pipelined tree is as fast as its slowest link.
        slowest_s = float(seconds[least].max(initial=0.0))
        allowed = np.flatnonzero(seconds <= slowest_s * (1.0 + self.slack))
        if len(allowed) < devices:  # they make a single tree
            return (least,)
        some = LinkShares.of(edges[allowed], costs.take(allowed), self.battery_j, devices)

        def among(weight: FloatArray) -> IntArray:
            everywhere = np.full(len(edges), np.inf)
            everywhere[allowed] = weight
            return np.searchsorted(allowed, spanning(everywhere))

        start = np.searchsorted(allowed, least)
        if self.turns:
            return tuple(allowed[links] for links in fair_trees(some, among, start))
        return (allowed[fair_tree(some, among, start)],)

    def kept(
        self, costs: LinkCosts, trees: Callable[[], tuple[IntArray, ...]]
    ) -> tuple[IntArray, ...]:
        """The trees by some costs, found once."""
        for known, found in self._kept:
            if known is costs:
                return found
        self._kept[:] = [*self._kept[-1:], (costs, trees())]  # the forecast, and those of now
        return self._kept[-1][1]
