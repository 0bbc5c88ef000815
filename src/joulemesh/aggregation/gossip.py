"""Gossip: who meets whom, how fast mixing contracts, how many rounds suffice; its schemes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from joulemesh.aggregation.air import route_j
from joulemesh.aggregation.peer import Peer, RoutePeer, Vector
from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.aggregation.scheme import Case, Conditions, Fit, Scheme, SchemeBase, SchemeKind
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.registry import Citation
from joulemesh.registries import SCHEMES
from joulemesh.world.links import LinkCosts

SparseMatrix: TypeAlias = "csr_array[np.float64, tuple[int, int]]"

_DENSE = 600
"""Up to this many devices all eigenvalues are computed at once, which is then the quicker way."""

_SHIFT = 1e-11
"""Makes 1 − λ invertible; what it adds is taken off again."""

_INVERSE_VECTORS = 48


def second_eigenvalue(matrix: SparseMatrix | FloatArray) -> float:
    """The modulus max(|λ₂|, |λ_N|) of a symmetric stochastic matrix: its contraction.

    All eigenvalues up to 600 devices. Beyond, Lanczos with bounded effort; where that does not
    converge the gap is tiny, the graph has small separators, and a sparse factorisation (shift and
    invert) is cheap and finds it.
    """
    sparse: SparseMatrix = csr_array(matrix)
    n = sparse.shape[0]
    if n == 1:
        return 0.0
    if connected_components(sparse, directed=False)[0] > 1:
        return 1.0
    if n <= _DENSE:
        values = np.linalg.eigvalsh(sparse.toarray())
        found = max(abs(float(values[0])), abs(float(values[-2])))
    else:
        found = _sparse_second(sparse)
    # Zero comes out as rounding noise (complete graphs).
    return 0.0 if found < 1e-12 else found


def _sparse_second(matrix: SparseMatrix) -> float:
    # Gershgorin's discs: all eigenvalues lie in [lowest, 1]. Stretched to [−1, 1] the gap is not
    # lost in the tolerance, however little one tick changes.
    lowest = float(np.min(2.0 * matrix.diagonal() - 1.0))
    half = (1.0 - lowest) / 2.0
    stretched = matrix.copy()
    stretched.setdiag(matrix.diagonal() - (1.0 - half))
    stretched.data /= half
    top = _largest(stretched)
    if top is None:
        top = _largest_by_inverse(stretched)
    second = 1.0 - half * (1.0 - top)
    if -lowest <= second:
        return second
    bottom = _largest(-stretched)
    # Where the other end is not found, its bound serves: a few ticks too many, never too few.
    return max(second, -lowest if bottom is None else half * (1.0 + bottom) - 1.0)


def _largest(matrix: SparseMatrix) -> float | None:
    """Largest eigenvalue off the constant vector, by Lanczos; None if it does not converge."""
    n = matrix.shape[0]

    def apply(x: FloatArray) -> FloatArray:
        mean = float(np.mean(x))
        # The constant vector is an eigenvector and goes to the other end of the spectrum.
        moved = np.asarray(matrix @ (x.ravel() - mean), np.float64)
        return np.subtract(moved, mean)

    try:
        found = eigsh(
            LinearOperator((n, n), matvec=apply, dtype=np.float64),
            k=1,
            which="LA",
            v0=np.random.default_rng(0).standard_normal(n),
            tol=1e-10,
            maxiter=100,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        return None
    return float(found[0])


def _largest_by_inverse(matrix: SparseMatrix) -> float:
    """The same by shift and invert: 1/(1 − λ) is largest where λ is closest to 1.

    The constant vector, whose λ is 1, is taken out before and after every solution: otherwise it
    drowns eigenvalues that lie close together (a wheel's). The tolerance is relative to 1 − λ.
    """
    n = matrix.shape[0]
    laplacian = -matrix
    laplacian.setdiag(1.0 + _SHIFT - matrix.diagonal())
    try:
        factors = splu(laplacian.tocsc())
        found = eigsh(
            LinearOperator(
                (n, n), matvec=lambda x: _centred(factors.solve(_centred(x))), dtype=np.float64
            ),
            k=1,
            ncv=min(n - 1, _INVERSE_VECTORS),
            which="LA",
            v0=_centred(np.random.default_rng(0).standard_normal(n)),
            tol=1e-9,
            maxiter=200,
            return_eigenvectors=False,
        )
    except (ArpackNoConvergence, RuntimeError) as cause:
        raise InfeasibleError(
            f"the spectral gap of the graph of {n} devices was not found; "
            "set plan.gossip_rounds to a number",
            code="gossip",
        ) from cause
    return 1.0 + _SHIFT - 1.0 / float(found[0])


def _centred(x: FloatArray) -> FloatArray:
    """A vector without its mean."""
    return np.asarray(x.ravel() - np.mean(x), np.float64)


Mode: TypeAlias = Literal["ticks", "matchings", "metropolis"]
Guarantee: TypeAlias = Literal["expected", "probability"]

_FACTOR = {"expected": 2.0, "probability": 3.0}
"""Of ln(1/ε)/ln(1/λ₂): 2 for the square in E‖y‖² ≤ ε²‖y₀‖²; Boyd's 3 adds Markov's Pr ≤ ε."""


def activity(edges: IntArray, devices: int, mode: Mode) -> FloatArray:
    """How often each link is used in one round of gossip, on average.

    A tick picks link (i, j) with probability (1/dᵢ + 1/dⱼ)/N. A matching holds it with probability
    1/(dᵢ + dⱼ − 1): its priority must be the first of all links that touch i or j.
    """
    degree = np.bincount(edges.ravel(), minlength=devices)
    if devices > 1 and not np.all(degree):
        lonely = int(np.argmin(degree))
        raise ScenarioError(
            "{device} has 0 links and cannot gossip; give it a neighbour", device=lonely
        )
    d_i, d_j = degree[edges[:, 0]], degree[edges[:, 1]]
    if mode == "ticks":
        return np.asarray((1.0 / d_i + 1.0 / d_j) / devices, np.float64)
    if mode == "matchings":
        return np.asarray(1.0 / (d_i + d_j - 1.0), np.float64)
    return np.ones(len(edges))


def metropolis_weights(edges: IntArray, devices: int) -> SparseMatrix:
    """Metropolis weights: w_ij = 1/(1 + max(dᵢ, dⱼ)), the rest of each row on the diagonal."""
    degree = np.bincount(edges.ravel(), minlength=devices)
    return _mixer(edges, devices, 1.0 / (1.0 + degree[edges].max(axis=1, initial=0)))


def tick_matrix(edges: IntArray, devices: int) -> SparseMatrix:
    """Mean matrix of one tick, E[W] = E[WᵀW], with P_ij = 1/dᵢ (Boyd et al., eq. for W̄)."""
    return _mixer(edges, devices, activity(edges, devices, "ticks") / 2)


def matching_matrix(edges: IntArray, devices: int) -> SparseMatrix:
    """Mean matrix of one random matching, E[W] = E[WᵀW].

    The matrix of a matching is a projection (each pair takes its mean), so both means are equal.
    """
    return _mixer(edges, devices, activity(edges, devices, "matchings") / 2)


def _mixer(edges: IntArray, devices: int, weight: FloatArray) -> SparseMatrix:
    """I minus the Laplacian of the weighted graph."""
    i, j = edges[:, 0], edges[:, 1]
    sent = np.bincount(i, weight, devices) + np.bincount(j, weight, devices)
    every = np.arange(devices)
    rows, columns = np.concatenate([i, j, every]), np.concatenate([j, i, every])
    entries = np.concatenate([weight, weight, 1.0 - sent])
    return coo_array((entries, (rows, columns)), shape=(devices, devices)).tocsr()


def contraction(edges: IntArray, devices: int, mode: Mode) -> float:
    """What one round of gossip leaves: λ₂ of E‖y‖² for the random kinds, ζ of ‖y‖ for Metropolis.

    Args:
        edges: int [E, 2], i < j, unique.
        devices: number of devices N.
        mode: the kind of gossip.

    Returns:
        The factor, as ``rounds_for`` and ``error_after`` want it.

    >>> ring = np.array([[0, 1], [0, 9]] + [[i, i + 1] for i in range(1, 9)])
    >>> round(contraction(ring, 10, "ticks"), 5), round(contraction(ring, 10, "metropolis"), 5)
    (0.9809, 0.87268)
    """
    if mode == "ticks":
        return second_eigenvalue(tick_matrix(edges, devices))
    if mode == "matchings":
        return second_eigenvalue(matching_matrix(edges, devices))
    return second_eigenvalue(metropolis_weights(edges, devices))


def rounds_for(
    epsilon: float, contraction: float, *, mode: Mode, guarantee: Guarantee = "expected"
) -> int:
    """The gossip rounds (or ticks) K after which the relative consensus error is at most ε."""
    if not 0.0 <= contraction < 1.0:
        raise InfeasibleError(
            f"gossip that keeps {contraction:.12g} of the error each round never agrees; "
            "connect the graph",
            code="gossip",
        )
    factor = 1.0 if mode == "metropolis" else _FACTOR[guarantee]
    wanted = factor * _log_inverse(epsilon)
    if contraction == 0.0:
        return 1
    # A part in 10¹² is rounding: a quotient that is a whole number must not become the next.
    return max(1, math.ceil(wanted / -math.log(contraction) * (1.0 - 1e-12)))


def paper_rounds(epsilon: float) -> int:
    """The paper's K = ⌈ln 1/ε⌉ (Theorem 3, third case), which forgets the spectral gap."""
    return math.ceil(_log_inverse(epsilon))


def _log_inverse(epsilon: float) -> float:
    if not 0.0 < epsilon < 1.0:
        raise ScenarioError(f"epsilon is {epsilon:g}; write a number between 0 and 1")
    return -math.log(epsilon)


def error_after(rounds: ArrayLike, contraction: float, mode: Mode) -> NDArray[np.float64]:
    """Bound on the relative consensus error after some gossip rounds (or ticks)."""
    power = np.asarray(rounds, np.float64) * (1.0 if mode == "metropolis" else 0.5)
    return np.asarray(np.power(contraction, power), np.float64)


@dataclass(frozen=True, eq=False)
class Balance:
    """The trade-off as a table over the number of gossip rounds.

    Attributes:
        rounds: int [R]: numbers of gossip rounds K, ascending.
        error: float [R]: bound on the relative consensus error after K of them.
        dearest_j: float [R]: joules of the device that spends most, per exchange.
        share: float [R]: largest part of a battery that gossip takes over all iterations.
        best: the K that minimises error plus share.
    """

    rounds: IntArray
    error: FloatArray
    dearest_j: FloatArray
    share: FloatArray
    best: int

    @property
    def total(self) -> FloatArray:
        """float [R]: error plus share, what ``best`` minimises."""
        return self.error + self.share


def balance(
    contraction: float,
    *,
    mode: Mode,
    round_energy_j: ArrayLike,
    battery_j: ArrayLike,
    iterations: int,
    rows: int = 200,
) -> Balance:
    """Weigh the consensus error against the batteries (the paper's Remark 4).

    Minimises ρ^K + K·s over the affordable whole numbers K, where ρ is the error left by one round
    and s the largest part of a battery that one round in every iteration takes. The sum is convex:
    its minimum is beside K = ln(s / ln(1/ρ)) / ln ρ.
    """
    spent_j, held_j = np.broadcast_arrays(
        np.asarray(round_energy_j, np.float64), np.asarray(battery_j, np.float64)
    )
    if not 0.0 <= contraction < 1.0:
        raise InfeasibleError(
            f"gossip that keeps {contraction:.12g} of the error each round never agrees; "
            "connect the graph",
            code="gossip",
        )
    if np.any(held_j <= 0.0) or np.any(spent_j < 0.0) or not np.any(spent_j) or iterations < 1:
        raise ScenarioError(
            f"cannot balance batteries from {held_j.min():g} J, rounds from {spent_j.min():g} J "
            f"and {iterations} iterations; all must be positive"
        )
    shares = iterations * spent_j / held_j
    worst = int(np.argmax(shares))
    slope = float(shares.flat[worst])
    if slope > 1.0:
        raise InfeasibleError(
            "{device} needs {needs_j} for one gossip round in each of {iterations:iteration} and "
            "has {has_j}; give it {needs_j} or plan at most {most:iteration}",
            code="energy",
            device=worst,
            figures={
                "needs_j": iterations * spent_j.flat[worst],
                "has_j": held_j.flat[worst],
                "iterations": iterations,
                "most": int(iterations / slope),
            },
        )
    affordable = max(1, math.floor(1.0 / slope))
    best = _best(contraction, mode, slope, affordable)
    listed = _listed(min(affordable, max(4 * best, 10)), best, rows)
    return Balance(
        rounds=listed,
        error=error_after(listed, contraction, mode),
        dearest_j=np.asarray(listed * float(spent_j.max()), np.float64),
        share=np.asarray(listed * slope, np.float64),
        best=best,
    )


def _best(contraction: float, mode: Mode, slope: float, affordable: int) -> int:
    decay = float(error_after(1, contraction, mode))
    if decay == 0.0:
        return 1
    middle = math.log(slope / -math.log(decay)) / math.log(decay)
    beside = {min(max(k, 1), affordable) for k in (math.floor(middle), math.ceil(middle))}
    return min(sorted(beside), key=lambda k: float(error_after(k, contraction, mode)) + k * slope)


def _listed(last: int, best: int, rows: int) -> IntArray:
    if last <= rows:
        return np.arange(1, last + 1)
    return np.unique(np.append(np.geomspace(1, last, rows).round().astype(np.int64), best))


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
    """Draw random matchings: the links whose priority comes first among all that touch them."""
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
    """The route of one exchange of asynchronous gossip: two transmissions per tick."""
    return _pairwise_route(edges, ticks_index, np.arange(np.asarray(ticks_index).size), bits)


def matching_route(edges: IntArray, matchings: Matchings, bits: float) -> Route:
    """The route of one exchange of random matchings: all pairs of a gossip round in one step."""
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
    """The products W_K ... W_1 of n exchanges of asynchronous gossip."""
    index = np.atleast_2d(np.asarray(ticks, np.int64))
    mixing = np.tile(np.eye(devices), (len(index), 1, 1))
    exchange = np.arange(len(index))
    for link in index.T:
        _average(mixing, exchange, edges[link])
    return mixing


def matching_mixing(devices: int, edges: IntArray, schedules: Sequence[Matchings]) -> FloatArray:
    """The products W_K ... W_1 of n exchanges of random matchings."""
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
    """The product W^K of an exchange of Metropolis gossip, by repeated squaring."""
    return np.asarray(np.linalg.matrix_power(weights.toarray(), rounds), np.float64)


PARAMETERS = ("epsilon", "gossip_rounds", "gossip_guarantee")
"""Fields of the section ``plan`` that decide the number of gossip rounds."""

_MOST_ROUNDS = 5_000_000  # of one exchange; beyond, planning itself would take minutes


S = TypeVar("S", bound="IteratedScheme")


@dataclass(frozen=True)
class IteratedScheme(SchemeBase):
    """A scheme of K gossip rounds (or ticks).

    Attributes:
        schedule: which links are active in a round; decides the contraction.
        rounds: K.
        broadcast: does one transmission serve all neighbours of a device?
    """

    schedule: Mode
    rounds: int = 0
    broadcast: bool = False
    _known: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mode(self) -> str:
        """How it averages, in one word."""
        return self.schedule

    @property
    def contraction(self) -> float:
        """Factor by which one round shrinks the consensus error.

        For random schedules, the mean of its square. An eigenvalue of the graph: of 100,000
        devices a matter of minutes, so that it is computed when it is first asked for.
        """
        if "contraction" not in self._known:
            graph = self.graph
            self._known["contraction"] = contraction(graph.edges, graph.devices, self.schedule)
        return self._known["contraction"]

    def with_rounds(self: S, rounds: int) -> S:
        """The same scheme with another K."""
        return replace(self, rounds=rounds)

    @property
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""
        return float(error_after(self.rounds, self.contraction, self.schedule))

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """Remark 4: consensus error against joules, for every number of gossip rounds.

        None when a battery does not hold one gossip round in each iteration: there is nothing to
        balance then, and whether the plan can be paid is not for aggregation to say.
        """
        graph, own = self.graph, self.whole(costs)
        active = activity(graph.edges, graph.devices, self.schedule)
        spent = own.device_j(graph.edges, graph.devices, active)
        if self.broadcast and not self.random:  # every device sends to all of its neighbours
            once = metropolis_route(graph.edges, 1.0, 1)
            spent = route_j(once, own, graph.devices, broadcast=True)
        battery_j = battery_j[graph.members]
        if (iterations * self.bits * spent > battery_j).any():
            return None
        return balance(
            self.contraction,
            mode=self.schedule,
            round_energy_j=spent * self.bits,
            battery_j=battery_j,
            iterations=iterations,
        )


def with_decided_rounds(scheme: S, conditions: Conditions, *, as_printed: bool = False) -> S:
    """The scheme with the K that ``plan.gossip_rounds`` asks for."""
    graph, options = conditions.graph, conditions.options
    scheme = replace(scheme, broadcast=conditions.medium.broadcast)
    rounds = options.gossip_rounds
    if rounds == "balanced":
        table = scheme.balance(conditions.costs, conditions.battery_j, conditions.iterations)
        rounds = 1 if table is None else table.best
    elif rounds == "epsilon" and as_printed:
        rounds = paper_rounds(options.epsilon)
    elif rounds == "epsilon":
        rounds = rounds_for(
            options.epsilon,
            scheme.contraction,
            mode=scheme.schedule,
            guarantee=options.gossip_guarantee,
        )
    if rounds > _MOST_ROUNDS:
        raise InfeasibleError(
            f"gossip on this graph of {{count:device}} needs {{rounds}} {scheme.unit} per exchange "
            "(at most {most} are planned); use the tree or a ring, raise plan.epsilon or set "
            "plan.gossip_rounds",
            code="gossip",
            figures={"count": graph.devices, "rounds": int(rounds), "most": _MOST_ROUNDS},
        )
    return replace(scheme, rounds=int(rounds))


@dataclass(frozen=True)
class Metropolis(IteratedScheme):
    """K rounds in which every device sends to all its neighbours."""

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """Both ways over every link, K times, whatever the links cost."""
        return self.graph.in_whole(metropolis_route(self.graph.edges, self.bits, self.rounds))

    @property
    def round_weights(self) -> SparseMatrix:
        """Sparse [A, A]: the Metropolis weights."""
        return metropolis_weights(self.graph.edges, self.graph.devices)

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [1, A, A]: the K-th power of the Metropolis weights."""
        return metropolis_mixing(self.round_weights, self.rounds)[None]

    def peer(self, device: int, route: Route) -> Peer:
        """A device that mixes with all its neighbours."""
        return MetropolisPeer(device, route)


class MetropolisPeer(RoutePeer):
    """Sends what it holds to all neighbours, and moves towards what they send."""

    skips = True

    def __init__(self, device: int, route: Route) -> None:
        super().__init__(device, route)
        degree = np.bincount(route.edges.ravel())
        self._weight = {
            other: 1.0 / (1.0 + float(max(degree[device], degree[other])))
            for other in self.senders(0)
        }

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """w_ij = 1 / (1 + max(d_i, d_j)) for what comes, the rest for one's own."""
        before = self.held
        for sender, payload in arrived.items():
            self.held = self.held + self._weight[sender] * (payload - before)


def _ready_metropolis(conditions: Conditions, fit: Fit, reason: str) -> Metropolis:
    scheme = Metropolis(METROPOLIS, reason, conditions.graph, conditions.bits, "metropolis")
    return with_decided_rounds(scheme, conditions)


METROPOLIS = SCHEMES.register(
    SchemeKind(
        "metropolis",
        "everybody mixes with all neighbours by Metropolis weights, in several rounds",
        _ready_metropolis,
        words="by mixing with neighbours (Metropolis weights)",
        exact=False,
        parameters=PARAMETERS,
        citation=Citation(
            "Xiao, Boyd, Lall",
            "A Scheme for Robust Distributed Sensor Fusion Based on Average Consensus",
            2005,
            "IPSN",
            doi="10.1109/IPSN.2005.1440896",
            names="Xiao, Lin and Boyd, Stephen and Lall, Sanjay",
        ),
    )
)


@dataclass(frozen=True)
class _Pairs(IteratedScheme):
    """Exchanges in pairs, drawn for every iteration.

    Attributes:
        seed: of the draws.
    """

    seed: int = 0

    @property
    def random(self) -> bool:
        """True: every exchange has its own pairs."""
        return True

    def peer(self, device: int, route: Route) -> PairPeer:
        """A device that averages with one other at a time."""
        return PairPeer(device, route)


@dataclass(frozen=True)
class GossipTicks(_Pairs):
    """One random pair after another."""

    @property
    def unit(self) -> str:
        """Every pair is a tick."""
        return "ticks"

    def _ticks(self, start: int, stop: int) -> NDArray[np.int32]:
        graph, every = self.graph, np.arange(start, stop)
        return draw_ticks(graph.edges, graph.devices, self.rounds, seed=self.seed, iterations=every)

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """The pairs drawn for an iteration, whatever the links cost."""
        ticks = self._ticks(iteration, iteration + 1)[0]
        return self.graph.in_whole(tick_route(self.graph.edges, ticks, self.bits))

    def pairs(self, start: int, stop: int) -> IntArray:
        """int64 [stop−start, K]: the link of each tick, a position in the graph's edge list."""
        return self.graph.links[self._ticks(start, stop)]

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A]: the products of the pairs' means."""
        return tick_mixing(self.graph.devices, self.graph.edges, self._ticks(start, stop))


