"""The built-in topologies: ring, quasi-ring, grid, complete and geometric."""

from __future__ import annotations

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario import Network
from joulemesh.world.quantities import MOST
from joulemesh.world.topology import FloatArray, IntArray, Site, Topology, components

_MANY = 10_000  # chords for which there is room


def _ring(site: Site) -> IntArray:
    order = np.arange(site.devices)
    return np.stack([order, np.roll(order, -1)], axis=1)


def _quasi_ring(site: Site) -> IntArray:
    return np.concatenate([_ring(site), _chords(site)])


def _chords(site: Site) -> IntArray:
    """Chords drawn from the seed among all pairs that are not neighbours on the ring."""
    count, wanted, rng = site.devices, site.network.chords, site.rng
    most = count * (count - 3) // 2
    if wanted > most:
        raise ScenarioError(
            f"network.chords is {wanted}, but a ring of {count} has room for {most}; lower it",
            field="network.chords",
        )
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


def _circle(devices: int, side_m: float) -> tuple[FloatArray, float]:
    angle = 2 * np.pi * np.arange(devices) / devices
    centre = (0.5 + 0.4 * np.stack([np.cos(angle), np.sin(angle)], axis=1)) * side_m
    return centre, 0.8 * np.pi * side_m / devices


for _topology in (
    Topology(
        "ring",
        "each device is linked to the next, and the last to the first",
        _ring,
        phrase="a ring",
        least=3,
        ring=np.arange,
        layout=_circle,
    ),
    Topology(
        "quasi-ring",
        "a ring, and chords drawn from the seed",
        _quasi_ring,
        phrase="a ring with chords",
        least=4,
        ring=np.arange,
        layout=_circle,
        parameters=("chords",),
        link_count=lambda devices, network: devices + network.chords,
    ),
):
    TOPOLOGIES.register(_topology)


def _grid_links(site: Site) -> IntArray:
    count = site.devices
    if count % 2:
        raise ScenarioError(
            f"devices.count is {count}, but a grid with 2 columns needs an even number; "
            f"use {count - 1} or {count + 1}",
            field="devices.count",
        )
    left = np.arange(0, count, 2)
    rungs = np.stack([left, left + 1], axis=1)
    rails = np.stack([np.arange(count - 2), np.arange(2, count)], axis=1)
    return np.concatenate([rungs, rails])


def _perimeter(devices: int) -> IntArray | None:
    left = np.arange(0, devices, 2)
    return np.concatenate([left, left[::-1] + 1]) if devices >= 4 else None


def _layout(devices: int, side_m: float) -> tuple[FloatArray, float]:
    rows = devices // 2 + devices % 2
    row, column = np.divmod(np.arange(devices), 2)
    centre = np.stack([(column + 1) / 3, (row + 0.5) / rows], axis=1) * side_m
    return centre, side_m / max(rows, 3)


TOPOLOGIES.register(
    Topology(
        "grid",
        "two columns of devices, each linked to its neighbours in row and column",
        _grid_links,
        phrase="a grid",
        ring=_perimeter,
        layout=_layout,
    )
)


def _complete_links(site: Site) -> IntArray:
    return np.stack(np.triu_indices(site.devices, 1), axis=1)


def _complete_ring(devices: int) -> IntArray | None:
    return np.arange(devices) if devices >= 3 else None


TOPOLOGIES.register(
    Topology(
        "complete",
        "every device is linked to every other",
        _complete_links,
        phrase="a complete graph",
        ring=_complete_ring,
        link_count=lambda devices, network: devices * (devices - 1) // 2,
    )
)


_SMALL_PART = 256  # devices of a part whose neighbours are looked up in the tree of all


def _near_links(site: Site) -> IntArray:
    """Links between devices within the radius that gives the wanted mean degree.

    Components that this leaves apart are joined by their shortest missing links, so the graph is
    connected and the degree hardly changes.
    """
    from scipy.spatial import cKDTree  # half of the package's start-up time

    count, positions, network = site.devices, site.positions_m, site.network
    _require_measurable(positions, network.area_m)
    degree = min(network.mean_degree, count - 1)
    radius = network.area_m * np.sqrt(degree / (np.pi * max(count - 1, 1)))
    tree = cKDTree(positions)
    edges = tree.query_pairs(radius, output_type="ndarray").astype(np.int64)
    parts, label = components(edges, count)
    while parts > 1:
        sizes = np.bincount(label)
        by_part = np.split(np.argsort(label, kind="stable"), np.cumsum(sizes)[:-1])
        bridges = []
        for part, inside in enumerate(by_part):
            if part == sizes.argmax():
                continue
            if len(inside) <= _SMALL_PART:  # one of so many neighbours is not of the part
                lengths, others = map(np.asarray, tree.query(positions[inside], len(inside) + 1))
                first = np.arange(len(inside)), (label[others] != part).argmax(axis=1)
                distance, nearest = lengths[first], others[first]
            else:
                outside = np.flatnonzero(label != part)
                distance, place = cKDTree(positions[outside]).query(positions[inside])
                nearest = outside[place]
            k = int(np.argmin(distance))
            bridges.append((inside[k], nearest[k]))
        edges = np.concatenate([edges, np.array(bridges, np.int64)])
        parts, label = components(edges, count)
    return edges


def _require_measurable(positions: FloatArray, area_m: float) -> None:
    """Refuse places so far apart that the squares of their distances are infinite."""
    reach = np.abs(positions).max(axis=1)
    if reach.max() > MOST:
        device = int(reach.argmax())
        raise ScenarioError(
            "{device} stands {reach} m from the origin, beyond {most}; correct devices.x_m and "
            "y_m, or network.area_m",
            device=device,
            figures={"reach": reach[device], "most": MOST},
            field="devices.x_m",
        )
    if area_m > MOST:
        raise ScenarioError(
            f"network.area_m = {area_m:.4g} is beyond {MOST:g}; lower it", field="network.area_m"
        )


def _geometric_count(devices: int, network: Network) -> int:
    return int(devices * min(network.mean_degree, devices - 1.0)) // 2


TOPOLOGIES.register(
    Topology(
        "geometric",
        "devices within a radius that gives the wanted mean degree",
        _near_links,
        phrase="a geometric graph",
        parameters=("mean_degree",),
        link_count=_geometric_count,
        by_place=True,
    )
)
