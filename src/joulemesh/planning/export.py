"""A plan for other programs: JSON under the names of the API, arrays in an ``.npz`` file."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.files import write_whole

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

__all__ = ["plan_json", "plan_record", "save_plan"]

_MOST_ENTRIES = 1_000_000

_ARRAYS = (
    "edges",
    "rounds",
    "compute_j",
    "exchange_j",
    "exchange_s",
    "latency_s",
    "energy_budget_j",
    "compute_total_j",
    "exchange_total_j",
    "spent_j",
    "margin_j",
    "margin_s",
    "active",
    "exchanged",
    "binding",
)


def plan_record(plan: Plan) -> dict[str, Any]:
    """Everything in a plan but its arrays, as plain values."""
    scheme = plan.history.scheme
    gossip = None
    if not scheme.exact:
        costs = plan.world.costs(plan.world.channel.quantile_gain(plan.scenario.plan.fade_quantile))
        table = scheme.balance(costs, plan.energy_budget_j, plan.iterations)
        gossip = {
            "kind": scheme.kind,
            "rounds": scheme.rounds,
            "contraction": scheme.contraction,
            "consensus_error": scheme.error,
            "balance": table
            and {
                "rounds": table.rounds.tolist(),
                "error": table.error.tolist(),
                "dearest_j": table.dearest_j.tolist(),
                "share": table.share.tolist(),
                "best": table.best,
            },
        }
    return {
        "scheme": plan.scheme,
        "reason": plan.reason,
        "root": plan.history.route.root,
        "iterations": plan.iterations,
        "deadline_s": plan.deadline_s,
        "parameters": plan.work.parameters,
        "model_bits": plan.work.model_bits,
        "energy_j": float(plan.spent_j.sum()),
        "time_s": float(plan.latency_s.sum()),
        "device_rounds": int(plan.rounds.sum()),
        "gossip": gossip,
        "bounds": plan.bounds,
        "events": [dataclasses.asdict(event) for event in plan.events],
        "scenario": plan.scenario.model_dump(mode="json"),
    }


def plan_json(plan: Plan) -> str:
    """The plan as JSON; larger arrays are replaced by a word on where to find them."""
    record = plan_record(plan)
    for name in _ARRAYS:
        array = np.asarray(getattr(plan, name))
        if array.size > _MOST_ENTRIES:
            record[name] = f"{array.size} entries: use --out plan.npz"
        else:
            record[name] = array.tolist()
    return json.dumps(_finite(record), allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null in its place."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write the plan's arrays, and the rest as JSON under ``plan``; whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {name: np.asarray(getattr(plan, name)) for name in _ARRAYS}
    arrays["plan"] = np.array(json.dumps(_finite(plan_record(plan)), allow_nan=False))
    arrays["positions_m"] = plan.world.graph.positions_m

    def write(draft: Path) -> None:
        with open(draft, "wb") as file:  # a file, because np.savez adds a suffix to a name
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)
