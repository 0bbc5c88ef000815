"""Train a method at several seeds, or candidates of a tuning, and price what they did."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.ledger import Ledger
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.models.curves import column_names
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.study.identity import (
    contender_digest,
    data_digest,
    key_of,
    model_digest,
    record_of,
)
from joulemesh.study.record import Cache, Record
from joulemesh.training.checkpoint import BESIDE, Checkpoints
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.learner import (
    AnyLearner,
    DivergedError,
    Interrupt,
    Learner,
    Sink,
    State,
    TrainedChunk,
    interrupts,
    learner_of,
    one_by_one,
    train,
    train_seeds,
)
from joulemesh.training.prepare import partitions
from joulemesh.training.schedule import Members, Options, array_parts, digest
from joulemesh.training.tensors import Arrays
from joulemesh.training.trace import Trace

FloatArray = NDArray[np.float64]
_EVAL_SHARE = 0.08  # of the adaptive plan's training, which evaluation may add
_MOST_SHARE = 0.99
_SMALL_TEST = 1000  # samples; a test set up to this size is always evaluated whole


@dataclass(frozen=True)
class Learning:
    scenario: Scenario  # says how the data are shared out, and the settings of training
    model: Model | TorchModel  # what is trained
    dataset: Dataset  # what it is trained on


class Contest:
    """One method, ready to be trained."""

    def __init__(
        self,
        learning: Learning,
        contender: Contender,
        setting: Setting,
        folder: Path | None = None,
        keys: Mapping[int, str | None] | None = None,
        *,
        final_only: bool = False,
    ) -> None:
        self.learning, self.contender, self.setting = learning, contender, setting
        self.folder, self.keys, self.final_only = folder, dict(keys or {}), final_only
        self._unfinished = Unfinished(None)

    def train(
        self, seeds: Sequence[int], progress: Callable[[int, float], None]
    ) -> Iterator[tuple[int, Record]]:
        """Train all seeds together; if one diverges, the others once more without it."""
        with interrupts() as interrupt:
            once = partial(self._together, progress=progress, interrupt=interrupt)
            for seed, found in train_seeds(once, seeds):
                if isinstance(found, DivergedError):
                    yield seed, Record(diverged=found.iteration)
                else:
                    yield seed, found
            if interrupt.asked:  # in the last chunk: what it gave is kept first
                raise KeyboardInterrupt

    def _together(
        self,
        seeds: tuple[int, ...],
        progress: Callable[[int, float], None],
        interrupt: Interrupt,
    ) -> list[Record]:
        keys = [self.keys.get(seed) for seed in seeds]
        self._unfinished = unfinished = Unfinished.of(self.folder, keys)
        try:
            unfinished.train(self.learner(seeds), progress, interrupt)
        except DivergedError:
            unfinished.remove()
            raise
        return records_of(self.contender, unfinished.trace())

    def forget(self) -> None:
        self._unfinished.remove()

    def learner(self, seeds: tuple[int, ...]) -> AnyLearner:
        what, schedule = self.learning, self.contender.schedule
        samples = self.setting.work.round_samples
        return learner_of(
            what.model,
            what.dataset,
            partitions(what.scenario, what.dataset, seeds, samples),
            schedule,
            self.options(),
            seeds,
            own_exchange=self.contender.exchange,
        )

    def options(self) -> Options:
        """The scenario's settings, with evaluations that are fair between methods."""
        # All methods are evaluated on the same grids of joules and of seconds, and on the same
        # samples: curves can be compared, and programs of one shape share a compilation. The mean
        # model is evaluated on all test samples: the target is a share of a final accuracy on all
        # of them, and some of them may be harder than the rest by more than methods differ.
        training, schedule = self.learning.scenario.training, self.contender.schedule
        end = (schedule.iterations,)
        at = end if self.final_only else evaluations(self.setting, self.contender.reserve)
        test = len(self.learning.dataset.y_test)
        if test <= _SMALL_TEST:
            return Options.from_scenario(
                training, eval_at=at, eval_share=0.0, eval_device_samples=test
            )
        samples = self.setting.work.round_samples
        usual = self.setting.rounds * float(samples.sum()) * training.eval_every
        own = float((schedule.rounds * samples).sum()) / len(at)
        share = min(_EVAL_SHARE * usual / max(own, 1.0), _MOST_SHARE)
        return Options.from_scenario(training, eval_at=at, eval_share=share, eval_test_samples=test)


