"""Remark 4's trade-off: more gossip agrees better and costs more (notes: balanced-gossip)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.aggregation.route import FloatArray, IntArray
from joulemesh.aggregation.spectrum import Mode, error_after
from joulemesh.errors import InfeasibleError, ScenarioError

__all__ = ["Balance", "balance"]


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

    Args:
        contraction: what ``spectrum.contraction`` gives for this graph and mode.
        mode: the kind of gossip.
        round_energy_j: float [N]: joules of each device per gossip round (or tick), on average.
        battery_j: float [N] or one number.
        iterations: number of iterations n.
        rows: the table lists every K up to this many, and a geometric choice beyond.

    Returns:
        The table and the best K.

    Raises:
        InfeasibleError: one round in each iteration is more than a battery holds.

    >>> table = balance(0.5, mode="metropolis", round_energy_j=[1.0, 2.0], battery_j=100.0,
    ...                 iterations=5)
    >>> table.best, table.rounds.tolist(), table.share[:3].round(3).tolist()
    (3, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0.1, 0.2, 0.3])
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
