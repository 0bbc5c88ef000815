"""The report of a run, from its result or from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.metrics.curves import COUNTS, column_names
from joulemesh.planning.plan import Plan
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.formats import costs_of, flat, trace_of
from joulemesh.runs.identity import versions
from joulemesh.runs.inputs import portable
from joulemesh.runs.result import Result, cumulative
from joulemesh.studies.target import to_target
from joulemesh.training.trace import Trace
from joulemesh.views.run.metrics import metric_tiles
from joulemesh.views.run.report import ReportView, Summary, write_report
from joulemesh.views.run.target import target_tile
from joulemesh.views.words import Subject

__all__ = ["report_of_folder", "write_run_report"]


def write_run_report(path: Path, result: Result, record: Mapping[str, Any]) -> None:
    """Write the HTML page of a result.

    Args:
        path: of the page.
        result: what it shows.
        record: of the run's start; the page has its date, so that going on with a run later, or
            writing the page again, changes nothing in it.
    """
    labels, classes = result.dataset.y_train, result.dataset.classes
    view = ReportView(
        result.account,
        Summary(0.0, 0.0, wall_s=result.setup_s + sum(chunk.wall_s for chunk in result.chunks)),
        histogram=partial(result.partitions[0].histogram, labels, classes),
        versions=flat(versions()),
        seeds=result.seeds,
        subject=_subject(record),
        class_names=result.dataset.class_names,
    )
    _write(path, view, result.trace, (result.energy_j, result.time_s), result.target)


def report_of_folder(path: Path, target: Path) -> None:
    """Write the HTML page of the run in a folder, as far as it has come.

    Everything shown was stored with the run and is verified first.
    """
    folder = RunFolder(path)
    record = folder.start_record()
    folder.require_current()
    seeds = tuple(int(seed) for seed in record["seeds"])
    text = folder.metrics_text()
    trace = trace_of(text, seeds, np.float64)
    counts, names = folder.labels()
    inside = target.resolve() == (path / "report.html").resolve()
    with folder.held(resume=True) if inside else nullcontext():
        account = folder.account()
        view = ReportView(
            account,
            Summary(0.0, 0.0),
            histogram=lambda shown: counts,
            versions=flat(record["versions"]),
            seeds=seeds,
            subject=_subject(record),
            class_names=names,
        )
        # What a method has cost may be settled only as far as it has come.
        planned = isinstance(account, Plan)
        costs = cumulative(account, trace.iteration) if planned else costs_of(text, seeds)
        _write(target, view, trace, costs, _target(folder.result()))
        if inside:
            folder.commit_report()


def _target(result: Mapping[str, Any] | None) -> float | None:
    """The target that was asked for, of a finished run."""
    return result["target"] if result is not None and result.get("target_asked") else None


def _subject(record: Mapping[str, Any]) -> Subject:
    learned = record.get("learned", {})
    return Subject(
        record.get("name", ""),
        record.get("started", ""),
        learned.get("dataset", ""),
        learned.get("model", ""),
        record.get("method") or "",
    )


def _write(
    path: Path,
    view: ReportView,
    trace: Trace,
    costs: tuple[NDArray[Any], NDArray[Any]],
    target: float | None,
) -> None:
    """Write the page of evaluations.

    Args:
        path: of the page.
        view: all that it shows but curves and figures.
        trace: the evaluations.
        costs: joules and seconds after each of them, [evaluations] or [evaluations, seeds].
        target: accuracy asked for as target, or None.
    """
    energy, clock = costs
    toml = portable(view.plan.scenario).to_toml()
    if not len(trace.iteration):
        write_report(path, replace(view, scenario_toml=toml))
        return
    series: dict[str, NDArray[Any]] = {
        "iteration": trace.iteration,
        "energy_j": energy.T,
        "time_s": clock.T,
    }
    metrics = view.plan.scenario.training.metrics
    for name in (*column_names(metrics), *COUNTS):
        series[name] = np.asarray(trace.curve(name)).T
    found = to_target(trace.iteration, trace.test_accuracy, energy, clock, target)
    means = float(energy[-1].mean()), float(clock[-1].mean())
    summary = replace(
        Summary.of(*means, trace.last, view.summary.wall_s),
        target=target_tile(found, len(view.seeds)),
        further=metric_tiles(trace.last, metrics),
    )
    write_report(path, replace(view, summary=summary, series=series, scenario_toml=toml))
