"""The grid with 2 columns: device 2r + c stands in row r, column c."""

from __future__ import annotations

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.world.topology import FloatArray, IntArray, Site, Topology


def _links(site: Site) -> IntArray:
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
        _links,
        phrase="a grid",
        ring=_perimeter,
        layout=_layout,
    )
)
