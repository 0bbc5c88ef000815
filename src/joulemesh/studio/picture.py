"""The map as the page draws it: devices, links and the route, and nothing drawn one by one where
there are too many to see."""

from __future__ import annotations

__all__ = ["map_of_ground", "map_of_plan"]

from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.views.plan.digest import departed, every, link_energy_j, route_words

MOST_DEVICES, MOST_LINKS = 5_000, 6_000


def map_of_ground(ground: Ground) -> dict[str, Any]:
    """Devices and links of a scenario that has no plan."""
    graph = ground.world.graph
    links = every(len(graph.edges), MOST_LINKS)
    return {
        "devices": graph.devices,
        "at": _rounded(graph.positions_m[every(graph.devices, MOST_DEVICES)]),
        "links": {"ends": graph.edges[links].tolist(), "energy": None},
        "route": {"ends": [], "energy": None},
        "count": len(graph.edges),
        "gone": [list(link) for link in ground.scenario.network.without],
        "words": "none",
        "root": -1,
    }


def map_of_plan(plan: Plan) -> dict[str, Any]:
    """Devices, links and the route of a plan.

    >>> import joulemesh
    >>> made = map_of_plan(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    >>> len(made["at"]), len(made["route"]["ends"]), len(made["links"]["ends"])
    (20, 19, 1)
    """
    graph = plan.world.graph
    route = np.unique(plan.timeline.route.link_index)
    other = np.setdiff1d(np.arange(len(graph.edges)), route)
    route, other = (links[every(len(links), MOST_LINKS)] for links in (route, other))
    shown = every(graph.devices, MOST_DEVICES)
    return {
        "devices": graph.devices,
        "at": _rounded(graph.positions_m[shown]),
        "links": _links(plan, other),
        "route": _links(plan, route),
        "count": len(graph.edges),
        "gone": [list(link) for link in plan.scenario.network.without],
        "words": route_words(plan),
        "root": plan.timeline.route.root,
        "binding": plan.binding[shown].tolist(),
        "departed": departed(plan)[shown].tolist(),
        "battery": _figures(plan.energy_budget_j[shown]),
        "spent": _figures(plan.spent_j[shown]),
        "rounds": plan.rounds.sum(axis=0)[shown].tolist(),
    }


def _links(plan: Plan, links: NDArray[np.int64]) -> dict[str, Any]:
    ends = plan.world.graph.edges[links].tolist()
    return {"ends": ends, "energy": _figures(link_energy_j(plan, links))}


def _rounded(metres: NDArray[np.float64]) -> Any:
    return np.round(metres, 3).tolist()


def _figures(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.4g}") for value in values.tolist()]
