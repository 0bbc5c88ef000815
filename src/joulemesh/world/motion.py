"""Devices that move: the links among them, and their gains, in every snapshot of a trace.

The graph holds every link that ever exists, so that a link keeps its number; which of them exist in
a snapshot says a mask. A planner sees the present one only.
"""

from __future__ import annotations

__all__ = ["Motion", "Snapshot", "build_motion"]

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.timed import Timed
from joulemesh.world.topology import Graph, links_at, topology_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

Snapshot: TypeAlias = tuple[int, bool]
"""Which rows of the trace of positions hold; see `Timed.snapshot`."""

_MOST = 50_000_000  # links of all snapshots together


@dataclass(frozen=True, eq=False)
class Motion:
    """Where devices are, and which links exist there.

    Attributes:
        positions: the trace.
        edges: int64 [E, 2]: every link that exists in some snapshot.
        links: bool [E] of each snapshot; empty if the links are the same in all of them.
    """

    positions: Timed
    edges: IntArray
    links: dict[Snapshot, BoolArray] = field(default_factory=dict, repr=False)

    @property
    def rewires(self) -> bool:
        """Do the links themselves change?"""
        return bool(self.links)

    @property
    def first(self) -> Snapshot:
        """With which training begins."""
        return self.positions.snapshot(self.positions.start)

    def exists(self, snapshot: Snapshot) -> BoolArray:
        """bool [E]: the links that exist."""
        return self.links[snapshot] if self.links else np.ones(len(self.edges), np.bool_)

    def distance_m(self, snapshot: Snapshot) -> FloatArray:
        """float64 [E]: how long the links are; where there is none, as long as the shortest."""
        ends = self.positions.held(snapshot)[self.edges]
        with np.errstate(all="ignore"):
            length_m = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
        exists = self.exists(snapshot)
        return np.asarray(np.where(exists, length_m, length_m[exists].min(initial=np.inf)))


def build_motion(scenario: Scenario, graph: Graph, positions: Timed) -> tuple[Motion, Graph]:
    """The motion of a scenario's devices, and the graph of all links that ever exist."""
    _require_places(scenario)
    first = positions.snapshot(positions.start)
    if not topology_of(scenario.network).by_place:
        stands = Graph(graph.devices, graph.edges, positions.held(first), graph.ring)
        return Motion(positions, graph.edges), stands
    keys: dict[Snapshot, IntArray] = {}
    count = 0
    for snapshot in _snapshots(positions):
        edges = links_at(scenario, positions.held(snapshot))
        keys[snapshot] = edges[:, 0] * graph.devices + edges[:, 1]
        count += len(keys[snapshot])
        if count > _MOST:
            raise ScenarioError(
                f"{positions.path} gives {len(keys)} snapshots and more than {_MOST:,} links in "
                "all; write fewer times"
            )
    union = np.unique(np.concatenate(list(keys.values())))
    edges = np.stack(np.divmod(union, graph.devices), axis=1)
    links = {snapshot: np.isin(union, key) for snapshot, key in keys.items()}
    return Motion(positions, edges, links), Graph(graph.devices, edges, positions.held(first))


def _snapshots(positions: Timed) -> Iterator[Snapshot]:
    """Every one that an iteration may find, each once."""
    times = np.concatenate([[positions.start], positions.changes])
    times = times[times >= positions.start]
    if positions.end == "repeat":
        times = np.concatenate([times, times + positions.period])
    seen: set[Snapshot] = set()
    for time in times.tolist():
        snapshot = positions.snapshot(time)
        if snapshot not in seen:
            seen.add(snapshot)
            yield snapshot


def _require_places(scenario: Scenario) -> None:
    network = scenario.network
    for name, given in (
        ("network.gains", network.gains is not None),
        ("network.fading", network.fading.startswith("trace:")),
        ("network.links", network.links is not None),
        ("network.interference_m", network.interference_m is not None),
    ):
        if given:
            raise ScenarioError(
                f"{name} is worked out for devices that stay where they are, and devices.positions "
                "moves them; leave one of the two out"
            )
