"""Where the rest of a plan begins: who takes part, and what they have left."""

from __future__ import annotations

__all__ = ["Remaining", "cut_off"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.subgraph import Subgraph
from joulemesh.errors import ScenarioError
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.ground import Ground
from joulemesh.scenario import Scenario
from joulemesh.world.topology import Graph, components

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Remaining:
    """The state from which the rest of a plan is made.

    Attributes:
        first: its first iteration, from 0.
        active: bool [N]: who takes part.
        battery_j: float64 [N]: what each may still spend; 0 for those who take no part.
        cut: bool [E]: links that carry nothing.
        elapsed_s: seconds that earlier iterations have taken.
    """

    first: int
    active: BoolArray
    battery_j: FloatArray
    cut: BoolArray
    elapsed_s: float = 0.0

    @classmethod
    def all_of(cls, ground: Ground) -> Remaining:
        """A whole plan: everybody, from the first iteration on."""
        graph = ground.world.graph
        active, cut = np.ones(graph.devices, np.bool_), np.zeros(len(graph.edges), np.bool_)
        return cls(0, active, ground.world.devices.energy_budget_j.copy(), cut)

    @classmethod
    def of(
        cls,
        ground: Ground,
        *,
        start: int,
        members: Sequence[int],
        left_j: Sequence[float],
        cut: Iterable[tuple[int, int]] = (),
        elapsed_s: float = 0.0,
        reserve: float = 0.0,
    ) -> Remaining:
        """The state of some members.

        Args:
            ground: the scenario, made ready.
            start: the first iteration to plan, from 1.
            members: the devices that take part.
            left_j: joules that each of them has left; no more than its battery counts.
            cut: links that carry nothing, as pairs of devices; a pair without a link is no harm.
            elapsed_s: seconds that earlier iterations have taken.
            reserve: share of each battery that is left alone.

        Raises:
            ScenarioError: there is no such device or iteration, or a figure is not a number.

        >>> ground = Ground.of(Scenario.preset("adaptive"))
        >>> rest = Remaining.of(ground, start=4, members=(0, 1, 2), left_j=(1.0, 2.0, 3.0))
        >>> rest.first, int(rest.active.sum()), float(rest.battery_j.sum())
        (3, 3, 6.0)
        """
        graph, held = ground.world.graph, ground.world.devices.energy_budget_j
        _require_sound(graph, start, members, left_j, elapsed_s)
        who, active = np.array(members, np.int64), np.zeros(graph.devices, np.bool_)
        active[who] = True
        battery_j = np.zeros(graph.devices)
        usable_j = np.array(left_j, np.float64) - reserve * held[who]
        battery_j[who] = np.clip(usable_j, 0.0, held[who])
        pairs = {(min(pair), max(pair)) for pair in cut}
        gone = np.array([tuple(ends) in pairs for ends in graph.edges.tolist()], np.bool_)
        return cls(start - 1, active, battery_j, gone, float(elapsed_s))

    def without(self, lost: BoolArray) -> Remaining:
        """The same without some devices, bool [N]."""
        return replace(
            self, active=self.active & ~lost, battery_j=np.where(lost, 0.0, self.battery_j)
        )

    def limits(self, scenario: Scenario) -> TimeLimits:
        """The time that is left of what the scenario allows.

        >>> from joulemesh.scenario import Scenario
        >>> scenario = Scenario(budget={"total_s": 10.0})
        >>> rest = Remaining(3, np.ones(1, bool), np.ones(1), np.zeros(0, bool), elapsed_s=4.0)
        >>> rest.limits(scenario).total_s
        6.0
        """
        limits = TimeLimits.of(scenario)
        if limits.total_s is None or not self.elapsed_s:
            return limits
        return replace(limits, total_s=max(0.0, limits.total_s - self.elapsed_s))


def _require_sound(
    graph: Graph, start: int, members: Sequence[int], left_j: Sequence[float], elapsed_s: float
) -> None:
    known = len(set(members)) == len(members) and all(0 <= i < graph.devices for i in members)
    if not known:
        raise ScenarioError(
            f"the members {tuple(members)} are not different devices of 0..{graph.devices - 1}"
        )
    if len(left_j) != len(members) or not np.isfinite(left_j).all():
        raise ScenarioError(
            f"{len(members)} members need as many finite numbers of joules, not {tuple(left_j)}"
        )
    if start < 1 or not 0 <= elapsed_s < math.inf:
        raise ScenarioError(
            f"the rest of a plan begins with iteration 1 or later, after 0 s or more; not with "
            f"iteration {start} after {elapsed_s:g} s"
        )


def cut_off(
    graph: Graph, active: BoolArray, cut: BoolArray, holders: BoolArray | None = None
) -> BoolArray:
    """bool [N]: the active devices from which no path leads to the largest part of the others.

    Args:
        graph: the whole.
        active: bool [N]: who takes part.
        cut: bool [E]: links that carry nothing.
        holders: bool [N]: those who hold what the others have learned; a part of two devices or
            more with one of them goes on rather than a larger one without.

    >>> graph = Graph(4, np.array([[0, 1], [1, 2], [2, 3]]), np.zeros((4, 2)))
    >>> cut_off(graph, np.ones(4, bool), np.array([False, False, True])).tolist()
    [False, False, False, True]
    >>> cut = np.array([False, True, False])
    >>> cut_off(graph, np.ones(4, bool), cut, np.array([False, False, False, True])).tolist()
    [True, True, False, False]
    """
    part = Subgraph.of(graph, active, cut)
    parts, label = components(part.edges, part.devices)
    lost = np.zeros_like(active)
    if parts > 1:
        size = np.bincount(label)
        if holders is not None:
            held = np.bincount(label, holders[part.members], parts) > 0
            size = np.where(held & (size > 1), size + len(label), size)
        lost[part.members[label != size.argmax()]] = True
    return lost
