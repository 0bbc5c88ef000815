"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from joulemesh.base.errors import InfeasibleError, ScenarioError, named_refusals
from joulemesh.base.files import (
    LOCK,
    MANIFEST,
    FolderLock,
    make_folder,
    read_json,
    sweep,
    user_cache,
    write_text,
)
from joulemesh.base.machine import collect_memory
from joulemesh.data.dataset import dataset_words
from joulemesh.data.load import device_names
from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.setting import account_of
from joulemesh.metrics import reported, score_metric
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Account
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Origin, Scenario
from joulemesh.study.folder import Pricing, RunFolder, trace_of
from joulemesh.study.identity import FOLDER as INPUTS
from joulemesh.study.identity import chosen_seeds, difference, keep_inputs, portable
from joulemesh.study.request import Progress, RunRequest
from joulemesh.study.result import (
    ADAPTIVE,
    Chunk,
    Metrics,
    Result,
    WorldRun,
    WorldsResult,
    cumulative,
    metrics,
    steps_per_round,
)
from joulemesh.study.runs import check_target
from joulemesh.training import hosts
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.learner import (
    AnyLearner,
    DivergedError,
    Learner,
    TrainedChunk,
    configured,
    interrupts,
    learner_of,
    train,
)
from joulemesh.training.prepare import (
    partitions,
    said_loss,
    the_dataset,
    the_model,
    with_data,
    with_outputs_noted,
)
from joulemesh.training.schedule import Options
from joulemesh.training.trace import Trace
from joulemesh.world.redraw import worlds_of

_MARK = "worlds.json"
_START = {"scenario.toml", INPUTS}

One = Callable[[int, RunRequest], Result]
"""(number of the world, its request) -> its run."""


class WorldsFolder:
    """The folder of a scenario's worlds."""

    # scenario.toml  inputs/  worlds.json   what is asked, and how many worlds; at the start
    # world-0/  world-1/ …                  the run folder of each world that can be carried out
    # summary.csv  summary.json             each world, and means with intervals; at the end

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def started(self) -> bool:
        return (self.path / _MARK).is_file()

    def request(self) -> RunRequest | None:
        """What the folder was begun for; None if it holds no worlds."""
        if not self.started:
            return None
        path = self.path / _MARK
        try:
            said = read_json(path)
            origins = {name: Origin.parse(text) for name, text in said["origins"].items()}
            scenario = Scenario.load(self.path / "scenario.toml").with_origins(origins)
            return RunRequest.read(scenario, {**said, "worlds": int(said["worlds"])})
        except ScenarioError:
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ScenarioError(
                f"{path} is damaged ({type(error).__name__}); restore it from a copy, or choose "
                "another --out"
            ) from None

    def take(self, wanted: RunRequest, stack: ExitStack) -> str:
        """Make the folder and hold it, or go on with the worlds in it."""
        stack.enter_context(FolderLock(make_folder(self.path, remedy="choose another --out")))
        sweep(self.path)
        inside = {entry.name for entry in self.path.iterdir()} - {LOCK}
        if MANIFEST in inside:
            raise ScenarioError(
                f"{self.path} holds a single run, not worlds; leave --worlds out to resume it, or "
                "choose another --out"
            )
        before = self.request()
        if inside and not (wanted.resume and (before or inside <= _START)):
            more = ", or add --resume to go on with the worlds in it" if before else ""
            raise ScenarioError(f"{self.path} exists and is not empty; choose another --out{more}")
        if before is None:
            keep_inputs(wanted.scenario, self.path)
            write_text(self.path / "scenario.toml", portable(wanted.scenario).to_toml())
        elif differs := difference(before.identity(), wanted.identity()):
            raise ScenarioError(
                f"the worlds in {self.path} are others: {differs}; resume them as they were "
                "started, or choose another --out"
            )
        said = {**wanted.kept(), "origins": wanted.origins()}
        write_text(self.path / _MARK, json.dumps(said, indent=1) + "\n")
        return ""

    def finish(self, result: WorldsResult) -> str:
        """Write what came of all worlds, as CSV and as JSON."""
        write_text(self.path / "summary.csv", result.to_csv())
        write_text(self.path / "summary.json", json.dumps(result.summary(), indent=1) + "\n")
        return ""


