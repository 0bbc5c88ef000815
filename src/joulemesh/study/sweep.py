"""Compare methods at every combination of some fields' values, and keep what was found."""

from __future__ import annotations

__all__ = ["save_sweep", "sweep"]

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joulemesh.base.bounded import parse_json
from joulemesh.base.checksums import commit_all
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, write_text
from joulemesh.base.files import sweep as sweep_drafts
from joulemesh.base.lock import FolderLock
from joulemesh.base.optional import MissingPackageError
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Combination
from joulemesh.study.bench import DEFAULT_METHODS, TUNING_SEEDS, Options, Rates, rates_of
from joulemesh.study.grid import Asked, Outlook, Progress, ask, outlooks, sweep_scenario
from joulemesh.study.identity import asked, difference
from joulemesh.study.inputs import FOLDER, keep_inputs, portable
from joulemesh.study.sweep_result import Point, Sweep
from joulemesh.training.prepare import said_loss, the_dataset, with_data
from joulemesh.training.software import software
from joulemesh.views.printing import ON_SCREEN, TWO_COLUMNS_IN, Printing

RECORD = "sweep.json"
SO_FAR = "so-far.csv"
_EVERY_S = 5.0  # at most so often is the table so far written


def sweep(
    scenario: Scenario,
    vary: Mapping[str, Any],
    methods: Sequence[str] | str = DEFAULT_METHODS,
    equal: str | None = None,
    seeds: int | Sequence[int] = 5,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    target: float | None = None,
    tune_lr: Rates = None,
    tune_seeds: int = TUNING_SEEDS,
    out: str | Path | None = None,
    cache: str | Path | None = None,
    code: Sequence[str | Path] = (),
    formats: str | Sequence[str] | None = None,
    width: str | float | None = None,
    labels: Mapping[str, str] | None = None,
    on_plan: Callable[[Combination], None] | None = None,
    on_outlook: Callable[[Asked, Sequence[Outlook]], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Sweep:
    """Compare methods at every combination of some fields' values.

    Every combination is a comparison as `joulemesh.compare` makes it: the same seeds for all
    methods and all combinations, single runs kept by content, and trained together where they can
    be. A sweep that was stopped, or that is given one more value, method or seed, computes only
    what is missing. All combinations are planned before anything is trained. One that has no plan
    is in the table with the reason.

    Args:
        scenario: what is not varied.
        vary: lists of values by field, as in ``{"devices.count": [10, 20, 50]}``; a text is read
            as on the command line (``"10:50:10"``, ``"0.01:1:x10"``, ``"1 Wh,2 Wh"``).
        methods: as in `joulemesh.compare`.
        equal: as in `joulemesh.compare`; within each combination.
        seeds: how many repetition seeds, or which; the same in every combination.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        loss: what is minimised, as in `joulemesh.run`.
        target: accuracy of the mean model, or other score, for energy and time to target; 95 % of
            each combination's best final accuracy unless given.
        tune_lr: as in `joulemesh.compare`, in every combination.
        tune_seeds: as in `joulemesh.compare`.
        out: a folder for what is found; see `Sweep.save`. One that holds a part of this sweep is
            taken up.
        cache: folder of kept runs; in the user's cache folder unless given.
        code: Python files of the user's own that were loaded, to be kept in the folder too.
        formats: of the folder's figure: some of pdf, svg, pgf, png; PNG and SVG unless given.
        width: of that figure: a paper's column (``"ieee"``, ``"acm-wide"``, …) or inches; that of
            a screen unless given.
        labels: what the figure and ``table.tex`` call varied fields, as in
            ``{"devices.count": "number of devices"}``; the words of their descriptions unless
            given.
        on_plan: called before each combination is planned.
        on_outlook: called when all are planned, before anything is trained.
        on_progress: called after every chunk of iterations.

    Returns:
        What was found; `Sweep.to_pandas` gives its table.

    Raises:
        ScenarioError: a field, value, method or folder does not do, or no combination can be
            planned.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override(
    ...     {"plan.iterations": 5, "training.model": "logistic"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.sweep(scenario, {"devices.count": [4, 6]}, ["adaptive", "fixed:1"],
    ...                             seeds=2, cache=folder)
    >>> found.computed, found.to_pandas().shape[0], found.array("accuracy").shape
    (8, 8, (2, 2, 2))
    """
    scenario = said_loss(scenario, loss)
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    own = None if data is None else the_dataset(scenario, data)
    options: Options = {"model": model, "data": own, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds}
    printing = Printing.asked(formats, width) or ON_SCREEN
    wanted = ask(scenario, vary, methods, equal, seeds, labels)
    ahead = outlooks(wanted, on_plan, **options)
    if on_outlook is not None:
        on_outlook(wanted, ahead)
    asked_for = with_data(scenario, own)
    with ExitStack() as stack:
        on_point = None
        if out is not None:
            place = make_folder(out)
            stack.enter_context(FolderLock(place))
            rates = rates_of(scenario, tune_lr)
            _begin(place, _record(replace(wanted, scenario=asked_for), target, rates))
            on_point = _SoFar(place, wanted)
        found = sweep_scenario(wanted, ahead, on_progress, on_point, **options)
        found = replace(found, scenario=asked_for, own_data=own, own_model=model is not None)
        if out is not None:
            _write(found, place, [Path(path) for path in code], printing)
    return found


def save_sweep(
    found: Sweep,
    folder: str | Path,
    code: Sequence[str | Path] = (),
    formats: str | Sequence[str] | None = None,
    width: str | float | None = None,
) -> None:
    """Write the folder of a sweep; see `Sweep.save`.

    Args:
        found: the sweep.
        folder: made if need be; files of the same names in it are replaced.
        code: Python files of the user's own that register methods, to be kept too.
        formats: of the figure; PNG and SVG unless given.
        width: of the figure; that of a screen unless given.
    """
    printing = Printing.asked(formats, width) or ON_SCREEN
    place = make_folder(folder)
    with FolderLock(place):
        _write(found, place, [Path(path) for path in code], printing)


class _SoFar:
    """The table of what is done, written now and then while the rest is trained."""

    def __init__(self, place: Path, asked: Asked) -> None:
        self._place, self._asked = place, asked
        self._written = time.monotonic()

    def __call__(self, points: Sequence[Point]) -> None:
        if time.monotonic() - self._written < _EVERY_S:
            return
        it = self._asked
        part = Sweep(it.scenario, it.varied, it.methods, it.equal, it.seeds, tuple(points))
        part.to_csv(self._place / SO_FAR)
        self._written = time.monotonic()


def _write(found: Sweep, place: Path, code: list[Path], printing: Printing) -> None:
    from joulemesh.study.formats import flat
    from joulemesh.views.latex import sweep_table
    from joulemesh.views.style import save_figure  # loads Matplotlib
    from joulemesh.views.sweep import render_sweep

    sweep_drafts(place)
    keep_inputs(found.scenario, place, found.own_data, own_model=found.own_model, code=code)
    write_text(place / "scenario.toml", portable(found.scenario).to_toml())
    found.to_csv(place / "table.csv")
    found.summary_csv(place / "summary.csv")
    try:
        found.to_parquet(place / "table.parquet")
    except MissingPackageError:
        (place / "table.parquet").unlink(missing_ok=True)  # one of before would be another table
    drawn = found.figure(width=printing.width)
    save_figure(drawn, place / "figure", printing.formats)
    narrow = printing.width is not None and printing.width < TWO_COLUMNS_IN
    write_text(place / "table.tex", sweep_table(found, narrow=narrow))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    computed_by = software(*found.libraries)
    page = render_sweep(found, versions=flat(computed_by), when=now)
    write_text(place / "report.html", page)
    record = {
        **_record(found, found.wanted, found.rates),
        "labels": {one.name: one.label for one in found.varied if one.label},
        "command": command_for(found, code),
        "versions": computed_by,
        "made": now,
    }
    write_text(place / RECORD, json.dumps(record, indent=1) + "\n")
    (place / SO_FAR).unlink(missing_ok=True)
    commit_all(place, stage="sweep")


def _record(what: Asked | Sweep, target: float | None, rates: Sequence[float]) -> dict[str, Any]:
    """What a sweep is asked, as plain values."""
    return {
        "asked": asked(what.scenario),
        "varied": {one.name: list(one.plain) for one in what.varied},
        "methods": list(what.methods),
        "equal": what.equal,
        "seeds": list(what.seeds),
        "target": target,
        "rates": list(rates),
    }


def command_for(found: Sweep, code: Sequence[Path] = ()) -> str | None:
    """The command that makes the sweep again, to be typed in its folder.

    Returns:
        None for seeds or values that no command can name: Python can (`joulemesh.sweep`).
    """
    first = found.scenario.seed
    if found.seeds != tuple(range(first, first + len(found.seeds))):
        return None
    words = ["joulemesh", "sweep", "scenario.toml"]
    for one in found.varied:
        values = ",".join(_written(value) for value in one.plain)
        words += ["--vary", f"{one.name}={values}"]
    words += ["--methods", ";".join(found.methods), "--equal", found.equal]
    words += ["--seeds", str(len(found.seeds))]
    for one in found.varied:
        words += ["--label", f"{one.name}={one.label}"] if one.label else []
    if found.wanted is not None:
        words += ["--target", repr(found.wanted)]
    if found.rates:
        words += ["--lr-grid", ",".join(map(repr, found.rates))]
    for path in code:
        words += ["--load", f"{FOLDER}/{path.name}"]
    return shlex.join(words)


def _written(value: Any) -> str:
    """A value as TOML has it; a text that is a list already stays one."""
    if isinstance(value, str):
        return value if value.startswith("[") else json.dumps(value)
    return json.dumps(value)


def _begin(place: Path, asked: Mapping[str, Any]) -> None:
    """Take a folder into use: an empty one, or that of a sweep of which this one has all.

    Raises:
        ScenarioError: it holds another sweep.
    """
    path = place / RECORD
    now = parse_json(json.dumps(asked))
    if path.exists():
        try:
            then = parse_json(path.read_bytes().decode())
            other = _other(then, now)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ScenarioError(f"{path} is damaged; remove it, or choose another --out") from None
        if other:
            raise ScenarioError(f"{place} holds another sweep: {other}; choose another --out")
    write_text(path, json.dumps(now, indent=1) + "\n")


def _other(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In what a folder's sweep is not a part of the one that is asked; empty if it is."""
    for name in ("equal", "target", "rates"):
        if then[name] != now[name]:
            return f"{name} was {then[name]} and is {now[name]}"
    if list(then["varied"]) != list(now["varied"]):
        return f"{', '.join(then['varied'])} was varied and not {', '.join(now['varied'])}"
    parts = {**then["varied"], "methods": then["methods"], "seeds": then["seeds"]}
    wanted = {**now["varied"], "methods": now["methods"], "seeds": now["seeds"]}
    for name, had in parts.items():
        lost = [value for value in had if value not in wanted[name]]
        if lost:
            return f"{name} had {lost[0]!r:.60}, which is not asked for now"
    return difference(then, {"asked": now["asked"]}) or ""
