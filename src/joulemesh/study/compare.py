"""Compare methods on equal terms."""

from __future__ import annotations

__all__ = ["STUDY", "command_for", "compare", "keep_study", "save_comparison", "save_result"]

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joulemesh.base.checksums import commit_all
from joulemesh.base.files import make_folder, sweep, write_text
from joulemesh.base.lock import FolderLock
from joulemesh.data import Dataset
from joulemesh.scenario import Scenario
from joulemesh.study.bench import (
    DEFAULT_METHODS,
    TUNING_SEEDS,
    Progress,
    Rates,
    compare_methods,
    compare_worlds,
)
from joulemesh.study.cite import STUDY
from joulemesh.study.comparison import AXES, Comparison
from joulemesh.study.comparison_worlds import WorldsComparison
from joulemesh.study.folder import RunFolder
from joulemesh.study.formats import flat
from joulemesh.study.inputs import FOLDER, keep_inputs, portable
from joulemesh.study.paper import write_comparison_paper
from joulemesh.study.result import Result
from joulemesh.training.prepare import said_loss, the_dataset, with_data
from joulemesh.training.software import software
from joulemesh.views.comparison import render_comparison
from joulemesh.views.printing import ON_SCREEN, Printing


def compare(
    scenario: Scenario,
    methods: Sequence[str] | str = DEFAULT_METHODS,
    equal: str | None = None,
    seeds: int | Sequence[int] = 5,
    *,
    worlds: int = 1,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    target: float | None = None,
    tune_lr: Rates = None,
    tune_seeds: int = TUNING_SEEDS,
    cache: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Comparison:
    """Train several methods on the same scenario and data, on equal terms.

    Single runs (one method at one seed) are kept by content: what has been computed is not
    computed again, another method or seed costs only itself, and a comparison that was stopped
    goes on where it was. Seeds of a method are trained together in one program.

    Args:
        scenario: what is asked.
        methods: for instance ``["adaptive", "fixed:3", "balanced:tau1=4,tau2=2"]``, or these in
            one text with commas; differences in the table are against the first.
        equal: unless given, ``"budget"`` where the scenario has ``budget.total_s``, otherwise
            ``"batteries"``. ``"batteries"`` (each method stops before the first iteration that
            some battery cannot pay; ``"energy"`` is another name for it), ``"time"`` (before it
            would exceed the adaptive plan's seconds), ``"budget"`` (before either: the same
            batteries, and the seconds of ``budget.total_s``, or of the adaptive plan without it)
            or ``"iterations"`` (the adaptive plan's number; overdrafts are reported).
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world.
        worlds: in how many worlds: the scenario's own, and others whose seeds are higher by whole
            millions. They redraw what is drawn from the scenario's seed: placement, batteries and
            other ranges, channel. With more than one, intervals are over worlds.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        loss: what is minimised, as in `joulemesh.run`.
        target: accuracy of the mean model, or other score, for energy and time to target; 95 % of
            the best final accuracy unless given.
        tune_lr: give each method its own learning rate, of one grid: True (a quarter to eight
            times the scenario's), or the rates, for instance ``[0.05, 0.1, 0.2]``. All methods
            are tried at all of them on the same seeds, which the result does not use; the highest
            final accuracy of the mean model decides, and a rate that diverges loses. What a
            method plans from the learning rate stays as the scenario's has it.
        tune_seeds: how many seeds that is decided on.
        cache: folder of kept runs; in the user's cache folder unless given.
        on_progress: called after every chunk of iterations.
        on_stage: called with what is begun before that: ``"loading data"`` and ``"planning"``.

    Returns:
        The comparison. A method that the budget or the topology cannot carry is in it with the
        reason; a seed that diverged is left out of its method's figures, and named. With several
        worlds it is a `WorldsComparison`.

    Raises:
        ScenarioError: unknown method, parameter, or way to be equal.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override(
    ...     {"plan.iterations": 5, "training.model": "logistic", "devices.count": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    ...     again = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    >>> [row["method"] for row in found.table()], found.computed, again.computed
    (['adaptive', 'fixed:1'], 4, 0)
    """
    scenario = said_loss(scenario, loss)
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    own = None if data is None else the_dataset(scenario, data)
    options = {"model": model, "data": own, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds}
    options |= {"on_progress": on_progress, "on_stage": on_stage}
    if worlds == 1:
        found = compare_methods(scenario, methods, equal, seeds, **options)
    else:
        found = compare_worlds(scenario, worlds, methods, equal, seeds, **options)
    asked = with_data(found.scenario, own)
    return replace(found, scenario=asked, own_data=own, own_model=model is not None)


def save_result(result: Result, folder: str | Path) -> None:
    """Write the run folder of a result (all but the checkpoint) to a new place."""
    RunFolder(folder).save(result)


def save_comparison(
    found: Comparison,
    folder: str | Path,
    code: Sequence[str | Path] = (),
    *,
    formats: str | Sequence[str] | None = None,
    width: str | float | None = None,
    baseline: str | None = None,
) -> None:
    """Write the folder of a comparison; see `Comparison.save`.

    Args:
        found: the comparison.
        folder: made if need be; files of the same names in it are replaced.
        code: Python files of the user's own that register methods, to be kept too.
        formats: of the figures; PNG and SVG unless given.
        width: of the figures; that of a screen unless given.
        baseline: the method that significance in the LaTeX table is against.
    """
    printing = Printing.asked(formats, width) or ON_SCREEN
    if baseline is not None:
        found[baseline]  # refused before anything is written
    place = make_folder(folder)
    with FolderLock(place):
        sweep(place)
        _write(found, place, [Path(path) for path in code])
        _write_figures(found, place, printing)
        write_comparison_paper(found, place, printing, baseline)
        commit_all(place, stage="study")


def _write(found: Comparison, place: Path, code: list[Path]) -> None:
    keep_study(found, place, found.own_data, own_model=found.own_model, code=code)
    found.to_csv(place / "comparison.csv")
    write_text(place / "table.csv", found.table_csv())
    if found.rates:
        write_text(place / "rates.csv", found.rates_csv())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    page = render_comparison(found, versions=flat(software(found.library)), when=now)
    write_text(place / "report.html", page)
    if isinstance(found, WorldsComparison):
        write_text(place / "worlds.csv", found.worlds_csv())


def _write_figures(found: Comparison, place: Path, printing: Printing) -> None:
    from joulemesh.views.style import save_figure  # loads Matplotlib

    for name, axes in (("figure", AXES), *((axis, (axis,)) for axis in AXES)):
        drawn = found.figure(axes, width=printing.width)
        save_figure(drawn, place / name, printing.formats)


def keep_study(
    study: Comparison,
    folder: Path,
    data: Dataset | None = None,
    *,
    own_model: bool = False,
    code: Sequence[Path] = (),
) -> None:
    """Write ``scenario.toml``, ``inputs/`` and ``study.json`` into a comparison's folder.

    Args:
        study: what was compared.
        folder: that exists.
        data: the user's own, if it was given in memory.
        own_model: whether the user gave the model, which cannot be kept.
        code: files of the user's own that register methods.
    """
    keep_inputs(study.scenario, folder, data, own_model=own_model, code=code)
    record = {
        "command": command_for(study, code),
        "methods": [entry.name for entry in study.entries],
        "equal": study.equal,
        **study.repeated,
        "target": study.wanted,
        "rates": list(study.rates),
        "tuned_on": list(study.tuned_on),
        "versions": software(study.library),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(folder / STUDY, json.dumps(record, indent=1) + "\n")
    write_text(folder / "scenario.toml", portable(study.scenario).to_toml())


def command_for(study: Comparison, code: Sequence[Path] = ()) -> str | None:
    """The command that makes the comparison again, to be typed in its folder.

    Returns:
        None for seeds that no command can name: Python can (`joulemesh.compare`).
    """
    repeats = study.repeat_options
    if repeats is None:
        return None
    words = ["joulemesh", "compare", "scenario.toml"]
    words += ["--methods", ";".join(entry.name for entry in study.entries)]
    words += ["--equal", study.equal, *repeats]
    if study.wanted is not None:
        words += ["--target", repr(study.wanted)]
    if study.rates:
        words += ["--lr-grid", ",".join(map(repr, study.rates))]
        words += ["--tune-seeds", str(len(study.tuned_on))]
    for path in code:
        words += ["--load", f"{FOLDER}/{path.name}"]
    return shlex.join(words)