@dataclass(frozen=True)
class GossipMatchings(_Pairs):
    """Random pairs that share no device average at once."""

    def _matchings(self, iteration: int) -> Matchings:
        graph = self.graph
        return draw_matchings(
            graph.edges, graph.devices, self.rounds, seed=self.seed, iteration=iteration
        )

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """The matchings drawn for an iteration, whatever the links cost."""
        drawn = self._matchings(iteration)
        return self.graph.in_whole(matching_route(self.graph.edges, drawn, self.bits))

    def pairs(self, start: int, stop: int) -> IntArray:
        """int64 [stop−start, M]: the links of all matchings in order; −1 where there are fewer."""
        rows = [self._matchings(t)[0] for t in range(start, stop)]
        pairs = np.full((len(rows), max(map(len, rows))), -1, np.int64)
        for row, drawn in enumerate(rows):
            pairs[row, : len(drawn)] = self.graph.links[drawn]
        return pairs

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A]: the products of the matchings' means."""
        drawn = [self._matchings(t) for t in range(start, stop)]
        return matching_mixing(self.graph.devices, self.graph.edges, drawn)


class PairPeer(RoutePeer):
    """Sends what it holds to its partner of a step, and keeps the mean of the two."""

    skips = True

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        """Average with the partner, if there is one."""
        for payload in arrived.values():
            self.held = 0.5 * (self.held + payload)


