"""A sweep: its table for a terminal, a page or a paper, what is drawn of it, and its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text
from scipy import special

from joulemesh.base.units import duration, energy, prefixed, unit_of
from joulemesh.scenario.varied import Varied
from joulemesh.study.record import FIGURE
from joulemesh.study.runs import default_target
from joulemesh.study.statistics import CONFIDENCE, estimate
from joulemesh.study.sweep_result import Figure, Point, Sweep
from joulemesh.views import words
from joulemesh.views.charts import few_digits
from joulemesh.views.comparison import measures
from joulemesh.views.page import render_page
from joulemesh.views.report import provenance
from joulemesh.views.table import Cell, Column, Table
from joulemesh.views.terminal import show_table, text_of
from joulemesh.views.words import value_words

_MOST_PRINTED, _MOST_REASONS = 60, 6
_MOST_CELLS = 300_000  # figures of single runs that a page carries
_FIRST_ROWS, _MOST_ROWS = 40, 600
_RANKS = {"energy to target": 3, "iterations": 2}  # what goes first where room is scarce

# What is drawn ----------------------------------------------------------------------------------

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_DECADE = 10.0
_LONGEST = 22  # characters of a value


@dataclass(frozen=True, eq=False)
class Line:
    """One method in a panel."""

    method: str  # its name
    index: int  # its number among the sweep's methods
    # float64 [V], over seeds, at each value of the field; NaN where there is no figure
    mean: FloatArray
    half: FloatArray  # float64 [V], half the width of its 95 % interval; 0 for one seed
    settings: int  # how many settings of the other fields it is averaged over


@dataclass(frozen=True, eq=False)
class Panel:
    """A figure against one field."""

    field: int  # the number of the field among those that are varied
    lines: tuple[Line, ...]  # of the methods that have anything to draw
    settings: int  # how many settings of the other fields there are
    # methods without a line, because they could not run at all, or have figures in no setting at
    # all of their values
    missing: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What the reader should know of the settings that are averaged over."""
        lacking = f"no line: {', '.join(self.missing)}" if self.missing else ""
        if self.settings == 1:
            return lacking
        counts = sorted({line.settings for line in self.lines})
        over = " or ".join(map(str, counts))
        text = f"mean over {over} of {self.settings} settings" if counts else ""
        if counts == [self.settings]:
            text = f"mean over {self.settings} settings of the rest"
        return "; ".join(part for part in (text, lacking) if part)


def panel_of(study: Sweep, field: int, figure: str | None = None) -> Panel:
    """Every method's figure against one of the varied fields."""
    cells = _first(study.array(figure), field)  # [V, settings, methods, seeds]
    known = _known(cells, _first(study.array(), field))
    shown = [m for m in range(len(study.methods)) if known[:, :, m].any()]
    balanced = {m: _balanced(known[:, :, m]) for m in shown}
    common = np.logical_and.reduce(list(balanced.values())) if shown else np.zeros(0, bool)
    lines = [
        _line(study.methods[m], m, cells[:, :, m], known[:, :, m], over)
        for m in shown
        if (over := common if common.any() else balanced[m]).any()
    ]
    drawn = {line.index for line in lines}
    missing = tuple(name for m, name in enumerate(study.methods) if m not in drawn)
    return Panel(field, tuple(lines), cells.shape[1], missing)


def _first(array: FloatArray, field: int) -> FloatArray:
    front = np.moveaxis(array, field, 0)
    return front.reshape(front.shape[0], -1, *front.shape[-2:])


def _known(cells: FloatArray, scores: FloatArray) -> BoolArray:
    ran, there = np.isfinite(scores), np.isfinite(cells)
    return np.asarray(there.any(axis=-1) & (there | ~ran).all(axis=-1))


def _balanced(known: BoolArray) -> BoolArray:
    values = known.any(axis=1)
    return np.asarray(known[values].all(axis=0))


