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

from joulemesh.planning.plan import Plan
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.formats import flat, trace_of
from joulemesh.runs.identity import versions
from joulemesh.runs.inputs import portable
from joulemesh.runs.result import Result, cumulative
from joulemesh.studies.target import to_target
from joulemesh.training.trace import COUNTS, Trace
from joulemesh.views.run.charts import Histogram
from joulemesh.views.run.report import ReportView, Summary, write_report
from joulemesh.views.run.target import target_tile
from joulemesh.views.words import Subject

__all__ = ["report_of_folder", "write_run_report"]

_FROM_TRACE = {
    "train_loss": "train_loss",
    "test_loss": "test_loss",
    "accuracy": "test_accuracy",
    "device_accuracy_mean": "device_accuracy_mean",
    "device_accuracy_min": "device_accuracy_min",
    "device_accuracy_max": "device_accuracy_max",
    "drift": "drift",
    "consensus_error": "consensus",
    **{name: name for name in COUNTS},
}


def write_run_report(path: Path, result: Result, record: Mapping[str, Any]) -> None:
    """Write the HTML page of a result.

    Args:
        path: of the page.
        result: what it shows.
        record: of the run's start; the page has its date, so that going on with a run later, or
            writing the page again, changes nothing in it.
    """
    labels, classes = result.dataset.y_train, result.dataset.classes
    wall = result.setup_s + sum(chunk.wall_s for chunk in result.chunks)
    _write(
        path,
        result.plan,
        result.trace,
        result.seeds,
        partial(result.partitions[0].histogram, labels, classes),
        flat(versions()),
        wall,
        _subject(record),
        class_names=result.dataset.class_names,
        target=result.target,
    )


def report_of_folder(path: Path, target: Path) -> None:
    """Write the HTML page of the run in a folder, as far as it has come.

    Everything shown was stored with the run and is verified first.
    """
    folder = RunFolder(path)
    record = folder.start_record()
    folder.require_current()
    seeds = tuple(int(seed) for seed in record["seeds"])
    trace = trace_of(folder.metrics_text(), seeds, np.float64)
    counts, names = folder.labels()
    inside = target.resolve() == (path / "report.html").resolve()
    with folder.held(resume=True) if inside else nullcontext():
        _write(
            target,
            folder.plan(),
            trace,
            seeds,
            lambda shown: counts,
            flat(record["versions"]),
            None,
            _subject(record),
            class_names=names,
            target=_target(folder.result()),
        )
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
    )


def _write(
    path: Path,
    plan: Plan,
    trace: Trace,
    seeds: tuple[int, ...],
    histogram: Histogram,
    tested: dict[str, str],
    wall_s: float | None,
    subject: Subject,
    class_names: tuple[str, ...] = (),
    target: float | None = None,
) -> None:
    energy, clock = cumulative(plan, trace.iteration)
    series: dict[str, NDArray[Any]] = {
        "iteration": trace.iteration,
        "energy_j": energy,
        "time_s": clock,
    }
    for name, column in _FROM_TRACE.items():
        series[name] = np.asarray(getattr(trace, column)).T
    known = len(trace.iteration) > 0
    summary = Summary(0.0, 0.0, wall_s=wall_s)
    if known:
        found = to_target(trace.iteration, trace.test_accuracy, energy, clock, target)
        summary = replace(
            Summary.of(float(energy[-1]), float(clock[-1]), trace.last, wall_s),
            target=target_tile(found, len(seeds)),
        )
    write_report(
        path,
        ReportView(
            plan,
            summary,
            series=series if known else {},
            histogram=histogram,
            scenario_toml=portable(plan.scenario).to_toml(),
            versions=tested,
            seeds=seeds,
            subject=subject,
            class_names=class_names,
        ),
    )
