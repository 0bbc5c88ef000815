"""Compare methods on equal terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.files import write_text
from joulemesh.data import Dataset, partition_for
from joulemesh.methods import Contender, Setting, build, names, split
from joulemesh.metrics import reported, score_metric
from joulemesh.models.curves import score_place
from joulemesh.scenario import Scenario
from joulemesh.study import kept
from joulemesh.study.comparison import AXES, Comparison, WorldsComparison
from joulemesh.study.contest import Contest, Learning
from joulemesh.study.identity import (
    chosen_seeds,
    data_digest,
    model_digest,
    run_key,
    world_digest,
)
from joulemesh.study.paper import STUDY, write_comparison_paper
from joulemesh.study.record import Cache, Entry, Record, TunedRate, entry_of
from joulemesh.study.runs import chance_note, check_target
from joulemesh.training.learner import configured
from joulemesh.training.prepare import (
    said_loss,
    the_dataset,
    the_model,
    with_data,
    with_outputs_noted,
)
from joulemesh.views.comparison import render_comparison
from joulemesh.views.printing import ON_SCREEN, Printing
from joulemesh.world.redraw import worlds_of

Rates = bool | str | Sequence[float] | None

TUNING_SEEDS = 2
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the scenario's own rate
_FURTHER = 500_000  # from the scenario's seed; other worlds' seeds are whole millions away

DEFAULT_METHODS = (
    "adaptive",
    "fixed:3",
    "inverse",
    "gossip-learning",
    "balanced",
    "pens",
    "d-psgd",
)


@dataclass(frozen=True)
class Progress:
    method: str  # the one at work
    position: int  # its number, from 0
    methods: int  # how many there are
    completed: int  # iterations of it done; all of them when nothing was left to compute
    iterations: int  # iterations of it in all; 0 for a method that cannot run
    accuracy: float  # latest test accuracy of the mean model, mean over seeds; NaN before the first
    cached: int  # seeds of it that were found in the cache
    # joules that its devices have spent so far (at most, if that depends on the weights); NaN for a
    # method that cannot run
    energy_j: float = math.nan
    world: int = 0  # number of the world, from 0
    worlds: int = 1  # how many there are
    # the learning rate that is being tried; None for the runs of the result
    rate: float | None = None


OnProgress = Callable[[Progress], None]
# Told: iterations done, latest score, seeds kept from before, the rate that is tried or None.
Tell = Callable[[int, float, int, float | None], None]
FloatArray = NDArray[np.float64]


class Options(TypedDict, total=False):
    """Those of `joulemesh.compare` that decide how methods are trained and judged."""

    model: Any
    data: Any
    target: float | None
    tune_lr: Rates
    tune_seeds: int
    cache: str | Path | None
    on_stage: Callable[[str], None] | None


def taken(scenario: Scenario, loss: Any, options: Options) -> tuple[Scenario, Options]:
    """The scenario with a loss and a file that are given, and the options with data in memory."""
    scenario, data = said_loss(scenario, loss), options.get("data")
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    return scenario, {**options, "data": None if data is None else the_dataset(scenario, data)}


def prepare_comparison(
    scenario: Scenario,
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    **options: Unpack[Options],
) -> Prepared:
    """Load the data, plan every method, and train nothing yet."""
    # Arguments are those of `joulemesh.compare`.
    wanted, chosen = method_names(methods), chosen_seeds(scenario, seeds)
    data, target = options.get("data"), options.get("target")
    check_target(target, score_metric(reported(scenario.training).score))
    rates = rates_of(scenario, options.get("tune_lr"))
    tune_seeds = options.get("tune_seeds", TUNING_SEEDS)
    tuned_on = tuning_seeds(scenario, tune_seeds, chosen) if rates else ()
    stage = options.get("on_stage") or (lambda words: None)
    configured(scenario, options.get("model"))
    stage("loading data")
    dataset = the_dataset(scenario, data)
    learner = the_model(scenario, options.get("model"), dataset)
    before = len(dataset.notes)
    dataset = with_outputs_noted(scenario, learner, options.get("model"), dataset)
    for note in dataset.notes[before:]:
        stage(f"note: {note}")
    stage("planning")
    if data is not None:
        scenario = _sized(scenario, dataset)
    setting = Setting(scenario, equal, chosen, model=learner, data=dataset)
    ready = tuple(_ready(name, setting) for name in wanted)  # a wrong name must not cost an hour
    learning = Learning(scenario, learner, dataset)
    digest = data_digest(dataset) + model_digest(learner, dataset) + world_digest(setting)
    store = Cache(options.get("cache"))
    store.require_usable()
    bench = Bench(setting, learning, store, digest)
    return Prepared(bench, wanted, ready, chosen, target, rates, tuned_on)


@dataclass(frozen=True)
class Prepared:
    """A comparison in which everything is decided and nothing is trained."""

    bench: Bench  # what all methods are trained with
    methods: tuple[str, ...]  # as the user wrote them
    ready: tuple[Contender | str, ...]  # each of them made ready, or why it cannot run
    seeds: tuple[int, ...]  # repetition seeds
    target: float | None  # the accuracy asked for; None for 95 % of the best
    rates: tuple[float, ...]  # the learning rates that are tried; empty without tuning
    tuned_on: tuple[int, ...]  # the seeds on which they are tried

    def carry_out(self, on_progress: OnProgress | None = None) -> Comparison:
        """Train what is not kept, and put all methods side by side."""
        learning, setting = self.bench.learning, self.bench.setting
        listener = on_progress or (lambda step: None)
        entries, computed = [], 0
        for position, (name, made) in enumerate(zip(self.methods, self.ready, strict=True)):
            step = partial(Progress, name, position, len(self.methods))
            if isinstance(made, str):
                measured = reported(setting.scenario.training)
                count = len(self.seeds)
                entries.append(Entry.refused(name, made, count, setting.devices, measured))
                listener(step(0, 0, math.nan, 0))
                continue
            spent_j = np.append(0.0, np.cumsum(made.reserve.energy_j.sum(axis=1)))
            n = made.schedule.iterations

            def tell(
                done: int,
                score: float,
                cached: int,
                rate: float | None,
                step: Callable[..., Progress] = step,
                n: int = n,
                spent_j: FloatArray = spent_j,
            ) -> None:
                listener(step(done, n, score, cached, energy_j=float(spent_j[done]), rate=rate))

            entry, new = self._entry(name, made, tell)
            computed += new
            entries.append(entry)
        return Comparison(
            setting.scenario,
            setting.equal,
            self.seeds,
            tuple(entries),
            self.target,
            computed,
            learning.dataset.notes,
            learning.dataset.name,
            learning.model.name,
            learning.model.parameters,
            self.rates,
            self.tuned_on,
            library=learning.model.library,
        )

    def _entry(self, name: str, made: Contender, tell: Tell) -> tuple[Entry, int]:
        """One method's entry, and how many runs were trained for it."""
        learning, training = self.bench.learning, self.bench.setting.scenario.training
        rate, tuned, tried = training.learning_rate, None, 0
        if self.rates:
            made, tuned, tried = self.bench.tuned(made, self.rates, self.tuned_on, tell)
            rate = tuned.chosen
        found, new = self.bench.runs(made, self.seeds, rate, tell)
        entry = entry_of(name, found, made.battery_j, made.notes, reported(training))
        entry = replace(entry, learning_rate=rate, tuned=tuned)
        if entry.ran:
            figures = entry.score, entry.scores, entry.final["test_loss"], rate
            chance = chance_note(learning.dataset, training, *figures)
            entry = replace(entry, notes=(chance, *entry.notes) if chance else entry.notes)
        return entry, tried + new


