"""Comparisons, sweeps and tuning on the console."""

from __future__ import annotations

__all__ = [
    "Line",
    "Panel",
    "cells_of",
    "comparison_text",
    "difference_text",
    "difference_words",
    "figure_text",
    "figure_words",
    "head_of",
    "is_geometric",
    "method_text",
    "notes_on",
    "open_text",
    "own_heading",
    "panel_of",
    "rate_text",
    "reading",
    "samples_text",
    "scale_of",
    "share_words",
    "show_comparison",
    "show_outlook",
    "show_sweep",
    "show_tuning",
    "sweep_reasons",
    "sweep_text",
    "target_text",
    "tuning_reasons",
    "words_of",
]

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import duration, energy, prefixed, si, unit_of
from joulemesh.metrics import Metric
from joulemesh.scenario.varied import Varied
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import FIGURE, gathered
from joulemesh.study.runs import about
from joulemesh.study.statistics import Estimate, estimate
from joulemesh.study.sweep_result import Point, Sweep
from joulemesh.study.tuning import Final, Judged, Rung, Tuned
from joulemesh.views.terminal import Column, fits, show_table, text_of
from joulemesh.views.words import value_words

_NO_WIDTH = 1e-6
_TO_TARGET = ("energy_to_target_j", "time_to_target_s")


def figure_text(
    value: float | None, half: float | None, unit: str = "", *, share: bool = True
) -> str:
    """A figure with its interval, as text."""
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
    """What the column of the devices' own scores is called."""
    return "devices' own [%]" if metric.share else "devices' own"


def difference_text(value: float | None, half: float | None, *, share: bool = True) -> str:
    """A difference of accuracies in per cent; an asterisk where its interval excludes 0."""
    if value is None:
        return "–"
    text = ("−" if value < 0 else "+") + figure_text(abs(value), half, share=share)
    return f"{text} *" if half is not None and abs(value) > half > _NO_WIDTH else text


def target_text(row: dict[str, Any], name: str, unit: str) -> str:
    """What it took to reach the target, with its interval over seeds; or how many seeds did."""
    if row[name] is not None:
        return figure_text(row[name], row[f"{name}_ci95"], unit)
    return f"{row['reached']} of {row['seeds']} seeds" if row["reached"] else "not reached"


def open_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """How far evaluations leave energy and time to the target open, at most; or nothing."""
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
    """A method's name; with the worlds that its figures are of, where these are not all."""
    ran, asked = row.get("worlds", 0), row.get("worlds_asked", 0)
    return row["method"] if ran == asked else f"{row['method']} ({ran} of {asked} worlds)"


def rate_text(row: Mapping[str, Any]) -> str:
    """The learning rate that a method was trained with, in few digits."""
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
    cells = [[method_text(row), *_cells_comparison(row, metric, tuned=bool(tuned))] for row in rows]
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


def _cells_comparison(row: dict[str, Any], metric: Metric, *, tuned: bool) -> list[str]:
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
    """[values of the field, settings of the others, methods, seeds]."""
    front = np.moveaxis(array, field, 0)
    return front.reshape(front.shape[0], -1, *front.shape[-2:])


def _known(cells: FloatArray, scores: FloatArray) -> BoolArray:
    """[V, settings, methods]: is there a figure of every seed that ran?"""
    ran, there = np.isfinite(scores), np.isfinite(cells)
    return np.asarray(there.any(axis=-1) & (there | ~ran).all(axis=-1))


def _balanced(known: BoolArray) -> BoolArray:
    """[settings]: in which is there a figure at every value that has one in some setting?"""
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


_MOST_ROWS_SWEEP, _MOST_REASONS_SWEEP = 60, 6
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
        for cells in cells_of(study, _MOST_ROWS_SWEEP)
    ]
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    total = len(study.points) * len(study.methods)
    if total > _MOST_ROWS_SWEEP:
        console.print(Text(f"{total - _MOST_ROWS_SWEEP:,} more rows; --out keeps all of them"))
    console.print(Text(f"Equal {study.equal}. {reading(study)}"))
    for why, count in sweep_reasons(study).most_common(_MOST_REASONS_SWEEP):
        console.print(Text(f"{count} of {len(study.points)} combinations: {why}"))
    said = notes_on(study)
    for line in said[:_MOST_REASONS_SWEEP]:
        console.print(Text(line))
    if len(said) > _MOST_REASONS_SWEEP:
        console.print(
            Text(f"{len(said) - _MOST_REASONS_SWEEP:,} more notes; --out keeps all of them")
        )


