"""Who can talk to whom: the named graphs, random geometric graphs, and edge lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from joulemesh.errors import ScenarioError
from joulemesh.scenario import TOPOLOGIES, Scenario
from joulemesh.tables import read_links, read_table
from joulemesh.world.devices import resolve, stream
from joulemesh.world.limits import MOST

__all__ = ["Graph", "build_graph", "components"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_MANY = 10_000  # chords for which there is room


@dataclass(frozen=True)
class Graph:
    """The radio graph.

    Attributes:
        devices: number of devices N.
        edges: int64 [E, 2], i < j, sorted, each link once.
        positions_m: float64 [N, 2].
        ring: int64 [N]: a ring that the topology is known to contain, or None.
    """

    devices: int
    edges: IntArray
    positions_m: FloatArray
    ring: IntArray | None = None


def components(edges: IntArray, devices: int) -> tuple[int, IntArray]:
    """Number of connected components, and the component of each device.

    >>> components(np.array([[0, 1], [2, 3]]), 4)[0]
    2
    """
    ones = np.ones(len(edges), np.int8)
    matrix = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(devices, devices))
    count, label = connected_components(matrix, directed=False)
    return int(count), np.asarray(label, np.int64)


def build_graph(scenario: Scenario) -> Graph:
    """The scenario's graph, connected, with the devices' positions.

    Raises:
        ScenarioError: too few devices for the topology, an odd grid, or a disconnected edge list.
    """
    count, topology = scenario.devices.count, scenario.network.topology
    listed = None if isinstance(topology, str) else np.array(topology, np.int64).reshape(-1, 2)
    name = topology if listed is None else f"the {len(listed)} listed links"
    least = {"ring": 3, "quasi-ring": 4, "grid": 2}.get(name, 2)
    if count < least:
        raise ScenarioError(
            f"devices.count is {count}, but {name!r} needs at least {least} devices"
        )
    positions = _positions(scenario)
    ring: IntArray | None = None
    if name in ("ring", "quasi-ring"):
        ring = np.arange(count)
        edges = np.stack([ring, np.roll(ring, -1)], axis=1)
        if name == "quasi-ring":
            edges = np.concatenate([edges, _chords(scenario)])
    elif name == "grid":
        edges, ring = _two_columns(count)
    elif name == "complete":
        edges = np.stack(np.triu_indices(count, 1), axis=1)
        ring = np.arange(count) if count >= 3 else None
    elif name == "geometric":
        edges = _geometric(positions, scenario.network.area_m, scenario.network.mean_degree)
    elif listed is not None:
        edges = _known_devices(listed, count)
    else:
        edges = read_links(read_table(name), name, count)
    edges = np.unique(np.sort(edges.astype(np.int64), axis=1), axis=0)
    graph = Graph(count, edges, positions, ring)
    if name not in TOPOLOGIES:
        _require_connected(graph, name)
    return graph


def _require_connected(graph: Graph, name: str) -> None:
    count, label = components(graph.edges, graph.devices)
    if count > 1:
        outside = int(np.argmax(label != label[0]))
        raise ScenarioError(
            f"network.topology: the graph of {name} falls into {count} parts "
            f"(no path from device 0 to device {outside}); add a link between them"
        )


def _chords(scenario: Scenario) -> IntArray:
    """Chords drawn from the seed among all pairs that are not neighbours on the ring."""
    count, wanted = scenario.devices.count, scenario.network.chords
    most = count * (count - 3) // 2
    if wanted > most:
        raise ScenarioError(
            f"network.chords is {wanted}, but a ring of {count} has room for {most}; lower it"
        )
    rng = stream(scenario.seed, "chords")
    if most > _MANY and wanted > most // 2:  # pairs met by chance would hardly ever be new
        pairs = np.stack(np.triu_indices(count, 2), axis=1)
        pairs = pairs[pairs[:, 1] - pairs[:, 0] <= count - 2]
        return np.asarray(rng.permutation(pairs)[:wanted])
    chosen: dict[tuple[int, int], None] = {}
    while len(chosen) < wanted:
        i, j = sorted(rng.integers(count, size=2).tolist())
        if 2 <= j - i <= count - 2:
            chosen[i, j] = None
    return np.array(list(chosen), np.int64).reshape(-1, 2)


def _two_columns(count: int) -> tuple[IntArray, IntArray]:
    """The grid with 2 columns: device 2r + c stands in row r, column c; and its perimeter."""
    if count % 2:
        raise ScenarioError(
            f"devices.count is {count}, but a grid with 2 columns needs an even number; "
            f"use {count - 1} or {count + 1}"
        )
    left = np.arange(0, count, 2)
    rungs = np.stack([left, left + 1], axis=1)
    rails = np.stack([np.arange(count - 2), np.arange(2, count)], axis=1)
    ring = np.concatenate([left, left[::-1] + 1])
    return np.concatenate([rungs, rails]), (ring if count >= 4 else None)  # type: ignore[return-value]


def _geometric(positions: FloatArray, area_m: float, mean_degree: float) -> IntArray:
    """Links between devices within the radius that gives the wanted mean degree.

    Components that this leaves apart are joined by their shortest missing links, so the graph is
    connected and the degree hardly changes.
    """
    from scipy.spatial import cKDTree  # half of the package's start-up time

    count = len(positions)
    _require_measurable(positions, area_m)
    radius = area_m * np.sqrt(min(mean_degree, count - 1) / (np.pi * max(count - 1, 1)))
    edges = cKDTree(positions).query_pairs(radius, output_type="ndarray").astype(np.int64)
    parts, label = components(edges, count)
    while parts > 1:
        largest = int(np.bincount(label).argmax())
        bridges = []
        for part in range(parts):
            inside = label == part
            if part == largest:
                continue
            found = cKDTree(positions[~inside]).query(positions[inside])
            distance, nearest = np.asarray(found[0]), np.asarray(found[1])
            k = int(np.argmin(distance))
            bridges.append((np.flatnonzero(inside)[k], np.flatnonzero(~inside)[nearest[k]]))
        edges = np.concatenate([edges, np.array(bridges, np.int64)])
        parts, label = components(edges, count)
    return edges


def _require_measurable(positions: FloatArray, area_m: float) -> None:
    """Refuse places so far apart that the squares of their distances are infinite."""
    reach = np.abs(positions).max(axis=1)
    if reach.max() > MOST:
        device = int(reach.argmax())
        raise ScenarioError(
            f"device {device} stands {reach[device]:.4g} m from the origin, beyond {MOST:g}; mend "
            "devices.x_m and y_m, or network.area_m"
        )
    if area_m > MOST:
        raise ScenarioError(f"network.area_m = {area_m:.4g} is beyond {MOST:g}; lower it")


def _known_devices(links: IntArray, count: int) -> IntArray:
    if links.max() >= count:
        i, j = links[int(np.argmax(links.max(axis=1)))]
        raise ScenarioError(
            f"network.topology: the link {i}-{j} must join two of the devices 0..{count - 1}; "
            f"correct it, or set devices.count to {links.max() + 1}"
        )
    return links


def _positions(scenario: Scenario) -> FloatArray:
    """Positions given, along the topology's shape, or uniform in the square."""
    count, side = scenario.devices.count, scenario.network.area_m
    given = (scenario.devices.x_m, scenario.devices.y_m)
    if given[0] is not None and given[1] is not None:
        infinite = -np.inf
        return np.stack(
            [
                resolve(scenario, "x_m", given[0], minimum=infinite),
                resolve(scenario, "y_m", given[1], minimum=infinite),
            ],
            axis=1,
        )
    if given != (None, None):
        raise ScenarioError("devices.x_m and devices.y_m go together; give both or neither")
    rng = stream(scenario.seed, "positions")
    name, placement = scenario.network.topology, scenario.network.placement
    if placement == "uniform" or name not in ("ring", "quasi-ring", "grid"):
        return rng.uniform(0.0, side, (count, 2))
    if name == "grid":
        rows = count // 2 + count % 2
        row, column = np.divmod(np.arange(count), 2)
        centre = np.stack([(column + 1) / 3, (row + 0.5) / rows], axis=1) * side
        spacing = side / max(rows, 3)
    else:
        angle = 2 * np.pi * np.arange(count) / count
        centre = (0.5 + 0.4 * np.stack([np.cos(angle), np.sin(angle)], axis=1)) * side
        spacing = 0.8 * np.pi * side / count
    jitter = 0.3 * min(spacing, 0.3 * side)
    return np.clip(centre + rng.uniform(-jitter, jitter, (count, 2)), 0.0, side)