def _line(name: str, index: int, cells: FloatArray, known: BoolArray, over: BoolArray) -> Line:
    found = [
        estimate(at[over].mean(axis=0) if there[over].all() else np.zeros(0))
        for at, there in zip(cells, known, strict=True)
    ]
    mean = np.array([one.mean for one in found])
    half = np.where(np.isfinite(mean), np.nan_to_num([one.half for one in found]), np.nan)
    return Line(name, index, mean, half, int(over.sum()))


def is_geometric(values: Sequence[float]) -> bool:
    """Do values stand more evenly on a logarithmic axis?"""
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < 2 or ordered[0] <= 0:
        return False
    if len(ordered) == 2:
        return bool(ordered[1] >= _DECADE * ordered[0])
    return _unevenness(np.log(ordered)) < _unevenness(ordered)


def _unevenness(values: FloatArray) -> float:
    steps = np.diff(values)
    return float(steps.std() / steps.mean())


def scale_of(field: Varied) -> tuple[float, str]:
    """What the values of a field are divided by in a figure or a table, and its label."""
    unit, scale = unit_of(field.name) if field.numeric else None, 1.0
    if unit is not None and unit not in ("dB", "dBm/Hz"):
        scale, unit = prefixed(float(np.abs(field.values).max()), unit)
    return scale, f"{field.words} [{unit}]" if unit else field.words


def words_of(field: Varied, k: int) -> str:
    """A value as people say it, in few characters."""
    value = field.values[k]
    kept = value if isinstance(value, bool | int | float | str | tuple) else field.plain[k]
    text = value_words(field.name, kept)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# The table --------------------------------------------------------------------------------------


def combinations(study: Sweep, most: int) -> Table:
    """One row for each combination and method; of one that did not run, why."""
    shown = [
        one
        for one in measures(study.metric, study.methods[0])
        if not one.key.startswith("device_") and one.name != "time to target"
    ]
    ranks = [_RANKS.get(one.name, 0) for one in shown]
    columns = [
        *(Column(one.name, figures=False) for one in study.varied),
        Column("method", figures=False, heads=True),
        *(Column(one.name, rank=rank) for one, rank in zip(shown, ranks, strict=True)),
        Column("n", rank=1),
    ]
    rows: list[list[Cell]] = []
    for point in study.points:
        for row in point.methods[: most - len(rows)]:
            head = [*_at(study.varied, point), row["method"]]
            if row.get("iterations") is None or row.get(study.metric.name) is None:
                why = f"{row['status']}: {row['notes'][0]}" if row["notes"] else row["status"]
                rows.append([*head, str(why)])
            else:
                rows.append([*head, *(one.text(row) for one in shown), str(row["seeds"])])
    total = len(study.points) * len(study.methods)
    rest = f"… and {total - most:,} in summary.csv." if total > most else ""
    return Table(columns, rows, kind="swept", first=_FIRST_ROWS, rest=rest)


def _at(varied: Sequence[Varied], point: Point) -> list[str]:
    return [words_of(one, k) for one, k in zip(varied, point.at, strict=True)]


def sweep_reasons(study: Sweep) -> Counter[str]:
    """Why methods have no figures, and in how many combinations."""
    return Counter(
        f"{row['method']}: {row['notes'][0] if row['notes'] else row['status']}"
        for point in study.points
        for row in point.methods
        if row.get("iterations") is None
    )


def notes_on(study: Sweep) -> list[str]:
    """What a reader should know of the methods that ran, each note once with its combinations."""
    where: dict[tuple[str, str], list[tuple[Point, str]]] = {}
    for point in study.points:
        for row in point.methods:
            for note in row["notes"] if row.get("iterations") is not None else ():
                kind = row["method"], FIGURE.sub("#", note)
                where.setdefault(kind, []).append((point, note))
    lines = []
    for (method, _), found in where.items():
        point, note = found[0]
        at = ", ".join(_at(study.varied, point))
        count = f"{len(found)} of {len(study.points)} combinations"
        alike = len(found) == len(study.points) and len({text for _, text in found}) == 1
        place = "all combinations" if alike else f"{count}, for instance {at}"
        lines.append(f"{method} in {place}: {note}")
    return lines