def _out(cells: Sequence[str], first: int, width: int) -> list[str]:
    status = cells[first].partition(":")[0]
    return [*cells[:first], status, *["–"] * (width - first - 1)]


def show_outlook(
    varied: Sequence[Varied],
    combinations: Sequence[tuple[tuple[int, ...], Sequence[str]]],
    console: Console,
) -> None:
    """Print every combination with what it takes."""
    names = [*(one.name for one in varied), "runs", "to train", "device-steps", ""]
    first = len(varied)
    columns = [
        Column(name, figures=first <= k < first + 3, prose=None if name else 40)
        for k, name in enumerate(names)
    ]
    rows = [
        [*(words_of(field, k) for field, k in zip(varied, at, strict=True)), *figures]
        for at, figures in combinations[:_MOST_ROWS_SWEEP]
    ]
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    if len(combinations) > _MOST_ROWS_SWEEP:
        console.print(Text(f"{len(combinations) - _MOST_ROWS_SWEEP:,} more combinations"))


_MOST_ROWS_TUNING = 10
_MOST_REASONS_TUNING = 6
_UNITS = {"score": "", "energy-to": "J", "time-to": "s"}


def show_tuning(found: Tuned, console: Console) -> None:
    """Print the winner beside the scenario as it is, the best candidates, and what was dropped."""
    head = [Column("plan", figures=False, prose=30), *(Column(name) for name in _head(found))]
    rows = [
        [_plan_words(label, final), *_cells_tuning(found, final)] for label, final in found.finals
    ]
    show_table(console, head, rows, box=SIMPLE_HEAD)
    console.print(Text(difference_words(found)))
    for names, note in gathered((label, final.notes) for label, final in found.finals):
        console.print(Text.assemble((f"{names}: ", "bold"), note))
    _show_rungs(found, console)
    total = len(found.offer.kept) + len(found.offer.dropped)
    console.print(Text(f"{total:,} candidates priced, {len(found.offer.kept):,} trained"))
    for why, reason, count in tuning_reasons(found)[:_MOST_REASONS_TUNING]:
        console.print(Text.assemble((f"{why} ({count}): ", "bold"), reason))


def _head(found: Tuned) -> list[str]:
    to_target = [f"{found.objective}"] if found.objective.target is not None else []
    metric = found.objective.metric
    scores = [metric.heading, own_heading(metric)]
    return [*scores, *to_target, "iterations", "energy", "time"]


def _plan_words(label: str, final: Final) -> str:
    return label if not final.candidate.changes else f"{label}: {final.candidate.name}"


def _cells_tuning(found: Tuned, final: Final) -> list[str]:
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


def figure_words(found: Tuned, value: Estimate) -> str:
    """The objective's figure with its interval; how many seeds reach the target if not all do."""
    if found.objective.target is not None and value.seeds < len(found.fresh):
        return f"{value.seeds} of {len(found.fresh)} seeds"
    share = found.objective.metric.share
    return _figure(value, _UNITS[found.objective.kind], share=share)


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


def _show_rungs(found: Tuned, console: Console) -> None:
    """The candidates that came furthest, with their scores in every rung."""
    last: dict[int, list[Judged | None]] = {}
    for number, rung in enumerate(found.rungs):
        for one in rung.rows:
            last.setdefault(one.candidate, [None] * len(found.rungs))[number] = one
    shown = [one.candidate for rung in reversed(found.rungs) for one in rung.rows]
    numbers = list(dict.fromkeys(shown))[:_MOST_ROWS_TUNING]
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
    """The share of the budget that a rung's candidates get."""
    return f"{100 * rung.share:.3g} %" if rung.share < 0.01 else f"{100 * rung.share:.0f} %"


def _score(found: Tuned, one: Judged | None) -> str:
    if one is None or one.score is None:
        return "–"
    return found.objective.text(one.score)


def tuning_reasons(found: Tuned) -> list[tuple[str, str, int]]:
    """Why candidates were dropped: kind, the first of its reasons, and how many; most first."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for one in found.offer.dropped:
        key = (one.why, one.reason if one.why == "refused" else "")
        counts[key] += 1
        first.setdefault(key, one.reason)
    return [(key[0], first[key], count) for key, count in counts.most_common()]
