"""What a method is to whoever compares it: a schedule to play, an exchange, and its price."""

from __future__ import annotations

__all__ = ["Contender", "FloatArray", "IntArray", "Ledger"]

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.training.schedule import Schedule

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan
    from joulemesh.training.jax.exchange import Exchange

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ledger:
    """What n iterations cost.

    Attributes:
        compute_j: float64 [n, N]: joules of local training, and of a method's own computation.
        exchange_j: float64 [n, N]: joules of the radio, sending and receiving.
        latency_s: float64 [n]: seconds of each iteration.
        bits: float64 [n]: bits on the air.
        server_j: float64 [n]: joules that no battery pays (fedavg's server).
        receive_j: float64 [n, N]: what of the radio's joules is for receiving; None if it is free.
        idle_j: float64 [n, N]: joules at rest; None if they are not counted.

    >>> ledger = Ledger(np.ones((2, 3)), np.ones((2, 3)), np.ones(2), np.ones(2), np.zeros(2))
    >>> ledger.spent_j.tolist(), ledger.first(1).total_j
    ([4.0, 4.0, 4.0], 6.0)
    """

    compute_j: FloatArray
    exchange_j: FloatArray
    latency_s: FloatArray
    bits: FloatArray
    server_j: FloatArray
    receive_j: FloatArray | None = None
    idle_j: FloatArray | None = None

    @property
    def iterations(self) -> int:
        """Number n of iterations."""
        return len(self.latency_s)

    @cached_property
    def energy_j(self) -> FloatArray:
        """float64 [n, N]: joules of each device in each iteration."""
        working = np.asarray(self.compute_j + self.exchange_j)
        return working if self.idle_j is None else np.asarray(working + self.idle_j)

    @property
    def columns_j(self) -> FloatArray:
        """float64 [4, N]: joules of all iterations for computing, sending, receiving, at rest."""
        compute, exchange = self.compute_j.sum(axis=0), self.exchange_j.sum(axis=0)
        nothing = np.zeros_like(compute)
        heard = nothing if self.receive_j is None else self.receive_j.sum(axis=0)
        idle = nothing if self.idle_j is None else self.idle_j.sum(axis=0)
        return np.stack([compute, exchange - heard, heard, idle])

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each battery pays in all."""
        return np.asarray(self.energy_j.sum(axis=0))

    @property
    def total_j(self) -> float:
        """Joules of all batteries together."""
        return float(self.spent_j.sum())

    def first(self, iterations: int) -> Ledger:
        """The ledger of the first iterations only."""
        return self._each(lambda column: column[:iterations])

    def tiled(self, iterations: int) -> Ledger:
        """One iteration's ledger, as that of several that are all alike (views, not copies)."""
        return self._each(lambda one: np.broadcast_to(one, (iterations, *one.shape[1:])))

    def then(self, later: Ledger) -> Ledger:
        """This ledger, followed by another."""
        names = [one.name for one in fields(self) if getattr(self, one.name) is not None]
        both = {name: (getattr(self, name), getattr(later, name)) for name in names}
        return Ledger(**{name: np.concatenate(pair) for name, pair in both.items()})

    def _each(self, change: Callable[[FloatArray], FloatArray]) -> Ledger:
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        return Ledger(**{name: change(one) for name, one in columns.items() if one is not None})


@dataclass(frozen=True, eq=False)
class Contender:
    """A method made ready for one scenario.

    Attributes:
        name: as the user wrote it, for instance ``"fixed:3"``.
        schedule: what the engine plays.
        exchange: the method's own exchange; None for the schedule's mixing.
        reserve: what the iterations cost, known before training; for a method whose messages
            depend on the weights (``settle`` is given), what they cost at most.
        battery_j: float64 [N].
        notes: what a reader of the results should know, one line each.
        settle: what one repetition's ``sent`` (a pytree of [n, ...]) cost.
        plan: the plan that the schedule carries out from its beginning to its end, if there is one.
        traced: does it follow the traces of the scenario's devices?
        drawn: where packets are lost, are transmissions and lost messages drawn, and not merely
            priced as expected?
        variants: the same method with other values of a parameter that it chose itself, as a user
            would write them: they are tried where learning rates are.
    """

    name: str
    schedule: Schedule
    exchange: Exchange | None
    reserve: Ledger
    battery_j: FloatArray
    notes: tuple[str, ...] = ()
    settle: Callable[[Any], Ledger] | None = None
    plan: Plan | None = None
    traced: bool = False
    drawn: bool = False
    variants: tuple[str, ...] = ()

    @property
    def simulation_only(self) -> str:
        """Why real devices cannot carry it out, in a few words; empty if they can.

        They need to know what one of them does in an exchange, and to make the plan again when one
        of them fails.
        """
        if self.exchange is not None:
            return (
                "its exchange works on the parameters of all devices at once; choose one whose "
                "exchange is a scheme's"
            )
        if self.plan is not None:
            from joulemesh.planning.digest import digest_of
            from joulemesh.planning.static import plan_of

            if digest_of(plan_of(self.plan.ground)) == digest_of(self.plan):
                return ""
        return (
            "it has no plan that devices could make again when one of them fails; say what you "
            "want in the scenario (plan.rounds, plan.exchange, …)"
        )

    @property
    def deployable(self) -> bool:
        """Can real devices carry it out?"""
        return not self.simulation_only

    def ledger(self, sent: Any = None, seed: int = 0) -> Ledger:
        """Price a run.

        Args:
            sent: the trace's ``sent``, a pytree of [n, seeds, ...]; needed only where the
                messages depend on the weights. Without it the answer is the reserve.
            seed: which of the repetitions, by position.

        Returns:
            The ledger of that repetition.
        """
        if self.settle is None or sent is None:
            return self.reserve
        import jax  # a method that settles afterwards has trained

        return self.settle(jax.tree.map(lambda leaf: np.asarray(leaf)[:, seed], sent))

    def leftover_j(self, ledger: Ledger | None = None) -> FloatArray:
        """float64 [N]: what stays in the batteries; negative where they are overdrawn."""
        spent = (self.reserve if ledger is None else ledger).spent_j
        return np.asarray(self.battery_j - spent)
