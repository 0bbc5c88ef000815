"""The random geometric graph: devices that stand near each other are linked."""

from __future__ import annotations

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario import Network
from joulemesh.world.limits import MOST
from joulemesh.world.topology import FloatArray, IntArray, Site, Topology, components


def _links(site: Site) -> IntArray:
    """Links between devices within the radius that gives the wanted mean degree.

    Components that this leaves apart are joined by their shortest missing links, so the graph is
    connected and the degree hardly changes.
    """
    from scipy.spatial import cKDTree  # half of the package's start-up time

    count, positions, network = site.devices, site.positions_m, site.network
    _require_measurable(positions, network.area_m)
    degree = min(network.mean_degree, count - 1)
    radius = network.area_m * np.sqrt(degree / (np.pi * max(count - 1, 1)))
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


def _link_count(devices: int, network: Network) -> int:
    return int(devices * min(network.mean_degree, devices - 1.0)) // 2


TOPOLOGIES.register(
    Topology(
        "geometric",
        "devices within a radius that gives the wanted mean degree",
        _links,
        phrase="a geometric graph",
        parameters=("mean_degree",),
        link_count=_link_count,
        by_place=True,
    )
)
