"""Comparisons and sweeps as LaTeX tables: means with intervals, the best in bold."""

from __future__ import annotations

__all__ = ["comparison_table", "sweep_table"]

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from joulemesh.results.comparison import Comparison
from joulemesh.results.significance import Judgement, judged, merits
from joulemesh.results.sweep import Sweep
from joulemesh.results.target import default_target
from joulemesh.scenario.varied import Varied
from joulemesh.units import prefixed
from joulemesh.views.comparison.table import method_text, open_text
from joulemesh.views.publication.latex import Tex, booktabs, escape
from joulemesh.views.sweep.marginal import scale_of, words_of
from joulemesh.views.words import dataset_words, device_words

_LEVELS = (0.001, 0.01, 0.05)  # three marks, two, one
_TO_TARGET = ("energy_to_target_j", "time_to_target_s")


@dataclass(frozen=True)
class _Column:
    """A figure of the table: what it is called, and in which unit.

    Attributes:
        name: in the rows of `Comparison.table`.
        heading: what it is called.
        unit: ``"%"`` for a share; empty for a score without a unit.
        score: is it what methods are compared by?
    """

    name: str
    heading: str
    unit: str = ""
    score: bool = False


def _columns(study: Comparison | Sweep) -> list[_Column]:
    metric = study.metric
    unit = "%" if metric.share else ""
    own = _Column(f"device_{study.score}", "devices' own", unit)
    return [
        _Column(study.score, metric.label, unit, score=True),
        *([own] if metric.devices else []),
        _Column("energy_j", "energy", "J"),
        _Column("time_s", "time", "s"),
        _Column("energy_to_target_j", "energy to target", "J"),
        _Column("time_to_target_s", "time to target", "s"),
    ]


def comparison_table(
    study: Comparison, *, baseline: str | None = None, narrow: bool = False
) -> str:
    """The table of a comparison for a paper.

    Args:
        study: what was compared.
        baseline: the method that the others are tested against; the best of each column unless
            given.
        narrow: for one column of the page: the score, and what it takes to reach the target.

    Returns:
        LaTeX source that needs the package ``booktabs``. A note below the table says what ±, bold
        and the marks mean.

    Raises:
        ScenarioError: the baseline was not compared.
    """
    rows = study.table()
    shown = [one for one in _columns(study) if not narrow or one.score or one.name in _TO_TARGET]
    tests = {name: judged(study, name, baseline) for name in merits(study)}
    cells = [_cells(column, rows, tests.get(column.name)) for column in shown]
    headings: list[str] = [_heading(column, rows, narrow=narrow) for column in shown]
    iterations = [_iterations(row) for row in rows]
    if not narrow:
        before = [column.unit for column in shown].index("J")
        cells.insert(before, iterations)
        headings.insert(before, "iterations")
    return booktabs(
        ["method", *headings],
        [[method_text(row), *(cell[k] for cell in cells)] for k, row in enumerate(rows)],
        caption=_caption(study),
        label="tab:comparison",
        notes=_notes(study, tests, baseline),
        wide=not narrow,
        compact=True,
    )


def sweep_table(study: Sweep, *, narrow: bool = False) -> str:
    """The table of a sweep for a paper: one row for each combination and method.

    Args:
        study: what was swept.
        narrow: for one column of the page: the score, and the energy to the target.

    Returns:
        LaTeX source that needs the package ``booktabs``. Of a method that could not run, the table
        has the status and a note below it the reason.
    """
    rows = study.summary_table()
    few = (study.score, "energy_to_target_j")
    shown = [one for one in _columns(study) if not narrow or one.name in few]
    cells = [_cells(column, rows, None) for column in shown]
    body: list[list[str]] = []
    for point in study.points:
        values = [_value(one, k) for one, k in zip(study.varied, point.at, strict=True)]
        for row in point.methods:
            k = len(body)
            body.append([*values, row["method"], *(column[k] for column in cells)])
            values = [""] * len(values)  # once for each combination
    heads = [scale_of(one)[1] for one in study.varied]
    return booktabs(
        [*heads, "method", *(_heading(column, rows, narrow=narrow) for column in shown)],
        body,
        caption=f"Methods on equal {study.equal} within each combination: "
        f"{' and '.join(one.words for one in study.varied)} varied.",
        label="tab:sweep",
        notes=_sweep_notes(study),
        align="r" * len(study.varied) + "l" + "r" * len(shown),
        wide=not narrow,
        compact=True,
    )


def _value(field: Varied, k: int) -> str:
    """A value of a varied field, in the unit of its column."""
    return f"{field.values[k] / scale_of(field)[0]:.4g}" if field.numeric else words_of(field, k)


def _sweep_notes(study: Sweep) -> list[str]:
    times = len(study.seeds)
    said = "One seed, hence no intervals."
    if times > 1:
        said = f"Means of {times} seeds ± half of the 95 % interval over seeds (Student's t)."
    _, target = default_target(1.0, study.metric, "the best final")
    target = f"The target is {target} of each combination."
    if study.wanted is not None:
        target = f"The target is a test {study.metric.label} of {study.wanted:g}."
    return [said, target, *filter(None, (_without(study, one) for one in study.methods))]