# When methods are evaluated: all of them at the same joules and at the same seconds. A curve rises
# early and fast, and methods differ in what an iteration costs by orders of magnitude: evaluated
# every so many iterations, one of them is seen for the first time when it has long passed what
# another is compared by. So there is one grid of joules and one of seconds, the same for every
# method: by a ratio from the first iteration on, evenly where even steps are finer than that ratio,
# up to the end of the adaptive plan, and by the ratio again beyond it. They depend on the scenario
# alone, so that another method in a comparison changes no other's evaluations.
RATIO = 2 ** (1 / 8)  # between neighbours of a grid: 9 %
_EVEN_FROM = math.ceil(1 / (RATIO - 1))  # steps, from which one step is less than the ratio


def grid(step: float, steps: int, low: float, high: float) -> FloatArray:
    start, end = step * min(_EVEN_FROM, steps), step * steps
    even = step * np.arange(min(_EVEN_FROM, steps), steps + 1)
    least = min(low, high)
    below = start * RATIO ** -np.arange(1.0, _ratios(start / least) + 1)[::-1]
    above = end * RATIO ** np.arange(1.0, _ratios(high / end) + 1)
    points = np.concatenate([below, even, above])
    return points[points <= high]


def _ratios(times: float) -> int:
    """How many ratios it takes to get so many times higher."""
    return max(0, math.ceil(math.log(times) / math.log(RATIO)))


