"""The page of a tuning."""

from __future__ import annotations

__all__ = ["render_tuning"]

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.units import duration, energy
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as plan_of
from joulemesh.study.record import gathered
from joulemesh.study.statistics import Estimate, estimate
from joulemesh.study.tuning import Final, Judged, Tuned, front
from joulemesh.views import report, words
from joulemesh.views.charts import flow_data, gantt_data
from joulemesh.views.page import render_page
from joulemesh.views.tables import (
    difference_words,
    figure_text,
    figure_words,
    own_heading,
    share_words,
    tuning_reasons,
)

_FIRST_ROWS, _MOST_ROWS = 15, 300


def render_tuning(
    found: Tuned, *, versions: Mapping[str, str] | None = None, when: str = ""
) -> str:
    """The page as text."""
    subject, data = words.Subject(found.scenario.name, when), _data(found)
    return render_page(
        "tuning.html",
        title=words.page_title("Tuning", subject),
        styles=("report.css", "comparison.css", "tuning.css"),
        scripts=("gantt.js", "flow.js", "tuning.js"),
        data=data,
        iterations="" if data["gantt"] else "hidden",
        flowing="" if data["flow"] else "hidden",
        summary=report.text(_sentence(found)),
        terms=report.text(difference_words(found)),
        score=report.text(_capital(found.objective.metric.label)),
        winner=_finals(found),
        legend=report.text(_legend(found)),
        rungs=report.text(_rungs_words(found)),
        candidates=_candidates(found),
        dropped=_dropped(found),
        best=html.escape(found.best.to_toml()),
        space=_space(found),
        scenario=html.escape(found.scenario.to_toml()),
        provenance=report.provenance(
            {**(versions or {}), "seeds of the rungs": _listed(found.seeds)}, found.fresh
        ),
    )


def _capital(label: str) -> str:
    return label[0].upper() + label[1:]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _sentence(found: Tuned) -> str:
    kept, dropped = len(found.offer.kept), len(found.offer.dropped)
    name = found.winner.candidate.name
    which = "the scenario as it is" if name == "as given" else name
    return (
        f"Of {kept + dropped:,} plans that were priced, {kept:,} were trained. The best "
        f"({found.objective.words}) is {which}, for {energy(found.winner.energy_j)} in "
        f"{duration(found.winner.time_s)}."
    )


def _legend(found: Tuned) -> str:
    return (
        f"Means of {len(found.fresh)} fresh seeds ± half the 95 % interval (Student's t), on "
        f"{found.test_samples:,} test samples that no choice was made by."
    )


def _rungs_words(found: Tuned) -> str:
    steps = [f"{len(rung.rows):,} with {share_words(rung)}" for rung in found.rungs]
    listed = steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
    return (
        f"Candidates trained: {listed} of the joules, seconds and iterations, each at "
        f"{_seeds(len(found.seeds))} (the same for all) and judged on {found.test_samples:,} test "
        "samples by the mean of all devices' models."
    )


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _finals(found: Tuned) -> str:
    target = [] if found.objective.target is None else [str(found.objective)]
    metric = found.objective.metric
    scores = (metric.heading, own_heading(metric).replace("'", "’"))
    head = ("", *scores, *target, "iterations", "energy", "time")
    rows = [_final(found, label, one) for label, one in found.finals]
    said = gathered((label, one.notes) for label, one in found.finals)
    notes = [f'<p class="why note">{report.text(f"{who}: {note}")}</p>' for who, note in said]
    return "\n".join([_table(head, rows, numbers=len(head) - 1), *notes])


def _final(found: Tuned, label: str, one: Final) -> list[str]:
    name = label if label == one.candidate.name else f"{label}: {one.candidate.name}"
    share = found.objective.metric.share
    both = (estimate(one.accuracy), estimate(one.device_accuracy))
    cells = [name, *(_figure(value, share=share) for value in both)]
    if found.objective.target is not None:
        cells.append(figure_words(found, found.figure(one)))
    return [*cells, f"{one.iterations:,}", energy(one.energy_j), duration(one.time_s)]


def _figure(value: Estimate, *, share: bool) -> str:
    if math.isnan(value.mean):
        return "–"
    half = None if math.isnan(value.half) else value.half
    return figure_text(value.mean, half, share=share)