def _without(study: Sweep, method: str) -> str:
    """In how many combinations a method could not run, with the first reason."""
    rows = [row for point in study.points for row in point.methods if row["method"] == method]
    lost = [row for row in rows if row.get("iterations") is None]
    if not lost:
        return ""
    why = re.split(r"[:;] ", lost[0]["notes"][0])[0] if lost[0]["notes"] else lost[0]["status"]
    return f"{method} could not run in {len(lost)} of {len(rows)} combinations: {why}."


def _scale(column: _Column, rows: Sequence[dict[str, Any]]) -> tuple[float, str]:
    """What figures of a column are divided by, and the unit that remains."""
    if column.unit in ("", "%"):
        return 0.01 if column.unit else 1.0, column.unit
    known = [row[column.name] for row in rows if row[column.name] is not None]
    return prefixed(max(known, default=1.0), column.unit)


def _heading(column: _Column, rows: Sequence[dict[str, Any]], *, narrow: bool) -> Tex:
    unit, name = escape(_scale(column, rows)[1]), column.heading
    behind = f" [{unit}]" if unit else ""
    if narrow and " " in name:
        first, _, rest = name.partition(" ")
        stacked = rf"{escape(first)}\\{escape(rest)}{behind}"
        return Tex(rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{stacked}\end{{tabular}}")
    return Tex(f"{escape(name)}{behind}")


def _iterations(row: dict[str, Any]) -> str:
    return "--" if row["iterations"] is None else f"{row['iterations']:,}"


def _cells(column: _Column, rows: Sequence[dict[str, Any]], test: Judgement | None) -> list[str]:
    scale, _ = _scale(column, rows)
    digits = _digits(column, rows, scale)
    marks = [_marks(test, k) for k in range(len(rows))]
    most = max(map(len, marks))
    best = None if test is None or test.best is None else rows[test.best][column.name]
    made: list[str] = []
    for row, mark in zip(rows, marks, strict=True):
        value, half = row[column.name], row[f"{column.name}_ci95"]
        if value is None:
            made.append(_missing(column, row))
            continue
        text = f"{value / scale:.{digits}f}"
        bold = best is not None and text == f"{best / scale:.{digits}f}"
        if half is not None and (test is not None or half / scale >= 0.5 * 10.0**-digits):
            text += rf" \pm {half / scale:.{digits}f}"
        made.append(_number(text, mark, most, bold=bold))
    return made


def _number(text: str, mark: str, most: int, *, bold: bool) -> Tex:
    """A figure; an invisible mark keeps those without one in line with the others."""
    text = rf"\mathbf{{{text}}}" if bold else text
    shown = rf"^{{{mark}}}" if mark else ""
    hidden = rf"\phantom{{^{{{'*' * (most - len(mark))}}}}}" if len(mark) < most else ""
    return Tex(f"${text}{shown}{hidden}$")


def _digits(column: _Column, rows: Sequence[dict[str, Any]], scale: float) -> int:
    """Decimals: one of per cent; otherwise three digits of the largest figure."""
    if column.unit == "%":
        return 1
    known = [abs(row[column.name]) for row in rows if row[column.name]]
    if not known:
        return 0
    return min(3, max(0, 2 - math.floor(math.log10(max(known) / scale))))


def _missing(column: _Column, row: dict[str, Any]) -> str:
    if column.score:
        return str(row["status"])  # why there are no figures
    if column.name not in _TO_TARGET or row["iterations"] is None:
        return "--"
    return f"{row['reached']} of {row['seeds']} seeds" if row["reached"] else "not reached"


def _marks(test: Judgement | None, k: int) -> str:
    if test is None or math.isnan(test.p[k]):
        return ""
    return "*" * sum(test.p[k] < level for level in _LEVELS)


def _caption(study: Comparison) -> str:
    data = dataset_words(study.dataset or study.scenario.training.dataset)
    return f"Methods on equal {study.equal}: {device_words(study.scenario)}, {data}."


def _notes(study: Comparison, tests: dict[str, Judgement], baseline: str | None) -> list[str]:
    metric, wanted = study.metric, study.target
    figure = f"{100 * wanted:.1f} %" if metric.share else f"{wanted:.4g}"
    target = f"The target is a test {metric.label} of {figure} of the mean model."
    if not math.isfinite(study.target):
        return ["No method could run."]
    if len(study.seeds) == 1:
        return [f"One {study.unit}, hence neither intervals nor tests.", target]
    said = [
        f"Means of {study.repeats} ± half of the 95 % interval over {study.unit}s (Student's t). "
        "The best of a column is bold."
    ]
    if any(not math.isnan(p) for test in tests.values() for p in test.p):
        whom = "the best of the column" if baseline is None else baseline
        said.append(
            f"*, **, ***: it differs from {whom} with p < 0.05, 0.01, 0.001 "
            f"(two-sided t-test, paired by {study.unit}; Holm's correction for all methods of "
            "the column)."
        )
    return [*said, f"{target}{_open(study)}"]


def _open(study: Comparison) -> str:
    """What evaluations leave open of energy and time to the target."""
    unsure = open_text(study.table())
    return f" What it takes to reach it is {unsure}." if unsure else ""
