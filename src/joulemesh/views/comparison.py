"""A comparison: its table for a terminal, a page or a paper, and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import column, duration, energy
from joulemesh.metrics import Metric, reported
from joulemesh.models.curves import Curve, curves_of
from joulemesh.study.comparison import AXES, Comparison
from joulemesh.study.record import Entry, across, gathered
from joulemesh.study.runs import about
from joulemesh.study.statistics import band
from joulemesh.views import words
from joulemesh.views.charts import ACROSS, curves, every, few_digits, line, method_flow
from joulemesh.views.page import render_page
from joulemesh.views.report import CHARTS, provenance
from joulemesh.views.table import Column, Measure, Table
from joulemesh.views.terminal import show_table, show_whole, text_of
from joulemesh.views.words import open_text, own_heading

_MOST_POINTS = 300
_EQUAL = {
    "iterations": "the adaptive plan's number of iterations (communication rounds), whether or not "
    "the batteries pay",
    "batteries": "each stops before the first iteration (communication round) that some battery "
    "cannot pay",
    "time": "each stops before the iteration (communication round) that would make it take longer "
    "than the adaptive plan",
    "budget": "each stops before the first iteration (communication round) that some battery "
    "cannot pay, or that would exceed the total time (budget.total_s; without one, the adaptive "
    "plan's)",
}

# The table --------------------------------------------------------------------------------------


def measures(metric: Metric, first: str, *, tuned: bool = False) -> list[Measure]:
    """What methods are compared by, in the order of the columns."""
    unit, own = "%" if metric.share else "", f"device_{metric.name}"
    against: dict[str, Any] = {"unit": unit, "kind": "difference"}
    rate = Measure("learning rate", key="learning_rate", kind="rate")
    return [
        Measure(metric.heading, key=metric.name, label=metric.label, unit=unit),
        Measure(f"vs {first}", key=f"{metric.name}_difference", **against),
        Measure(own_heading(metric), key=own, label="devices' own", unit=unit),
        Measure(f"vs {first}", key=f"{own}_difference", rank=1, **against),
        *([rate] if tuned else []),
        Measure("iterations", key="iterations", label="iterations", kind="count"),
        Measure("energy", key="energy_j", label="energy", unit="J"),
        Measure("time", key="time_s", label="time", unit="s"),
        *(
            Measure(f"{name} to target", 0, key=f"{name}_to_target_{unit.lower()}",
                    label=f"{name} to target", unit=unit, kind="target")
            for name, unit in (("energy", "J"), ("time", "s"))
        ),
    ]  # fmt: skip


def method_table(study: Comparison) -> Table:
    """One row for each method; of one that did not run, why."""
    rows = study.table()
    shown = measures(study.metric, rows[0]["method"], tuned=bool(study.rates))
    return Table(
        [Column("method", figures=False, heads=True), *shown],
        [
            [method_text(row), *(one.text(row) for one in shown)]
            if row["iterations"] is not None
            else [method_text(row), _why(row)]
            for row in rows
        ],
        kind="methods",
    )


def method_text(row: Mapping[str, Any]) -> str:
    """A method's name; with the worlds that its figures are of, where these are not all."""
    ran, asked = row.get("worlds", 0), row.get("worlds_asked", 0)
    return row["method"] if ran == asked else f"{row['method']} ({ran} of {asked} worlds)"


def _why(row: Mapping[str, Any]) -> str:
    return f"{row['status']}: {row['notes'][0]}" if row["notes"] else str(row["status"])


def batteries(study: Comparison) -> Table:
    """Where the joules went, method by method."""
    rows = [row for row in study.table() if row["iterations"] is not None]
    radio = [("exchange", "exchange_j", "J")]
    if any(row["receive_j"] for row in rows):
        radio = [("transmit", "transmit_j", "J"), ("receive", "receive_j", "J")]
    if any(row["idle_j"] for row in rows):
        radio.append(("idle", "idle_j", "J"))
    kinds = (
        ("training", "compute_j", "J"),
        *radio,
        ("server", "server_j", "J"),
        ("on the air", "bits", "bit"),
        ("left", "leftover_j", "J"),
    )
    figures = {label: column([row[name] for row in rows], unit) for label, name, unit in kinds}
    names = [f"{label} [{unit}]" for label, (unit, _) in figures.items()]
    return Table(
        [Column("method", figures=False, heads=True), *map(Column, names), Column("seeds")],
        [
            [row["method"], *(cells[k] for _, cells in figures.values()), str(row["seeds"])]
            for k, row in enumerate(rows)
        ],
    )


# In a terminal ----------------------------------------------------------------------------------


def comparison_text(study: Comparison) -> str:
    """What `show_comparison` prints."""
    return text_of(lambda console: show_comparison(study, console))


