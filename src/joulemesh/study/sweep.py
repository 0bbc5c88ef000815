"""Compare methods at every combination of some fields' values, and keep what was found."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import write_text
from joulemesh.base.optional import MissingPackageError
from joulemesh.methods import Contender
from joulemesh.methods.setting import equal_terms
from joulemesh.metrics import reported, score_metric
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Combination, combinations, labelled, varied_of
from joulemesh.study import kept
from joulemesh.study.compare import (
    DEFAULT_METHODS,
    TUNING_SEEDS,
    Options,
    Prepared,
    Rates,
    method_names,
    prepare_comparison,
    rates_of,
    taken,
)
from joulemesh.study.compare import Progress as Step
from joulemesh.study.contest import Contest
from joulemesh.study.identity import asked, chosen_seeds, difference
from joulemesh.study.record import Cache
from joulemesh.study.runs import check_target
from joulemesh.study.sweep_result import Point, Sweep
from joulemesh.training.draws import steps_per_round
from joulemesh.training.learner import Learner, chunks
from joulemesh.training.prepare import with_data
from joulemesh.views.printing import ON_SCREEN, TWO_COLUMNS_IN, Printing


@dataclass(frozen=True)
class Progress:
    position: int  # number of the combination at work, from 0
    combinations: int  # how many there are
    share: float  # of the device-steps that were missing at the beginning, what is done
    step: Step  # the comparison's own progress


OnProgress = Callable[[Progress], None]


def _tellers(
    ahead: Sequence[Outlook], on_progress: OnProgress | None
) -> Iterator[Callable[[Step], None]]:
    """For each combination, who hears of its methods and tells how far the whole sweep is."""
    whole, before = max(1, sum(one.steps for one in ahead)), 0
    for position, one in enumerate(ahead):

        def tell(step: Step, k: int = position, begun: int = before, own: int = one.steps) -> None:
            if on_progress is not None:
                within = step.completed / step.iterations if step.iterations else 1.0
                share = (begun + own * (step.position + within) / step.methods) / whole
                on_progress(Progress(k, len(ahead), min(share, 1.0), step))

        yield tell
        before += one.steps


MOST_RUNS = 100_000


@dataclass(frozen=True)
class Outlook:
    """What one combination will take, before anything is trained."""

    combination: Combination  # which one
    reason: str = ""  # why none of its methods can run; empty if one can
    refused: bool = False  # is that the scenario's fault, not a budget's?
    runs: int = 0  # how many there are (methods that can run × seeds)
    missing: int = 0  # how many of them are not kept
    # device-steps of those by method: SGD steps of all devices at all seeds
    steps_of: Mapping[str, int] = field(default_factory=dict)
    infeasible: Mapping[str, str] = field(default_factory=dict)  # why methods cannot run, by method

    @property
    def steps(self) -> int:
        return sum(self.steps_of.values())


def ask(
    scenario: Scenario,
    vary: Mapping[str, Any],
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    labels: Mapping[str, str] | None = None,
) -> Sweep:
    """Check what a sweep is asked, and make every combination a scenario."""
    # Arguments are those of `joulemesh.sweep`.
    wanted, chosen = method_names(methods), chosen_seeds(scenario, seeds)
    given = varied_of(vary)
    runs = math.prod(len(one.values) for one in given) * len(wanted) * len(chosen)
    if runs > MOST_RUNS:
        raise ScenarioError(
            f"the sweep has {runs:,} runs, more than {MOST_RUNS:,}: give fewer values, methods or "
            "seeds"
        )
    labelled(given, labels or {})  # refused before anything is planned
    varied, made = combinations(scenario, given)
    varied = labelled(varied, labels or {})
    terms = equal_terms(equal, *(one.scenario for one in made if one.scenario is not None))
    return Sweep(scenario, varied, wanted, terms, chosen, combinations=made)


def outlooks(
    asked: Sweep, on_plan: Callable[[Combination], None] | None = None, **options: Unpack[Options]
) -> list[Outlook]:
    """Plan every combination, and look which of its runs are kept."""
    check_target(options.get("target"), score_metric(reported(asked.scenario.training).score))
    Cache(options.get("cache")).require_usable()
    found = []
    for one in asked.combinations:
        if on_plan is not None:
            on_plan(one)
        found.append(_outlook(asked, one, options))
    if all(one.refused for one in found):
        raise ScenarioError(found[0].reason)
    return found


def _outlook(asked: Sweep, one: Combination, options: Options) -> Outlook:
    try:
        ready = prepared(asked, one, options)
    except JoulemeshError as error:
        return Outlook(one, str(error), refused=True)
    works = {made.name: _work(made, ready) for made in ready.ready if not isinstance(made, str)}
    pairs = zip(ready.methods, ready.ready, strict=True)
    infeasible = {name: made for name, made in pairs if isinstance(made, str)}
    if not works:
        return Outlook(one, str(ready.ready[0]), infeasible=infeasible)
    return Outlook(
        one,
        runs=sum(runs for runs, _, _ in works.values()),
        missing=sum(missing for _, missing, _ in works.values()),
        steps_of={name: missing * steps for name, (_, missing, steps) in works.items()},
        infeasible=infeasible,
    )


def _work(made: Contender, ready: Prepared) -> tuple[int, int, int]:
    """Of a method: runs in all, runs that are not kept, and device-steps of each."""
    bench = ready.bench
    steps, rate = (
        int(device_steps(made, ready).sum()),
        bench.setting.scenario.training.learning_rate,
    )
    runs = len(ready.seeds) + len(ready.rates) * len(ready.tuned_on)
    if ready.rates:
        grid = bench.grid_of(made, ready.rates)
        tried = [bench.missing(made, ready.tuned_on, rate, trial=True) for rate in grid]
        more = len(made.variants) * len(ready.tuned_on)
        # The rate of the result, and of variants, is not known before all have been tried.
        if more or any(tried):
            return runs, sum(tried) + more + len(ready.seeds), steps
        rate = bench.tuned(made, ready.rates, ready.tuned_on, lambda *told: None)[1].chosen
    return runs, bench.missing(made, ready.seeds, rate), steps


def device_steps(made: Contender, ready: Prepared) -> NDArray[np.int64]:
    """int64 [n]: SGD steps of all devices in each iteration of one run."""
    training = ready.bench.setting.scenario.training
    samples = np.asarray(ready.bench.setting.work.round_samples)
    each = steps_per_round(samples, training.batch_size, training.local_round)
    return np.asarray((made.schedule.rounds * each).sum(axis=1))


def prepared(asked: Sweep, one: Combination, options: Options) -> Prepared:
    if one.scenario is None:
        raise ScenarioError(one.reason)
    return prepare_comparison(one.scenario, asked.methods, asked.equal, asked.seeds, **options)


_REPEATS = 5  # of a chunk, unless they take long:
_ENOUGH_S = 0.5


@dataclass(frozen=True)
class Pace:
    """How fast this machine trains one method."""

    # seconds before the first iteration of a program that was not compiled before; none where a
    # method before it in the list has the same program
    compile_s: float
    step_s: float  # seconds of a device-step, with its share of exchanges and evaluations


def timed(asked: Sweep, ahead: Sequence[Outlook], **options: Unpack[Options]) -> dict[str, Pace]:
    """Train the first chunk of every method that has runs missing, and keep nothing of it."""
    # Methods differ in what surrounds a step: one that exchanges after every step takes many times
    # as long for it as one that exchanges after twenty. They share compiled programs, too.
    found: dict[str, Pace] = {}
    for one in ahead:
        untimed = {name for name, steps in one.steps_of.items() if steps} - found.keys()
        if not untimed:
            continue
        ready = prepared(asked, one.combination, options)
        for made in ready.ready:
            if not isinstance(made, str) and made.name in untimed:
                found[made.name] = _pace(made, ready)
    return found


def _pace(made: Contender, ready: Prepared) -> Pace:
    contest = Contest(ready.bench.learning, made, ready.bench.setting)
    learner: Learner[Any] = contest.learner(ready.seeds)
    took: list[float] = []
    while len(took) < 2 or (len(took) <= _REPEATS and sum(took[1:]) < _ENOUGH_S):
        begun = time.perf_counter()
        state, _ = next(chunks(learner))
        np.asarray(state.iteration)  # waits for what is under way
        took.append(time.perf_counter() - begun)
    chunk_s = statistics.median(took[1:])  # the first time it is compiled
    steps = len(ready.seeds) * int(device_steps(made, ready)[: int(state.iteration)].sum())
    return Pace(max(0.0, took[0] - chunk_s), chunk_s / max(steps, 1))


def seconds_left(ahead: Sequence[Outlook], paces: Mapping[str, Pace]) -> float:
    """Seconds that the runs take that are missing: compiling each shape once, then training."""
    shapes = {(name, _shape(one)) for one in ahead for name, steps in one.steps_of.items() if steps}
    compiling_s = sum(paces[name].compile_s for name, _ in shapes)
    training_s = sum(
        paces[name].step_s * steps for one in ahead for name, steps in one.steps_of.items() if steps
    )
    return compiling_s + training_s


def _shape(one: Outlook) -> tuple[Any, ...]:
    """What a compiled program depends on, as far as a sweep usually varies it."""
    scenario = one.combination.scenario
    assert scenario is not None
    training = scenario.training
    return scenario.devices.count, training.model, training.hidden, training.batch_size


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
    code: kept.Paths = (),
    formats: str | Sequence[str] | None = None,
    width: str | float | None = None,
    labels: Mapping[str, str] | None = None,
    on_plan: Callable[[Combination], None] | None = None,
    on_outlook: Callable[[Sweep, Sequence[Outlook]], None] | None = None,
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
    options: Options = {"model": model, "data": data, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds}
    scenario, options = taken(scenario, loss, options)
    own = options.get("data")
    printing = Printing.asked(formats, width) or ON_SCREEN
    wanted = ask(scenario, vary, methods, equal, seeds, labels)
    ahead = outlooks(wanted, on_plan, **options)
    if on_outlook is not None:
        on_outlook(wanted, ahead)
    asked_for = with_data(scenario, own)
    points: list[Point] = []
    found = replace(wanted, wanted=target, own_data=own, own_model=model is not None)
    libraries: dict[str, None] = {}
    with ExitStack() as stack:
        if out is not None:
            place = stack.enter_context(kept.held(out))
            rates = rates_of(scenario, tune_lr)
            record = _record(replace(wanted, scenario=asked_for), target, rates)
            kept.begin(place / RECORD, record, _other, grows=True)
        written = time.monotonic()
        for one, tell in zip(ahead, _tellers(ahead, on_progress), strict=True):
            if one.refused:
                at = one.combination.at
                points.append(Point.without_runs(at, wanted.methods, wanted.seeds, one.reason))
            else:
                study = prepared(wanted, one.combination, options).carry_out(tell)
                found = replace(found, computed=found.computed + study.computed, rates=study.rates)
                libraries[study.library] = None
                points.append(Point.found(one.combination.at, study))
            if out is not None and time.monotonic() - written >= _EVERY_S:
                replace(wanted, points=tuple(points)).to_csv(place / SO_FAR)
                written = time.monotonic()
        found = replace(found, scenario=asked_for, points=tuple(points))
        found = replace(found, libraries=tuple(libraries) or found.libraries)
        if out is not None:
            _write(found, place, code, printing)
    return found


def write_sweep(
    found: Sweep,
    folder: str | Path,
    code: kept.Paths,
    formats: str | Sequence[str] | None,
    width: str | float | None,
) -> None:
    with kept.held(folder) as place:
        _write(found, place, code, Printing.asked(formats, width) or ON_SCREEN)


def _write(found: Sweep, place: Path, code: kept.Paths, printing: Printing) -> None:
    from joulemesh.views.latex import sweep_table
    from joulemesh.views.style import save_figure  # loads Matplotlib
    from joulemesh.views.sweep import render_sweep

    kept.write_asked(found, place, code)
    found.to_csv(place / "table.csv")
    found.summary_csv(place / "summary.csv")
    try:
        found.to_parquet(place / "table.parquet")
    except MissingPackageError:
        (place / "table.parquet").unlink(missing_ok=True)  # one of before would be another table
    save_figure(found.figure(width=printing.width), place / "figure", printing.formats)
    narrow = printing.width is not None and printing.width < TWO_COLUMNS_IN
    write_text(place / "table.tex", sweep_table(found, narrow=narrow))
    (place / SO_FAR).unlink(missing_ok=True)
    record = {
        **_record(found, found.wanted, found.rates),
        "labels": {one.name: one.label for one in found.varied if one.label},
        "command": command_for(found, code),
    }
    kept.write_found(place / RECORD, record, partial(render_sweep, found), *found.libraries)


def _record(what: Sweep, target: float | None, rates: Sequence[float]) -> dict[str, Any]:
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


def command_for(found: Sweep, code: kept.Paths = ()) -> str | None:
    repeats = kept.seeds_option(found.scenario, found.seeds)
    if repeats is None:
        return None
    options: list[str] = []
    for one in found.varied:
        options += ["--vary", f"{one.name}={','.join(map(_written, one.plain))}"]
    options += ["--methods", ";".join(found.methods), "--equal", found.equal, *repeats]
    for one in found.varied:
        options += ["--label", f"{one.name}={one.label}"] if one.label else []
    return kept.command_for("sweep", options, code, target=found.wanted, rates=found.rates)


def _written(value: Any) -> str:
    """A value as TOML has it; a text that is a list already stays one."""
    if isinstance(value, str):
        return value if value.startswith("[") else json.dumps(value)
    return json.dumps(value)


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
