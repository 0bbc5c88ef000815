"""Everything that the page shows of one scenario: one JSON document, made by one function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from joulemesh.base.errors import JoulemeshError, called
from joulemesh.base.units import duration, energy
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan, digest_of, spent_on
from joulemesh.planning.static import plan_of
from joulemesh.scenario import SECTIONS, Scenario
from joulemesh.scenario.scenario import field_names
from joulemesh.studio.form import written
from joulemesh.studio.table import MOST_ROWS, device_table
from joulemesh.views.charts import (
    BINDING_KINDS,
    BINDING_WORDS,
    MOST_DOTS,
    battery_data,
    every,
    few_digits,
    flow_data,
    gantt_data,
    map_data,
    rounds_data,
)

UNPLANNED = "unplanned"
"""What binds a device of which there is no plan."""

_MOST_LINKS = 4_000


def map_of_ground(ground: Ground) -> dict[str, Any] | None:
    """Devices and links of a scenario that has no plan, as `map_data` writes those of one."""
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


_MOST_SHOWN = 64  # characters of a field; longer lists are edited in the table of devices
_MOST_EVENTS = 20


@dataclass(frozen=True, eq=False)
class Shown:
    """A scenario that was planned, or refused."""

    plan: Plan | None  # None if it was refused
    document: dict[str, Any]  # what the page shows of it


def document(scenario: Scenario) -> dict[str, Any]:
    """Plan a scenario and tell everything about it, as plain JSON values.

    Args:
        scenario: what is asked; one that cannot be planned is told with the reason and its
            remedies, and with the map of its devices as far as there is one.

    Returns:
        ``fields`` (value and origin of each), ``devices`` (a table), ``map``, and of a plan
        ``plan`` (figures and sentences), ``rounds``, ``battery``, ``gantt`` (the first iteration
        that exchanges, and the longest) and ``flow``; otherwise ``refusal``.

    >>> found = document(Scenario.preset("adaptive"))
    >>> found["plan"]["scheme"], found["plan"]["iterations"], found["refusal"]
    ('tree', 100, None)
    >>> refused = document(Scenario.preset("adaptive").override({"budget.deadline_s": 1e-3}))
    >>> refused["plan"], refused["refusal"]["remedies"][0]["words"]
    (None, 'raise the deadline to 14.12 ms')
    """
    shown = show(scenario)
    gantt = [] if shown.plan is None else gantt_data(shown.plan)
    return shown.document | {"gantt": gantt}


def show(scenario: Scenario) -> Shown:
    """Plan a scenario, and tell everything about it but its time lines; see `document`."""
    made: dict[str, Any] = {
        "name": scenario.name,
        "fields": fields_of_scenario(scenario),
        "plan": None,
        "refusal": None,
        "kinds": {**BINDING_WORDS, UNPLANNED: "not planned"},
        "gone": [list(link) for link in scenario.network.without],
        "leave": [list(pair) for pair in scenario.devices.leave],
    }
    ground = None
    try:
        ground = Ground.of(scenario)
        plan = plan_of(ground)
    except JoulemeshError as error:
        made["refusal"] = error.data
        made["map"] = None if ground is None else map_of_ground(ground)
        made["devices"] = device_table(scenario, ground)
        made["names"] = [] if ground is None else _names(ground.names)
        return Shown(None, made)
    return Shown(plan, made | _of_plan(plan))


def _of_plan(plan: Plan) -> dict[str, Any]:
    return {
        "names": _names(plan.names),
        "plan": _figures(plan),
        "map": map_data(plan),
        "rounds": rounds_data(plan),
        "battery": battery_data(plan),
        "flow": flow_data(plan),
        "devices": device_table(plan.scenario, plan.ground, plan),
    }


def _names(names: tuple[str, ...]) -> list[str]:
    """The devices' names, unless there are more devices than the page shows one by one."""
    return list(names) if len(names) <= MOST_ROWS else []


def fields_of_scenario(scenario: Scenario) -> dict[str, dict[str, Any]]:
    """What each field holds, as it would be typed, and where that comes from."""
    origins = scenario.origins()
    return {
        name: _shown(_value(scenario, name)) | {"origin": str(origins[name])}
        for name in field_names()
    }


def _value(scenario: Scenario, name: str) -> Any:
    section, _, field = name.partition(".")
    return getattr(getattr(scenario, section), field) if section in SECTIONS else scenario.seed


def _shown(value: Any) -> dict[str, Any]:
    """A value as text; of a long list, how many there are."""
    items = next(iter(value.values())) if isinstance(value, dict) and value else value
    if isinstance(items, list | tuple) and len(items) > 8:
        return {"text": "", "many": len(items)}
    text = written(value)
    return {"text": text} if len(text) <= 4 * _MOST_SHOWN else {"text": "", "many": 1}


