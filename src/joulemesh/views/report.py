"""The report of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text
from joulemesh.base.units import column, duration, energy
from joulemesh.metrics import Metric, Reported, reported, score_metric
from joulemesh.models.curves import COUNTS, column_names
from joulemesh.planning.plan import Account, Plan, device_columns, spent_on
from joulemesh.study.runs import to_target
from joulemesh.tolerance import within
from joulemesh.views import words
from joulemesh.views.charts import BINDING_WORDS, Histogram, chart_data
from joulemesh.views.page import render_page
from joulemesh.views.table import Column, Table
from joulemesh.views.words import (
    Subject,
    by_section,
    few_names,
    figure_words,
    metric_tiles,
    percent,
    target_tile,
)

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace


Tile = tuple[str, str, str]
"""What a figure is called, the figure, and a note."""

_MOST_ROWS = 200
_MOST_NAMES = 12
_MOST_SPANS = 40


def _deadline(plan: Account) -> str:
    """The time allowed to an iteration, and whether it is kept: methods without a plan may not."""
    longest, limits = float(np.max(plan.latency_s)), []
    if plan.deadline_s is not None:
        allowed = duration(plan.deadline_s)
        kept = bool(within(plan.deadline_s, longest))
        missed = f"up to {duration(longest)} per iteration: misses the deadline of {allowed}"
        limits.append(f"deadline {allowed} per iteration" if kept else missed)
    if plan.total_s is not None:
        whole = duration(plan.total_s)
        kept = bool(within(plan.total_s, np.sum(plan.latency_s, axis=0)).all())
        limits.append(f"of {whole} in all" if kept else f"misses the total time of {whole}")
    return ", ".join(limits)


def tiles(plan: Account, summary: Summary) -> list[Tile]:
    """The main figures: what each is called, the figure, and a note."""
    spent = summary.energy_j / float(plan.supplied_j.sum())
    training = float(plan.compute_total_j.sum() / plan.spent_j.sum())
    figures: list[Tile] = [
        ("energy", energy(summary.energy_j), f"{percent(spent)} of the batteries"),
        ("spent on training", percent(training), _other_uses(plan)),
        ("modelled time", duration(summary.time_s), _deadline(plan)),
        (
            "local rounds",
            f"{int(plan.rounds.sum()):,}",
            f"{plan.rounds.sum() / plan.active.sum():.2f} per iteration and device",
        ),
    ]
    if summary.accuracy is not None:
        weakest, metric = summary.weakest, summary.metric
        note = "mean model" if weakest is None else f"weakest device {metric.text(weakest)}"
        note = "on every device" if summary.alike else note
        if summary.samples is not None:
            note += f"; {metric.samples_text(summary.accuracy, summary.samples)}"
        figures.insert(0, (f"test {metric.label}", metric.text(summary.accuracy), note))
    if summary.target is not None:
        figures.insert(2, summary.target)
    figures += _messages(plan)
    figures += summary.further
    if summary.wall_s is not None:
        note = "the whole run, on the machine's own clock"
        if summary.trained_s is not None:
            note = f"the whole run on its machine; training {duration(summary.trained_s)}"
        figures.append(("computed in", duration(summary.wall_s), note))
    return figures


def _messages(plan: Account) -> list[Tile]:
    """Messages that were lost, and what the plan expected, where packets are lost."""
    if not isinstance(plan, Plan) or plan.drawn is None:
        return []
    found = plan.drawn.figures(plan)
    expected = f"{energy(found['expected_energy_j'])}, {duration(found['expected_time_s'])}"
    lost = f"{found['messages_lost']:,} of {found['messages']:,}"
    unpaid = f"{found['messages_unpaid']:,} for want of joules"
    return [("messages lost", lost, unpaid), ("planned", expected, "expected energy and time")]


def _other_uses(plan: Account) -> str:
    """What is not spent on training, in shares."""
    whole = float(plan.spent_j.sum())
    uses = [(name, float(joules.sum()) / whole) for name, joules in spent_on(plan).items()]
    return ", ".join(f"{name} {percent(share)}" for name, share in uses[1:])


def events(plan: Account) -> tuple[str, Table]:
    """Outages and departures: a sentence, and a table of them."""
    columns = [Column("iteration (communication round)"), *_words("what", "devices", "why")]
    if not isinstance(plan, Plan) or not plan.events:
        none = "None: every exchange took place and every device stayed to the end."
        return none, Table(columns, [])
    outages = [event for event in plan.events if event.kind == "outage"]
    others = [event for event in plan.events if event.kind != "outage"]
    gone = int((~plan.active[-1]).sum())
    rows = []
    if outages:  # often many and all alike: one row for them all
        when = spans([event.iteration for event in outages])
        rows.append([when, "outage", "–", outages[0].detail])
    for event in others[:_MOST_ROWS]:
        names = [plan.names[i] if plan.names else str(i) for i in event.devices]
        who = few_names(names, _MOST_NAMES) or "–"
        rows.append([f"{event.iteration:,}", event.kind, who, event.detail])
    rest = len(others) - _MOST_ROWS
    lead = f"{len(outages):,} of {plan.iterations:,} exchanges skipped, {gone:,} devices left."
    return lead, Table(columns, rows, rest=f"… and {rest:,} more events." if rest > 0 else "")


def _words(*names: str) -> list[Column]:
    return [Column(name, figures=False) for name in names]


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as a list of stretches; a long list is cut."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    shown = [str(low) if low == high else f"{low}–{high}" for low, high in ends[:_MOST_SPANS]]
    return ", ".join(shown) + (" …" if len(ends) > _MOST_SPANS else "")


def devices(plan: Account, most: int = _MOST_ROWS) -> Table:
    """One row per device: battery, what it went on, rounds; of a plan, what binds."""
    spare = plan.margin_j / plan.supplied_j
    count = len(spare)
    # the tightest batteries are the ones that matter
    shown = np.arange(count) if count <= most else np.sort(np.argsort(spare)[:most])
    binding = plan.binding if isinstance(plan, Plan) else None
    clock = None
    if isinstance(plan, Plan) and plan.timeline.window_s is not None:
        clock = plan.clock_share
    cells = {
        name: column(figures[shown].tolist(), unit)
        for name, (figures, unit) in device_columns(plan).items()
    }
    columns = [
        Column("device", figures=not plan.names),
        *(
            Column(f"{name} [{unit}]", rank=2 * (name != "battery"))
            for name, (unit, _) in cells.items()
        ),
        Column("left"),
        Column("local rounds", rank=1),
        Column("per iteration", rank=3),
        *([] if clock is None else [Column("clock", rank=1)]),
        *([] if binding is None else [Column("what binds", figures=False)]),
    ]
    rows = []
    for k, i in enumerate(shown.tolist()):
        lived = plan.rounds[plan.active[:, i], i]
        rows.append(
            [
                f"{i} {plan.names[i]}" if plan.names else str(i),
                *(column_of[k] for _, column_of in cells.values()),
                percent(spare[i]),
                f"{plan.rounds[:, i].sum():,}",
                _span(lived),
                *([] if clock is None else [f"{clock[i]:.0%}"]),
                *([] if binding is None else [BINDING_WORDS[binding[i]].removesuffix(" binds")]),
            ]
        )
    rest = f"The {most} of {count:,} devices with the least left." if count > most else ""
    return Table(columns, rows, rest=rest)


def _span(rounds: NDArray[np.int64]) -> str:
    if not len(rounds):
        return "none"
    low, high = int(rounds.min()), int(rounds.max())
    return str(low) if low == high else f"{low}–{high}"


def assumed(plan: Account) -> str:
    """The figures that decide the plan and that nobody gave; empty without any."""
    return by_section(figure for figure in plan.figures if figure.origin.kind == "assumed")


def figures(plan: Account) -> Table:
    """The figures that decide the plan: one row each, with its value and its origin."""
    rows = [
        [figure.name, figure_words(figure.name, figure), str(figure.origin)]
        for figure in plan.figures
    ]
    return Table(_words("field", "value", "origin"), rows)


def provenance(versions: Mapping[str, str], seeds: Sequence[int]) -> list[tuple[str, str]]:
    """Software, hardware and seeds."""
    pairs = [(str(name), str(value)) for name, value in versions.items()]
    return [*pairs, ("seeds", ", ".join(map(str, seeds)))] if len(seeds) else pairs


_NEEDED = ("iteration", "energy_j", "time_s")


@dataclass(frozen=True)
class Summary:
    """The pieces of the one sentence at the top."""

    energy_j: float  # joules spent by all devices
    time_s: float  # simulated seconds of the run
    # final test accuracy of the mean model, or another score (mean over seeds), or None
    accuracy: float | None = None
    weakest: float | None = None  # that of the weakest device's own model, or None
    wall_s: float | None = None  # seconds that the whole simulation took on its machine, or None
    trained_s: float | None = None  # of these, seconds of training, or None
    samples: int | None = None  # test samples that ``accuracy`` was measured on, or None
    alike: bool = False  # whether at the end every device has the mean model
    # what it took to reach the target: what this is called, the figure, and a note
    target: tuple[str, str, str] | None = None
    # of each further metric what it is called, the final figure, and a note
    further: tuple[tuple[str, str, str], ...] = ()
    score: str = "accuracy"  # the metric that ``accuracy`` is of

    @property
    def metric(self) -> Metric:
        """What ``accuracy`` is of, with its words."""
        return score_metric(self.score)

    @classmethod
    def of(
        cls,
        energy_j: float,
        time_s: float,
        last: Trace,
        wall_s: float | None,
        trained_s: float | None = None,
    ) -> Summary:
        """The figures after an evaluation."""
        low, high = last.device_score_min, last.device_score_max
        lowest = score_metric(last.score).weakest == "min"
        return cls(
            energy_j,
            time_s,
            float(last.test_score.mean()),
            float(low.min() if lowest else high.max()),
            wall_s,
            trained_s,
            int(last.test_samples.min()),
            alike=all(np.array_equal(end, last.test_score) for end in (low, high)),
            score=last.score,
        )


CHARTS = (
    *("lines.js", "map.js", "rounds.js", "devices.js"),
    *("gantt.js", "flow.js", "report.js"),
)


@dataclass(frozen=True, eq=False)
class ReportView:
    """Everything that a report shows."""

    plan: Account  # the plan that was carried out, or the account of a method
    summary: Summary  # the figures of the first sentence
    # arrays over evaluations, by name: curves (`metrics.curves`) and on how many samples they rest;
    # each [E], or [S, E] when there are several seeds; ``iteration``, ``energy_j`` and ``time_s``
    # are the axes. Empty for a plan that has not been run
    series: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    # counts the labels in the data of some devices, int [D, classes], or None
    histogram: Histogram | None = None
    scenario_toml: str = ""  # the scenario as text
    versions: Mapping[str, str] = field(default_factory=dict)  # software and hardware, name by name
    seeds: Sequence[int] = ()  # repetition seeds, in the order of the rows of the series
    # the scenario's name, the date, and what was learned
    subject: Subject = field(default_factory=Subject)
    class_names: Sequence[str] = ()  # of the labels; numbers by default
    notes: Sequence[str] = ()
    answer: str = ""

    def __post_init__(self) -> None:
        measured = reported(self.plan.scenario.training)
        _check_series(self.series, max(len(self.seeds), 1), measured)


def _check_series(series: Mapping[str, NDArray[Any]], seeds: int, measured: Reported) -> None:
    if not series:
        return
    known = (*_NEEDED, *column_names(*measured), *COUNTS)
    unknown = [name for name in series if name not in known]
    if unknown:
        raise ScenarioError(f"series {unknown[0]!r} is unknown; known series: {', '.join(known)}")
    missing = [name for name in _NEEDED if name not in series]
    if missing:
        raise ScenarioError(f"series {missing[0]!r} is missing; add it, or give no series at all")
    length = np.shape(series["iteration"])[-1]
    for name, values in series.items():
        if np.shape(values) not in ((length,), (seeds, length)):
            raise ScenarioError(
                f"series {name!r} has the shape {np.shape(values)}; "
                f"give ({length},) or ({seeds}, {length}): seeds, evaluations"
            )


def render_report(view: ReportView) -> str:
    """The page as text."""
    account, planned = view.plan, isinstance(view.plan, Plan)
    lead, table = events(account)
    return render_page(
        "report.html",
        title=words.page_title("Run" if view.series else "Plan", view.subject),
        styles=("report.css",),
        scripts=CHARTS,
        data=chart_data(account, view.series, view.histogram, view.class_names),
        summary=words.sentence(account, view.summary, len(view.seeds), view.subject),
        answer=_answer(view),
        planned=planned,
        assumed=assumed(account),
        tiles=tiles(account, view.summary),
        events={"lead": lead, "table": table},
        devices=devices(account),
        figures=figures(account),
        scenario=view.scenario_toml or account.scenario.to_toml(),
        provenance=provenance(view.versions, view.seeds),
    )


def _answer(view: ReportView) -> list[tuple[str, str]]:
    account, notes = view.plan, dict.fromkeys((*view.plan.notes, *view.notes))
    lines = [("why note", note) for note in notes if note != view.answer]
    if isinstance(account, Plan):
        lines = [("why", words.reason(account)), *lines]
    planned = account.answer.text if isinstance(account, Plan) else ""
    return [("answer", view.answer or planned), *lines]


def write_report(path: str | Path, view: ReportView) -> None:
    """Write the page, whole or not at all."""
    write_text(path, render_report(view))


def evaluated(
    view: ReportView,
    trace: Trace,
    costs: tuple[NDArray[Any], NDArray[Any]],
    target: float | None,
) -> ReportView:
    """The view of a report, with curves and figures."""
    if not len(trace.iteration):
        return view
    energy, clock = costs
    series: dict[str, NDArray[Any]] = {
        "iteration": trace.iteration,
        "energy_j": energy.T,
        "time_s": clock.T,
    }
    measured = reported(view.plan.scenario.training)
    for name in (*column_names(*measured), *COUNTS):
        series[name] = np.asarray(trace.curve(name)).T
    metric = score_metric(measured.score)
    found = to_target(trace.iteration, trace.test_score, energy, clock, target, metric)
    means = float(energy[-1].mean()), float(clock[-1].mean())
    summary = replace(
        Summary.of(*means, trace.last, view.summary.wall_s, view.summary.trained_s),
        target=target_tile(found, len(view.seeds)),
        further=metric_tiles(trace.last, measured),
    )
    return replace(view, summary=summary, series=series)
