"""Find the best plan: enumerate, price, drop, halve, and report the winner on fresh seeds."""

from __future__ import annotations

__all__ = ["CANDIDATES", "Progress", "tune_scenario"]

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.cache import user_cache
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.metrics import reported
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study.halving import Halving, Trial, Tuner
from joulemesh.study.learn import Job, Judge, halves
from joulemesh.study.objective import SCORE, Objective, Score, final_scores
from joulemesh.study.pricing import Candidate, Offer, Priced, Pricing
from joulemesh.study.record import Cache, Record
from joulemesh.study.space import Space
from joulemesh.study.target import chance_note
from joulemesh.study.tuning import Final, Judged, Rung, Tuning
from joulemesh.training.driver import Interrupt, interrupts
from joulemesh.training.learners import configured
from joulemesh.training.prepare import the_dataset, the_model

CANDIDATES = 45
"""To be trained, at most, unless told otherwise."""
_TO_TARGET = 24  # evaluations of a run where the price of a target is asked for
_CURVE = 12  # evaluations of the winner, at the least

OnProgress = Callable[["Progress"], None]
MakeTuner = Callable[[Sequence[Priced]], Tuner]


@dataclass(frozen=True)
class Progress:
    """How far tuning has come.

    Attributes:
        stage: what is being done: ``"rung 1 of 3"``, ``"fresh seeds"``.
        position: candidates of the stage that are done.
        count: candidates of the stage, as far as known.
        share: of all work that is done.
        best: the best candidate so far and its score; empty before any.
        judged: how candidates have done so far: the rung (from 0), the name, and the figures of
            each.
    """

    stage: str
    position: int
    count: int
    share: float
    best: str = ""
    judged: tuple[tuple[int, str, Judged], ...] = ()


def tune_scenario(
    scenario: Scenario,
    space: Space | Mapping[str, Any] | None = None,
    objective: str | Objective = SCORE,
    *,
    seeds: int = 5,
    search_seeds: int = 3,
    candidates: int = CANDIDATES,
    model: Any = None,
    data: Any = None,
    cache: str | Path | None = None,
    tuner: MakeTuner | None = None,
    on_progress: OnProgress | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Tuning:
    """Find the best plan; arguments and behaviour are those of `joulemesh.tune`."""
    by = reported(scenario.training).score
    wanted = Objective.parse(objective, by) if isinstance(objective, str) else objective
    counts = {"seeds": seeds, "search_seeds": search_seeds, "candidates": candidates}
    for name, least in (("seeds", 1), ("search_seeds", 1), ("candidates", 2)):
        if counts[name] < least:
            raise ScenarioError(f"{name} = {counts[name]} is too few: use {least} or more")
    axes = _space(scenario, space)
    stage = on_stage or (lambda words: None)
    configured(scenario, model)
    stage("loading data")
    dataset = the_dataset(scenario, data)
    learner = the_model(scenario, model, dataset)
    choose_by, report_on = halves(dataset)
    stage("pricing")
    pricing = Pricing(scenario, learner.parameters, dataset)
    offer = _offer(pricing, axes, candidates, stage)
    store = Cache(user_cache() / "tune" if cache is None else cache)
    store.require_usable()
    evaluations = 1 if wanted.target is None else _TO_TARGET
    first = scenario.seed
    judged_by = tuple(range(first, first + search_seeds))
    fresh = tuple(range(first + search_seeds, first + search_seeds + seeds))
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
    computed = judge.computed + reporter.computed
    tested = len(choose_by.y_test)
    return Tuning(
        scenario, axes, wanted, offer, rungs, judged_by, fresh, winner, given, computed, tested,
        learner.library,
    )  # fmt: skip


def _space(scenario: Scenario, space: Space | Mapping[str, Any] | None) -> Space:
    if space is None:
        return Space.default(scenario)
    return space if isinstance(space, Space) else Space.of(space)


def _offer(pricing: Pricing, space: Space, most: int, stage: Callable[[str], None]) -> Offer:
    offer = pricing.offer(space, most, lambda count: stage(f"pricing: {count:,} candidates"))
    if not offer.kept:
        first = offer.dropped[0]
        raise InfeasibleError(
            f"none of {len(offer.dropped):,} candidates has a plan; of the scenario as it is: "
            f"{first.reason}"
        )
    return offer


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