def _candidates(found: Tuned) -> str:
    """Every candidate that was trained, the one that came furthest first."""
    last: dict[int, dict[int, Judged]] = {}
    for number, rung in enumerate(found.rungs):
        for one in rung.rows:
            last.setdefault(one.candidate, {})[number] = one
    order = dict.fromkeys(one.candidate for rung in reversed(found.rungs) for one in rung.rows)
    shares = [share_words(rung) for rung in found.rungs]
    head = ("candidate", "scheme", *shares, "iterations", "rounds", "energy", "time")
    rows = []
    for number in list(order)[:_MOST_ROWS]:
        priced = found.priced[number]
        scores = [_score(found, last[number].get(k)) for k in range(len(found.rungs))]
        figures = (f"{priced.iterations:,}", f"{priced.rounds:,}")
        prices = (energy(priced.energy_j), duration(priced.time_s))
        rows.append([priced.candidate.name, priced.scheme, *scores, *figures, *prices])
    shown = _table(head, rows[:_FIRST_ROWS], numbers=len(head) - 2)
    if len(rows) <= _FIRST_ROWS:
        return shown
    rest = _table(head, rows[_FIRST_ROWS:], numbers=len(head) - 2)
    count = f"{len(rows) - _FIRST_ROWS:,} more"
    return f"{shown}<details><summary>{count}</summary>{rest}</details>"


def _score(found: Tuned, one: Judged | None) -> str:
    if one is None:
        return ""
    return "–" if one.score is None else found.objective.text(one.score)


def _dropped(found: Tuned) -> str:
    rows = [[f"{count:,}", why, reason] for why, reason, count in tuning_reasons(found)]
    if not rows:
        return "<p>None: every candidate was trained.</p>"
    every = [
        [str(one.candidate.number), one.candidate.name, one.why, one.reason]
        for one in found.offer.dropped[:_MOST_ROWS]
    ]
    more = len(found.offer.dropped) - len(every)
    rest = f"<p>… and {more:,} more, in candidates.csv.</p>" if more > 0 else ""
    each = _table(("number", "candidate", "what", "why"), every, numbers=0)
    return (
        f"{_table(('how many', 'what', 'for instance'), rows, numbers=0)}"
        f'<details class="long"><summary>Each of them</summary>{each}{rest}</details>'
    )


def _space(found: Tuned) -> str:
    said = {name: ", ".join(map(str, values)) for name, values in found.space.to_dict().items()}
    items = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(values)}</dd></div>"
        for name, values in said.items()
    )
    return f"<dl>{items}</dl>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int) -> str:
    """A table; the last ``numbers`` columns are figures, set flush right."""
    first = len(head) - numbers
    top = "".join(
        f'<th scope="col"{" class=n" if k >= first else ""}>{html.escape(name)}</th>'
        for k, name in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if k >= first else ''}>{report.text(cell)}</td>"
            for k, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0"><table class="tuned"><thead><tr>'
        f"{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _data(found: Tuned) -> dict[str, Any]:
    """What the page's script draws."""
    judged = [
        (number, one)
        for number, rung in enumerate(found.rungs)
        for one in rung.rows
        if one.score is not None
    ]
    points = [
        {
            "candidate": one.candidate,
            "rung": number,
            "accuracy": _short(one.accuracy),
            "joules": _short(one.energy_j),
            "seconds": _short(one.time_s),
            "iterations": one.iterations,
            "kept": one.kept,
            "score": _score(found, one),
        }
        for number, one in judged
    ]
    accuracy = [one.accuracy for _, one in judged]
    plan = _winning_plan(found)
    metric = found.objective.metric
    names = {number: priced.candidate.name for number, priced in found.priced.items()}
    return {
        "names": names,
        "shares": [rung.share for rung in found.rungs],
        "points": points,
        "front": {
            "joules": front([one.energy_j for _, one in judged], accuracy, metric.better),
            "seconds": front([one.time_s for _, one in judged], accuracy, metric.better),
        },
        "winner": _end(found.winner),
        "given": None if found.given is None else _end(found.given),
        "target": found.objective.target,
        "devices": [] if plan is None else list(plan.names),
        "gantt": [] if plan is None else gantt_data(plan),
        "flow": None if plan is None else flow_data(plan),
        "metric": {"label": metric.label, "share": metric.share, "better": metric.better},
    }


def _winning_plan(found: Tuned) -> Plan | None:
    """The winner's plan, made again; None where that needs the user's own model or data."""
    try:
        made = plan_of(found.best)
    except JoulemeshError:
        return None
    priced = found.priced.get(found.winner.candidate.number)
    rounds = None if priced is None else priced.rounds
    return made if int(made.rounds.sum()) == rounds else None


def _end(one: Final) -> dict[str, Any]:
    value = estimate(one.accuracy)
    return {
        "candidate": one.candidate.number,
        "name": one.candidate.name,
        "accuracy": _short(value.mean),
        "half": _short(value.half),
        "joules": _short(one.energy_j),
        "seconds": _short(one.time_s),
    }


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None