def show_comparison(study: Comparison, console: Console) -> None:
    """Print a comparison: a table with intervals, the target, and all notes."""
    rows, table = study.table(), method_table(study)
    table = table.part([k for k, one in enumerate(table.columns) if not one.rank])
    half = 1 + table.names.index("iterations")
    if not show_whole(table, console):
        parts = [[*range(half)], [0, *range(half, len(table.columns))]]
        for part in parts:
            show_table(console, table.part(part), box=SIMPLE_HEAD)
    console.print(Text(_caption(study)))
    unsure = open_text(rows)
    console.print(Text(f"target: {study.target_words}" + (f"; {unsure}" if unsure else "")))
    for row in rows:
        said, citation = about(row["method"])
        by = f" ({citation.authors}, {citation.year})" if citation else ""
        if said:
            console.print(Text.assemble((f"{row['method']}: ", "bold"), said.rstrip("."), by))
    notes = [("data", study.notes), *((row["method"], row["notes"]) for row in rows)]
    for names, note in gathered(notes):
        console.print(Text.assemble((f"{names}: ", "bold"), note))


def samples_text(study: Comparison) -> str:
    """On how many test samples final figures rest, and their standard error; or nothing."""
    if not study.samples:
        return ""
    error = study.sampling_error
    most = "" if error is None else f", standard error up to {100 * error:.1f} points"
    return f"{study.samples['test_samples']:,} test samples{most}"


def _caption(study: Comparison) -> str:
    on = samples_text(study)
    on = f"; {on}" if on else ""
    if len(study.seeds) == 1:
        return (
            f"equal {study.equal}; time on the modelled clock of the devices; one seed, so no "
            f"intervals{on}; iterations are communication rounds"
        )
    over = "" if study.unit == "seed" else f" over {study.unit}s"
    return (
        f"equal {study.equal}; time on the modelled clock of the devices; "
        f"means of {study.repeats} ± 95 % interval{over} (Student's t); "
        f"* differs from {study.entries[0].name}, paired by {study.unit}"
        + (f"; {study.repeats_note}" if study.repeats_note else "")
        + f"{on}; iterations are communication rounds"
    )


# The page ---------------------------------------------------------------------------------------


def render_comparison(
    study: Comparison, *, versions: Mapping[str, str] | None = None, when: str = ""
) -> str:
    """The page as text."""
    known, seeds = dict(versions or {}), study.seeds
    if study.unit != "seed":
        known, seeds = known | {f"{study.unit}s": ", ".join(map(str, seeds))}, ()
    return render_page(
        "comparison.html",
        title=words.page_title("Comparison", words.Subject(study.scenario.name, when)),
        styles=("report.css", "comparison.css"),
        scripts=CHARTS,
        data={
            "methods": True,
            "learning": curves_of_methods(study),
            "flow": method_flow(study.table()),
        },
        summary=sentence(study),
        terms=f"Equal {study.equal}: {_EQUAL[study.equal]}.",
        methods=[_about(entry.name) for entry in study.entries],
        table=method_table(study),
        legend=reading(study),
        notes=_notes(study),
        batteries=batteries(study),
        scenario=study.scenario.to_toml(),
        provenance=provenance(known, seeds),
    )


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


def _about(name: str) -> tuple[str, str, str]:
    said, citation = about(name)
    return name, said or "No description is registered.", str(citation) if citation else ""


def _notes(study: Comparison) -> list[tuple[str, list[str]]]:
    said = [("data", study.notes), *((entry.name, entry.remarks) for entry in study.entries)]
    notes: dict[str, list[str]] = {}
    for names, note in gathered(said):
        notes.setdefault(names, []).append(note)
    return list(notes.items())


def curves_of_methods(study: Comparison) -> dict[str, Any] | None:
    """The curves of all methods, the score first, thinned to what a screen shows."""
    ran = [(place, entry) for place, entry in enumerate(study.entries) if entry.ran]
    if not ran:
        return None
    kept = [every(len(entry.iteration), _MOST_POINTS) for _, entry in ran]
    points = [
        {axis: few_digits(across(entry, axis)[at]) for axis in AXES}
        for (_, entry), at in zip(ran, kept, strict=True)
    ]
    shown = [curve for curve in curves_of(*reported(study.scenario.training)) if curve.short]
    shown.sort(key=lambda curve: curve.metric != study.score)
    notes = [f"bands: 95 % intervals over {study.unit}s"] if len(study.seeds) > 1 else []
    along = [
        {
            "key": curve.name,
            "short": curve.short,
            "name": curve.words.replace("'", "’"),
            "share": curve.share,
            "log": True,
            "notes": notes,
            "target": study.target if curve.name == f"test_{study.score}" else None,
            "lines": [
                _line(entry, place, curve, at, points=k, banded=len(study.seeds) > 1)
                for k, ((place, entry), at) in enumerate(zip(ran, kept, strict=True))
            ],
        }
        for curve in shown
    ]
    return curves(points, along, ACROSS, x="joules", hides=True, intervals=True)


_DASHES = ("", "9 5", "3 3", "12 4 3 4")


def _line(
    entry: Entry, place: int, curve: Curve, at: Any, *, points: int, banded: bool
) -> dict[str, Any]:
    mean, half = band(entry.curves[curve.name][at])
    ends = {"low": few_digits(mean - half), "high": few_digits(mean + half)} if banded else {}
    look = f"m{place % 8}"
    dash = _DASHES[place % len(_DASHES)]
    return line(entry.name, entry.name, look, few_digits(mean), points=points, dash=dash, **ends)