def _figures(plan: Plan) -> dict[str, Any]:
    n, count = plan.rounds.shape
    held_j, spent_j = float(plan.supplied_j.sum()), float(plan.spent_j.sum())
    bound = {kind: int((plan.binding == kind).sum()) for kind in BINDING_KINDS}
    root = plan.timeline.route.root
    return {
        "digest": digest_of(plan),
        "first": int(np.argmax(plan.exchanged)) + 1,
        "longest": int(np.argmax(plan.planned.latency_s)) + 1,
        "scheme": plan.scheme,
        "reason": plan.reason,
        "root": plan.name(root) if root >= 0 else "",
        "iterations": n,
        "devices": count,
        "rounds": int(plan.rounds.sum()),
        "spent_j": spent_j,
        "held_j": held_j,
        "time_s": plan.time_s,
        "longest_s": float(plan.latency_s.max()),
        "exchange_s": float(plan.exchange_s.max()),
        "deadline_s": plan.deadline_s,
        "total_s": plan.total_s,
        "uses": {name: float(joules.sum()) for name, joules in spent_on(plan).items()},
        "bound": {kind: number for kind, number in bound.items() if number},
        "tiles": _tiles(plan, spent_j, held_j),
        "notes": list(plan.notes),
        "events": [
            {
                "iteration": event.iteration,
                "kind": event.kind,
                "who": _who(event.devices, plan.names),
                "detail": event.detail,
            }
            for event in plan.events[:_MOST_EVENTS]
        ],
        "more_events": max(0, len(plan.events) - _MOST_EVENTS),
    }


def _tiles(plan: Plan, spent_j: float, held_j: float) -> list[list[str]]:
    n, count = plan.rounds.shape
    mean = float(plan.rounds[plan.active].mean()) if plan.active.any() else 0.0
    limit = "" if plan.deadline_s is None else f"of {duration(plan.deadline_s)} each"
    whole = "" if plan.total_s is None else f"of {duration(plan.total_s)}"
    return [
        ["scheme", plan.scheme, f"exchange {duration(float(plan.exchange_s.max()))}"],
        ["iterations", f"{n:,}", f"communication rounds of {count:,} devices"],
        ["local rounds", f"{int(plan.rounds.sum()):,}", f"{mean:.3g} per iteration and device"],
        ["energy", energy(spent_j), f"of {energy(held_j)}"],
        ["time", duration(plan.time_s), whole],
        ["longest iteration", duration(float(plan.latency_s.max())), limit],
    ]


def _who(devices: Iterable[int], names: tuple[str, ...], most: int = 6) -> str:
    every = list(devices)
    text = ", ".join(called(i, names) for i in every[:most])
    return f"{text} and {len(every) - most:,} more" if len(every) > most else text


_COUNT: Callable[[float], str] = lambda value: f"{value:,.0f}"  # noqa: E731
_FIGURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "iterations": ("iterations", _COUNT),
    "rounds": ("local rounds", _COUNT),
    "spent_j": ("energy spent", energy),
    "held_j": ("energy held", energy),
    "time_s": ("time in all", duration),
    "longest_s": ("longest iteration", duration),
    "exchange_s": ("exchange", duration),
}


def plan_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What differs between two documents.

    Args:
        before: the one that was kept (`document`).
        now: the other.

    Returns:
        ``fields`` (those that differ, each with both values), ``figures`` (name, both as text, and
        by how many per cent the second is larger) and ``bound`` (how many devices each limit binds,
        before and now).

    >>> from joulemesh.scenario import Scenario
    >>> from joulemesh.studio.document import document
    >>> one = Scenario.preset("adaptive")
    >>> two = one.override({"budget.deadline_s": 0.05})
    >>> found = plan_difference(document(one), document(two))
    >>> found["fields"]
    [{'field': 'budget.deadline_s', 'before': '0.04', 'now': '0.05'}]
    >>> [row["name"] for row in found["figures"] if row["change"]][:2]
    ['local rounds', 'energy spent']
    """
    old, new = before["plan"], now["plan"]
    fields = [
        {"field": name, "before": _text(before["fields"][name]), "now": _text(field)}
        for name, field in now["fields"].items()
        if _text(before["fields"][name]) != _text(field)
    ]
    figures = []
    if old is not None and new is not None:
        figures = [
            {"name": "scheme", "before": old["scheme"], "now": new["scheme"], "change": None},
            *(_row(name, say, old[key], new[key]) for key, (name, say) in _FIGURES.items()),
        ]
    kinds = dict.fromkeys([*(old or {}).get("bound", ()), *(new or {}).get("bound", ())])
    bound = {
        kind: [(one or {}).get("bound", {}).get(kind, 0) for one in (old, new)] for kind in kinds
    }
    return {"fields": fields, "figures": figures, "bound": bound}


def _text(field: Mapping[str, Any]) -> str:
    many = field.get("many")
    return f"{many:,} values" if many else str(field["text"])


def _row(name: str, say: Callable[[float], str], old: float, new: float) -> dict[str, Any]:
    change = 100 * (new - old) / old if old else 0.0
    return {"name": name, "before": say(old), "now": say(new), "change": round(change, 2)}