@dataclass(frozen=True)
class PaperGossip(Metropolis):
    """Gossip as the paper charges it: K uses of every link, by the Metropolis matrix."""

    @property
    def mode(self) -> str:
        """The paper's."""
        return "paper"

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """One message stands for a use of a link, since both ends pay for it: a price."""
        return self.graph.in_whole(paper_gossip_route(self.graph.edges, self.bits, self.rounds))

    def peer(self, device: int, route: Route) -> Peer:
        """Refused: this route is a price and not a schedule that devices could follow."""
        raise ScenarioError(
            'plan.aggregation = "gossip" with plan.physics = "paper" has a price but no messages '
            'that devices could exchange; set plan.physics = "physical"',
            field="plan.aggregation",
        )


def _ready(conditions: Conditions, fit: Fit, reason: str) -> Scheme:
    graph, options, bits = conditions.graph, conditions.options, conditions.bits
    if options.physics == "paper":  # one message is enough only where both ends pay for it
        kind = PaperGossip if options.pays == "both-ends" else Metropolis
        scheme = kind(GOSSIP, reason, graph, bits, "metropolis")
        return with_decided_rounds(scheme, conditions, as_printed=True)
    pairs = GossipTicks if options.gossip_mode == "ticks" else GossipMatchings
    drawn = pairs(GOSSIP, reason, graph, bits, options.gossip_mode, seed=conditions.seed)
    return with_decided_rounds(drawn, conditions)


GOSSIP = SCHEMES.register(
    SchemeKind(
        "gossip",
        "random pairs of neighbours average, until little disagreement is left",
        _ready,
        words="by gossip",
        exact=False,
        parameters=("gossip_mode", *PARAMETERS),
        case=Case(
            3,
            "the channel is unknown and the graph contains no ring: {before} (Theorem 3, case 3)",
        ),
        citation=Citation(
            "Boyd, Ghosh, Prabhakar, Shah",
            "Randomized Gossip Algorithms",
            2006,
            "IEEE Transactions on Information Theory 52(6):2508-2530",
            names="Boyd, Stephen and Ghosh, Arpita and Prabhakar, Balaji and Shah, Devavrat",
        ),
    )
)
