"""What a notebook shows of a scenario, a plan, a result and a comparison.

Colours are the notebook's own (``currentColor``) except a few that are told apart on light and on
dark ground, because notebooks set their theme without telling the browser.
"""

from __future__ import annotations

__all__ = [
    "curve_svg",
    "map_svg",
    "notebook_html",
    "outcome_html",
    "plan_html",
    "scenario_html",
    "study_html",
]

import base64
import html
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.units import duration
from joulemesh.planning.plan import Plan
from joulemesh.scenario import SECTIONS, Budget, Origin, Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.result import Result
from joulemesh.views import report, words
from joulemesh.views.charts import BINDING_WORDS, every, map_data, route_words
from joulemesh.views.page import asset
from joulemesh.views.printing import BINDING_ON_ANY
from joulemesh.views.report import Summary
from joulemesh.views.words import value_words
from joulemesh.world.topology import topology_of

FloatArray = NDArray[np.floating[Any]]

_LINE = BINDING_ON_ANY["deadline"]
_WIDTH, _HEIGHT, _SIDE = 360, 150, 200
_MOST_DOTS = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 22


def curve_svg(
    x: NDArray[Any],
    y: FloatArray,
    *,
    band: tuple[FloatArray, FloatArray] | None = None,
    zero: bool = False,
    percent: bool = False,
) -> str:
    """One curve over the iterations, with the ends of its axes."""
    parts = [y] if band is None else [y, *band]
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(known):
        return "<p><small>no finite figure to draw</small></p>"
    low, high = float(known.min()), float(known.max())
    low = min(low, 0.0) if zero else low
    high = high if high > low else low + 1.0

    def points(values: FloatArray) -> list[str]:
        across = (x - x[0]) / max(float(x[-1] - x[0]), 1.0)
        px = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
        py = _HEIGHT - _BOTTOM - (values - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True) if np.isfinite(b)]

    shade = ""
    if band is not None:
        around = " ".join(points(band[0]) + points(band[1])[::-1])
        shade = f'<polygon points="{around}" fill="{_LINE}" opacity=".22"/>'
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    words = [
        (_LEFT - 5, bottom + 3, "end", _figure_sketches(low, percent)),
        (_LEFT - 5, _TOP + 8, "end", _figure_sketches(high, percent)),
        (_LEFT, _HEIGHT - 6, "start", f"{int(x[0]):,}"),
        (right, _HEIGHT - 6, "end", f"{int(x[-1]):,}"),
    ]
    labels = "".join(f'<text x="{a}" y="{b}" text-anchor="{c}">{d}</text>' for a, b, c, d in words)
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        f'opacity=".35"/>{shade}<polyline points="{" ".join(points(y))}" fill="none" '
        f'stroke="{_LINE}" stroke-width="2" stroke-linejoin="round"/>{labels}</svg>'
    )


def _figure_sketches(value: float, percent: bool) -> str:
    return f"{100 * value:.1f}&nbsp;%" if percent else f"{value:.3g}"


def map_svg(plan: Plan) -> str:
    """Devices in the colour of what binds them, links, and the route on top."""
    opening = f'<svg width="{_SIDE}" height="{_SIDE}" viewBox="0 0 {_SIDE} {_SIDE}" role="img">'
    if plan.world.graph.devices > _MOST_DOTS:
        from joulemesh.views.plan_figure import map_image  # needs matplotlib, which takes a second

        picture = base64.b64encode(map_image(plan, 2 * _SIDE)).decode("ascii")
        size = f'width="{_SIDE}" height="{_SIDE}"'
        return f'{opening}<image href="data:image/png;base64,{picture}" {size}/></svg>'
    data = map_data(plan)
    left, right, bottom, top = data["frame"]
    scale = _SIDE / max(right - left, top - bottom)
    at = [((x - left) * scale, (top - y) * scale) for x, y in data["at"]]

    def lines(ends: list[list[int]], style: str) -> str:
        path = "".join(
            f"M{at[i][0]:.1f} {at[i][1]:.1f}L{at[j][0]:.1f} {at[j][1]:.1f}" for i, j in ends
        )
        return f'<path d="{path}" fill="none" stroke="currentColor" {style}/>' if ends else ""

    radius = 5.0 if len(at) <= 60 else 2.2
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius * (1.6 if i == data["root"] else 1):.1f}" '
        f'fill="{BINDING_ON_ANY[data["binding"][i]]}">'
        f"<title>{escape(plan.name(i))}: {data['rounds'][i]:,} rounds</title></circle>"
        for i, (x, y) in enumerate(at)
    )
    thin = lines(data["links"]["ends"], 'stroke-width=".8" opacity=".22"')
    thick = lines(data["route"]["ends"], 'stroke-width="2.6"')
    return f"{opening}{thin}{thick}{dots}</svg>"


