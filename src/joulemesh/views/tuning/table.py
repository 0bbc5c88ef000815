"""What tuning found, as tables for a terminal."""

from __future__ import annotations

__all__ = ["difference_words", "figure_words", "reasons", "share_words", "show_tuning"]

import math
from collections import Counter

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.results.entry import gathered
from joulemesh.results.statistics import Estimate, estimate
from joulemesh.tuning.result import Final, Judged, Rung, Tuning
from joulemesh.units import duration, energy
from joulemesh.views.comparison.table import figure_text, own_heading
from joulemesh.views.terminal import Column, show_table

_MOST_ROWS = 10
_MOST_REASONS = 6
_UNITS = {"score": "", "energy-to": "J", "time-to": "s"}


def show_tuning(found: Tuning, console: Console) -> None:
    """Print the winner beside the scenario as it is, the best candidates, and what was dropped."""
    head = [Column("plan", figures=False, prose=30), *(Column(name) for name in _head(found))]
    rows = [[_plan_words(label, final), *_cells(found, final)] for label, final in found.finals]
    show_table(console, head, rows, box=SIMPLE_HEAD)
    console.print(Text(difference_words(found)))
    for names, note in gathered((label, final.notes) for label, final in found.finals):
        console.print(Text.assemble((f"{names}: ", "bold"), note))
    _show_rungs(found, console)
    total = len(found.offer.kept) + len(found.offer.dropped)
    console.print(Text(f"{total:,} candidates priced, {len(found.offer.kept):,} trained"))
    for why, reason, count in reasons(found)[:_MOST_REASONS]:
        console.print(Text.assemble((f"{why} ({count}): ", "bold"), reason))


def _head(found: Tuning) -> list[str]:
    to_target = [f"{found.objective}"] if found.objective.target is not None else []
    metric = found.objective.metric
    scores = [metric.heading, own_heading(metric)]
    return [*scores, *to_target, "iterations", "energy", "time"]


def _plan_words(label: str, final: Final) -> str:
    return label if not final.candidate.changes else f"{label}: {final.candidate.name}"


def _cells(found: Tuning, final: Final) -> list[str]:
    own, devices = estimate(final.accuracy), estimate(final.device_accuracy)
    share = found.objective.metric.share
    cells = [_figure(own, share=share), _figure(devices, share=share)]
    if found.objective.target is not None:
        cells.append(figure_words(found, found.figure(final)))
    return [*cells, f"{final.iterations:,}", energy(final.energy_j), duration(final.time_s)]


def _figure(value: Estimate, unit: str = "", *, share: bool = True) -> str:
    if math.isnan(value.mean):
        return "–"
    half = None if math.isnan(value.half) else value.half
    return figure_text(value.mean, half, unit, share=share)


def figure_words(found: Tuning, value: Estimate) -> str:
    """The objective's figure with its interval; how many seeds reach the target if not all do."""
    if found.objective.target is not None and value.seeds < len(found.fresh):
        return f"{value.seeds} of {len(found.fresh)} seeds"
    share = found.objective.metric.share
    return _figure(value, _UNITS[found.objective.kind], share=share)


def difference_words(found: Tuning) -> str:
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


def _show_rungs(found: Tuning, console: Console) -> None:
    """The candidates that came furthest, with their scores in every rung."""
    last: dict[int, list[Judged | None]] = {}
    for number, rung in enumerate(found.rungs):
        for one in rung.rows:
            last.setdefault(one.candidate, [None] * len(found.rungs))[number] = one
    shown = [one.candidate for rung in reversed(found.rungs) for one in rung.rows]
    numbers = list(dict.fromkeys(shown))[:_MOST_ROWS]
    columns = [Column("candidate", figures=False, prose=30)]
    columns += [Column(f"with {share_words(rung)}") for rung in found.rungs]
    columns += [Column("energy", rank=1), Column("time", rank=1)]
    rows = []
    for number in numbers:
        priced = found.priced[number]
        scores = [_score(found, one) for one in last[number]]
        prices = [energy(priced.energy_j), duration(priced.time_s)]
        rows.append([priced.candidate.name, *scores, *prices])
    console.print(Text("candidates with a share of the budget, those that came furthest first"))
    show_table(console, columns, rows, box=SIMPLE_HEAD)


def share_words(rung: Rung) -> str:
    """The share of the budget that a rung's candidates get.

    >>> share_words(Rung(1 / 3, ()))
    '33 %'
    """
    return f"{100 * rung.share:.3g} %" if rung.share < 0.01 else f"{100 * rung.share:.0f} %"


def _score(found: Tuning, one: Judged | None) -> str:
    if one is None or one.score is None:
        return "–"
    return found.objective.text(one.score)


def reasons(found: Tuning) -> list[tuple[str, str, int]]:
    """Why candidates were dropped: kind, the first of its reasons, and how many; most first."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for one in found.offer.dropped:
        key = (one.why, one.reason if one.why == "refused" else "")
        counts[key] += 1
        first.setdefault(key, one.reason)
    return [(key[0], first[key], count) for key, count in counts.most_common()]
