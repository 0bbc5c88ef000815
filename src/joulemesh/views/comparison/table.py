"""A comparison as a table for a terminal."""

from __future__ import annotations

__all__ = [
    "comparison_text",
    "difference_text",
    "figure_text",
    "method_text",
    "open_text",
    "own_heading",
    "rate_text",
    "samples_text",
    "show_comparison",
    "target_text",
]

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.metrics.metric import Metric
from joulemesh.results.comparison import Comparison
from joulemesh.results.entry import gathered
from joulemesh.results.table import about
from joulemesh.units import prefixed, si
from joulemesh.views.terminal import Column, fits, show_table, text_of

_NO_WIDTH = 1e-6
_TO_TARGET = ("energy_to_target_j", "time_to_target_s")


def figure_text(
    value: float | None, half: float | None, unit: str = "", *, share: bool = True
) -> str:
    """A figure with its interval, as text.

    Args:
        value: the figure, or None.
        half: half the width of its interval, or None.
        unit: of the figure; an accuracy has none and is written in per cent.
        share: whether a figure without a unit is a share, as accuracies are.

    >>> figure_text(0.9512, 0.004), figure_text(0.0562, 0.0129, "J"), figure_text(338.8, 0.0, "J")
    ('95.1 ± 0.4', '56.2 ± 12.9 mJ', '339 J')
    >>> figure_text(0.4512, 0.0213, share=False), figure_text(61.27, None, share=False)
    ('0.451 ± 0.021', '61.3')
    """
    if value is None:
        return "–"
    if not unit and not share:
        digits = max(0, 2 - math.floor(math.log10(max(abs(value), 0.1))))
        return f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
    if not unit:
        return f"{100 * value:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")
    scale, name = prefixed(value, unit)
    digits = max(0, 2 - math.floor(math.log10(abs(value) / scale))) if value else 0
    if half is None or half / scale < 0.5 * 10.0**-digits:  # as good as the same at every seed
        return si(value, unit)
    return f"{value / scale:.{digits}f} ± {half / scale:.{digits}f} {name}"


def own_heading(metric: Metric) -> str:
    """What the column of the devices' own scores is called.

    >>> from joulemesh.metrics.metric import ACCURACY
    >>> own_heading(ACCURACY)
    "devices' own [%]"
    """
    return "devices' own [%]" if metric.share else "devices' own"


def difference_text(value: float | None, half: float | None, *, share: bool = True) -> str:
    """A difference of accuracies in per cent; an asterisk where its interval excludes 0.

    Accuracies are counted in whole samples: if the differences of a few seeds happen to be equal,
    the interval has no width and says nothing.

    >>> difference_text(-0.02, 0.01), difference_text(0.02, 0.03), difference_text(0.5, None)
    ('−2.0 ± 1.0 *', '+2.0 ± 3.0', '+50.0')
    >>> difference_text(-0.02, 0.0)
    '−2.0 ± 0.0'
    """
    if value is None:
        return "–"
    text = ("−" if value < 0 else "+") + figure_text(abs(value), half, share=share)
    return f"{text} *" if half is not None and abs(value) > half > _NO_WIDTH else text


def target_text(row: dict[str, Any], name: str, unit: str) -> str:
    """What it took to reach the target, with its interval over seeds; or how many seeds did.

    >>> target_text({"energy_j": None, "reached": 2, "seeds": 5}, "energy_j", "J")
    '2 of 5 seeds'
    >>> target_text({"energy_j": 48.4, "energy_j_ci95": 13.1}, "energy_j", "J")
    '48.4 ± 13.1 J'
    """
    if row[name] is not None:
        return figure_text(row[name], row[f"{name}_ci95"], unit)
    return f"{row['reached']} of {row['seeds']} seeds" if row["reached"] else "not reached"


def open_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """How far evaluations leave energy and time to the target open, at most; or nothing.

    >>> open_text([{"energy_to_target_j_error": 5.41, "time_to_target_s_error": 0.075}])
    'interpolated between evaluations, to within 5.41 J and 75 ms'
    """
    found, every = [], list(rows)
    for name, unit in zip(_TO_TARGET, ("J", "s"), strict=True):
        errors = [row[f"{name}_error"] for row in every if row.get(f"{name}_error")]
        found += [si(max(errors), unit)] if errors else []
    if not found:
        return ""
    return f"interpolated between evaluations, to within {' and '.join(found)}"


