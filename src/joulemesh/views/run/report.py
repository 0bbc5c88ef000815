"""One self-contained HTML page per run: no network, no libraries, nothing to install."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files import write_text
from joulemesh.metrics.curves import COUNTS, column_names
from joulemesh.metrics.losses import Reported, reported
from joulemesh.metrics.metric import Metric, score_metric
from joulemesh.planning.account import Account
from joulemesh.planning.plan import Plan
from joulemesh.views import words
from joulemesh.views.page import render_page
from joulemesh.views.run import fragments
from joulemesh.views.run.charts import Histogram, chart_data
from joulemesh.views.words import Subject

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace

__all__ = ["ReportView", "Summary", "render_report", "write_report"]

_NEEDED = ("iteration", "energy_j", "time_s")


@dataclass(frozen=True)
class Summary:
    """The pieces of the one sentence at the top.

    Attributes:
        energy_j: joules spent by all devices.
        time_s: simulated seconds of the run.
        accuracy: final test accuracy of the mean model, or another score (mean over seeds), or
            None.
        weakest: that of the weakest device's own model, or None.
        wall_s: seconds that the whole simulation took on its machine, or None.
        trained_s: of these, seconds of training, or None.
        samples: test samples that ``accuracy`` was measured on, or None.
        alike: whether at the end every device has the mean model.
        target: what it took to reach the target: what this is called, the figure, and a note.
        further: of each further metric what it is called, the final figure, and a note.
        score: the metric that ``accuracy`` is of.
    """

    energy_j: float
    time_s: float
    accuracy: float | None = None
    weakest: float | None = None
    wall_s: float | None = None
    trained_s: float | None = None
    samples: int | None = None
    alike: bool = False
    target: tuple[str, str, str] | None = None
    further: tuple[tuple[str, str, str], ...] = ()
    score: str = "accuracy"

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
        """The figures after an evaluation.

        Args:
            energy_j: joules spent by all devices.
            time_s: simulated seconds of the run.
            last: the evaluation, at every seed.
            wall_s: seconds that the whole simulation took on its machine, or None.
            trained_s: of these, seconds of training, or None.
        """
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


_CHARTS = (
    *("learning.js", "lines.js", "map.js", "rounds.js", "devices.js"),
    *("gantt.js", "flow.js", "report.js"),
)


@dataclass(frozen=True, eq=False)
class ReportView:
    """Everything that a report shows.

    Attributes:
        plan: the plan that was carried out, or the account of a method.
        summary: the figures of the first sentence.
        series: arrays over evaluations, by name: curves (`metrics.curves`) and on how many
            samples they rest; each [E], or [S, E] when there are several seeds; ``iteration``,
            ``energy_j`` and ``time_s`` are the axes. Empty for a plan that has not been run.
        histogram: counts the labels in the data of some devices, int [D, classes], or None.
        scenario_toml: the scenario as text.
        versions: software and hardware, name by name.
        seeds: repetition seeds, in the order of the rows of the series.
        subject: the scenario's name, the date, and what was learned.
        class_names: of the labels; numbers by default.

    Raises:
        ScenarioError: a series does not fit.
    """

    plan: Account
    summary: Summary
    series: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    histogram: Histogram | None = None
    scenario_toml: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seeds: Sequence[int] = ()
    subject: Subject = field(default_factory=Subject)
    class_names: Sequence[str] = ()
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
    """The page as text.

    Args:
        view: what it shows.

    Returns:
        HTML with its style, its script and its data inside.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> page = render_report(ReportView(made, Summary(energy_j=339.0, time_s=3.97)))
    >>> page.startswith("<!doctype html>"), "https://" in page
    (True, False)
    """
    said = words.sentence(view.plan, view.summary, len(view.seeds), view.subject)
    harvests = isinstance(view.plan, Plan) and view.plan.harvests
    return render_page(
        "report.html",
        title=words.page_title("Run" if view.series else "Plan", view.subject),
        styles=("report.css",),
        scripts=_CHARTS,
        data=chart_data(view.plan, view.series, view.histogram, view.class_names),
        summary=fragments.text(said),
        answer=_answer(view),
        harvest="" if harvests else "hidden",
        beside="wide" if harvests else "",  # batteries and harvest stand beside each other
        planned="" if isinstance(view.plan, Plan) else "hidden",
        what="plan" if isinstance(view.plan, Plan) else "run",
        assumed=fragments.assumed(view.plan),
        tiles=fragments.tiles(view.plan, view.summary),
        learning="" if view.series else "hidden",
        score=fragments.text(view.summary.metric.label),
        metrics=fragments.metric_switches(reported(view.plan.scenario.training)),
        labels="" if view.histogram is not None else "hidden",
        events=fragments.events(view.plan),
        devices=fragments.devices(view.plan),
        figures=fragments.figures(view.plan),
        scenario=html.escape(view.scenario_toml or view.plan.scenario.to_toml()),
        provenance=fragments.provenance(view.versions, view.seeds),
    )


def _answer(view: ReportView) -> str:
    """What binds and what would help, why devices average as they do, and the run's notes.

    A method has no plan, and so no answer but that of a run that learned nothing.
    """
    account = view.plan
    planned = account.answer.text if isinstance(account, Plan) else ""
    lines = [('class="answer" id="answer"', view.answer or planned)]
    if isinstance(account, Plan):
        lines.append(('class="why"', words.reason(account)))
    notes = dict.fromkeys((*account.notes, *view.notes))
    lines += [('class="why note"', note) for note in notes if note != view.answer]
    return "\n".join(f"<p {kind}>{fragments.text(said)}</p>" for kind, said in lines if said)


def write_report(path: str | Path, view: ReportView) -> None:
    """Write the page, whole or not at all.

    Args:
        path: of the HTML file; what lies there is replaced.
        view: what it shows.

    Raises:
        ScenarioError: the place cannot be written.

    >>> import joulemesh, tempfile
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder, "report.html"), ReportView(made, Summary(339.0, 3.97)))
    ...     Path(folder, "report.html").stat().st_size < 500_000
    True
    """
    write_text(path, render_report(view))
