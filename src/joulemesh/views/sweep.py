"""The page of a sweep."""

from __future__ import annotations

__all__ = ["render_sweep"]

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import special

from joulemesh.base.units import duration, energy
from joulemesh.study.runs import default_target
from joulemesh.study.statistics import CONFIDENCE
from joulemesh.study.sweep_result import Figure, Sweep
from joulemesh.views import report, words
from joulemesh.views.page import render_page
from joulemesh.views.tables import (
    cells_of,
    head_of,
    is_geometric,
    notes_on,
    reading,
    sweep_reasons,
    words_of,
)

_MOST_CELLS = 300_000  # figures of single runs that a page carries
_FIRST_ROWS, _MOST_ROWS = 40, 600


def render_sweep(study: Sweep, *, versions: Mapping[str, str] | None = None, when: str = "") -> str:
    """The page as text."""
    shown = _shown(study)
    return render_page(
        "sweep.html",
        title=words.page_title("Sweep", words.Subject(study.scenario.name, when)),
        styles=("report.css", "comparison.css", "sweep.css"),
        scripts=("sweep.js",),
        data=_data(study, shown),
        summary=report.text(sentence(study)),
        terms=report.text(_terms(study)),
        figures=_buttons("y", [one.short for one in shown]),
        fields=_buttons("x", [one.name for one in study.varied]),
        others=_selects(study),
        table=_table(study),
        legend=report.text(reading(study)),
        missing=_missing(study),
        notes=_notes(study),
        scenario=html.escape(study.scenario.to_toml()),
        provenance=report.provenance(versions or {}, study.seeds),
    )


def _shown(study: Sweep) -> list[Figure]:
    """Figures that can be switched to: as many as a page can carry."""
    runs = len(study.points) * len(study.methods) * len(study.seeds)
    return list(study.figures.values())[: max(1, _MOST_CELLS // runs)]


def sentence(study: Sweep) -> str:
    """What was varied, and which method reached the most where (plain text)."""
    fields = " × ".join(f"{len(one.values)} values of {one.name}" for one in study.varied)
    metric = study.metric
    ran = [
        (row, point)
        for point in study.points
        for row in point.methods
        if row.get(metric.name) is not None
    ]
    if not ran:
        return f"{fields}: none of the methods could run anywhere."
    best, point = max(ran, key=lambda pair: metric.sign * pair[0][metric.name])
    where = ", ".join(
        f"{one.name} {words_of(one, k)}" for one, k in zip(study.varied, point.at, strict=True)
    )
    seeds = len(study.seeds)
    times = f"mean of {seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{fields}, {len(study.methods)} methods. The best final test {metric.label}, "
        f"{metric.text(best[metric.name])} ({times}), is that of {best['method']} at {where}, for "
        f"{energy(best['energy_j'])} in {duration(best['time_s'])}."
    )


def _terms(study: Sweep) -> str:
    _, target = default_target(1.0, study.metric, "its combination's best final")
    if study.wanted is not None:
        target = f"a test {study.metric.label} of {study.wanted:g}"
    return (
        f"Equal {study.equal} within each combination; the same seeds in all of them. The target "
        f"of a run is {target}."
    )


def _buttons(axis: str, names: Sequence[str]) -> str:
    return "\n".join(
        f'<button type="button" data-{axis}="{k}" aria-pressed="{"false" if k else "true"}">'
        f"{report.text(name)}</button>"
        for k, name in enumerate(names)
    )


def _selects(study: Sweep) -> str:
    """What the fields that are not on the axis are held at."""
    lines = []
    for one in study.varied:
        options = "".join(
            f'<option value="{k}">{html.escape(words_of(one, k))}</option>'
            for k in range(len(one.values))
        )
        lines.append(
            f"<label>{report.text(one.name)} "
            f'<select><option value="">mean of all</option>{options}</select></label>'
        )
    return "\n".join(lines)


def _table(study: Sweep) -> str:
    head = head_of(study)
    first = len(study.varied) + 1
    top = "".join(
        f'<th scope="col"{"" if k < first else " class=n"}>{html.escape(name)}</th>'
        for k, name in enumerate(head)
    )
    rows = [_row(cells, first, len(head)) for cells in cells_of(study, _MOST_ROWS)]

    def table(body: Sequence[str]) -> str:
        return (
            '<div class="scroll" tabindex="0"><table class="swept"><thead><tr>'
            f"{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        )

    if len(rows) <= _FIRST_ROWS:
        return table(rows)
    total = len(study.points) * len(study.methods)
    rest = "" if total <= _MOST_ROWS else f"<p>… and {total - _MOST_ROWS:,} in summary.csv.</p>"
    more = f"{len(rows) - _FIRST_ROWS:,} more"
    return (
        f"{table(rows[:_FIRST_ROWS])}<details><summary>{more}</summary>"
        f"{table(rows[_FIRST_ROWS:])}{rest}</details>"
    )


def _row(cells: Sequence[str], first: int, width: int) -> str:
    head = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[: first - 1])
    head += f'<th scope="row">{html.escape(cells[first - 1])}</th>'
    if len(cells) == first + 1:  # in place of the figures, why there are none
        why = report.text(cells[first])
        return f'<tr class="out">{head}<td colspan="{width - first}">{why}</td></tr>'
    rest = "".join(f'<td class="n">{html.escape(cell)}</td>' for cell in cells[first:])
    return f"<tr>{head}{rest}</tr>"


def _notes(study: Sweep) -> str:
    """What a reader should know of the methods that ran."""
    lines = [f"<p>{report.text(line)}</p>" for line in notes_on(study)]
    return "".join(lines) or "<p>None.</p>"


def _missing(study: Sweep) -> str:
    """Why methods or combinations have no figures, each reason once."""
    counts: Counter[str] = sweep_reasons(study)
    if not counts:
        return "<p>Nothing: every method ran in every combination.</p>"
    items = "".join(
        f"<div><dt>{count:,} of {len(study.points) * len(study.methods):,}</dt>"
        f"<dd>{report.text(why)}</dd></div>"
        for why, count in counts.most_common(50)
    )
    return f'<dl class="about">{items}</dl>'


def _data(study: Sweep, shown: Sequence[Figure]) -> dict[str, Any]:
    """What the page's script draws."""
    fields = [
        {
            "name": one.name,
            "values": [words_of(one, k) for k in range(len(one.values))],
            "numbers": list(one.values) if one.numeric else None,
            "log": one.numeric and is_geometric(one.values),
        }
        for one in study.varied
    ]
    return {
        "fields": fields,
        "methods": list(study.methods),
        "seeds": list(study.seeds),
        "figures": [{"words": one.words, "unit": one.unit, "share": one.share} for one in shown],
        "cells": [[_short(v) for v in study.array(one.name).ravel().tolist()] for one in shown],
        "quantile": [
            float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) if n > 1 else 0.0
            for n in range(len(study.seeds) + 1)
        ],
    }


def _short(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None
