"""The report of a run, from its result or from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.metrics import reported
from joulemesh.planning.plan import Plan
from joulemesh.study.folder import RunFolder
from joulemesh.study.formats import costs_of, flat, trace_of
from joulemesh.study.inputs import portable
from joulemesh.study.result import Result, cumulative
from joulemesh.training.software import software
from joulemesh.views.report import ReportView, Summary, evaluated, write_report
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
    names = result.dataset.strata_names()
    labels, classes = result.dataset.strata(), len(names) or result.dataset.classes
    view = ReportView(
        result.account,
        Summary(0.0, 0.0, wall_s=result.setup_s + result.trained_s, trained_s=result.trained_s),
        histogram=partial(result.partitions[0].histogram, labels, classes),
        versions=flat(software(result.library)),
        scenario_toml=portable(result.account.scenario).to_toml(),
        seeds=result.seeds,
        subject=_subject(record),
        class_names=names,
        notes=result.notes,
        answer=result.answer,
    )
    costs = result.energy_j, result.time_s
    write_report(path, evaluated(view, result.trace, costs, result.target))


def report_of_folder(path: Path, target: Path) -> None:
    """Write the HTML page of the run in a folder, as far as it has come.

    Everything shown was stored with the run and is verified first.
    """
    folder = RunFolder(path)
    record = folder.start_record()
    folder.require_current()
    seeds = tuple(int(seed) for seed in record["seeds"])
    text = folder.metrics_text()
    counts, names = folder.labels()
    inside = target.resolve() == (path / "report.html").resolve()
    with folder.held(resume=True) if inside else nullcontext():
        account = folder.account()
        trace = trace_of(text, seeds, np.float64, reported(account.scenario.training).score)
        view = ReportView(
            account,
            Summary(0.0, 0.0),
            histogram=lambda shown: counts,
            versions=flat(record["versions"]),
            scenario_toml=portable(account.scenario).to_toml(),
            seeds=seeds,
            subject=_subject(record),
            class_names=names,
            notes=(folder.result() or {}).get("notes", ()),
            answer=(folder.result() or {}).get("answer", ""),
        )
        # What a method has cost may be settled only as far as it has come.
        planned = isinstance(account, Plan)
        costs = cumulative(account, trace.iteration) if planned else costs_of(text, seeds)
        asked = _target(folder.result())
        write_report(target, evaluated(view, trace, costs, asked))
        if inside:
            folder.commit_also(["report.html"])


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
