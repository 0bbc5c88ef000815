"""A tuning: its tables for a terminal or a page, and its page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.units import duration, energy
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as plan_of
from joulemesh.study.record import gathered
from joulemesh.study.statistics import Estimate, estimate
from joulemesh.study.tuning import Final, Judged, Rung, Tuned, front
from joulemesh.views import words
from joulemesh.views.charts import flow_data, gantt_data
from joulemesh.views.page import render_page
from joulemesh.views.report import provenance
from joulemesh.views.table import NONE, Column, Table
from joulemesh.views.terminal import show_table
from joulemesh.views.words import few_names, figure_text, own_heading

_FIRST_ROWS, _MOST_ROWS = 15, 300
_MOST_PRINTED, _MOST_REASONS = 10, 6
_UNITS = {"score": "", "energy-to": "J", "time-to": "s"}

# The tables -------------------------------------------------------------------------------------


def finals(found: Tuned) -> Table:
    """The winner beside the scenario as it is, on fresh seeds."""
    metric, wanted = found.objective.metric, found.objective.target is not None
    target = [f"{found.objective}"] if wanted else []
    names = [metric.heading, own_heading(metric), *target, "iterations", "energy", "time"]
    rows = []
    for label, one in found.finals:
        own, devices = estimate(one.accuracy), estimate(one.device_accuracy)
        rows.append(
            [
                label if not one.candidate.changes else f"{label}: {one.candidate.name}",
                *(_figure(value, share=metric.share) for value in (own, devices)),
                *([figure_words(found, found.figure(one))] if wanted else []),
                f"{one.iterations:,}",
                energy(one.energy_j),
                duration(one.time_s),
            ]
        )
    return Table([Column("plan", figures=False, prose=30), *map(Column, names)], rows, "tuned")


def candidates(found: Tuned, most: int) -> Table:
    """Every candidate that was trained with its scores, the one that came furthest first."""
    last: dict[int, dict[int, Judged]] = {}
    for number, rung in enumerate(found.rungs):
        for one in rung.rows:
            last.setdefault(one.candidate, {})[number] = one
    order = dict.fromkeys(one.candidate for rung in reversed(found.rungs) for one in rung.rows)
    rows = []
    for number in list(order)[:most]:
        priced = found.priced[number]
        rows.append(
            [
                priced.candidate.name,
                priced.scheme,
                *(_score(found, last[number].get(k)) for k in range(len(found.rungs))),
                f"{priced.iterations:,}",
                f"{priced.rounds:,}",
                energy(priced.energy_j),
                duration(priced.time_s),
            ]
        )
    columns = [
        Column("candidate", figures=False, prose=30),
        Column("scheme", rank=2, figures=False),
        *(Column(f"with {share_words(rung)}") for rung in found.rungs),
        Column("iterations", rank=2),
        Column("local rounds", rank=2),
        Column("energy", rank=1),
        Column("time", rank=1),
    ]
    return Table(columns, rows, "tuned", first=_FIRST_ROWS)


def dropped(found: Tuned) -> Table:
    """Why candidates were not trained, each kind of reason once."""
    columns = [Column(name, figures=False) for name in ("how many", "what", "for instance")]
    rows = [[f"{count:,}", why, reason] for why, reason, count in tuning_reasons(found)]
    return Table(columns, rows, "tuned")


def _each_dropped(found: Tuned) -> Table:
    lost, columns = found.offer.dropped, ("number", "candidate", "what", "why")
    rows = [
        [str(one.candidate.number), one.candidate.name, one.why, one.reason]
        for one in lost[:_MOST_ROWS]
    ]
    more = len(lost) - len(rows)
    rest = f"… and {more:,} more, in candidates.csv." if more > 0 else ""
    return Table([Column(name, figures=False) for name in columns], rows, "tuned", rest=rest)


def _figure(value: Estimate, unit: str = "", *, share: bool = True) -> str:
    if math.isnan(value.mean):
        return "–"
    half = None if math.isnan(value.half) else value.half
    return figure_text(value.mean, half, unit, share=share)


def figure_words(found: Tuned, value: Estimate) -> str:
    """The objective's figure with its interval; how many seeds reach the target if not all do."""
    if found.objective.target is not None and value.seeds < len(found.fresh):
        return f"{value.seeds} of {len(found.fresh)} seeds"
    share = found.objective.metric.share
    return _figure(value, _UNITS[found.objective.kind], share=share)


def _score(found: Tuned, one: Judged | None) -> str:
    return NONE if one is None or one.score is None else found.objective.text(one.score)