_MOST_POINTS = 300


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
        return plan_html(value)
    if isinstance(value, Result):
        return outcome_html(value)
    return study_html(value) if isinstance(value, Comparison) else scenario_html(value)


def _block(*parts: str) -> str:
    style = asset("notebook.css")
    return f'<div class="joulemesh"><style>{style}</style>{"".join(parts)}</div>'


def _folded(title: str, inside: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def _figure_html(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


# A scenario ------------------------------------------------------------------------------------


def scenario_html(scenario: Scenario) -> str:
    """What is asked, in one sentence, and every field that was set."""
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
        cells = ", ".join(
            f"{field} {value_words(field, getattr(values, field))}" for field in given
        )
        if given:
            rows.append(f"<tr><th>{name}</th><td class=wrap>{html.escape(cells)}</td></tr>")
    table = f'<div class="scroll"><table><tbody>{"".join(rows)}</tbody></table></div>'
    return _block(
        f"<p>{report.text(_asked(scenario))}</p>",
        table if rows else "<p><small>Every field has its default.</small></p>",
        _folded("all fields", f"<pre>{html.escape(scenario.to_toml())}</pre>"),
    )


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


# A plan ----------------------------------------------------------------------------------------


def plan_html(plan: Plan) -> str:
    """The plan in one sentence, its figures, the map, rounds over time, and the devices."""
    summary = Summary(float(plan.spent_j.sum()), plan.time_s)
    return _block(
        f"<p>{report.text(words.sentence(plan, summary, 1))}</p>",
        f"<p>{report.text(plan.answer.text)}</p>",
        f"<p><small>{report.text(words.reason(plan))}</small></p>",
        f'<ul class="tiles">{report.tiles(plan, summary)}</ul>',
        f'<div class="row">{_map(plan)}{_rounds(plan)}</div>',
        _folded("devices", report.devices(plan)),
    )


def _map(plan: Plan) -> str:
    kinds = [kind for kind in BINDING_WORDS if (plan.binding == kind).any()]
    keys = "".join(
        f'<i class="key" style="background:{BINDING_ON_ANY[kind]}"></i>{BINDING_WORDS[kind]}'
        for kind in kinds
    )
    links = f"bold: the route ({route_words(plan)}); thin: other links"
    return _figure_html(map_svg(plan), f"{html.escape(links)}{keys}")


def _rounds(plan: Plan) -> str:
    mean = plan.rounds.sum(axis=1) / np.maximum(plan.active.sum(axis=1), 1)
    at = every(plan.iterations, _MOST_POINTS)
    picture = curve_svg(at + 1, mean[at], zero=True)
    return _figure_html(picture, "local rounds in each iteration, mean over devices")


# A result --------------------------------------------------------------------------------------


def outcome_html(result: Result) -> str:
    """A run in one sentence, its figures, its score over the iterations, and the devices."""
    plan, curve = result.account, np.asarray(result.trace.test_score, np.float64)
    wall_s = result.setup_s + result.trained_s
    costs = float(result.energy_j[-1].mean()), float(result.time_s[-1].mean())
    summary = Summary.of(*costs, result.final, wall_s, result.trained_s)
    subject = words.Subject(dataset=result.dataset.name, model=result.model, method=result.method)
    at = every(len(curve), _MOST_POINTS)
    some = curve[at]
    band = (some.min(axis=1), some.max(axis=1)) if len(result.seeds) > 1 else None
    picture = curve_svg(
        result.iteration[at], some.mean(axis=1), band=band, percent=result.metric.share
    )
    seeds = f"mean and range of {len(result.seeds)} seeds" if band else f"seed {result.seeds[0]}"
    drawn = _figure_html(picture, f"test {result.metric.label} by iteration, {seeds}")
    return _block(
        f"<p>{report.text(words.sentence(plan, summary, len(result.seeds), subject))}</p>",
        f"<p>{report.text(plan.answer.text)}</p>" if isinstance(plan, Plan) else "",
        f'<ul class="tiles">{report.tiles(plan, summary)}</ul>',
        f'<div class="row">{drawn}{_map(plan) if isinstance(plan, Plan) else ""}</div>',
        _folded("devices", report.devices(plan)),
    )


# A comparison ----------------------------------------------------------------------------------


def study_html(study: Comparison) -> str:
    """The table of methods, and how to read it."""
    from joulemesh.views.comparison import reading, sentence, table_html

    return _block(
        f"<p>{report.text(sentence(study))}</p>",
        table_html(study),
        f"<p><small>{report.text(reading(study))}</small></p>",
    )