def reading(study: Sweep) -> str:
    """How to read the table (plain text)."""
    if len(study.seeds) < 2:
        return "Iterations are communication rounds. One seed has no intervals."
    first = study.methods[0]
    return (
        f"Means over {len(study.seeds)} seeds ± half the 95 % interval (Student's t); n is how "
        "many did not diverge; iterations are communication rounds. "
        f"Differences are against {first}, paired by seed; * where the "
        "interval excludes 0, each interval by itself (not corrected for the number of "
        "combinations)."
    )


# In a terminal ----------------------------------------------------------------------------------


def sweep_text(study: Sweep) -> str:
    """What `show_sweep` prints."""
    return text_of(lambda console: show_sweep(study, console))


def show_sweep(study: Sweep, console: Console) -> None:
    """Print a sweep: the table, how to read it, and why something did not run."""
    table = combinations(study, _MOST_PRINTED)
    show_table(console, table, box=SIMPLE_HEAD)
    total = len(study.points) * len(study.methods)
    if total > _MOST_PRINTED:
        console.print(Text(f"{total - _MOST_PRINTED:,} more rows; --out keeps all of them"))
    console.print(Text(f"Equal {study.equal}. {reading(study)}"))
    for why, count in sweep_reasons(study).most_common(_MOST_REASONS):
        console.print(Text(f"{count} of {len(study.points)} combinations: {why}"))
    said = notes_on(study)
    for line in said[:_MOST_REASONS]:
        console.print(Text(line))
    if len(said) > _MOST_REASONS:
        console.print(Text(f"{len(said) - _MOST_REASONS:,} more notes; --out keeps all of them"))


def show_outlook(
    varied: Sequence[Varied],
    combinations: Sequence[tuple[tuple[int, ...], Sequence[str]]],
    console: Console,
) -> None:
    """Print every combination with what it takes."""
    columns = [
        *(Column(one.name, figures=False) for one in varied),
        *map(Column, ("runs", "to train", "device-steps")),
        Column("", figures=False, prose=40),
    ]
    rows = [
        [*(words_of(field, k) for field, k in zip(varied, at, strict=True)), *figures]
        for at, figures in combinations[:_MOST_PRINTED]
    ]
    show_table(console, Table(columns, rows), box=SIMPLE_HEAD)
    if len(combinations) > _MOST_PRINTED:
        console.print(Text(f"{len(combinations) - _MOST_PRINTED:,} more combinations"))


# The page ---------------------------------------------------------------------------------------


def render_sweep(study: Sweep, *, versions: Mapping[str, str] | None = None, when: str = "") -> str:
    """The page as text."""
    runs = len(study.points) * len(study.methods) * len(study.seeds)
    # Figures that can be switched to: as many as a page can carry.
    shown = list(study.figures.values())[: max(1, _MOST_CELLS // runs)]
    reasons, total = sweep_reasons(study), len(study.points) * len(study.methods)
    return render_page(
        "sweep.html",
        title=words.page_title("Sweep", words.Subject(study.scenario.name, when)),
        styles=("report.css", "comparison.css", "sweep.css"),
        scripts=("lines.js", "sweep.js"),
        data=_data(study, shown),
        summary=sentence(study),
        terms=_terms(study),
        figures=[one.short for one in shown],
        table=combinations(study, _MOST_ROWS),
        legend=reading(study),
        missing=[(f"{n:,} of {total:,}", why) for why, n in reasons.most_common(50)],
        notes=notes_on(study),
        scenario=study.scenario.to_toml(),
        provenance=provenance(versions or {}, study.seeds),
    )


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


def _data(study: Sweep, shown: Sequence[Figure]) -> dict[str, Any]:
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
        "cells": [few_digits(study.array(one.name).ravel(), 7) for one in shown],
        "quantile": [
            float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) if n > 1 else 0.0
            for n in range(len(study.seeds) + 1)
        ],
    }