def over_worlds(request: RunRequest, one: One) -> WorldsResult:
    """Carry out a scenario in several worlds, one after another."""
    assert request.worlds is not None
    drawn = worlds_of(request.scenario, request.worlds, request.seeds)
    folder = None if request.out is None else WorldsFolder(request.out)
    done: list[WorldRun] = []
    with ExitStack() as stack:
        if folder is not None:
            hosts.on_leader(partial(folder.take, request, stack))
        for k, mine in enumerate(drawn):
            place = None if folder is None else folder.path / f"world-{k}"
            own = request.having(scenario=mine, worlds=None, out=place)
            try:
                found = one(k, own)
                # All worlds learn from the same data: one copy is enough.
                shared = next((w.result.dataset for w in done if w.result), found.dataset)
                done.append(WorldRun(mine.seed, replace(found, dataset=shared)))
            except InfeasibleError as error:
                done.append(WorldRun(mine.seed, None, "infeasible", str(error)))
            except DivergedError as error:
                done.append(WorldRun(mine.seed, None, "diverged", str(error)))
        result = WorldsResult(request.scenario, tuple(done))
        if folder is not None:
            hosts.on_leader(partial(folder.finish, result))
    return result


# Chunks shorter than this share a checkpoint.
SAVE_EVERY_S = 0.25


class Recorder:
    """A sink that does with every chunk what a run does: price it, keep it, and tell of it."""

    # Of several processes all save a checkpoint together, and the leader writes and tells.

    def __init__(
        self, job: Job, folder: RunFolder | None, setup_s: float, stage: Callable[[str], None]
    ) -> None:
        self._pricing, self._folder, self._stage = job.pricing, folder, stage
        self._steps = steps_per_round(job.scenario, job.learner.partitions)
        self._setup_s, self._leads = setup_s, hosts.leads()
        self._on_metrics = job.request.on_metrics if self._leads else None
        self._on_progress = job.request.on_progress if self._leads else None
        self._checkpoints = None if folder is None else Checkpoints(folder.checkpoint)
        self.chunks: list[Chunk] = []  # of this process
        self._pending: list[Trace] = []
        self._kept_chunks, self._saved_at = 0, 0.0
        self._first, self._score, self._trained_s = 0, math.nan, 0.0

    def resumed(self, iteration: int, before: Trace | None) -> None:
        """Go on after an iteration, with the evaluations before it."""
        self._first = iteration
        if before is not None and len(before.iteration):
            self._score = float(before.test_score[-1].mean())

    def __call__(self, chunk: TrainedChunk[Any]) -> None:
        """Price, keep and tell of a chunk."""
        rounds = chunk.learner.schedule.rounds[chunk.start : chunk.completed]
        steps = rounds.sum(axis=0, dtype=np.int64) * self._steps
        self.chunks.append(Chunk(chunk.completed, int(steps.sum()), chunk.wall_s))
        self._pricing(chunk)
        self._pending.append(chunk.trace)
        if self._folder is None or self._due(chunk):
            self._keep(chunk)
        if self._on_progress is not None:
            self._tell(chunk, self._on_progress)
        if chunk.finished or not chunk.stopping:
            chunk.learner.on_stage = self._stage
            self._stage("training")

    def _due(self, chunk: TrainedChunk[Any]) -> bool:
        # The leader's clock counts.
        late = time.perf_counter() - self._saved_at >= SAVE_EVERY_S
        (due,) = hosts.any_of(self._leads and late)
        return due or chunk.last

    def _keep(self, chunk: TrainedChunk[Any]) -> None:
        """Keep what is pending; evaluations are told once they are kept."""
        seeds = chunk.learner.seeds
        if self._checkpoints is not None:
            self._checkpoints.save(chunk.learner, chunk.state, self._pricing.beside())
            new = Trace.join(self._pending)
            hosts.on_leader(partial(self._commit, new, seeds, chunk.completed))
            self._saved_at = time.perf_counter()
        if self._on_metrics is not None:
            for trace in self._pending:
                for row in metrics(self._pricing.account, trace, seeds):
                    self._on_metrics(row)
        self._pending.clear()

    def _commit(self, new: Trace, seeds: tuple[int, ...], completed: int) -> str:
        assert self._folder is not None
        self._folder.add_metrics(self._pricing.account, new, seeds)
        first = self._kept_chunks == 0
        self._folder.add_timings(self._setup_s if first else 0.0, self.chunks[self._kept_chunks :])
        self._folder.keep(completed)
        self._kept_chunks = len(self.chunks)
        return ""

    def _tell(self, chunk: TrainedChunk[Any], listener: Callable[[Progress], None]) -> None:
        done, total = chunk.completed, chunk.iterations
        if len(chunk.trace.iteration):
            self._score = float(chunk.trace.test_score[-1].mean())
        self._trained_s += chunk.wall_s
        # At most, if joules depend on the training.
        energy_j = float(cumulative(self._pricing.reserve, np.array([done]))[0][0])
        left_s = self._trained_s / max(done - self._first, 1) * (total - done)
        label = score_metric(chunk.trace.score).label
        listener(Progress(done, total, self._score, energy_j, left_s, score=label))


