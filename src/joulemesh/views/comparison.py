"""The page of a comparison."""

from __future__ import annotations

__all__ = ["reading", "render_comparison", "sentence", "table_html"]

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.units import column, duration, energy
from joulemesh.metrics import Metric, reported
from joulemesh.models.curves import Curve, curves_of
from joulemesh.study.comparison import AXES, Comparison
from joulemesh.study.record import Entry, across, gathered
from joulemesh.study.runs import about
from joulemesh.study.statistics import band
from joulemesh.views import report, words
from joulemesh.views.charts import every, method_flow
from joulemesh.views.page import render_page
from joulemesh.views.tables import (
    difference_text,
    figure_text,
    method_text,
    open_text,
    own_heading,
    rate_text,
    samples_text,
    target_text,
)

_MOST_POINTS = 300
_EQUAL = {
    "iterations": "the adaptive plan's number of iterations, whether or not the batteries pay",
    "batteries": "each stops before the first iteration that some battery cannot pay",
    "time": "each stops before it would take longer than the adaptive plan",
    "budget": "each stops before the first iteration that some battery cannot pay, or that would "
    "exceed the total time (budget.total_s; without one, the adaptive plan's)",
}


def render_comparison(
    study: Comparison, *, versions: Mapping[str, str] | None = None, when: str = ""
) -> str:
    """The page as text."""
    data = _data(study)
    return render_page(
        "comparison.html",
        title=words.page_title("Comparison", words.Subject(study.scenario.name, when)),
        styles=("report.css", "comparison.css"),
        scripts=("flow.js", "comparison.js"),
        data=data,
        summary=report.text(sentence(study)),
        terms=report.text(f"Equal {study.equal}: {_EQUAL[study.equal]}."),
        curves=_switches(study),
        flowing="" if data["flow"] else "hidden",
        methods=_methods(study),
        table=table_html(study),
        legend=report.text(reading(study)),
        notes=_notes(study),
        batteries=_batteries(study),
        scenario=html.escape(study.scenario.to_toml()),
        provenance=_provenance(study, versions or {}),
    )


def _shown(study: Comparison) -> list[Curve]:
    """The curves that can be switched to: the score first, then those of other metrics."""
    shown = [curve for curve in curves_of(*reported(study.scenario.training)) if curve.short]
    return sorted(shown, key=lambda curve: curve.metric != study.score)


def _switches(study: Comparison) -> str:
    """A button for each curve."""
    return "\n".join(
        f'<button type="button" data-y="{html.escape(curve.name)}" '
        f'aria-pressed="{"false" if k else "true"}">{report.text(curve.short)}</button>'
        for k, curve in enumerate(_shown(study))
    )


def _provenance(study: Comparison, versions: Mapping[str, str]) -> str:
    if study.unit == "seed":
        return report.provenance(versions, study.seeds)
    return report.provenance({**versions, "worlds": ", ".join(map(str, study.seeds))}, ())


def sentence(study: Comparison) -> str:
    """What was learned on which devices, and by which method best (plain text)."""
    metric = study.metric
    rows = [row for row in study.table() if row[metric.name] is not None]
    if not rows:
        return "None of the methods could run."
    best = max(rows, key=lambda row: metric.sign * row[metric.name])
    end = "highest" if metric.better == "higher" else "lowest"
    times = f"mean of {study.repeats}" if len(study.seeds) > 1 else "one seed"
    subject = words.Subject(dataset=study.dataset, model=study.model)
    who = words.learned(study.scenario, study.parameters, subject)
    return (
        f"{who}, by each of {len(rows)} methods. The {end} final test {metric.label}, "
        f"{metric.text(best[metric.name])} ({times}), is that of {best['method']}, for "
        f"{energy(best['energy_j'])} in {duration(best['time_s'])}; how certain the differences "
        "are is in the table."
    )


def reading(study: Comparison) -> str:
    """How to read the table (plain text)."""
    how = open_text(study.table()) or "interpolated between evaluations"
    text = (
        f"Target: {study.target_words}, when a curve first reaches it, {how}. "
        f"Seconds are those of the devices’ modelled clock. {_rests_on(study)}"
    ).rstrip()
    if study.rates:
        text += (
            f" Each method has its own learning rate, of {len(study.rates)} from "
            f"{study.rates[0]:g} to {study.rates[-1]:g} that all were tried at, on "
            f"{len(study.tuned_on)} other seeds."
        )
    if len(study.seeds) < 2:
        return text + " One seed has no intervals."
    over = "" if study.unit == "seed" else f" over {study.unit}s"
    note = study.repeats_note
    text += f" {note[0].upper()}{note[1:]}." if note else ""
    return (
        f"Means over {study.repeats} ± half the 95 % interval{over} (Student's t). Differences "
        f"are against {study.entries[0].name}, paired by {study.unit}; * where the interval "
        f"excludes 0, each interval by itself (not corrected for the number of methods). {text}"
    )


def _rests_on(study: Comparison) -> str:
    """On how many samples figures and curves rest; empty where that is not kept."""
    known = study.samples
    if not known:
        return ""
    whole, curve = known["test_samples"], known["curve_test_samples"]
    _, _, error = samples_text(study).partition(", ")
    most = f" ({error})" if error else ""
    if curve == whole:
        return f"Final figures and curves rest on all {whole:,} test samples{most}."
    return f"Final figures rest on all {whole:,} test samples{most}, curves on {curve:,} of them."


