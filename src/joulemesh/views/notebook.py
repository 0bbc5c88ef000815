"""What a notebook shows of a scenario, a plan, a result and a comparison.

Colours are the notebook's own (``currentColor``) except a few that are told apart on light and on
dark ground, because notebooks set their theme without telling the browser.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from joulemesh.base.units import duration
from joulemesh.metrics import reported
from joulemesh.planning.plan import Plan
from joulemesh.scenario import SECTIONS, Budget, Origin, Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.result import Result
from joulemesh.views import words
from joulemesh.views.charts import (
    BINDING_KINDS,
    BINDING_WORDS,
    curves,
    every,
    few_digits,
    learning,
    line,
    map_data,
    route_words,
)
from joulemesh.views.comparison import curves_of_methods, method_table, reading, sentence
from joulemesh.views.page import asset, fragment
from joulemesh.views.printing import BINDING_ON_ANY, CURVES_ON_ANY
from joulemesh.views.report import Summary, devices, tiles
from joulemesh.views.table import Column, Table
from joulemesh.views.words import value_words
from joulemesh.world.topology import topology_of

_WIDTH, _HEIGHT, _SIDE = 360, 150, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 22
_MOST_DOTS, _MOST_POINTS = 400, 300


def notebook_html(value: Scenario | Plan | Result | Comparison) -> str:
    """The HTML of a scenario, a plan, a result or a comparison.

    Args:
        value: one of them.

    Returns:
        A fragment with its own style.

    >>> import joulemesh
    >>> notebook_html(joulemesh.Scenario()).startswith('<div class="joulemesh">')
    True
    """
    if isinstance(value, Plan):
        parts = _of_plan(value)
    elif isinstance(value, Result):
        parts = _of_result(value)
    else:
        parts = _of_comparison(value) if isinstance(value, Comparison) else _of_scenario(value)
    return fragment("notebook.html", style=asset("notebook.css"), **parts)


def _of_scenario(scenario: Scenario) -> dict[str, Any]:
    rows, origins, network = [], scenario.origins(), scenario.network
    named = origins["network.profile"].kind == "given"
    filled = None if named else Origin("profile", str(network.profile))
    for name, section in SECTIONS.items():
        values = getattr(scenario, name)
        given = [
            field
            for field in section.model_fields
            if field in values.model_fields_set and origins[f"{name}.{field}"] != filled
        ]
        said = [f"{field} {value_words(field, getattr(values, field))}" for field in given]
        if said:
            rows.append([name, ", ".join(said)])
    columns = [Column("section", figures=False, heads=True), Column("set", figures=False)]
    return {
        "lines": [_asked(scenario)],
        "small": "" if rows else "Every field has its default.",
        "table": Table(columns, rows, "wrap") if rows else None,
        "folded": {"all fields": scenario.to_toml()},
    }


def _asked(scenario: Scenario) -> str:
    devices, network, training = scenario.devices, scenario.network, scenario.training
    hardware = f" ({devices.profile})" if isinstance(devices.profile, str) else ""
    links = topology_of(network).phrase
    air = "" if network.profile in (None, "ideal") else f", by {network.profile},"
    n = scenario.plan.iterations
    times = f"{n:,} iterations" if isinstance(n, int) else f"the {n} number of iterations"
    times = "as many iterations as are worth their price" if n == "auto" else times
    battery = scenario.budget.energy_j
    size = "as in the table" if isinstance(battery, str) else f"of {value_words('_j', battery)}"
    return (
        f"{devices.count:,} devices{hardware} on {links}{air} learn {training.dataset} with "
        f"{words.model_words(training.model)} for {times}{_time_words(scenario.budget)}, on "
        f"batteries {size}."
    )


def _time_words(budget: Budget) -> str:
    each = "" if budget.deadline_s is None else f" of at most {duration(budget.deadline_s)}"
    return each if budget.total_s is None else f"{each} in at most {duration(budget.total_s)}"


def _of_plan(plan: Plan) -> dict[str, Any]:
    summary = Summary(float(plan.spent_j.sum()), plan.time_s)
    mean = plan.rounds.sum(axis=1) / np.maximum(plan.active.sum(axis=1), 1)
    at = every(plan.iterations, _MOST_POINTS)
    lines = [line("rounds", "mean over devices", "a", few_digits(mean[at]))]
    along = {"key": "rounds", "short": "", "name": "local rounds", "zero": True, "lines": lines}
    rounds = _sketch(curves([{"iterations": (at + 1).tolist()}], [along]))
    caption = "local rounds in each iteration (communication round), mean over devices"
    return {
        "lines": [words.sentence(plan, summary, 1), plan.answer.text],
        "small": words.reason(plan),
        "tiles": tiles(plan, summary),
        "figures": [_map(plan), {**rounds, "caption": caption, "keys": []}],
        "folded": {"devices": devices(plan)},
    }


def _of_result(result: Result) -> dict[str, Any]:
    account, seeds = result.account, result.seeds
    costs = float(result.energy_j[-1].mean()), float(result.time_s[-1].mean())
    summary = Summary.of(*costs, result.final, result.setup_s + result.trained_s, result.trained_s)
    subject = words.Subject(dataset=result.dataset.name, model=result.model, method=result.method)
    at = every(len(result.iteration), _MOST_POINTS)
    axis = result.iteration[at].astype(np.float64)
    series = dict.fromkeys(("iteration", "energy_j", "time_s"), axis)
    series[f"test_{result.metric.name}"] = np.asarray(result.trace.test_score, np.float64)[at].T
    repeated = f"mean and range of {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    drawn = {
        **_sketch(learning(series, reported(account.scenario.training))),
        "caption": f"test {result.metric.label} by iteration, {repeated}",
        "keys": [],
    }
    planned = [account] if isinstance(account, Plan) else []
    return {
        "lines": [
            words.sentence(account, summary, len(seeds), subject),
            *(plan.answer.text for plan in planned),
        ],
        "tiles": tiles(account, summary),
        "figures": [drawn, *map(_map, planned)],
        "folded": {"devices": devices(account)},
    }


def _of_comparison(study: Comparison) -> dict[str, Any]:
    chart = curves_of_methods(study)
    drawn = [] if chart is None else [_sketch(chart, "joules")]
    caption = f"test {study.metric.label} by joules of all devices, mean and 95 % interval"
    return {
        "lines": [sentence(study)],
        "table": method_table(study),
        "small": reading(study),
        "figures": [{**one, "caption": caption} for one in drawn],
    }


# Pictures -----------------------------------------------------------------------------------------


def _sketch(chart: dict[str, Any], axis: str = "iterations") -> dict[str, Any]:
    along, places = chart["along"][0], [one[axis] for one in chart["points"]]
    lines = [one for one in along["lines"] if "mean" in one]
    ends = [v for one in lines for name in ("mean", "low", "high") for v in one.get(name, ())]
    known = [v for v in ends if v is not None]
    if not known:
        return {"empty": True}
    low, high = min(known), max(known)
    low = min(low, 0.0) if along.get("zero") else low
    high = high if high > low else low + 1.0
    first, last = min(one[0] for one in places), max(one[-1] for one in places)

    def points(xs: list[float], ys: list[float | None]) -> list[str]:
        wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return [
            f"{_LEFT + (x - first) / max(last - first, 1e-300) * wide:.1f},"
            f"{_HEIGHT - _BOTTOM - (y - low) / (high - low) * tall:.1f}"
            for x, y in zip(xs, ys, strict=True)
            if y is not None
        ]

    drawn = []
    for k, one in enumerate(lines):
        xs, shade = places[one["points"]], ""
        if "low" in one:
            shade = " ".join(points(xs, one["low"]) + points(xs, one["high"])[::-1])
        ink = CURVES_ON_ANY[k % len(CURVES_ON_ANY)]
        drawn.append({"points": " ".join(points(xs, one["mean"])), "shade": shade, "ink": ink})
    unit = next(one["unit"] for one in chart["across"] if one["key"] == axis)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    heights = [f"{100 * v:.1f} %" if along.get("share") else f"{v:.3g}" for v in (low, high)]
    widths = [f"{v:.3g} {unit}" if unit else f"{v:,.0f}" for v in (first, last)]
    return {
        "lines": drawn,
        "keys": [(one["text"], mark["ink"]) for one, mark in zip(lines, drawn, strict=True)],
        "axes": f"M{_LEFT} {_TOP}V{bottom}H{right}",
        "labels": [
            (_LEFT - 5, bottom + 3, "end", heights[0]),
            (_LEFT - 5, _TOP + 8, "end", heights[1]),
            (_LEFT, _HEIGHT - 6, "start", widths[0]),
            (right, _HEIGHT - 6, "end", widths[1]),
        ],
        "size": (_WIDTH, _HEIGHT),
    }


def _map(plan: Plan) -> dict[str, Any]:
    kinds = [kind for kind in BINDING_KINDS if (plan.binding == kind).any()]
    made: dict[str, Any] = {
        "size": (_SIDE, _SIDE),
        "caption": f"bold: the route ({route_words(plan)}); thin: other links",
        "keys": [(BINDING_WORDS[kind], BINDING_ON_ANY[kind]) for kind in kinds],
    }
    if plan.world.graph.devices > _MOST_DOTS:
        from joulemesh.views.plan_figure import map_image  # needs matplotlib, which takes a second

        return made | {"image": base64.b64encode(map_image(plan, 2 * _SIDE)).decode("ascii")}
    data = map_data(plan)
    left, right, bottom, top = data["frame"]
    scale = _SIDE / max(right - left, top - bottom)
    at = [(f"{(x - left) * scale:.1f}", f"{(top - y) * scale:.1f}") for x, y in data["at"]]
    radius = 5.0 if len(at) <= 60 else 2.2

    def path(kind: str) -> str:
        ends = data[kind]["ends"]
        return "".join(f"M{' '.join(at[i])}L{' '.join(at[j])}" for i, j in ends)

    dots = [
        {
            "x": x,
            "y": y,
            "r": f"{radius * (1.6 if i == data['root'] else 1):.1f}",
            "ink": BINDING_ON_ANY[data["binding"][i]],
            "title": f"{plan.name(i)}: {data['rounds'][i]:,} local rounds",
        }
        for i, (x, y) in enumerate(at)
    ]
    return made | {"dots": dots, "thin": path("links"), "thick": path("route")}
