"""What a paper takes over from a comparison or a run: table, figures, setting and references."""

from __future__ import annotations

__all__ = ["PAPER", "write_comparison_paper", "write_run_paper"]

from pathlib import Path

import numpy as np

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import make_folder, write_text
from joulemesh.data import Dataset
from joulemesh.data.load import spec_for
from joulemesh.metrics import reported
from joulemesh.planning.plan import Account, Plan
from joulemesh.planning.static import plan
from joulemesh.scenario import Scenario
from joulemesh.study.cite import references, used_by
from joulemesh.study.comparison import Comparison
from joulemesh.study.entry import Entry
from joulemesh.study.folder import RunFolder
from joulemesh.study.formats import costs_of, flat, trace_of
from joulemesh.study.result import ADAPTIVE
from joulemesh.training.software import software
from joulemesh.training.trace import Trace
from joulemesh.views.latex import comparison_table, keys_of
from joulemesh.views.printing import TWO_COLUMNS_IN, Printing
from joulemesh.views.setting import Sizes, comparison_methods, run_methods
from joulemesh.views.words import Subject

PAPER = "paper"
"""The folder of a run for what a paper takes over."""


def write_comparison_paper(
    found: Comparison, folder: Path, printing: Printing, baseline: str | None = None
) -> None:
    """Write ``table.tex``, ``methods.txt`` and ``references.bib``.

    Args:
        found: the comparison.
        folder: that exists.
        printing: of its figures; the table is narrow if they are.
        baseline: the method that the others are tested against; the best unless given.
    """
    narrow = printing.width is not None and printing.width < TWO_COLUMNS_IN
    table = comparison_table(found, baseline=baseline, narrow=narrow)
    write_text(folder / "table.tex", table)
    used = used_by(found.scenario, [entry.name for entry in found.entries])
    sizes, made = _sizes(found.scenario, found.own_data), _plan(found.scenario)
    setting = comparison_methods(found, made, sizes, flat(software(found.library)), keys_of(used))
    write_text(folder / "methods.txt", setting)
    write_text(folder / "references.bib", references(used))


def write_run_paper(path: str | Path, printing: Printing) -> list[Path]:
    """Draw a run's curves and its plan, and tell its setting, in the folder ``paper`` of the run.

    Args:
        path: the folder of a run, finished or not; everything is taken from it.
        printing: formats and width of the figures.

    Returns:
        The files that were written.

    Raises:
        ScenarioError: there is no run, or it is damaged.
    """
    folder = RunFolder(path)
    record = folder.start_record()
    folder.require_current()
    seeds = tuple(int(seed) for seed in record["seeds"])
    text = folder.metrics_text()
    with folder.held(resume=True):
        account = folder.account()
        made = account if isinstance(account, Plan) else None
        score = reported(account.scenario.training).score
        study = _as_study(account, trace_of(text, seeds, np.float64, score), text, seeds)
        place = make_folder(folder.path / PAPER)
        wrote = _write_figures(study, made, place, printing)
        learned, method = record.get("learned", {}), record.get("method") or ""
        used = used_by(account.scenario, [method or ADAPTIVE])
        subject = Subject("", "", learned.get("dataset", ""), learned.get("model", ""), method)
        sizes, with_these = _sizes(account.scenario), flat(record["versions"])
        setting = account.scenario, made, subject, sizes, seeds, with_these, keys_of(used)
        said = run_methods(*setting, notes=account.notes)
        for name, content in (("methods.txt", said), ("references.bib", references(used))):
            write_text(place / name, content)
            wrote.append(place / name)
        folder.commit_also(one.relative_to(folder.path).as_posix() for one in wrote)
    return wrote


def _write_figures(
    study: Comparison, made: Plan | None, place: Path, printing: Printing
) -> list[Path]:
    from joulemesh.views.figures import comparison_figure  # they load Matplotlib
    from joulemesh.views.plan_figure import plan_figure
    from joulemesh.views.style import save_figure

    drawn = {"curves": comparison_figure(study, width=printing.width)}
    if made is not None:
        drawn["plan"] = plan_figure(made, printing.width)
    return [
        path
        for name, figure in drawn.items()
        for path in save_figure(figure, place / name, printing.formats)
    ]


def _as_study(account: Account, trace: Trace, text: str, seeds: tuple[int, ...]) -> Comparison:
    """A run as a comparison of one method, for its figure.

    Raises:
        ScenarioError: it has not come as far as its first evaluation.
    """
    if not len(trace.iteration):
        raise ScenarioError("the run has no evaluation yet; draw it when it has come further")
    shape = (len(trace.iteration), len(seeds))
    joules, seconds = (
        np.broadcast_to(costs if costs.ndim == 2 else costs[:, None], shape)
        for costs in costs_of(text, seeds)
    )
    score = reported(account.scenario.training).score
    curve = np.asarray(trace.curve(f"test_{score}"), np.float64)
    unknown = np.full((len(seeds), account.scenario.devices.count), np.nan)
    entry = Entry(
        ADAPTIVE,
        trace.iteration,
        {f"test_{score}": curve},
        {f"test_{score}": curve[-1]},
        joules,
        seconds,
        unknown,
        unknown,
        np.full((len(seeds), 4), np.nan),
        score=score,
    )
    return Comparison(account.scenario, "batteries", seeds, (entry,))


def _plan(scenario: Scenario) -> Plan | None:
    """The scenario's plan; None where its budgets pay for none."""
    try:
        return plan(scenario)
    except JoulemeshError:
        return None


def _sizes(scenario: Scenario, own: Dataset | None = None) -> Sizes | None:
    """How many samples there are; None where the data cannot be had."""
    if own is not None:
        return Sizes(len(own.x_train), len(own.x_test), own.classes * (own.targets == "classes"))
    try:
        found = spec_for(scenario)
    except JoulemeshError:
        return None
    return Sizes(found.train, found.test, found.classes * (found.targets == "classes"))
