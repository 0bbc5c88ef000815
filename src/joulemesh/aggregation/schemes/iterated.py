"""What schemes have in common that come closer to the mean with every gossip round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.gossip_rounds import Balance, balance
from joulemesh.aggregation.on_air import route_j
from joulemesh.aggregation.scheme import Conditions
from joulemesh.aggregation.schemes.base import SchemeBase
from joulemesh.aggregation.spectrum import (
    Mode,
    activity,
    contraction,
    error_after,
    paper_rounds,
    rounds_for,
)
from joulemesh.errors import InfeasibleError
from joulemesh.world.links import LinkCosts

__all__ = ["PARAMETERS", "IteratedScheme", "with_decided_rounds"]

FloatArray = NDArray[np.float64]

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
    """The scheme with the K that ``plan.gossip_rounds`` asks for.

    Args:
        scheme: without it.
        conditions: for which it is made ready.
        as_printed: take the paper's K for a wanted consensus error, which ignores the graph.

    Raises:
        InfeasibleError: K is larger than can be planned.
    """
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