@overload
def run(scenario: Scenario, *, worlds: None = None, **options: Any) -> Result: ...
@overload
def run(scenario: Scenario, *, worlds: int, **options: Any) -> WorldsResult: ...
def run(  # type: ignore[misc]  # names and types of the options are checked when it is called
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    worlds: int | None = None,
    method: str | None = None,
    equal: str | None = None,
    resume: bool = False,
    deterministic: bool = False,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Result | WorldsResult:
    """Train on all devices as the plan says, or as another method does.

    In a program of several processes (``jax.distributed``) all of them call this alike, and all
    get the result; process 0 alone writes, and calls ``on_progress``, ``on_metrics`` and
    ``on_stage``.

    Args:
        scenario: what is asked.
        model: the user's own, as a pair ``(init(key), apply(params, x))``, a Flax module, a PyTorch
            ``nn.Module`` (whose parameters every seed then begins with) or a class of such, or a
            ``joulemesh.models.Model``; the scenario's unless given.
        data: the user's own, as a ``Dataset``, the path of a file (``.csv``, ``.tsv``, ``.parquet``
            or ``.npz``), a pandas data frame with a column of labels, or a mapping or tuple of
            x_train, y_train, x_test, y_test; the scenario's unless given. ``[training]`` says how
            to read it (``label``, ``test_fraction``, ``partition``, ``normalize`` and so on).
        loss: what is minimised, in place of ``training.loss``: a name, a function of outputs and
            targets that gives one value per sample (of JAX arrays or, for a PyTorch module, of
            tensors), or a ``joulemesh.metrics.Loss``.
        out: a new folder to keep the run in.
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world, and run in one program.
        worlds: how many worlds to run in, one after another: the scenario's own, and others whose
            seeds are higher by whole millions. They redraw what is drawn from the scenario's seed:
            placement, batteries and other ranges, channel. The scenario's own alone unless given.
        method: what to run in place of the plan, for instance ``"fixed:3"`` or ``"d-psgd"``: any
            method of `joulemesh.compare`. Resumed, a run has the method that it was started with.
        equal: how long a method runs, as in `joulemesh.compare`.
        resume: go on with the run in ``out``, if there is one.
        deterministic: ask XLA for kernels that give the same bits in every run.
        target: accuracy, or other score, to which joules and seconds are reported; 95 % of the
            final accuracy unless given.
        on_progress: called after every chunk.
        on_metrics: called with a dict for every evaluation and seed, a row of ``metrics.csv``, once
            it is kept: a run that is stopped and resumed tells each of them once. Where
            ``worlds`` is given a row also has the number of its ``world``.
        on_stage: called with what is begun: ``"loading data"``, ``"planning"``, ``"compiling"``,
            ``"training"``, ``"evaluating"`` and ``"writing"``; and with ``"note: …"`` for what a
            user should know before training begins.

    Returns:
        The result; where ``worlds`` is given a `WorldsResult`, in which a world that cannot be
        planned, or in which training diverges, is named with the reason.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.iterations": 10})
    >>> result = joulemesh.run(scenario)
    >>> result.accuracy.shape, bool(result.energy_j[-1] <= result.plan.energy_budget_j.sum())
    ((2,), True)
    """
    given = {name: value for name, value in locals().items() if name != "loss"}
    given["scenario"] = said_loss(scenario, loss)
    request = RunRequest.of(**given)
    check_target(target, score_metric(reported(request.scenario.training).score))
    if worlds is None:
        return carry_out(request)

    def one(k: int, own: RunRequest) -> Result:
        if on_progress is not None:
            own = own.having(on_progress=lambda step: on_progress(replace(step, world=k)))
        if on_metrics is not None:
            own = own.having(on_metrics=lambda row: on_metrics({"world": k, **row}))
        return carry_out(own)

    return over_worlds(request, one)


def carry_out(request: RunRequest) -> Result:
    """Carry out a request in the scenario's own world."""
    begun = time.perf_counter()
    configured(request.scenario, request.model, user_cache() / "xla")
    stage = request.on_stage
    if stage is None or not hosts.leads():
        stage = _ignore
    job = prepare(_with_method(request), stage)
    stage("compiling")
    with ExitStack() as stack, hosts.losses_named():
        folder = job.open_folder(stack)
        result = _trained(job, folder, begun, stage)
        stage("writing")
        del job  # the room is for what is written of many devices
        collect_memory()
        hosts.on_leader(partial(_write, folder, result))
    return result


def _with_method(request: RunRequest) -> RunRequest:
    """The method to run in place of the plan and what is equal, as given or as a run was begun."""
    if request.resume and request.out is not None:
        left = hosts.on_leader(partial(left_in, request.out))
        request = request.resumed(RunRequest.from_text(left) if left else None)
    method = request.method
    if method is None or method.strip() == ADAPTIVE:
        if request.equal is not None and method is None:
            raise ScenarioError(
                f"equal = {request.equal!r} needs a method: give one, such as fixed:3, or leave it "
                "out"
            )
        return request.having(method=None, equal=None)
    return request.having(method=method.strip())


def left_in(out: Path) -> str:
    """What the run or the worlds in a folder were asked to do, as text; empty of a new folder."""
    left = WorldsFolder(out).request() or RunFolder(out).request()
    return "" if left is None else left.to_text()


def _ignore(stage: str) -> None:
    """Default `on_stage`."""


def _trained(
    job: Job, folder: RunFolder | None, begun: float, stage: Callable[[str], None]
) -> Result:
    state, before = job.resume_or_begin(folder)
    setup_s = time.perf_counter() - begun
    collect_memory()
    recorder = Recorder(job, folder, setup_s, stage)
    recorder.resumed(int(state.iteration), before)
    learner = job.learner
    with interrupts() as interrupt:
        state, traces = train(learner, [recorder], state=state, interrupt=interrupt)
    collect_memory()
    if before is not None:  # what was sent before is not among the evaluations that are kept
        traces = [before, *(replace(trace, sent=()) for trace in traces)]
    return Result(
        job.pricing.account,
        Trace.join(traces),
        learner.mean_params(state),
        learner.seeds,
        learner.dataset,
        learner.partitions,
        setup_s,
        tuple(recorder.chunks),
        learner.model.name,
        job.request.model is not None,
        job.request.target,
        job.request.method or ADAPTIVE,
        learner.model.library,
    )


def _write(folder: RunFolder | None, result: Result) -> str:
    if folder is not None and not folder.finished:
        folder.finish(result)
    return ""


@dataclass(frozen=True, eq=False)
class Job:
    """A scenario made ready to be carried out."""

    pricing: Pricing  # what joules and seconds come from
    learner: AnyLearner  # what trains
    request: RunRequest  # what it is asked to do, with what is equal, if it is a method's, decided

    @property
    def scenario(self) -> Scenario:
        return self.pricing.reserve.scenario

    def open_folder(self, stack: ExitStack) -> RunFolder | None:
        """Make the run's folder, or look at the run in it; it is held until the stack ends."""
        out, resume = self.request.out, self.request.resume
        if out is None and resume:
            raise ScenarioError("resume needs the run's folder: give out (--out DIR)")
        if not hosts.alone():
            asked = f"{self.scenario.to_toml()} {self.request.kept()} {out is None} {resume}"
            wanted = f"{self.learner.digest()} {asked}"
            hosts.same(hashlib.sha256(wanted.encode()).hexdigest(), "scenario, data or option")
        if out is None:
            return None
        folder = RunFolder(out)
        hosts.on_leader(partial(self._open, folder, stack))
        return folder

    def _open(self, folder: RunFolder, stack: ExitStack) -> str:
        stack.enter_context(folder.held(resume=self.request.resume))
        learner = self.learner
        learned = {"dataset": dataset_words(learner.dataset.name), "model": learner.model.name}
        # Everything that decides the bits, as plain values.
        start = self.request.record(learner.model.library, learner.identity())
        start["learned"] = learned
        if not folder.started:
            held, own = learner.partitions[0], self.request.model is not None
            folder.begin(self.pricing.reserve, start, learner.dataset, held, own_model=own)
            return ""
        folder.require_start(start)
        if folder.finished:
            folder.refuse_damage(remedy="restore it from a copy, or run the scenario again")
        else:
            folder.take_up()
        return ""

    def resume_or_begin(self, folder: RunFolder | None) -> tuple[Any, Trace | None]:
        """The state that the run in a folder was left in and its evaluations, or the beginning."""
        done = 0
        if folder is not None:
            done = int(hosts.on_leader(lambda: str(folder.completed)))
        if folder is None or done == 0:
            return self.learner.begin(), None
        learner: Learner[Any] = self.learner
        state, beside = Checkpoints(folder.checkpoint).restore(learner, done)
        self.pricing.restore(beside)
        if done == self.learner.schedule.iterations and hosts.leads():
            self.pricing.settled(folder.account())
        text = hosts.on_leader(folder.metrics_text)
        wide = self.learner.options.precision == "float64"
        score = reported(self.scenario.training).score
        return state, trace_of(text, self.learner.seeds, np.float64 if wide else np.float32, score)


def prepare(request: RunRequest, on_stage: Callable[[str], None] = _ignore) -> Job:
    """Load, plan and place what a run trains."""
    with named_refusals(lambda: device_names(request.scenario)):
        return _prepared(request, on_stage)


def _prepared(request: RunRequest, on_stage: Callable[[str], None]) -> Job:
    scenario, model, data = request.scenario, request.model, request.data
    on_stage("loading data")
    dataset = the_dataset(scenario, data)
    scenario = with_data(scenario, data)
    learned = the_model(scenario, model, dataset)
    before = len(dataset.notes)
    dataset = with_outputs_noted(scenario, learned, model, dataset)
    for note in dataset.notes[before:]:
        on_stage(f"note: {note}")
    on_stage("planning")
    chosen = chosen_seeds(scenario, request.seeds)
    equal = request.equal
    if request.method is None:
        plan = carried_out(make_plan(scenario, parameters=learned.parameters, data=dataset))
        pricing, schedule, exchange = Pricing(plan), schedule_of(plan), None
        samples = plan.work.round_samples
    else:
        setting = Setting(scenario, equal, chosen, model=learned, data=dataset)
        contender = build(request.method, setting)
        pricing, equal = _priced(setting, contender), setting.equal
        schedule, exchange = contender.schedule, contender.exchange
        samples = setting.work.round_samples
    collect_memory()  # planning many devices leaves holes, as does placing them
    parts = partitions(scenario, dataset, chosen, samples)
    options = Options.from_scenario(scenario.training, deterministic=request.deterministic)
    learner = learner_of(learned, dataset, parts, schedule, options, chosen, own_exchange=exchange)
    return Job(pricing, learner, request.having(scenario=scenario, seeds=chosen, equal=equal))


def _priced(setting: Setting, contender: Contender) -> Pricing:
    """The price of a method: that of its plan if it has one, or settled by what was sent."""
    if contender.plan is not None:
        return Pricing(contender.plan)
    if contender.settle is None:
        return Pricing(account_of(setting, contender))
    count = len(setting.seeds)

    def settle(sent: Any) -> Account:
        ledgers = [contender.ledger(sent, seed) for seed in range(count)]
        return account_of(setting, contender, ledgers)

    return Pricing(account_of(setting, contender), settle)
