"""Train the curves of a figure: all seeds of a curve in one program, each run kept by content.

Accuracy along a curve is measured on the whole test set, so that its last point is the final one.
Curves with another number of devices share one program: they are padded with devices that never
take part (`jobs.pad`).
"""

from __future__ import annotations

__all__ = ["Runner", "Step"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.errors import JoulemeshError
from joulemesh.data import Dataset
from joulemesh.metrics import reported
from joulemesh.models.core import Model
from joulemesh.scenario import Scenario
from joulemesh.study.contest import Accuracy, records_of
from joulemesh.study.identity import (
    contender_digest,
    data_digest,
    key_of,
    model_digest,
    record_of,
)
from joulemesh.study.record import Cache, Entry, Record, entry_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.platform import configure
from joulemesh.training.learner import (
    DivergedError,
    Interrupt,
    Sink,
    TrainedChunk,
    interrupts,
    train,
    train_seeds,
)
from joulemesh.training.prepare import partitions, the_dataset, the_jax_model
from joulemesh.training.schedule import Options
from joulemesh.training.trace import Trace
from yan_li_2024.clock import Account, Chunk, compilations
from yan_li_2024.jobs import Job, pad

_TERMS = "reproduce-1"  # in every key: how runs are evaluated here


@dataclass(frozen=True)
class Step:
    """How far a figure has come: the curve at work, its number, iterations, accuracy, joules."""

    label: str
    position: int
    curves: int
    completed: int
    iterations: int
    accuracy: float
    energy_j: float = math.nan


class Runner:
    """Trains curves, and keeps what it has trained.

    Args:
        seeds: repetition seeds.
        data_dir: folder with the data sets' published files.
        cache: folder of runs; the user's cache folder unless given.
        on_step: called as a curve is trained.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        data_dir: str | Path | None = None,
        cache: str | Path | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        self.seeds = tuple(seeds)
        self.account = Account()
        self._data_dir, self._cache, self.on_step = data_dir, Cache(cache), on_step
        self._cache.require_usable()
        self._data: dict[str, Dataset | JoulemeshError] = {}
        self._digests: dict[tuple[str, Model], str] = {}
        configure()

    def data(self, scenario: Scenario) -> Dataset:
        """The scenario's data; what could not be had is not tried again."""
        name = scenario.training.dataset
        if name not in self._data:
            where = None if self._data_dir is None else str(self._data_dir)
            try:
                self._data[name] = the_dataset(scenario.override({"training.data_dir": where}))
            except JoulemeshError as error:
                self._data[name] = error
        found = self._data[name]
        if isinstance(found, JoulemeshError):
            raise found
        return found

    def train(self, jobs: Sequence[Job]) -> dict[str, Entry]:
        """Train every curve at every seed, unless that has been done before.

        Args:
            jobs: the curves, labels all different.

        Returns:
            By label; a diverged seed's figures are NaN.
        """
        for job in jobs:
            self.data(job.scenario)  # missing data must not cost an hour first
        return {job.label: self._entry(job, number, len(jobs)) for number, job in enumerate(jobs)}

    def _entry(self, job: Job, number: int, jobs: int) -> Entry:
        dataset = self.data(job.scenario)
        model = the_jax_model(job.scenario, None, dataset)
        learned = self._digest(dataset, model)
        keys = {seed: _key(job, learned, seed) for seed in self.seeds}
        records = {seed: self._cache.find(key) for seed, key in keys.items()}
        missing = tuple(seed for seed, record in records.items() if record is None)
        self.account.cached += len(self.seeds) - len(missing)

        spent_j = np.append(0.0, np.cumsum(job.contender.reserve.energy_j.sum(axis=1)))

        def tell(completed: int, accuracy: float) -> None:
            if self.on_step is not None:
                n, paid = job.contender.schedule.iterations, float(spent_j[completed])
                self.on_step(Step(job.label, number, jobs, completed, n, accuracy, paid))

        if missing:
            with interrupts() as interrupt:
                new = self._run(job, model, dataset, missing, tell, interrupt)
                for seed, record in new.items():
                    self._cache.keep(keys[seed], record)
                if interrupt.asked:  # in the last chunk: what it gave is kept first
                    raise KeyboardInterrupt
            records |= new
            self.account.computed += len(missing)
        found = {seed: record for seed, record in records.items() if record is not None}
        tell(job.contender.schedule.iterations, float("nan"))
        return entry_of(
            job.label,
            found,
            job.contender.battery_j,
            job.contender.notes,
            reported(job.scenario.training),
        )

    def _digest(self, dataset: Dataset, model: Model) -> str:
        key = (dataset.name, model)
        if key not in self._digests:
            self._digests[key] = data_digest(dataset) + model_digest(model, dataset)
        return self._digests[key]

    def _run(
        self,
        job: Job,
        model: Model,
        dataset: Dataset,
        seeds: tuple[int, ...],
        tell: Callable[[int, float], None],
        interrupt: Interrupt,
    ) -> dict[int, Record]:
        """Train seeds together; for one that diverges another stands in."""
        once = partial(self._together, job, model, dataset, tell, interrupt)
        return {
            seed: Record(diverged=found.iteration) if isinstance(found, DivergedError) else found
            for seed, found in train_seeds(once, seeds, stand_ins=True)
        }

    def _together(
        self,
        job: Job,
        model: Model,
        dataset: Dataset,
        tell: Callable[[int, float], None],
        interrupt: Interrupt,
        seeds: tuple[int, ...],
    ) -> list[Record]:
        engine = self._engine(job, model, dataset, seeds)
        tell(0, math.nan)
        state = engine.begin()
        sinks: list[Sink] = [_Charge(self.account, engine), Accuracy(tell)]
        _, traces = train(engine, sinks, state=state, interrupt=interrupt)
        return records_of(job.contender, Trace.join(traces), samples=False)

    def _engine(self, job: Job, model: Model, dataset: Dataset, seeds: tuple[int, ...]) -> Engine:
        scenario, count = job.scenario, job.scenario.devices.count
        held = partitions(scenario, dataset, seeds, np.ones(count))
        if job.padded_to > count:
            least = -(-len(dataset.y_test) // job.padded_to)  # as many as training losses look at
            length = len(dataset.y_train) + job.padded_to * least
            held = tuple(pad(one, job.padded_to, least, length) for one in held)
        return Engine(
            model,
            dataset,
            held,
            job.contender.schedule,
            Options.from_scenario(scenario.training, eval_share=0.0),
            seeds,
            own_exchange=job.contender.exchange,
        )


def _key(job: Job, learned: str, seed: int) -> str:
    """The name under which a run is kept: a digest of all that decides its numbers."""
    # Where the data lie does not matter: the samples themselves are in ``learned``.
    asked = job.scenario.model_dump(mode="json", exclude={"training": {"data_dir", "dataset"}})
    terms = {"method": job.contender.name, "padded_to": job.padded_to, "terms": _TERMS}
    digests = {"learned": learned, "method": contender_digest(job.contender)}
    return key_of(record_of(asked, [seed], "jax", digests, **terms))


class _Charge:
    """A sink that enters every chunk into the account.

    Args:
        account: where the time goes.
        engine: that is trained.
    """

    def __init__(self, account: Account, engine: Engine) -> None:
        self._account, self._engine = account, engine
        self._compiling_s = compilations().seconds

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Enter one chunk; time spent compiling is counted by itself."""
        compiling_s, engine = compilations().seconds, self._engine
        seconds = chunk.wall_s - (compiling_s - self._compiling_s)
        self._compiling_s = compiling_s
        rounds, seeds = engine.schedule.rounds[chunk.start : chunk.completed], len(engine.seeds)
        steps = int(rounds.sum()) * seeds
        # All rows of an accelerator take as many steps as the longest.
        together = int(rounds.max(axis=1).sum()) * rounds.shape[1] * seeds
        work = float(steps if engine.key.loop else together)
        self._account.device_steps += steps
        self._account.charge(Chunk(engine.key, work, len(chunk.trace.iteration), max(seconds, 0.0)))