def method_names(methods: Sequence[str] | str) -> tuple[str, ...]:
    """The methods of a list, or of a text with commas, each known and none twice."""
    if isinstance(methods, str):
        methods = [name for part in methods.split(";") for name in split(part)]
    wanted = tuple(name.strip() for name in methods)
    if not wanted:
        raise ScenarioError(f"no method is given: name some of {', '.join(names())}")
    for index, name in enumerate(wanted):
        if name.partition(":")[0] not in names():
            raise ScenarioError(
                f"method {name.partition(':')[0]!r} is unknown: use some of {', '.join(names())}"
            )
        if name in wanted[:index]:
            raise ScenarioError(f"method {name!r} is given twice: give it once")
    return wanted


def _sized(scenario: Scenario, dataset: Dataset) -> Scenario:
    """Where a round is an epoch, say how many samples of the user's own data each device holds."""
    training = scenario.training
    if training.local_round != "epoch" or scenario.devices.samples != "partition":
        return scenario
    held = partition_for(scenario, dataset, scenario.seed)
    return scenario.override({"devices.samples": {"values": held.sizes.tolist()}})


def _ready(name: str, setting: Setting) -> Contender | str:
    try:
        return build(name, setting)
    except InfeasibleError as error:
        return str(error)


@dataclass(frozen=True)
class Bench:
    setting: Setting  # the terms
    learning: Learning  # model and data
    store: Cache  # the runs that are kept
    digest: str  # of data, model and world

    @staticmethod
    def grid_of(made: Contender, grid: tuple[float, ...]) -> tuple[float, ...]:
        # A method that tries values of another parameter, too, tries as many rates less, the
        # largest first: all methods are tuned with the same effort.
        return grid[: max(1, len(grid) - len(made.variants))]

    def tuned(
        self, made: Contender, grid: tuple[float, ...], seeds: tuple[int, ...], tell: Tell
    ) -> tuple[Contender, TunedRate, int]:
        """A method as it does best, its learning rate, and how many runs were trained for that."""
        # Its variants are tried at the rate that suits the method as it is.
        score = reported(self.learning.scenario.training).score
        better, grid = score_metric(score).better, self.grid_of(made, grid)

        def reached(one: Contender, rate: float) -> tuple[list[float], int]:
            found, new = self.runs(one, seeds, rate, tell, trial=True)
            return [found[seed].final[score_place(score)] for seed in seeds], new

        tried = [reached(made, rate) for rate in grid]
        rates = TunedRate(grid, seeds, np.array([row for row, _ in tried]), better)
        others = [build(name, self.setting) for name in made.variants]
        more = [reached(one, rates.chosen) for one in others]
        computed = sum(new for _, new in (*tried, *more))
        if not others:
            return made, rates, computed
        every = np.array([tried[grid.index(rates.chosen)][0], *(row for row, _ in more)])
        sign = 1.0 if better == "higher" else -1.0
        means = np.nan_to_num(sign * every.mean(axis=1), nan=-np.inf)
        best = int(np.argmax(means))  # of two as good, the method as it is
        words = "as it is" if best == 0 else made.variants[best - 1]
        own = f"{words}, the best of it and {', '.join(made.variants)} at that learning rate"
        # A variant keeps its own name, under which its runs are kept.
        return (made, *others)[best], replace(rates, own=own), computed

    def missing(
        self, made: Contender, seeds: tuple[int, ...], rate: float, *, trial: bool = False
    ) -> int:
        """How many runs of one method at one learning rate are not kept."""
        keys = self._keys(made, seeds, rate, trial=trial)
        return sum(self.store.find(key) is None for key in keys.values())

    def _keys(
        self, made: Contender, seeds: tuple[int, ...], rate: float, *, trial: bool
    ) -> dict[int, str | None]:
        key_of = partial(run_key, self.setting, made, learned=self.digest, rate=rate, trial=trial)
        return {seed: key_of(seed=seed) for seed in seeds}

    def runs(
        self,
        made: Contender,
        seeds: tuple[int, ...],
        rate: float,
        tell: Tell,
        *,
        trial: bool = False,
    ) -> tuple[dict[int, Record], int]:
        """One method's runs, those missing trained together and kept; and how many these were."""
        keys = self._keys(made, seeds, rate, trial=trial)
        kept = {s: record for s, k in keys.items() if (record := self.store.find(k)) is not None}
        missing = tuple(seed for seed in seeds if seed not in kept)
        tried = rate if trial else None
        if missing:
            contest = Contest(
                self._at(rate), made, self.setting, self.store.unfinished, keys, final_only=trial
            )
            before = len(kept)
            for seed, record in contest.train(missing, lambda t, a: tell(t, a, before, tried)):
                self.store.keep(keys[seed], record)
                kept[seed] = record
            contest.forget()
        tell(made.schedule.iterations, math.nan, len(seeds) - len(missing), tried)
        return {seed: kept[seed] for seed in seeds}, len(missing)

    def _at(self, rate: float) -> Learning:
        scenario = self.learning.scenario
        if rate == scenario.training.learning_rate:
            return self.learning
        return replace(self.learning, scenario=scenario.override({"training.learning_rate": rate}))


