"""What a paper takes over from a comparison or a run: table, figures, setting and references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import make_folder, read_json, write_text
from joulemesh.base.registry import JOULEMESH, Citation, Registry
from joulemesh.base.registry import PAPER as IMPLEMENTED
from joulemesh.data import Dataset
from joulemesh.data.load import spec_for
from joulemesh.data.reading import DATASETS, HUB
from joulemesh.methods import citations
from joulemesh.metrics import reported
from joulemesh.planning.plan import Account, Plan
from joulemesh.planning.static import plan
from joulemesh.registries import MODELS, PARTITIONS, SCHEMES
from joulemesh.scenario import Scenario, profiles
from joulemesh.study.comparison import Comparison
from joulemesh.study.folder import RunFolder, costs_of, flat, trace_of
from joulemesh.study.identity import portable
from joulemesh.study.record import Entry
from joulemesh.study.result import ADAPTIVE, Result, cumulative
from joulemesh.training.software import software
from joulemesh.training.trace import Trace
from joulemesh.views.latex import Used, bibtex, comparison_table, keys_of
from joulemesh.views.printing import TWO_COLUMNS_IN, Printing
from joulemesh.views.report import ReportView, Summary, evaluated, write_report
from joulemesh.views.setting import Sizes, comparison_methods, run_methods
from joulemesh.views.words import Subject

STUDY = "study.json"

_SCENARIOS = ("scenario.toml", "best.toml")


def references(used: Sequence[Used]) -> str:
    """The text of a ``.bib`` file for what was used."""
    return bibtex(used, version=__version__)


def used_in(path: str | Path) -> list[Used]:
    """What is used in a folder of a run, a comparison, a tuning or a sweep, or by a scenario."""
    place = Path(path)
    if not place.is_dir():
        return used_by(Scenario.load(place), (ADAPTIVE,))
    found = next((place / name for name in _SCENARIOS if (place / name).is_file()), None)
    if found is None:
        raise ScenarioError(
            f"{place} has no scenario.toml: name a folder that run, compare, tune or sweep made, "
            "or a scenario"
        )
    study, start = _record(place / STUDY), _record(place / "versions.json")
    listed = study.get("methods") or [start.get("method") or ADAPTIVE]
    return used_by(Scenario.load(found), [str(name) for name in listed])


def used_by(scenario: Scenario, methods: Sequence[str]) -> list[Used]:
    """What methods use on a scenario, in the order in which a paper tells it."""
    training = scenario.training
    return [
        Used("Joulemesh", (JOULEMESH,)),
        Used("the paper that Joulemesh implements", (IMPLEMENTED,)),
        *(_method(name) for name in methods),
        *(_entry("aggregation scheme", SCHEMES, name) for name in _schemes(scenario)),
        _data(scenario),
        _entry("partition", PARTITIONS, training.partition),
        _entry("model", MODELS, training.model),
        *_profiles(scenario),
    ]


def _record(path: Path) -> Mapping[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _method(name: str) -> Used:
    try:
        return Used(f"method {name}", citations(name))
    except ScenarioError:  # the user's own, of another machine
        return Used(f"method {name}", (), "it is not known here; name its file with --load")


def _schemes(scenario: Scenario) -> tuple[str, ...]:
    """The scheme that the plan takes; that of the scenario where there is no plan."""
    try:
        return (plan(scenario).scheme,)
    except JoulemeshError:
        asked = str(scenario.plan.aggregation)
        return (asked,) if asked in SCHEMES else ()


def _data(scenario: Scenario) -> Used:
    name = scenario.training.dataset
    if name in DATASETS:
        cited = spec_for(scenario).citation
        return Used(f"data set {name}", () if cited is None else (cited,))
    if name.startswith(HUB):
        return Used(f"data set {name}", (), "see the citation on its card on the hub")
    return Used(f"data set {Path(name).name}", (), "the user's own file")


def _entry(kind: str, registry: Registry[Any], name: str) -> Used:
    cited: Citation | None = None
    if name in registry:
        cited = registry[name].citation
    return Used(f"{kind} {name}", () if cited is None else (cited,))


def _profiles(scenario: Scenario) -> Iterator[Used]:
    """Data sheets and papers behind the figures of named devices and radios."""
    named = scenario.devices.profile
    chosen = [named] if isinstance(named, str) else list(named or ())
    listed = [*chosen, *filter(None, [scenario.network.profile])]
    for name in dict.fromkeys(listed):
        if name not in (*profiles.DEVICES, *profiles.RADIOS):  # a column of the devices' table
            note = "`joulemesh profiles NAME` lists the sources of each"
            yield Used(f"profiles in the column {name!r} of the devices' table", (), note)
            continue
        sheets = profiles.find(name).sources
        # A title begins with who published it, in several ways: it is left whole.
        made = (Citation("", one.title, one.year, kind="misc", address=one.url) for one in sheets)
        yield Used(f"profile {name}", tuple(made))


def write_run_report(path: Path, result: Result, record: Mapping[str, Any]) -> None:
    """Write the HTML page of a result."""
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
    """Write the HTML page of the run in a folder, as far as it has come."""
    # Everything shown was stored with the run and is verified first.
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


PAPER = "paper"
"""The folder of a run for what a paper takes over."""


def write_comparison_paper(
    found: Comparison, folder: Path, printing: Printing, baseline: str | None = None
) -> None:
    """Write ``table.tex``, ``methods.txt`` and ``references.bib``."""
    narrow = printing.width is not None and printing.width < TWO_COLUMNS_IN
    table = comparison_table(found, baseline=baseline, narrow=narrow)
    write_text(folder / "table.tex", table)
    used = used_by(found.scenario, [entry.name for entry in found.entries])
    sizes, made = _sizes(found.scenario, found.own_data), _plan(found.scenario)
    setting = comparison_methods(found, made, sizes, flat(software(found.library)), keys_of(used))
    write_text(folder / "methods.txt", setting)
    write_text(folder / "references.bib", references(used))


def write_run_paper(path: str | Path, printing: Printing) -> list[Path]:
    """Draw a run's curves and its plan, and tell its setting, in the run's folder ``paper``."""
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
    """A run as a comparison of one method, for its figure."""
    if not len(trace.iteration):
        raise ScenarioError("the run has no evaluation yet; draw it when it has come further")
    shape = (len(trace.iteration), len(seeds))
    costs = [
        np.broadcast_to(cost if cost.ndim == 2 else cost[:, None], shape)
        for cost in costs_of(text, seeds)
    ]
    score = reported(account.scenario.training).score
    curves = {f"test_{score}": np.asarray(trace.curve(f"test_{score}"), np.float64)}
    devices = account.scenario.devices.count
    entry = Entry.drawn(ADAPTIVE, trace.iteration, curves, costs, devices, score=score)
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
