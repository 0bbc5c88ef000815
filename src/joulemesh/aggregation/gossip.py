"""Gossip: who talks to whom and when, the routes that price it, the matrices that it applies.

Draws are pure functions of (seed, iteration). A schedule serves twice, as a route for the ledger
and as a product W_K ... W_1 for the engine. What decides the number of gossip rounds is in
``spectrum`` and ``gossip_rounds``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.aggregation.eigenvalue import SparseMatrix
from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.errors import ScenarioError

__all__ = [
    "Matchings",
    "draw_matchings",
    "draw_ticks",
    "matching_mixing",
    "matching_route",
    "metropolis_mixing",
    "metropolis_route",
    "paper_gossip_route",
    "tick_mixing",
    "tick_route",
]

Matchings = tuple[NDArray[np.int32], NDArray[np.int32]]
"""(link, gossip round) of every pair that averages in one exchange, sorted by gossip round."""

# Purposes keep the streams of one seed apart; the numbers spell their names in ASCII.
_TICKS = 0x7469636B
_MATCHINGS = 0x6D617463

_AT_ONCE = 1 << 20
"""Priorities drawn at a time: bounds memory, does not change what is drawn."""


def _incidence(edges: IntArray, devices: int) -> tuple[IntArray, IntArray, IntArray]:
    """Links of each device: (links sorted by device, first position, degree)."""
    ends = edges.ravel()
    degree = np.bincount(ends, minlength=devices)
    if not np.all(degree):
        lonely = int(np.argmin(degree))
        raise ScenarioError(
            "{device} has 0 links and cannot gossip; give it a neighbour", device=lonely
        )
    links = np.argsort(ends, kind="stable") // 2
    return links, np.concatenate([[0], np.cumsum(degree)[:-1]]), degree


def draw_ticks(
    edges: IntArray, devices: int, ticks: int, *, seed: int, iterations: ArrayLike
) -> NDArray[np.int32]:
    """Draw the links of Boyd's asynchronous gossip: a device, then one of its neighbours.

    The draw of an iteration does not depend on the others, and fewer ticks are its beginning.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.
        ticks: number of ticks K in one exchange.
        seed: the scenario's seed.
        iterations: which iterations t: one number, or n of them.

    Returns:
        int32 [K] for one iteration, [n, K] for n: the row of the link used in each tick.

    >>> draw_ticks(np.array([[0, 1], [1, 2]]), 3, 6, seed=0, iterations=1).tolist()
    [1, 0, 1, 0, 1, 0]
    """
    links, first, degree = _incidence(edges, devices)
    wanted = np.asarray(iterations, np.int64)
    drawn = np.empty((wanted.size, ticks), np.int32)
    for row, iteration in enumerate(wanted.reshape(-1).tolist()):
        uniform = np.random.default_rng([seed, _TICKS, iteration]).random((ticks, 2))
        device = (uniform[:, 0] * devices).astype(np.int64)
        neighbour = (uniform[:, 1] * degree[device]).astype(np.int64)
        drawn[row] = links[first[device] + neighbour]
    return drawn.reshape((*wanted.shape, ticks))


def draw_matchings(
    edges: IntArray, devices: int, rounds: int, *, seed: int, iteration: int
) -> Matchings:
    """Draw random matchings: the links whose priority comes first among all that touch them.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.
        rounds: number of matchings K in one exchange.
        seed: the scenario's seed.
        iteration: which iteration t.

    Returns:
        The row of each link used and its gossip round, in this order; no gossip round is empty.

    >>> link, turn = draw_matchings(np.array([[0, 1], [1, 2]]), 3, 4, seed=0, iteration=1)
    >>> link.tolist(), turn.tolist()
    ([1, 0, 0, 0], [0, 1, 2, 3])
    """
    links, first, _ = _incidence(edges, devices)
    rng = np.random.default_rng([seed, _MATCHINGS, iteration])
    found_link, found_round = [], []
    portion = max(1, _AT_ONCE // len(edges))
    for begin in range(0, rounds, portion):
        priority = rng.random((min(portion, rounds - begin), len(edges)))
        earliest = np.minimum.reduceat(priority[:, links], first, axis=1)
        ahead = (priority <= earliest[:, edges[:, 0]]) & (priority <= earliest[:, edges[:, 1]])
        turn, link = np.nonzero(ahead)
        found_link.append(link)
        found_round.append(turn + begin)
    return (
        np.concatenate([*found_link, []]).astype(np.int32),
        np.concatenate([*found_round, []]).astype(np.int32),
    )


def _pairwise_route(edges: IntArray, link: ArrayLike, step: ArrayLike, bits: float) -> Route:
    used, position = np.unique(np.asarray(link, np.int64), return_inverse=True)
    steps = np.asarray(step, np.int64)
    return Route.build(
        "gossip",
        edges=edges[used],
        edge=np.repeat(position, 2),
        forward=np.tile([True, False], len(steps)),
        step=np.repeat(steps, 2),
        bits=bits,
        repeats=1,
        uses=int(steps.max(initial=-1)) + 1,
    ).on_links(used)


def tick_route(edges: IntArray, ticks_index: ArrayLike, bits: float) -> Route:
    """The route of one exchange of asynchronous gossip: two transmissions per tick.

    Args:
        edges: int [E, 2], i < j, unique.
        ticks_index: int [K]: the link of each tick, as ``draw_ticks`` gives them.
        bits: size of the parameter vector.

    Returns:
        The route: in step k both ends of link k send to each other.

    >>> [m[:3] for m in tick_route(np.array([[0, 1], [1, 2]]), [1, 0], bits=8.0).messages()]
    [(0, 1, 2), (0, 2, 1), (1, 0, 1), (1, 1, 0)]
    """
    return _pairwise_route(edges, ticks_index, np.arange(np.asarray(ticks_index).size), bits)


def matching_route(edges: IntArray, matchings: Matchings, bits: float) -> Route:
    """The route of one exchange of random matchings: all pairs of a gossip round in one step.

    Args:
        edges: int [E, 2], i < j, unique.
        matchings: (link, gossip round), as ``draw_matchings`` gives them.
        bits: size of the parameter vector.

    Returns:
        The route: in step k both ends of every link of gossip round k send to each other.

    >>> pairs = (np.array([0, 2], np.int32), np.array([0, 0], np.int32))
    >>> route = matching_route(np.array([[0, 1], [1, 2], [2, 3]]), pairs, bits=8.0)
    >>> route.count, route.steps, route.link_index.tolist()
    (4, 1, [0, 2])
    """
    return _pairwise_route(edges, matchings[0], matchings[1], bits)


def metropolis_route(edges: IntArray, bits: float, rounds: int) -> Route:
    """The route of Metropolis gossip: everybody sends to all neighbours, K times.

    Args:
        edges: int [E, 2], i < j, unique.
        bits: size of the parameter vector.
        rounds: number of gossip rounds K.

    Returns:
        The route: 2E transmissions in one step, played K times.

    >>> metropolis_route(np.array([[0, 1], [1, 2]]), bits=8.0, rounds=3).count
    12
    """
    count = len(edges)
    return Route.build(
        "metropolis",
        edges=edges,
        edge=np.repeat(np.arange(count), 2),
        forward=np.tile([True, False], count),
        step=0,
        bits=bits,
        repeats=rounds,
        uses=rounds,
    ).for_all()


def paper_gossip_route(edges: IntArray, bits: float, rounds: int) -> Route:
    """Gossip as the paper charges it (eq. `s1`, third case): K uses of every link of the graph.

    Eq. `ecp` charges both ends of each use, so one direction stands for the pair; this route is a
    price, no working schedule.

    Args:
        edges: int [E, 2], i < j, unique.
        bits: size of the parameter vector.
        rounds: the paper's K.

    Returns:
        The route: E transmissions in one step, played K times.

    >>> paper_gossip_route(np.array([[0, 1], [1, 2]]), bits=8.0, rounds=3).count
    6
    """
    return Route.build(
        "gossip",
        edges=edges,
        edge=np.arange(len(edges)),
        forward=True,
        step=0,
        bits=bits,
        repeats=rounds,
        uses=rounds,
    )


def tick_mixing(devices: int, edges: IntArray, ticks: ArrayLike) -> FloatArray:
    """The products W_K ... W_1 of n exchanges of asynchronous gossip.

    Args:
        devices: number of devices N.
        edges: int [E, 2], i < j, unique.
        ticks: int [n, K]: the link of each tick, as ``draw_ticks`` gives them.

    Returns:
        float [n, N, N]: new models = matrix @ old models.

    >>> tick_mixing(3, np.array([[0, 1], [1, 2]]), [[0, 1]])[0].tolist()
    [[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
    """
    index = np.atleast_2d(np.asarray(ticks, np.int64))
    mixing = np.tile(np.eye(devices), (len(index), 1, 1))
    exchange = np.arange(len(index))
    for link in index.T:
        _average(mixing, exchange, edges[link])
    return mixing


def matching_mixing(devices: int, edges: IntArray, schedules: Sequence[Matchings]) -> FloatArray:
    """The products W_K ... W_1 of n exchanges of random matchings.

    Args:
        devices: number of devices N.
        edges: int [E, 2], i < j, unique.
        schedules: for each exchange (link, gossip round), as ``draw_matchings`` gives them.

    Returns:
        float [n, N, N]: new models = matrix @ old models.

    >>> pairs = (np.array([0, 1], np.int32), np.array([0, 0], np.int32))
    >>> matching_mixing(4, np.array([[0, 1], [2, 3]]), [pairs])[0, 0].tolist()
    [0.5, 0.5, 0.0, 0.0]
    """
    mixing = np.tile(np.eye(devices), (len(schedules), 1, 1))
    if not schedules:
        return mixing
    exchange = np.repeat(np.arange(len(schedules)), [len(link) for link, _ in schedules])
    link = np.concatenate([link for link, _ in schedules])
    turn = np.concatenate([turn for _, turn in schedules])
    by_round = np.argsort(turn, kind="stable")
    starts = np.flatnonzero(np.diff(turn[by_round])) + 1
    for rows in np.split(by_round, starts):
        _average(mixing, exchange[rows], edges[link[rows]])
    return mixing


def _average(mixing: FloatArray, exchange: IntArray, pairs: IntArray) -> None:
    """Give both ends of each pair the mean of their rows, in place; pairs must not overlap."""
    i, j = pairs[:, 0], pairs[:, 1]
    mean = 0.5 * (mixing[exchange, i] + mixing[exchange, j])
    mixing[exchange, i] = mean
    mixing[exchange, j] = mean


def metropolis_mixing(weights: SparseMatrix, rounds: int) -> FloatArray:
    """The product W^K of an exchange of Metropolis gossip, by repeated squaring.

    Args:
        weights: sparse [N, N], as ``metropolis_weights`` gives them.
        rounds: number of gossip rounds K.

    Returns:
        float [N, N]: new models = matrix @ old models.

    >>> from joulemesh.aggregation.spectrum import metropolis_weights
    >>> metropolis_mixing(metropolis_weights(np.array([[0, 1]]), 2), 5).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return np.asarray(np.linalg.matrix_power(weights.toarray(), rounds), np.float64)