def samples_text(study: Comparison) -> str:
    """On how many test samples final figures rest, and their standard error; or nothing."""
    if not study.samples:
        return ""
    error = study.sampling_error
    most = "" if error is None else f", standard error up to {100 * error:.1f} points"
    return f"{study.samples['test_samples']:,} test samples{most}"


def method_text(row: Mapping[str, Any]) -> str:
    """A method's name; with the worlds that its figures are of, where these are not all.

    >>> method_text({"method": "fixed:3", "worlds": 3, "worlds_asked": 5})
    'fixed:3 (3 of 5 worlds)'
    """
    ran, asked = row.get("worlds", 0), row.get("worlds_asked", 0)
    return row["method"] if ran == asked else f"{row['method']} ({ran} of {asked} worlds)"


def rate_text(row: Mapping[str, Any]) -> str:
    """The learning rate that a method was trained with, in few digits.

    >>> rate_text({"learning_rate": 0.2}), rate_text({"learning_rate": None})
    ('0.2', '–')
    """
    rate = row["learning_rate"]
    return "–" if rate is None else f"{rate:.3g}"


def comparison_text(study: Comparison) -> str:
    """What `show_comparison` prints."""
    return text_of(lambda console: show_comparison(study, console))


def show_comparison(study: Comparison, console: Console) -> None:
    """Print a comparison: a table with intervals, the target, and everybody's notes."""
    rows = study.table()
    tuned = ("learning rate",) if study.rates else ()
    metric, first = study.metric, rows[0]["method"]
    learned = (metric.heading, f"vs {first}", own_heading(metric), *tuned, "iterations")
    paid = ("energy", "time", "energy to target", "time to target")
    method = Column("method", figures=False)
    columns = [method, *(Column(name) for name in (*learned, *paid))]
    cells = [[method_text(row), *_cells(row, metric, tuned=bool(tuned))] for row in rows]
    half = 1 + len(learned)
    if fits(console, columns, cells, SIMPLE_HEAD):
        show_table(console, columns, cells, box=SIMPLE_HEAD)
    else:
        show_table(console, columns[:half], [row[:half] for row in cells], box=SIMPLE_HEAD)
        later = [[row[0], *row[half:]] for row in cells]
        show_table(console, [method, *columns[half:]], later, box=SIMPLE_HEAD)
    console.print(Text(_caption(study)))
    unsure = open_text(rows)
    console.print(Text(f"target: {study.target_words}" + (f"; {unsure}" if unsure else "")))
    for row in rows:
        said, citation = about(row["method"])
        by = f" ({citation.authors}, {citation.year})" if citation else ""
        if said:
            console.print(Text.assemble((f"{row['method']}: ", "bold"), said.rstrip("."), by))
    for note in study.notes:
        console.print(Text.assemble(("data: ", "bold"), note))
    for names, note in gathered((row["method"], row["notes"]) for row in rows):
        console.print(Text.assemble((f"{names}: ", "bold"), note))


def _caption(study: Comparison) -> str:
    on = samples_text(study)
    on = f"; {on}" if on else ""
    if len(study.seeds) == 1:
        return (
            f"equal {study.equal}; time on the modelled clock of the devices; one seed, so no "
            f"intervals{on}"
        )
    over = "" if study.unit == "seed" else f" over {study.unit}s"
    return (
        f"equal {study.equal}; time on the modelled clock of the devices; "
        f"means of {study.repeats} ± 95 % interval{over} (Student's t); "
        f"* differs from {study.entries[0].name}, paired by {study.unit}"
        + (f"; {study.repeats_note}" if study.repeats_note else "")
        + on
    )


def _cells(row: dict[str, Any], metric: Metric, *, tuned: bool) -> list[str]:
    if row["iterations"] is None:
        return [row["status"], *["–"] * (8 if tuned else 7)]

    def cell(name: str, unit: str = "") -> str:
        return figure_text(row[name], row[f"{name}_ci95"], unit, share=metric.share)

    name, share = metric.name, metric.share
    apart = (row[f"{name}_difference"], row[f"{name}_difference_ci95"])
    return [
        cell(name),
        difference_text(*apart, share=share),
        cell(f"device_{name}"),
        *([rate_text(row)] if tuned else []),
        f"{row['iterations']:,}",
        cell("energy_j", "J"),
        cell("time_s", "s"),
        target_text(row, "energy_to_target_j", "J"),
        target_text(row, "time_to_target_s", "s"),
    ]