def rates_of(scenario: Scenario, wanted: Rates) -> tuple[float, ...]:
    """The grid of learning rates, ascending; empty for no tuning."""
    if wanted is None or wanted is False:
        return ()
    if wanted is True:
        return tuple(scenario.training.learning_rate * times for times in _MULTIPLES)
    pieces = wanted.split(",") if isinstance(wanted, str) else wanted
    try:
        rates = sorted(float(piece) for piece in pieces)
    except (TypeError, ValueError):
        rates = []
    if not rates or not all(0 < rate < math.inf for rate in rates) or len(set(rates)) < len(rates):
        raise ScenarioError(
            f"the grid of learning rates is {wanted!r}: give different numbers above 0, "
            'for instance "0.05,0.1,0.2"'
        )
    return tuple(rates)


def tuning_seeds(scenario: Scenario, count: int, used: Sequence[int]) -> tuple[int, ...]:
    """Seeds for choosing a learning rate, the same for all methods."""
    if count < 1:
        raise ScenarioError(f"tune_seeds = {count} is out of range: use 1 or more")
    first = scenario.seed + _FURTHER
    free = (seed for seed in range(first, first + count + len(used)) if seed not in set(used))
    return tuple(seed for _, seed in zip(range(count), free, strict=False))


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
    options: Options = {"model": model, "data": data, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds, "on_stage": on_stage}
    scenario, options = taken(scenario, loss, options)
    own = options.get("data")
    each: list[Comparison] = []
    for k, mine in enumerate([scenario] if worlds == 1 else worlds_of(scenario, worlds, seeds)):

        def tell(step: Progress, k: int = k) -> None:
            if on_progress is not None:
                on_progress(replace(step, world=k, worlds=worlds))

        each.append(prepare_comparison(mine, methods, equal, seeds, **options).carry_out(tell))
    found = each[0] if worlds == 1 else WorldsComparison.of(scenario, each, target)
    asked = with_data(found.scenario, own)
    return replace(found, scenario=asked, own_data=own, own_model=model is not None)


