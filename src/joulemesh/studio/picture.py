"""The map of a scenario that has no plan: its devices and links, and no route."""

from __future__ import annotations

__all__ = ["UNPLANNED", "map_of_ground"]

from typing import Any

import numpy as np

from joulemesh.planning.ground import Ground
from joulemesh.views.plan.digest import every, few_digits
from joulemesh.views.plan.network import MOST_DOTS

UNPLANNED = "unplanned"
"""What binds a device of which there is no plan."""

_MOST_LINKS = 4_000


def map_of_ground(ground: Ground) -> dict[str, Any] | None:
    """Devices and links of a scenario that has no plan, as `map_data` writes those of one.

    Args:
        ground: the scenario, made ready.

    Returns:
        None where there are too many devices to be drawn one by one.

    >>> from joulemesh.scenario import Scenario
    >>> made = map_of_ground(Ground.of(Scenario(devices={"count": 5})))
    >>> len(made["at"]), len(made["links"]["ends"]), made["route"]["ends"]
    (5, 5, [])
    """
    graph, count = ground.world.graph, ground.world.graph.devices
    if count > MOST_DOTS:
        return None
    low, high = graph.positions_m.min(axis=0), graph.positions_m.max(axis=0)
    half = 0.54 * max(float((high - low).max()), 1.0)
    x, y = ((low + high) / 2).tolist()
    links = every(len(graph.edges), _MOST_LINKS)
    payers = 2.0 if ground.scenario.plan.pays == "both-ends" else 1.0
    bits = ground.work.model_bits
    energy = ground.forecast_at(0, links).for_messages(bits).weight() * bits * payers
    return {
        "frame": few_digits(np.array([x - half, x + half, y - half, y + half]), 6),
        "energy": few_digits(np.array([energy.min(), energy.max()])),
        "words": "none",
        "devices": count,
        "count": len(graph.edges),
        "used": 0,
        "root": -1,
        "bound": [UNPLANNED],
        "route": {"ends": [], "energy": []},
        "links": {"ends": graph.edges[links].tolist(), "energy": few_digits(energy, 4)},
        "drawn": [["links", len(links), len(graph.edges)]],
        "at": few_digits(graph.positions_m, 5),
        "binding": [UNPLANNED] * count,
        "departed": [False] * count,
        "battery": few_digits(ground.world.devices.energy_budget_j, 4),
        "spent": [0.0] * count,
        "rounds": [0] * count,
    }