def share_words(rung: Rung) -> str:
    """The share of the budget that a rung's candidates get."""
    return f"{100 * rung.share:.3g} %" if rung.share < 0.01 else f"{100 * rung.share:.0f} %"


def tuning_reasons(found: Tuned) -> list[tuple[str, str, int]]:
    """Why candidates were dropped: kind, the first of its reasons, and how many; most first."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for one in found.offer.dropped:
        key = (one.why, one.reason if one.why == "refused" else "")
        counts[key] += 1
        first.setdefault(key, one.reason)
    return [(key[0], first[key], count) for key, count in counts.most_common()]


# In a terminal ----------------------------------------------------------------------------------


def show_tuning(found: Tuned, console: Console) -> None:
    """Print the winner beside the scenario as it is, the best candidates, and what was dropped."""
    show_table(console, finals(found), box=SIMPLE_HEAD)
    console.print(Text(difference_words(found)))
    for names, note in gathered((label, final.notes) for label, final in found.finals):
        console.print(Text.assemble((f"{names}: ", "bold"), note))
    console.print(Text("candidates with a share of the budget, those that came furthest first"))
    show_table(console, candidates(found, _MOST_PRINTED), box=SIMPLE_HEAD)
    total = len(found.offer.kept) + len(found.offer.dropped)
    console.print(Text(f"{total:,} candidates priced, {len(found.offer.kept):,} trained"))
    for why, reason, count in tuning_reasons(found)[:_MOST_REASONS]:
        console.print(Text.assemble((f"{why} ({count}): ", "bold"), reason))


def difference_words(found: Tuned) -> str:
    """How the winner differs from the scenario as it is, in one sentence."""
    seeds = len(found.fresh)
    on = f"{seeds} fresh seed{'s' if seeds > 1 else ''} and {found.test_samples:,} test samples"
    if found.given is None:
        return f"The scenario as it is has no plan; the winner is reported on {on}."
    if found.given is found.winner:
        return f"No candidate was found better than the scenario as it is; reported on {on}."
    difference = found.difference
    if difference is None or math.isnan(difference.mean):
        return f"The difference is not known: too few seeds reach the target on {on}."
    unit = _UNITS[found.objective.kind]
    metric = found.objective.metric
    points = f"points of {metric.label}" if metric.share else f"of {metric.label}"
    what = {"": points, "J": "of energy", "s": "of time"}[unit]
    sign = "−" if difference.mean < 0 else "+"
    size = Estimate(abs(difference.mean), difference.half, difference.seeds)
    sure = ""
    if difference.half > 0 and abs(difference.mean) <= difference.half:
        sure = ": within the 95 % interval of no difference"
    figure = _figure(size, unit, share=metric.share)
    text = f"Winner minus as given: {sign}{figure} {what} (95 % interval, paired"
    return f"{text} by seed, {on}){sure}."


# The page ---------------------------------------------------------------------------------------


def render_tuning(
    found: Tuned, *, versions: Mapping[str, str] | None = None, when: str = ""
) -> str:
    """The page as text."""
    subject, label = words.Subject(found.scenario.name, when), found.objective.metric.label
    known = {**(versions or {}), "seeds of the rungs": ", ".join(map(str, found.seeds))}
    said = gathered((label, one.notes) for label, one in found.finals)
    return render_page(
        "tuning.html",
        title=words.page_title("Tuning", subject),
        styles=("report.css", "comparison.css", "tuning.css"),
        scripts=("lines.js", "gantt.js", "flow.js", "tuning.js"),
        data=_data(found),
        summary=_sentence(found),
        terms=difference_words(found),
        score=label[0].upper() + label[1:],
        winner=finals(found),
        notes=[f"{who}: {note}" for who, note in said],
        legend=_legend(found),
        rungs=_rungs_words(found),
        candidates=candidates(found, _MOST_ROWS),
        dropped=dropped(found),
        each=_each_dropped(found),
        best=found.best.to_toml(),
        space=[(name, ", ".join(map(str, one))) for name, one in found.space.to_dict().items()],
        scenario=found.scenario.to_toml(),
        provenance=provenance(known, found.fresh),
    )


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
        f"{found.test_samples:,} test samples that no choice was made by; iterations are "
        "communication rounds."
    )


def _rungs_words(found: Tuned) -> str:
    steps = [f"{len(rung.rows):,} with {share_words(rung)}" for rung in found.rungs]
    return (
        f"Candidates trained: {few_names(steps)} of the joules, seconds and iterations, each "
        f"at {_seeds(len(found.seeds))} (the same for all) and judged on {found.test_samples:,} "
        "test samples by the mean of all devices' models."
    )


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"


def _data(found: Tuned) -> dict[str, Any]:
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
