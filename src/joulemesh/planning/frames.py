"""A plan for other libraries: a data frame of pandas, a graph of networkx."""

from __future__ import annotations

__all__ = ["plan_frame", "plan_graph"]

from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.optional import frame, require
from joulemesh.planning.columns import ledger_of

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan


def plan_frame(plan: Plan) -> Any:
    """One row per device, as a pandas DataFrame."""
    at = plan.world.graph.positions_m
    return frame(
        {
            "device": np.arange(len(at)),
            **({"name": plan.names} if plan.names else {}),
            "x_m": at[:, 0],
            "y_m": at[:, 1],
            **{name: np.asarray(getattr(plan, name)) for name in ledger_of(plan)},
            "rounds": plan.rounds.sum(axis=0),
            "binding": plan.binding.astype(object),
        },
        "device",
    )


def plan_graph(plan: Plan) -> Any:
    """Devices and links, as a networkx Graph."""
    graph, channel = plan.world.graph, plan.world.channel
    costs = plan.ground.forecast
    used = np.zeros(len(graph.edges), np.bool_)
    used[plan.timeline.route.link_index] = True
    made = require("networkx", "a graph").Graph()
    rounds, spent_j, binding = plan.rounds.sum(axis=0), plan.spent_j, plan.binding
    for i, (x, y) in enumerate(graph.positions_m.tolist()):
        made.add_node(
            i,
            pos=(x, y),
            energy_budget_j=float(plan.energy_budget_j[i]),
            spent_j=float(spent_j[i]),
            rounds=int(rounds[i]),
            binding=str(binding[i]),
            **({"name": plan.names[i]} if plan.names else {}),
        )
    slower_s = np.maximum(costs.forward_s, costs.backward_s)
    weight = costs.for_messages(plan.work.model_bits).weight()
    columns = {
        "gain": channel.mean_gain,
        "rate_bps": 1.0 / slower_s,
        "energy_j_per_bit": weight / 2,
        "weight": weight,
    }
    for k, (i, j) in enumerate(graph.edges.tolist()):
        figures = {name: float(values[k]) for name, values in columns.items()}
        made.add_edge(i, j, **figures, used=bool(used[k]))
    return made
