"""Train candidates with a share of the budget, and keep every run by what decides its numbers.

Candidates that can share a program are trained in one: as members of the seed axis, each with its
own learning rate and its own rounds. On a CPU rows are trained one after another in any case, so
each candidate is a call of its own, and all of them use one compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.methods import Contender
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.plan import Plan
from joulemesh.study.contest import Unfinished, records_of
from joulemesh.study.identity import (
    contender_digest,
    data_digest,
    key_of,
    model_digest,
    record_of,
)
from joulemesh.study.record import Cache, Record
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.learner import (
    AnyLearner,
    Interrupt,
    Learner,
    learner_of,
    one_by_one,
)
from joulemesh.training.prepare import partitions
from joulemesh.training.schedule import Members, Options, array_parts, digest
from joulemesh.training.trace import Trace

_ROWS = 2048  # devices × seeds × candidates in one program, on an accelerator
_LEAST_TEST = 20  # samples in each half


def halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """The data with every other test sample: one half to choose by, the other to report on."""
    # A figure on the samples by which a candidate was chosen would flatter it.
    count = len(dataset.y_test) // 2
    if count < _LEAST_TEST:
        raise ScenarioError(
            f"{len(dataset.y_test)} test samples are too few to choose by one half and report on "
            f"the other: give {2 * _LEAST_TEST} or more"
        )
    x, y = dataset.x_test, dataset.y_test
    choose, report = (
        replace(dataset, x_test=np.ascontiguousarray(x[k::2][:count]), y_test=y[k::2][:count])
        for k in (0, 1)
    )
    return choose, report


@dataclass(frozen=True, eq=False)
class Job:
    """One candidate to be trained with a share of the budget."""

    number: int  # of the candidate
    plan: Plan  # its plan within the share

    @cached_property
    def contender(self) -> Contender:
        plan = self.plan
        ledger, schedule = plan.ledger, schedule_of(plan)
        return Contender("tune", schedule, None, ledger, plan.supplied_j, plan=plan)


class Judge:
    """Trains candidates on one model and one half of the test samples."""

    def __init__(
        self,
        model: Model | TorchModel,
        dataset: Dataset,
        seeds: Sequence[int],
        store: Cache,
        *,
        evaluations: int = 1,
        together: int | None = None,
    ) -> None:
        self.model, self.dataset, self.seeds = model, dataset, tuple(seeds)
        self.store, self.evaluations, self._together = store, evaluations, together
        self.computed = 0
        self._shares: dict[bytes, tuple[Partition, ...]] = {}
        self._learned = data_digest(dataset) + model_digest(model, dataset)

    def runs(
        self,
        jobs: Sequence[Job],
        interrupt: Interrupt,
        on_chunk: Callable[[Sequence[Job], int, int], None],
    ) -> Iterator[tuple[Job, list[Record]]]:
        """Train jobs, those that can be in one program together, unless their runs are kept."""
        found = [(batch, *self._found(batch)) for batch in self._batches(jobs)]
        each = len(self.seeds)
        for batch, keys, kept in found:
            runs = kept
            if runs is None:  # all of a program are trained, so that its bits are the same again
                runs = self._train(batch, self._engine(batch), keys, interrupt, on_chunk)
                self.computed += len(runs)
            for k, job in enumerate(batch):
                yield job, runs[k * each : (k + 1) * each]

    def _found(self, batch: Sequence[Job]) -> tuple[list[str | None], list[Record] | None]:
        """The names under which a batch's runs are kept, and the runs if all of them are."""
        keys = [self._key(job, seed) for job in batch for seed in self.seeds]
        kept = [record for key in keys if (record := self.store.find(key)) is not None]
        return keys, kept if len(kept) == len(keys) else None

    def _batches(self, jobs: Sequence[Job]) -> Iterator[list[Job]]:
        """Jobs that are trained in one program."""
        groups: dict[object, list[Job]] = {}
        for job in jobs:
            groups.setdefault(self._program(job), []).append(job)
        for group in groups.values():
            together = self._together or self._fitting(group[0])
            for first in range(0, len(group), together):
                yield group[first : first + together]

    def _fitting(self, job: Job) -> int:
        if one_by_one(self.model):
            return 1
        return max(1, _ROWS // (len(job.plan.energy_budget_j) * len(self.seeds)))

    def _program(self, job: Job) -> object:
        """What jobs must have in common to be members of one program."""
        training, schedule = job.plan.scenario.training, job.contender.schedule
        how = training.model_dump(exclude={"learning_rate"}).values()
        alike = training.optimizer == "sgd" and Members.alike(schedule)
        # Where all devices end every iteration with the exact mean, a member that has come to its
        # end stays as it is; any other exchange would go on mixing.
        return (repr(tuple(how)), alike or Members.mixing_digest(schedule))

    def options(self, job: Job) -> Options:
        """The scenario's settings, with evaluations at even steps, on all test samples."""
        n = job.plan.iterations
        at = np.unique(np.ceil(np.arange(1, self.evaluations + 1) * n / self.evaluations))
        return Options.from_scenario(
            job.plan.scenario.training, eval_at=tuple(at.astype(int).tolist()), eval_share=0.0
        )

    def _key(self, job: Job, seed: int) -> str | None:
        """The name under which a run is kept."""
        done = contender_digest(job.contender)
        if done is None:
            return None
        held = self._held(job)[self.seeds.index(seed)]
        parts = array_parts(held.order.astype(np.int32), held.offsets)
        terms = {"together": self.seeds, "options": repr(self.options(job))}
        fields = {"training.weights": job.plan.scenario.training.weights}
        digests = {"learned": self._learned, "method": done, "partition": digest(parts)}
        return key_of(record_of(fields, [seed], self.model.library, digests, **terms))

    def _held(self, job: Job) -> tuple[Partition, ...]:
        """Who holds which samples at every seed; only the size of a round may change that."""
        samples = job.plan.work.round_samples
        key = samples.tobytes()
        if key not in self._shares:
            held = partitions(job.plan.scenario, self.dataset, self.seeds, samples)
            self._shares[key] = held
        return self._shares[key]

    def _train(
        self,
        batch: Sequence[Job],
        engine: Learner[Any],
        keys: Sequence[str | None],
        interrupt: Interrupt,
        on_chunk: Callable[[Sequence[Job], int, int], None],
    ) -> list[Record]:
        unfinished = Unfinished.of(self.store.unfinished, keys)
        n = engine.schedule.iterations
        unfinished.train(engine, lambda done, score: on_chunk(batch, done, n), interrupt)
        records = self._records(batch, unfinished.trace())
        for key, record in zip(keys, records, strict=True):
            self.store.keep(key, record)
        unfinished.remove()
        return records

    def _engine(self, batch: Sequence[Job]) -> AnyLearner:
        options = [self.options(job) for job in batch]
        members = Members.of(
            [job.contender.schedule for job in batch],
            [one.learning_rate for one in options],
            len(self.seeds),
        )
        at = sorted({t for one in options for t in one.eval_at})
        return learner_of(
            self.model,
            self.dataset,
            [held for job in batch for held in self._held(job)],
            members,
            replace(options[0], eval_at=tuple(at)),
            [seed for _ in batch for seed in self.seeds],
        )

    def _records(self, batch: Sequence[Job], trace: Trace) -> list[Record]:
        """The runs of every job, at its own evaluations."""
        each = len(self.seeds)
        found: list[Record] = []
        for k, job in enumerate(batch):
            mine = trace.part(
                np.isin(trace.iteration, self.options(job).eval_at),
                slice(k * each, (k + 1) * each),
            )
            found += map(_checked, records_of(job.contender, mine, samples=False))
        return found


def _checked(record: Record) -> Record:
    """The run, or that it diverged: the first evaluation at which the loss was not finite."""
    good = np.isfinite(record.curves[:, 1])
    if good.all():
        return record
    return Record(diverged=max(1, int(record.iteration[np.argmin(good)])))
