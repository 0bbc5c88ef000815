"""The ring, and the quasi-ring: a ring with chords drawn from the seed."""

from __future__ import annotations

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.world.topology import FloatArray, IntArray, Site, Topology

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
