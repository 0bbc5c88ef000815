"""What happens in every iteration of a plan, before anything is learned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.ledger import Ledger
from joulemesh.world.motion import Snapshot

__all__ = ["Event", "Timeline"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """Something out of the ordinary.

    Attributes:
        iteration: when, counted from 1.
        kind: ``"outage"`` (exchange skipped), ``"depleted"`` or ``"cut-off"`` (devices left),
            ``"ended"`` (fewer than two devices remain); with traces also ``"absent"`` (devices are
            not there), ``"gone"`` (devices leave for good), ``"returned"`` (devices take part
            again) and ``"waiting"`` (an iteration passes without anybody).
        devices: who.
        detail: one line.
    """

    iteration: int
    kind: str
    devices: tuple[int, ...]
    detail: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """The whole energy and time timeline of a run, computed before it.

    Attributes:
        scheme: the scheme of the first iteration, and the forecast's route.
        route: its route.
        rounds: int64 [n, N].
        cap: int64 [n, N] or [1, N]: rounds that fit the deadline.
        total: int64 [N]: rounds that the batteries pay for, over all iterations.
        exchange: what the exchanges cost, and what batteries gain meanwhile.
        active: bool [n, N]: who takes part.
        exchanged: bool [n]: False where the exchange was skipped.
        flooded: bool [n]: True where the flooding of link costs was paid (`plan.coordination`).
        schemes: the scheme of each stretch of iterations, with its first iteration (from 0).
        routes: under fading, the route of each iteration (None where skipped).
        events: outages and departures, in order.
        first: the iteration (from 0) of the first row; above 0 for the rest of a plan.
        spilled_j: float64 [n, N]: joules harvested that batteries have no room for; None without a
            harvest.
        snapshots: where devices that move are in each iteration; empty if none does.
        gifts: (iteration from 0, newcomer, giver): who begins an iteration with whose parameters,
            because it has been away.
        handed: (iteration from 0, newcomer, neighbour): who sends these parameters to whom, over
            one link each.
        awake_s: float64 [n, N]: seconds of each iteration for which a device's power at rest is
            paid; None: of the whole iteration, by those who take part.
    """

    scheme: Scheme
    route: Route
    rounds: IntArray
    cap: IntArray
    total: IntArray
    exchange: Ledger
    active: NDArray[np.bool_]
    exchanged: NDArray[np.bool_]
    flooded: NDArray[np.bool_]
    schemes: tuple[tuple[int, Scheme], ...]
    routes: tuple[Route | None, ...] | None = None
    events: tuple[Event, ...] = field(default=())
    first: int = 0
    spilled_j: FloatArray | None = None
    gifts: tuple[tuple[int, int, int], ...] = ()
    handed: tuple[tuple[int, int, int], ...] = ()
    snapshots: tuple[Snapshot | None, ...] = ()
    awake_s: FloatArray | None = None

    @property
    def contraction(self) -> FloatArray:
        """float64 [n]: what an exchange leaves of the devices' distance from their mean, at most.

        0 after an exact mean, 1 where the exchange is skipped.
        """
        left = np.ones(len(self.rounds))
        for since, scheme in self.schemes:
            row = since - self.first
            exact = [scheme.exact_at(t) for t in range(since, self.first + len(left))]
            left[row:] = np.where(exact, 0.0, min(1.0, scheme.error))
        return np.where(self.exchanged, left, 1.0)

    def snapshot(self, row: int) -> Snapshot | None:
        """Where devices that move are in a row; None if none does."""
        return self.snapshots[row] if self.snapshots else None

    def from_row(self, row: int) -> Timeline:
        """The same from a later row on; ``cap`` may have one row for all."""
        first = self.first + row
        schemes = {max(since, first): scheme for since, scheme in self.schemes}
        return replace(
            self,
            rounds=self.rounds[row:],
            cap=self.cap if len(self.cap) == 1 else self.cap[row:],
            exchange=self.exchange[row:],
            active=self.active[row:],
            exchanged=self.exchanged[row:],
            flooded=self.flooded[row:],
            schemes=tuple(schemes.items()),
            routes=None if self.routes is None else self.routes[row:],
            events=tuple(event for event in self.events if event.iteration > first),
            first=first,
            spilled_j=None if self.spilled_j is None else self.spilled_j[row:],
            gifts=tuple(gift for gift in self.gifts if gift[0] >= first),
            handed=tuple(gift for gift in self.handed if gift[0] >= first),
            snapshots=self.snapshots[row:],
        )
