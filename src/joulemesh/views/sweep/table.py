"""A sweep as a table: one line per combination and method."""

from __future__ import annotations

__all__ = [
    "cells_of",
    "head_of",
    "notes_on",
    "reading",
    "reasons",
    "show_outlook",
    "show_sweep",
    "sweep_text",
]

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.metrics.metric import Metric
from joulemesh.results.entry import FIGURE
from joulemesh.results.sweep import Sweep
from joulemesh.results.sweep_point import Point
from joulemesh.scenario.varied import Varied
from joulemesh.views.comparison.table import difference_text, figure_text, target_text
from joulemesh.views.sweep.marginal import words_of
from joulemesh.views.terminal import Column, show_table, text_of

_MOST_ROWS, _MOST_REASONS = 60, 6
_RANKS = {"energy to target": 3, "iterations": 2, "n": 1}  # what goes first where room is scarce


def head_of(study: Sweep) -> list[str]:
    """The names of the columns."""
    return [
        *(one.name for one in study.varied),
        "method",
        study.metric.heading,
        f"vs {study.methods[0]}",
        "iterations",
        "energy",
        "time",
        "energy to target",
        "n",
    ]


def cells_of(study: Sweep, most: int) -> Iterator[list[str]]:
    """The lines; one of a method that did not run has its status and the reason behind its name."""
    lines = ((point, row) for point in study.points for row in point.methods)
    for point, row in islice(lines, most):
        yield [*_at(study.varied, point), row["method"], *_figures(row, study.metric)]


def _at(varied: Sequence[Varied], point: Point) -> list[str]:
    return [words_of(one, k) for one, k in zip(varied, point.at, strict=True)]


def _figures(row: Mapping[str, Any], metric: Metric) -> list[str]:
    name, share = metric.name, metric.share
    if row.get("iterations") is None or row.get(name) is None:
        why = row["notes"][0] if row["notes"] else ""
        return [f"{row['status']}: {why}" if why else str(row["status"])]
    apart = row[f"{name}_difference"], row[f"{name}_difference_ci95"]
    return [
        figure_text(row[name], row[f"{name}_ci95"], share=share),
        difference_text(*apart, share=share),
        f"{row['iterations']:,}",
        figure_text(row["energy_j"], row["energy_j_ci95"], "J"),
        figure_text(row["time_s"], row["time_s_ci95"], "s"),
        target_text(dict(row), "energy_to_target_j", "J"),
        str(row["seeds"]),
    ]


def reasons(study: Sweep) -> Counter[str]:
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
        return "One seed has no intervals."
    first = study.methods[0]
    return (
        f"Means over {len(study.seeds)} seeds ± half the 95 % interval (Student's t); n is how "
        f"many did not diverge. Differences are against {first}, paired by seed; * where the "
        "interval excludes 0, each interval by itself (not corrected for the number of "
        "combinations)."
    )


def sweep_text(study: Sweep) -> str:
    """What `show_sweep` prints."""
    return text_of(lambda console: show_sweep(study, console))


def show_sweep(study: Sweep, console: Console) -> None:
    """Print a sweep: the table, how to read it, and why something did not run."""
    names = head_of(study)
    first = len(study.varied) + 1
    columns = [
        Column(name, rank=_RANKS.get(name, 0) if k >= first else 0, figures=k >= first)
        for k, name in enumerate(names)
    ]
    rows = [
        cells if len(cells) == len(names) else _out(cells, first, len(names))
        for cells in cells_of(study, _MOST_ROWS)
    ]
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    total = len(study.points) * len(study.methods)
    if total > _MOST_ROWS:
        console.print(Text(f"{total - _MOST_ROWS:,} more rows; --out keeps all of them"))
    console.print(Text(f"Equal {study.equal}. {reading(study)}"))
    for why, count in reasons(study).most_common(_MOST_REASONS):
        console.print(Text(f"{count} of {len(study.points)} combinations: {why}"))
    said = notes_on(study)
    for line in said[:_MOST_REASONS]:
        console.print(Text(line))
    if len(said) > _MOST_REASONS:
        console.print(Text(f"{len(said) - _MOST_REASONS:,} more notes; --out keeps all of them"))


def _out(cells: Sequence[str], first: int, width: int) -> list[str]:
    status = cells[first].partition(":")[0]
    return [*cells[:first], status, *["–"] * (width - first - 1)]


def show_outlook(
    varied: Sequence[Varied],
    combinations: Sequence[tuple[tuple[int, ...], Sequence[str]]],
    console: Console,
) -> None:
    """Print every combination with what it takes.

    Args:
        varied: the fields that are varied.
        combinations: the places of their values, and runs, runs to train, device-steps, remarks.
        console: where.
    """
    names = [*(one.name for one in varied), "runs", "to train", "device-steps", ""]
    first = len(varied)
    columns = [
        Column(name, figures=first <= k < first + 3, prose=None if name else 40)
        for k, name in enumerate(names)
    ]
    rows = [
        [*(words_of(field, k) for field, k in zip(varied, at, strict=True)), *figures]
        for at, figures in combinations[:_MOST_ROWS]
    ]
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    if len(combinations) > _MOST_ROWS:
        console.print(Text(f"{len(combinations) - _MOST_ROWS:,} more combinations"))
