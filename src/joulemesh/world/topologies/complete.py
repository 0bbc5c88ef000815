"""The complete graph."""

from __future__ import annotations

import numpy as np

from joulemesh.registries import TOPOLOGIES
from joulemesh.world.topology import IntArray, Site, Topology


def _links(site: Site) -> IntArray:
    return np.stack(np.triu_indices(site.devices, 1), axis=1)


def _ring(devices: int) -> IntArray | None:
    return np.arange(devices) if devices >= 3 else None


TOPOLOGIES.register(
    Topology(
        "complete",
        "every device is linked to every other",
        _links,
        phrase="a complete graph",
        ring=_ring,
        link_count=lambda devices, network: devices * (devices - 1) // 2,
    )
)