def evaluations(setting: Setting, ledger: Ledger) -> tuple[int, ...]:
    n, every = ledger.iterations, setting.scenario.training.eval_every
    try:
        plan = setting.reference
        count, joules, seconds = plan.iterations, float(plan.spent_j.sum()), setting.clock_s
    except InfeasibleError:  # no plan to take the scale from: ratios of 1 J and 1 s
        count, joules, seconds = every, 1.0, 1.0
    chosen = {n}
    for total, each in ((joules, ledger.energy_j.sum(axis=1)), (seconds, ledger.seconds)):
        so_far = np.cumsum(each, dtype=np.float64)
        if not 0 < so_far[-1] < math.inf or total <= 0:  # what costs nothing has no grid
            continue
        low = float(so_far[so_far > 0][0])
        points = grid(total * every / count, max(1, count // every), low, float(so_far[-1]))
        chosen.update((np.searchsorted(so_far, points) + 1).tolist())
    return tuple(sorted(chosen))


class Accuracy:
    """A sink that tells how far training has come, with the latest accuracy or other score."""

    def __init__(self, listener: Callable[[int, float], None]) -> None:
        self._listener, self._latest = listener, math.nan

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        if len(chunk.trace.iteration):
            self._latest = float(chunk.trace.test_score[-1].mean())
        self._listener(chunk.completed, self._latest)


def records_of(contender: Contender, trace: Trace, *, samples: bool = True) -> list[Record]:
    """One record for each seed; its last evaluation, on all test samples, is the final one."""
    columns = (*column_names((), trace.score), *trace.own)
    curves = np.stack([np.asarray(trace.curve(name), np.float64) for name in columns])
    at, records = trace.iteration - 1, []
    rests_on = np.stack([trace.test_samples, trace.device_samples], axis=-1)
    for seed in range(curves.shape[2]):
        ledger = contender.ledger(trace.sent, seed)
        totals = [ledger.compute_j, ledger.exchange_j, ledger.server_j, ledger.bits]
        _, _, heard, idle = ledger.columns_j
        totals += [heard, idle] if heard.any() or idle.any() else []
        records.append(
            Record(
                trace.iteration,
                curves[:, :, seed].T,
                curves[:, -1, seed],
                _so_far(ledger.energy_j.sum(axis=1))[at],
                _so_far(ledger.seconds)[at],
                ledger.spent_j,
                np.array([float(column.sum()) for column in totals]),
                samples=rests_on[:, seed] if samples else np.zeros((0, 2), np.int64),
            )
        )
    return records


def _so_far(each: FloatArray) -> FloatArray:
    return np.cumsum(each, dtype=np.float64)


S = TypeVar("S", bound=State)

# A checkpoint is written after this long, and takes at most a twentieth of the time.
SAVE_EVERY_S = 2.0
_SHARE = 20
_REMEDY = "make room, or choose another --cache"


class Unfinished:
    """The newest checkpoint of one training and its evaluations so far."""

    # A sink. The end of a training is not kept here: its runs are.

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._checkpoints = None if folder is None else Checkpoints(folder, _REMEDY)
        self._before: Arrays = {}
        self._traces: list[Trace] = []
        self._saved_at, self._every_s = time.perf_counter(), SAVE_EVERY_S

    @classmethod
    def of(cls, folder: Path | None, keys: Sequence[str | None]) -> Unfinished:
        """That of the runs with these names; it keeps nothing of runs without one."""
        if folder is None or None in keys:
            return cls(None)
        return cls(folder / digest(str(key).encode() for key in keys))

    def train(
        self, learner: Learner[Any], progress: Callable[[int, float], None], interrupt: Interrupt
    ) -> None:
        """Train from where it was left, and tell how far it has come."""
        state = self.restore(learner)
        progress(0 if state is None else int(state.iteration), math.nan)
        sinks: list[Sink] = [self, Accuracy(progress)]
        train(learner, sinks, state=state, interrupt=interrupt)

    def restore(self, learner: Learner[S]) -> S | None:
        """The state to go on from; None if there is none that can be used."""
        if self._checkpoints is None:
            return None
        for iteration in reversed(self._checkpoints.saved()):
            with suppress(ScenarioError):  # damaged, or removed by a process that was faster
                state, beside = self._checkpoints.restore(learner, iteration)
                self._before = {name.removeprefix(BESIDE): a for name, a in beside.items()}
                return state
        return None

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Keep a chunk if it is time, or if none is to follow for now."""
        self._traces.append(chunk.trace)
        due = time.perf_counter() - self._saved_at >= self._every_s
        if chunk.finished or not (due or chunk.stopping):
            return
        begun = time.perf_counter()
        self._save(chunk)
        self._saved_at = time.perf_counter()
        self._every_s = max(SAVE_EVERY_S, _SHARE * (self._saved_at - begun))

    def _save(self, chunk: TrainedChunk[Any]) -> None:
        if self._checkpoints is None or self._folder is None:
            return
        arrays = self.trace().to_arrays()
        beside = {f"{BESIDE}{name}": array for name, array in arrays.items()}
        try:
            self._checkpoints.save(chunk.learner, chunk.state, beside)
        except ScenarioError:
            if self._folder.exists():
                raise
            # A process that was faster with the same training has removed it meanwhile.
            self._checkpoints.save(chunk.learner, chunk.state, beside)
        with suppress(OSError):
            self._checkpoints.drop(keep=(chunk.completed,))

    def trace(self) -> Trace:
        """All evaluations, those before it was taken up included."""
        if not self._before:
            return Trace.join(self._traces)
        before = Trace.from_arrays(self._before, like=self._traces[0])
        return Trace.join([before, *self._traces])

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


# Candidates that can share a program are trained in one: as members of the seed axis, each with its
# own learning rate and its own rounds. On a CPU rows are trained one after another in any case, so
# each candidate is a call of its own, and all of them use one compiled program.
# An accelerator waits for the compiler most of the time, since few batches share a program: there
# the programs of the next batch are compiled while one trains.
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
