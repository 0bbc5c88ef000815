"""Devices, links and the route as plain values: each by itself, or very many summarised."""

from __future__ import annotations

__all__ = ["MOST_DOTS", "map_data"]

from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.views.plan.digest import (
    BINDING_KINDS,
    departed,
    drawn,
    every,
    few_digits,
    frame_m,
    link_energy_j,
    route_words,
)

MOST_DOTS = 2_000
"""Devices that are drawn one by one; more are summarised in cells."""

_MOST_LINKS = 4_000  # beside the route's; more cannot be told apart
_ACROSS = 14  # cells along each side of the map
_MOST_JOINTS = 1_200  # pairs of cells that are joined

IntArray = NDArray[np.int64]


def map_data(plan: Plan) -> dict[str, Any]:
    """What ``map.js`` draws: places, links and what they cost, the route, and what binds whom.

    Args:
        plan: the plan; with more than `MOST_DOTS` devices there are ``cells`` in place of ``at``.

    >>> import joulemesh
    >>> data = map_data(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    >>> len(data["at"]), len(data["route"]["ends"]), "cells" in data
    (20, 19, False)
    """
    graph, used = plan.world.graph, np.unique(plan.timeline.route.link_index)
    energy = link_energy_j(plan, drawn(len(graph.edges)))
    data: dict[str, Any] = {
        "frame": few_digits(np.array(frame_m(plan)), 6),
        "energy": few_digits(np.array([energy.min(), energy.max()])),
        "words": route_words(plan),
        "devices": graph.devices,
        "count": len(graph.edges),
        "used": len(used),
        "root": plan.timeline.route.root,
        "bound": [kind for kind in BINDING_KINDS if (plan.binding == kind).any()],
    }
    return data | (_cells(plan, used) if graph.devices > MOST_DOTS else _dots(plan, used))


def _dots(plan: Plan, used: IntArray) -> dict[str, Any]:
    """Every device, and its links as far as they can be told apart."""
    edges = plan.world.graph.edges
    other = np.setdiff1d(np.arange(len(edges)), used)
    other = other[every(len(other), _MOST_LINKS)]
    used = used[every(len(used), _MOST_LINKS)]
    return {
        **{
            name: {
                "ends": edges[links].tolist(),
                "energy": few_digits(link_energy_j(plan, links), 4),
            }
            for name, links in (("route", used), ("links", other))
        },
        "drawn": [["links", len(used) + len(other), len(edges)]],
        "at": few_digits(plan.world.graph.positions_m, 5),
        "binding": plan.binding.tolist(),
        "departed": departed(plan).tolist(),
        "battery": few_digits(plan.supplied_j, 4),
        "spent": few_digits(plan.spent_j, 4),
        "rounds": plan.rounds.sum(axis=0).tolist(),
    }


def _cells(plan: Plan, used: IntArray) -> dict[str, Any]:
    """How many devices stand in each cell of a grid, and how many links join two cells."""
    graph, at = plan.world.graph, plan.world.graph.positions_m
    corner, size = at.min(axis=0), max(float(np.ptp(at, axis=0).max()), 1e-9)
    square = np.clip(((at - corner) / size * _ACROSS).astype(int), 0, _ACROSS - 1)
    there, cell = np.unique(square @ [_ACROSS, 1], return_inverse=True)
    count = np.bincount(cell)
    middle = np.stack([np.bincount(cell, along) / count for along in at.T], axis=1)
    spent = np.bincount(cell, plan.spent_j) / np.bincount(cell, plan.supplied_j)
    kinds = {
        kind: np.bincount(cell[plan.binding == kind], minlength=len(there))
        for kind in BINDING_KINDS
    }
    joints = _joints(cell.astype(np.int32)[graph.edges], used, len(there))
    return {
        "across": _ACROSS,
        "cells": [
            {
                "x": x,
                "y": y,
                "count": int(count[k]),
                "spent": share,
                "binding": {kind: int(of[k]) for kind, of in kinds.items() if of[k]},
            }
            for k, ((x, y), share) in enumerate(
                zip(few_digits(middle), few_digits(spent, 3), strict=True)
            )
        ],
        "joints": joints,
        "drawn": [],
    }


def _joints(ends: NDArray[np.int32], used: IntArray, cells: int) -> list[dict[str, Any]]:
    """Pairs of cells that links join; of very many, those that carry most of the route."""
    joined = ends.min(axis=1) * cells + ends.max(axis=1)
    pair, links = np.unique(joined, return_counts=True)
    route = np.bincount(np.searchsorted(pair, joined[used]), minlength=len(pair))
    apart = np.flatnonzero(pair // cells != pair % cells)
    most = apart[np.lexsort((-links[apart], -route[apart]))][:_MOST_JOINTS]
    return [
        {
            "ends": [int(pair[k] // cells), int(pair[k] % cells)],
            "links": int(links[k]),
            "route": int(route[k]),
        }
        for k in most.tolist()
    ]
