"""Find the best plan for a scenario's budgets, show it, and keep it in a folder."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.files import user_cache, write_text
from joulemesh.metrics import reported
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study import kept
from joulemesh.study.contest import Job, Judge, halves
from joulemesh.study.identity import asked, difference, portable, record_of
from joulemesh.study.pricing import Candidate, Offer, Priced, Pricing
from joulemesh.study.record import Cache, Record
from joulemesh.study.runs import chance_note
from joulemesh.study.search import (
    SCORE,
    Halving,
    Objective,
    Score,
    Space,
    Trial,
    Tuner,
    final_scores,
)
from joulemesh.study.tuning import Final, Judged, Rung, Tuned
from joulemesh.training.learner import Interrupt, configured, interrupts
from joulemesh.training.prepare import said_loss, the_dataset, the_model, with_data

CANDIDATES = 45
"""To be trained, at most, unless told otherwise."""
_TO_TARGET = 24  # evaluations of a run where the price of a target is asked for
_CURVE = 12  # evaluations of the winner, at the least

OnProgress = Callable[["Progress"], None]
MakeTuner = Callable[[Sequence[Priced]], Tuner]


@dataclass(frozen=True)
class Progress:
    stage: str  # what is being done: `"rung 1 of 3"`, `"fresh seeds"`
    position: int  # candidates of the stage that are done
    count: int  # candidates of the stage, as far as known
    share: float  # of all work that is done
    best: str = ""  # the best candidate so far and its score; empty before any
    # how candidates have done so far: the rung (from 0), the name, and the figures of each
    judged: tuple[tuple[int, str, Judged], ...] = ()


class _Search:
    """Carries out what a tuner asks for, and remembers how every candidate did."""

    def __init__(
        self,
        pricing: Pricing,
        offer: Offer,
        objective: Objective,
        tuner: Tuner,
        judge: Judge,
        reporter: Judge,
        on_progress: OnProgress | None,
    ) -> None:
        self.pricing, self.offer, self.objective, self.tuner = pricing, offer, objective, tuner
        self.judge, self.reporter, self._tell = judge, reporter, on_progress
        self._names = {one.candidate.number: one.candidate.name for one in offer.kept}
        self._rows: dict[int, list[Judged]] = {}
        self._shares: dict[int, float] = {}
        self._work = 0.0  # done, in trainings with the whole budget
        self._best: tuple[float, Score, str] | None = None

    def rungs(self, interrupt: Interrupt) -> tuple[Rung, ...]:
        """Train until the tuner has nothing left to ask."""
        while not self.tuner.finished:
            trials = list(iter(self.tuner.ask, None))
            if not trials:
                raise ScenarioError("the tuner asks for nothing and is not finished: mend its ask")
            self._judge(trials, interrupt)
        if all(share == 1 for share in self._shares.values()):  # one rung, asked for bit by bit
            self._rows = {0: [row for rung in self._rows.values() for row in rung]}
        numbers = sorted(self._rows)
        last = self._winner().candidate.number
        rungs = []
        for place, rung in enumerate(numbers):
            later = {one.candidate for k in numbers[place + 1 :] for one in self._rows[k]}
            final = place == len(numbers) - 1
            rows = [
                replace(one, kept=one.candidate == last if final else one.candidate in later)
                for one in self._rows[rung]
            ]
            rungs.append(Rung(self._shares[rung], tuple(sorted(rows, key=_best_first))))
        return tuple(rungs)

    def _judge(self, trials: Sequence[Trial], interrupt: Interrupt) -> None:
        """Train what was asked for together, and tell."""
        jobs, of = [], {}
        for trial in trials:
            priced = self.offer.kept[trial.candidate]
            self._shares[trial.rung] = trial.share
            try:
                plan = self.pricing.plan(priced.candidate.changes, trial.share)
            except InfeasibleError:
                self._note(trial, Judged(priced.candidate.number, None, math.nan, 0, 0, 0, False))
                self.tuner.tell(trial, None)
                continue
            jobs.append(Job(priced.candidate.number, plan))
            of[priced.candidate.number] = trial
        stage = f"rung {trials[0].rung + 1}"

        def chunk(batch: Sequence[Job], completed: int, iterations: int) -> None:
            part = completed / max(iterations, 1) * trials[0].share * len(batch)
            self._say(stage, done, len(trials), part)

        done = len(trials) - len(jobs)
        self._say(stage, done, len(trials), 0.0)
        for job, runs in self.judge.runs(jobs, interrupt, chunk):
            trial = of[job.number]
            score = self.objective.score(runs)
            accuracy = float(final_scores(runs, self.objective.by).mean())
            energy_j, time_s = float(job.plan.spent_j.sum()), float(job.plan.latency_s.sum())
            self._consider(trial.share, score, self.offer.kept[trial.candidate].candidate.name)
            self._note(
                trial,
                Judged(job.number, score, accuracy, energy_j, time_s, job.plan.iterations, False),
            )
            self.tuner.tell(trial, score)
            done += 1
            self._work += trial.share
            self._say(stage, done, len(trials), 0.0)

    def _note(self, trial: Trial, row: Judged) -> None:
        self._rows.setdefault(trial.rung, []).append(row)

    def _consider(self, share: float, score: Score, name: str) -> None:
        if self._best is None or (-share, score) < (-self._best[0], self._best[1]):
            self._best = (share, score, name)

    def _say(self, stage: str, position: int, count: int, part: float) -> None:
        if self._tell is None:
            return
        finals = 2 * len(self.reporter.seeds) / len(self.judge.seeds)
        left = self.tuner.left + (finals if stage != "fresh seeds" else finals - position)
        done = self._work + part
        best = ""
        if self._best is not None:
            best = f"{self.objective.text(self._best[1])} by {self._best[2]}"
        share = done / max(done + left - part, 1e-9)
        judged = tuple(
            (rung, self._names[row.candidate], row)
            for rung, rows in self._rows.items()
            for row in rows
        )
        self._tell(Progress(stage, position, count, share, best, judged))

    def _winner(self) -> Priced:
        best = self.tuner.best
        if best is None:
            raise InfeasibleError("no candidate could be judged: give larger budgets")
        return self.offer.kept[best]

    def finals(self, interrupt: Interrupt) -> tuple[Final, Final | None]:
        """The winner and the scenario as it is, on fresh seeds and on the other test samples."""
        winner, own = self._winner().candidate, Candidate(0, {})
        jobs = []
        for candidate in (winner, own) if winner.number else (winner,):
            try:
                jobs.append(Job(candidate.number, self.pricing.plan(candidate.changes)))
            except InfeasibleError:  # the scenario as it is: the winner has a plan
                continue
        self._say("fresh seeds", 0, len(jobs), 0.0)

        def chunk(batch: Sequence[Job], completed: int, iterations: int) -> None:
            self._say("fresh seeds", len(found), len(jobs), completed / max(iterations, 1))

        found: dict[int, Final] = {}
        for job, runs in self.reporter.runs(jobs, interrupt, chunk):
            which = winner if job.number == winner.number else own
            found[job.number] = self._final(which, job, runs)
            self._say("fresh seeds", len(found), len(jobs), 0.0)
        return found[winner.number], found.get(0)

    def _final(self, candidate: Candidate, job: Job, runs: Sequence[Record]) -> Final:
        plan, by = job.plan, self.objective.by
        place = column_names((), by).index("test_loss")
        losses = np.array([run.final[place] for run in runs])
        chance = chance_note(
            self.reporter.dataset, plan.scenario.training, by, final_scores(runs, by), losses
        )
        notes = (chance, *plan.notes) if chance else plan.notes
        energy_j, time_s = float(plan.spent_j.sum()), float(plan.latency_s.sum())
        return Final(candidate, plan.iterations, energy_j, time_s, tuple(runs), by, notes)


def _best_first(one: Judged) -> tuple[int, Score, float]:
    if one.score is None:
        return 1, Score(3, 0.0), 0.0
    return 0, one.score, one.energy_j


RECORD = "tuning.json"


def tune(
    scenario: Scenario,
    space: Space | Mapping[str, Any] | None = None,
    objective: str = SCORE,
    *,
    seeds: int = 5,
    search_seeds: int = 3,
    candidates: int = CANDIDATES,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    cache: str | Path | None = None,
    code: kept.Paths = (),
    tuner: MakeTuner | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Tuned:
    """Find the best plan for a scenario's budgets, on its model and its data.

    Every point of the space is planned, which prices it exactly; points without a plan, and those
    that learn the same as another at a higher price, are dropped with the reason. The rest is
    trained by successive halving: all with a tenth of the joules, seconds and iterations, the best
    third of them with a third, and the best of these with the whole, at the same seeds and on the
    same batches. Half of the test samples choose the winner; the other half reports it, beside
    the scenario as it is, at seeds that no choice was made by.

    Every run is kept by content: a tuning that was stopped goes on where it was when it is asked
    for again, and finds the same.

    Args:
        scenario: what is asked; it is also the first candidate, as it is.
        space: lists of values by field, as in ``{"training.learning_rate": [0.05, 0.1]}``;
            ``"grid"`` for ``plan.iterations`` is a geometric grid up to what the budgets pay for.
            By default schemes, policies, iterations and learning rates (`study.search.AXES`).
        objective: ``"score"`` of the mean model when the budget is spent, which is its accuracy
            unless ``training.loss`` or ``training.score`` say otherwise; or the joules or seconds
            until it first reaches a target, ``"energy-to:0.8"`` or ``"time-to:0.8"``.
        seeds: how many fresh seeds report the winner.
        search_seeds: how many seeds judge the candidates.
        candidates: how many are trained, at most.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        loss: what is minimised, as in `joulemesh.run`.
        out: a folder for what is found; see `Tuned.save`.
        resume: go on with the tuning that was begun in the folder.
        cache: folder of kept runs; in the user's cache folder unless given.
        code: Python files of the user's own that were loaded, to be kept in the folder too.
        tuner: makes what decides which candidates are tried, from the priced candidates;
            successive halving unless given (`study.adapters` has Optuna).
        on_progress: called after every chunk of iterations.
        on_stage: called with what is begun before that.

    Returns:
        What was found. ``found.best`` is the winning scenario.

    Raises:
        InfeasibleError: no candidate has a plan.
        ScenarioError: space, objective or folder do not do.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override(
    ...     {"plan.iterations": 20, "training.model": "logistic", "devices.count": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.tune(scenario, {"training.learning_rate": [1e-5, 0.1]}, seeds=2,
    ...                            search_seeds=1, cache=folder)
    >>> found.winner.candidate.changes, [len(rung.rows) for rung in found.rungs]
    ({}, [2, 2, 2])
    """
    scenario = said_loss(scenario, loss)
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    counts = {"seeds": seeds, "search_seeds": search_seeds, "candidates": candidates}
    for name, least in (("seeds", 1), ("search_seeds", 1), ("candidates", 2)):
        if counts[name] < least:
            raise ScenarioError(f"{name} = {counts[name]} is too few: use {least} or more")
    if not isinstance(space, Space):
        space = Space.of(space) if space else Space.default(scenario)
    wanted = Objective.parse(objective, reported(scenario.training).score)
    stage = on_stage or (lambda words: None)
    configured(scenario, model)
    stage("loading data")
    dataset = the_dataset(scenario, data)
    own = None if data is None else dataset
    learner = the_model(scenario, model, dataset)
    first = scenario.seed
    judged_by = tuple(range(first, first + search_seeds))
    fresh = tuple(range(first + search_seeds, first + search_seeds + seeds))
    with ExitStack() as stack:
        if out is not None:
            place = stack.enter_context(kept.held(out))
            if (place / RECORD).exists() and not resume:
                raise ScenarioError(
                    f"{place} holds a tuning; add --resume, or choose another --out"
                )
            asked = _asked(scenario, space, wanted, judged_by, fresh, learner.library)
            kept.begin(place / RECORD, asked, _other, grows=False)
        choose_by, report_on = halves(dataset)
        stage("pricing")
        pricing = Pricing(scenario, learner.parameters, dataset)
        offer = pricing.offer(
            space, candidates, lambda count: stage(f"pricing: {count:,} candidates")
        )
        if not offer.kept:
            raise InfeasibleError(
                f"none of {len(offer.dropped):,} candidates has a plan; of the scenario as it is: "
                f"{offer.dropped[0].reason}"
            )
        store = Cache(user_cache() / "tune" if cache is None else cache)
        store.require_usable()
        evaluations = 1 if wanted.target is None else _TO_TARGET
        judge = Judge(learner, choose_by, judged_by, store, evaluations=evaluations)
        steps = max(evaluations, _CURVE)
        reporter = Judge(learner, report_on, fresh, store, evaluations=steps)
        made = (tuner or (lambda kept: Halving(len(kept))))(offer.kept)
        search = _Search(pricing, offer, wanted, made, judge, reporter, on_progress)
        with interrupts() as interrupt:
            rungs = search.rungs(interrupt)
            winner, given = search.finals(interrupt)
            if interrupt.asked:
                raise KeyboardInterrupt
        found = Tuned(
            with_data(scenario, own),
            space,
            wanted,
            offer,
            rungs,
            judged_by,
            fresh,
            winner,
            given,
            judge.computed + reporter.computed,
            len(choose_by.y_test),
            learner.library,
            own,
            model is not None,
        )
        if out is not None:
            stage(f"writing {out}")
            write_tuning(found, place, code)
    return found


def write_tuning(found: Tuned, place: Path, code: kept.Paths) -> None:
    from joulemesh.views.tuning import render_tuning

    kept.write_asked(found, place, code)
    write_text(place / "best.toml", portable(found.best).to_toml())
    write_text(place / "candidates.csv", found.to_csv())
    asked = found.scenario, found.space, found.objective, found.seeds, found.fresh, found.library
    record = {**_asked(*asked), "found": found.summary()}
    kept.write_found(place / RECORD, record, partial(render_tuning, found), found.library)


def _asked(
    scenario: Scenario,
    space: Space,
    objective: Objective,
    seeds: Sequence[int],
    fresh: Sequence[int],
    library: str,
) -> dict[str, Any]:
    return {
        **record_of(asked(scenario), seeds, library),
        "fresh_seeds": list(fresh),
        "objective": str(objective),
        "space": space.to_dict(),
    }


def _other(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """In what the tuning of a folder is another one."""
    for name in ("objective", "space", "fresh_seeds"):
        if then.get(name) != now[name]:
            return f"{name} was {_short(then.get(name))} and is {_short(now[name])}"
    return difference(then, now)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