def table_html(study: Comparison) -> str:
    """The table of methods."""
    head = (
        "method",
        study.metric.heading,
        "difference",
        own_heading(study.metric).replace("'", "’"),
        "difference",
        "energy",
        "time",
        "iterations",
        "energy to target",
        "time to target",
        *(("learning rate",) if study.rates else ()),
    )
    rows, metric = study.table(), study.metric
    body = "".join(_row(row, metric, tuned=bool(study.rates)) for row in rows)
    top = "".join(
        f'<th scope="col"{"" if k == 0 else " class=n"}>{html.escape(name)}</th>'
        for k, name in enumerate(head)
    )
    return (
        '<div class="scroll" tabindex="0"><table class="methods"><thead><tr>'
        f"{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: Mapping[str, Any], metric: Metric, *, tuned: bool) -> str:
    name = f'<th scope="row">{html.escape(method_text(row))}</th>'
    if row["iterations"] is None:
        why = html.escape(row["notes"][0] if row["notes"] else row["status"])
        return f'<tr class="out">{name}<td colspan="{9 + tuned}">{row["status"]}: {why}</td></tr>'

    def cell(key: str, kind: str = "") -> str:
        return figure_text(row[key], row[f"{key}_ci95"], kind, share=metric.share)

    def difference(key: str) -> str:
        apart = (row[f"{key}_difference"], row[f"{key}_difference_ci95"])
        return difference_text(*apart, share=metric.share)

    own = f"device_{metric.name}"
    cells = (
        cell(metric.name),
        difference(metric.name),
        cell(own),
        difference(own),
        cell("energy_j", "J"),
        cell("time_s", "s"),
        f"{row['iterations']:,}",
        target_text(dict(row), "energy_to_target_j", "J"),
        target_text(dict(row), "time_to_target_s", "s"),
        *([rate_text(row)] if tuned else []),
    )
    body = "".join(f'<td class="n">{html.escape(text)}</td>' for text in cells)
    return f"<tr>{name}{body}</tr>"


def _methods(study: Comparison) -> str:
    """What each method does, in a line, and who proposed it."""
    items = []
    for entry in study.entries:
        said, citation = about(entry.name)
        cited = f"<cite>{report.text(str(citation))}</cite>" if citation else ""
        text = report.text(said or "No description is registered.")
        items.append(f"<div><dt>{html.escape(entry.name)}</dt><dd>{text}{cited}</dd></div>")
    return f'<dl class="about">{"".join(items)}</dl>'


def _notes(study: Comparison) -> str:
    """What a reader should know of the data and of each method."""
    said = [("data", study.notes), *((entry.name, entry.remarks) for entry in study.entries)]
    notes: dict[str, list[str]] = {}
    for names, note in gathered(said):
        notes.setdefault(names, []).append(f"<p>{html.escape(note)}</p>")
    items = [
        f"<div><dt>{html.escape(names)}</dt><dd>{''.join(own)}</dd></div>"
        for names, own in notes.items()
    ]
    return f'<dl class="about">{"".join(items)}</dl>' if items else "<p>None.</p>"


def _batteries(study: Comparison) -> str:
    """Where the joules went, method by method."""
    rows = [row for row in study.table() if row["iterations"] is not None]
    radio = [("exchange", "exchange_j", "J")]
    if any(row["receive_j"] for row in rows):
        radio = [("transmit", "transmit_j", "J"), ("receive", "receive_j", "J")]
    if any(row["idle_j"] for row in rows):
        radio.append(("idle", "idle_j", "J"))
    figures = [
        (label, *column([row[name] for row in rows], unit))
        for label, name, unit in (
            ("training", "compute_j", "J"),
            *radio,
            ("server", "server_j", "J"),
            ("on the air", "bits", "bit"),
            ("left", "leftover_j", "J"),
        )
    ]
    head = ("method", *(f"{label} [{unit}]" for label, unit, _ in figures), "seeds")
    top = "".join(
        f'<th scope="col"{"" if k == 0 else " class=n"}>{name}</th>' for k, name in enumerate(head)
    )
    body = "".join(
        f'<tr><th scope="row">{html.escape(row["method"])}</th>'
        + "".join(
            f'<td class="n">{html.escape(text)}</td>'
            for text in (*(cells[k] for _, _, cells in figures), str(row["seeds"]))
        )
        + "</tr>"
        for k, row in enumerate(rows)
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _data(study: Comparison) -> dict[str, Any]:
    """What the page's script draws, thinned to what a screen shows."""
    shown = _shown(study)
    methods = [
        _method(entry, index, shown) for index, entry in enumerate(study.entries) if entry.ran
    ]
    target = study.target if np.isfinite(study.target) else None
    repeats = {"seeds": len(study.seeds), "unit": study.unit}
    curves = {
        curve.name: {"name": curve.words.replace("'", "’"), "share": curve.share} for curve in shown
    }
    flow, score = method_flow(study.table()), f"test_{study.score}"
    drawn = {"methods": methods, "curves": curves, "score": score, "target": target}
    return {**drawn, "flow": flow, **repeats}


def _method(entry: Entry, index: int, shown: Sequence[Curve]) -> dict[str, Any]:
    at = every(len(entry.iteration), _MOST_POINTS)
    data: dict[str, Any] = {"name": entry.name, "place": index}
    for axis in AXES:
        data[axis] = _short(across(entry, axis)[at])
    for curve in shown:
        mean, half = band(entry.curves[curve.name][at])
        data[curve.name] = {
            "mean": _short(mean),
            "low": _short(mean - half),
            "high": _short(mean + half),
        }
    return data


def _short(values: NDArray[np.float64]) -> list[float | None]:
    """Figures with few digits; what is not finite becomes null."""
    return [float(f"{v:.5g}") if np.isfinite(v) else None for v in values.tolist()]