def write_comparison(
    found: Comparison,
    folder: str | Path,
    code: kept.Paths,
    formats: str | Sequence[str] | None,
    width: str | float | None,
    baseline: str | None,
) -> None:
    from joulemesh.views.style import save_figure  # loads Matplotlib

    printing = Printing.asked(formats, width) or ON_SCREEN
    if baseline is not None:
        found[baseline]  # refused before anything is written
    with kept.held(folder) as place:
        kept.write_asked(found, place, code)
        found.to_csv(place / "comparison.csv")
        write_text(place / "table.csv", found.table_csv())
        if found.rates:
            write_text(place / "rates.csv", found.rates_csv())
        if isinstance(found, WorldsComparison):
            write_text(place / "worlds.csv", found.worlds_csv())
        for name, axes in (("figure", AXES), *((axis, (axis,)) for axis in AXES)):
            drawn = found.figure(axes, width=printing.width)
            save_figure(drawn, place / name, printing.formats)
        write_comparison_paper(found, place, printing, baseline)
        record = {
            "command": command_for(found, code),
            "methods": [entry.name for entry in found.entries],
            "equal": found.equal,
            **found.repeated,
            "target": found.wanted,
            "rates": list(found.rates),
            "tuned_on": list(found.tuned_on),
        }
        kept.write_found(place / STUDY, record, partial(render_comparison, found), found.library)


def command_for(study: Comparison, code: kept.Paths = ()) -> str | None:
    repeats = study.repeat_options
    if repeats is None:
        return None
    methods = ";".join(entry.name for entry in study.entries)
    options = ["--methods", methods, "--equal", study.equal, *repeats]
    return kept.command_for(
        "compare",
        options,
        code,
        target=study.wanted,
        rates=study.rates,
        tuned_on=len(study.tuned_on) if study.rates else 0,
    )
